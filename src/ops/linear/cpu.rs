//! Passes on the CPU.

use super::Linear;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::gemm::{product, product_by, Right, View};
use crate::runtime::lanes::{add_to_rows, sum_parts, sum_rows};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;

/// Rows that pass through all products together, so that they are still in cache for the next
/// product.
const ROWS: usize = 512;
/// The maximum of tasks, each with its own sum of the weights' gradients.
pub(crate) const MAX_TASKS: usize = 16;

impl CpuOp for Linear {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let one = |(map, &out): (usize, &usize)| {
            let mut y = zeros(self.rows() * out);
            let weight = Right::of(self.weight(ins, map).t());
            y.chunks_mut(ROWS * out).zip(ins[0].chunks(ROWS * self.inner)).in_parallel(|(y, x)| {
                product_by(y, out, View::new(x, self.inner), &weight, false);
                if self.biased {
                    add_to_rows(y, ins[1 + self.outs.len() + map]);
                }
            });
            y
        };
        self.outs.iter().enumerate().map(one).collect()
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let maps = (0..self.outs.len()).map(|map| self.grad_map(&call, map));
        let (weights, mut biases): (Vec<_>, Vec<_>) = maps.unzip();
        biases.truncate(if self.biased { biases.len() } else { 0 });
        let mut grads = vec![self.grad_x(&call)];
        grads.extend(weights);
        grads.append(&mut biases);
        grads
    }
}

/// Rows per task of the weights' gradients: a function of the sizes alone.
pub(crate) fn rows_per_task(rows: usize) -> usize {
    rows.div_ceil(MAX_TASKS).next_multiple_of(ROWS)
}

impl Linear {
    /// The gradient of x: Σ over maps of gy W.
    fn grad_x<F: Float>(&self, call: &Backward<F>) -> Vec<F> {
        if !call.needs_grad[0] {
            return Vec::new();
        }
        let mut gx = zeros(self.rows() * self.inner);
        let weights: Vec<_> = (0..self.outs.len()).map(|map| Right::of(self.weight(call.ins, map))).collect();
        gx.chunks_mut(ROWS * self.inner).enumerate().in_parallel(|(i, gx)| {
            let rows = gx.len() / self.inner;
            let mut add = false;
            for (map, out) in self.outs.iter().enumerate() {
                if let Some(used) = call.outs[map] {
                    let gy = &used.grad[i * ROWS * out..][..rows * out];
                    product_by(gx, self.inner, View::new(gy, *out), &weights[map], add);
                    add = true;
                }
            }
        });
        gx
    }

    /// The gradients of a weight and its bias: gy^T x and Σ gy over the rows.
    fn grad_map<F: Float>(&self, call: &Backward<F>, map: usize) -> (Vec<F>, Vec<F>) {
        let out = self.outs[map];
        let size = out * self.inner;
        let Some(used) = call.outs[map] else {
            return (vec![F::zero(); size], vec![F::zero(); out]);
        };
        let (task, parts) = (self.task(), self.rows().div_ceil(self.task()));
        let (mut gw, mut gb) = (zeros(parts * size), zeros(parts * out));
        gw.chunks_mut(size)
            .zip(gb.chunks_mut(out))
            .zip(call.ins[0].chunks(task * self.inner))
            .zip(used.grad.chunks(task * out))
            .in_parallel(|(((gw, gb), x), gy)| {
                let (x_rows, gy_rows) = (View::new(x, self.inner), View::new(gy, out));
                product(gw, self.inner, gy_rows.t(), x_rows, false);
                if self.biased {
                    sum_rows(gy, gb);
                }
            });
        (sum_parts(&gw, size), sum_parts(&gb, out))
    }

    fn task(&self) -> usize {
        rows_per_task(self.rows())
    }

    fn weight<'a, F: Float>(&self, ins: &[&'a [F]], map: usize) -> View<'a, F> {
        View::new(ins[1 + map], self.inner)
    }
}
