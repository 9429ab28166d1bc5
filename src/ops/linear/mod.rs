//! One or more linear maps of the same input, in one pass over its rows in either direction. Candle
//! would add the gradients of the maps, and those of the biases, in separate passes.

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::gemm::{product, Transposed, View};
use crate::runtime::lanes::{add_to_rows, sum_parts, sum_rows};
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::zeros;
use candle_core::{bail, Result, Shape, Tensor};

pub(super) mod launch;

/// Rows that pass through all products together, so that they are still in cache for the next
/// product.
const ROWS: usize = 512;

/// The maximum of tasks, each with its own sum of the weights' gradients.
pub(super) const MAX_TASKS: usize = 16;

/// x W^T + b over the last axis.
///
/// `x`: (..., in); `w`: (out, in); `b`: (out); result (..., out).
pub fn linear(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    Ok(linears(x, &[(w, b)])?.remove(0))
}

/// [`linear`] for each of up to four weights and biases; either all maps have a bias or none has.
pub fn linears(x: &Tensor, maps: &[(&Tensor, Option<&Tensor>)]) -> Result<Vec<Tensor>> {
    let op = Linear::check(x, maps)?;
    if !maps.is_empty() && runs_on(x) {
        let weights = maps.iter().map(|(w, _)| *w);
        let biases = maps.iter().filter_map(|(_, b)| *b);
        let ins: Vec<&Tensor> = std::iter::once(x).chain(weights).chain(biases).collect();
        apply(op, &ins)
    } else {
        maps.iter().map(|(w, b)| reference(x, w, *b)).collect()
    }
}

fn reference(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let (out, inner) = w.dims2()?;
    let mut shape = x.dims().to_vec();
    let rank = shape.len();
    shape[rank - 1] = out;
    let y = x.reshape(((), inner))?.matmul(&w.t()?)?.reshape(shape)?;
    match b {
        Some(b) => y.broadcast_add(b),
        None => Ok(y),
    }
}

struct Linear {
    /// The axes of x before the last.
    leading: Vec<usize>,
    inner: usize,
    outs: Vec<usize>,
    biased: bool,
}

impl Linear {
    fn check(x: &Tensor, maps: &[(&Tensor, Option<&Tensor>)]) -> Result<Self> {
        let (leading, inner) = shape::rows(Self::NAME, ("x", x))?;
        let biased = maps.first().is_some_and(|(_, b)| b.is_some());
        let mut outs = Vec::new();
        for (w, b) in maps {
            let [out, _] = shape::dims(Self::NAME, ("w", w))?;
            shape::parameter(Self::NAME, ("w", w), ("x", x), &[out, inner])?;
            if let Some(b) = b {
                shape::expect(Self::NAME, ("b", b), ("w", w), &[out])?;
            }
            if b.is_some() != biased {
                bail!("linear: either all maps of an input have a bias or none has");
            }
            outs.push(out);
        }
        Ok(Self { leading: leading.to_vec(), inner, outs, biased })
    }

    fn rows(&self) -> usize {
        self.leading.iter().product()
    }

    /// Rows per task: a function of the sizes alone.
    fn task(&self) -> usize {
        self.rows().div_ceil(MAX_TASKS).next_multiple_of(ROWS)
    }

    fn weight<'a, F: Float>(&self, ins: &[&'a [F]], map: usize) -> View<'a, F> {
        View::new(ins[1 + map], self.inner)
    }

    /// The gradient of x: Σ over maps of gy W.
    fn grad_x<F: Float>(&self, call: &Backward<F>) -> Vec<F> {
        if !call.needs_grad[0] {
            return Vec::new();
        }
        let mut gx = zeros(self.rows() * self.inner);
        gx.chunks_mut(ROWS * self.inner).enumerate().in_parallel(|(i, gx)| {
            let rows = gx.len() / self.inner;
            let mut add = false;
            for (map, out) in self.outs.iter().enumerate() {
                if let Some(used) = call.outs[map] {
                    let gy = &used.grad[i * ROWS * out..][..rows * out];
                    let weight = self.weight(call.ins, map);
                    product(gx, self.inner, View::new(gy, *out), weight, add);
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
}

impl FusedOp for Linear {
    const NAME: &'static str = "linear";

    fn out_shapes(&self) -> Vec<Shape> {
        let shape = |&out: &usize| [&self.leading[..], &[out]].concat().into();
        self.outs.iter().map(shape).collect()
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let one = |(map, &out): (usize, &usize)| {
            let mut y = zeros(self.rows() * out);
            let weight = Transposed::of(ins[1 + map], self.inner);
            y.chunks_mut(ROWS * out).zip(ins[0].chunks(ROWS * self.inner)).in_parallel(|(y, x)| {
                product(y, out, View::new(x, self.inner), weight.view(), false);
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

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        self.launch_maps(call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.launch_gradients(call)
    }
}

#[cfg(test)]
mod tests;
