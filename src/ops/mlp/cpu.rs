//! Passes on the CPU.

use super::Mlp;
use crate::dropout::cpu::mask_chunk;
use crate::linear::cpu::MAX_TASKS;
use crate::pointwise::cpu::values;
use crate::pointwise::Gelu;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::gemm::{product, product_by, Right, View};
use crate::runtime::lanes::{add_to_rows, blank, sum_parts, sum_rows};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// Rows of the hidden layer that exist at one time on a thread.
const ROWS: usize = 256;

impl CpuOp for Mlp {
    /// Saves the pre-activation of the hidden layer: that is cheaper than repeating the product.
    fn forward<F: Float>(&self, Forward { ins, tracked }: Forward<F>) -> Vec<Vec<F>> {
        let (block, wide) = (ROWS * self.inner, ROWS * self.hidden);
        let weights = [(1, self.inner), (3, self.hidden)].map(|(i, columns)| Right::of(View::new(ins[i], columns).t()));
        let biases = [ins[2], ins[4]];
        let mut y = zeros(self.rows() * self.out);
        let scratch = || vec![blank::<F>(); wide];
        let blocks = y.chunks_mut(ROWS * self.out).zip(ins[0].chunks(block)).enumerate();
        if !tracked {
            blocks.in_parallel_with(
                || [scratch(), scratch()],
                |[z, a], (i, (y, x))| {
                    let size = x.len() / self.inner * self.hidden;
                    let written = [&mut z[..size], &mut a[..size], y];
                    self.forward_rows(i * ROWS, x, &weights, biases, written);
                },
            );
            return vec![y];
        }
        let mut z = vec![blank::<F>(); self.rows() * self.hidden];
        blocks.zip(z.chunks_mut(wide)).in_parallel_with(scratch, |a, ((i, (y, x)), z)| {
            let a = &mut a[..z.len()];
            self.forward_rows(i * ROWS, x, &weights, biases, [z, a, y]);
        });
        vec![y, z]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, z, gy) = (call.ins[0], &call.saved[0], call.only().grad);
        let (inner, hidden, out, task) = (self.inner, self.hidden, self.out, self.task());
        let parts = self.rows().div_ceil(task);
        let sizes = [1, 2, 3, 4].map(|i| call.ins[i].len());
        let mut sums = sizes.map(|size| zeros(parts * size));
        let [gw1, gb1, gw2, gb2] = &mut sums;
        let mut gx = zeros(x.len());
        let first = gw1.chunks_mut(sizes[0]).zip(gb1.chunks_mut(sizes[1]));
        let second = gw2.chunks_mut(sizes[2]).zip(gb2.chunks_mut(sizes[3]));
        let reads = x.chunks(task * inner).zip(z.chunks(task * hidden));
        let grads = gx.chunks_mut(task * inner).zip(gy.chunks(task * out));
        let weights = [(1, inner), (3, hidden)].map(|(i, columns)| Right::of(View::new(call.ins[i], columns)));
        first.zip(second).zip(reads.zip(grads)).enumerate().in_parallel(
            |(i, (((gw1, gb1), (gw2, gb2)), ((x, z), (gx, gy))))| {
                let sizes = [hidden, hidden, self.masks[1].map_or(0, |_| out)];
                let mut scratch = sizes.map(|width| vec![blank::<F>(); ROWS * width]);
                let reads = x.chunks(ROWS * inner).zip(gy.chunks(ROWS * out));
                let blocks = gx.chunks_mut(ROWS * inner).zip(z.chunks(ROWS * hidden));
                for (j, ((gx, z), (x, gy))) in blocks.zip(reads).enumerate() {
                    let [a, slopes, masked] = &mut scratch;
                    let masked_size = masked.len().min(gy.len());
                    let scratch = [&mut a[..z.len()], &mut slopes[..z.len()], &mut masked[..masked_size]];
                    let grads = [&mut *gw1, &mut *gb1, &mut *gw2, &mut *gb2];
                    let first = i * task + j * ROWS;
                    self.backward_rows(first, [x, z, gy], &weights, scratch, gx, grads);
                }
            },
        );
        let mut grads = vec![gx];
        grads.extend(sums.iter().zip(sizes).map(|(sum, size)| sum_parts(sum, size)));
        grads
    }
}

impl Mlp {
    /// Rows per task of the backward pass: a function of the sizes alone.
    fn task(&self) -> usize {
        self.rows().div_ceil(MAX_TASKS).next_multiple_of(ROWS)
    }

    /// Computes, for the rows from `first` on, `z`, the pre-activation of the hidden layer, and
    /// `y`, the result; `a` is scratch memory.
    fn forward_rows<F: Float>(
        &self,
        first: usize,
        x: &[F],
        [w1, w2]: &[Right<F>; 2],
        [b1, b2]: [&[F]; 2],
        [z, a, y]: [&mut [F]; 3],
    ) {
        let (inner, hidden) = (self.inner, self.hidden);
        product_by(z, hidden, View::new(x, inner), w1, false);
        add_to_rows(z, b1);
        values::<Gelu, F>(z, a);
        self.drop(0, first, a);
        product_by(y, self.out, View::new(a, hidden), w2, false);
        add_to_rows(y, b2);
        self.drop(1, first, y);
    }

    /// Adds the gradients of the rows from `first` on to `grads` (of w1, b1, w2, b2) and writes
    /// that of x; `masked` is scratch memory for the gradient of the result times its mask.
    fn backward_rows<F: Float>(
        &self,
        first: usize,
        [x, z, gy]: [&[F]; 3],
        [w1, w2]: &[Right<F>; 2],
        [a, slopes, masked]: [&mut [F]; 3],
        gx: &mut [F],
        [gw1, gb1, gw2, gb2]: [&mut [F]; 4],
    ) {
        let (inner, hidden, out) = (self.inner, self.hidden, self.out);
        a.fill(F::one());
        self.drop(0, first, a);
        multiply_gelu_with_slope(z, a, slopes);
        let gy = if self.masks[1].is_some() {
            masked.copy_from_slice(gy);
            self.drop(1, first, masked);
            masked
        } else {
            gy
        };
        let gy_rows = View::new(gy, out);
        product(gw2, hidden, gy_rows.t(), View::new(a, hidden), true);
        sum_rows(gy, gb2);
        let gz = a; // its values have been used
        product_by(gz, hidden, gy_rows, w2, false);
        multiply(slopes, gz);
        sum_rows(gz, gb1);
        let gz = View::new(gz, hidden);
        product(gw1, inner, gz.t(), View::new(x, inner), true);
        product_by(gx, inner, gz, w1, false);
    }

    /// Multiplies rows from `first` on of the hidden layer (`which` 0) or of the result (1) by
    /// their mask.
    fn drop<F: Float>(&self, which: usize, first: usize, rows: &mut [F]) {
        if let Some(mask) = &self.masks[which] {
            let width = [self.hidden, self.out][which];
            mask_chunk(mask, (first * width) as u64, rows);
        }
    }
}

/// Multiplies `a` by gelu(z), and writes the previous `a` times gelu'(z) to `slopes`; both share
/// the error function.
#[simd]
fn multiply_gelu_with_slope<F: Float>(z: &[F], a: &mut [F], slopes: &mut [F]) {
    for ((a, slope), &z) in a.iter_mut().zip(slopes).zip(z) {
        let (value, slope_at_z) = Gelu::value_and_slope(z);
        *slope = *a * slope_at_z;
        *a *= value;
    }
}

/// `to *= by`, element by element.
#[simd]
fn multiply<F: Float>(by: &[F], to: &mut [F]) {
    for (to, &by) in to.iter_mut().zip(by) {
        *to *= by;
    }
}
