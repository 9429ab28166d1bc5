//! The split of a sequence into one tensor per step, for recurrences that no scan can compute.
//! Candle would pad the gradient of each step's slice to the whole sequence, at a cost quadratic in
//! its length.

use crate::gpu::{Arg, Buffer, Gpu, Kernel};
use crate::runtime::autograd::{apply, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::tile::Tiles;
use crate::runtime::zeros::zeros;
use candle_core::{Result, Shape, Tensor};

/// The steps of `x`, (B, L, N), as L tensors of shape (B, N).
pub fn time_steps(x: &Tensor) -> Result<Vec<Tensor>> {
    let [batch, len, width] = shape::dims(TimeSteps::NAME, ("x", x))?;
    if runs_on(x) {
        apply(TimeSteps { batch, len, width }, &[x])
    } else {
        reference(x)
    }
}

fn reference(x: &Tensor) -> Result<Vec<Tensor>> {
    (0..x.dim(1)?).map(|t| x.narrow(1, t, 1)?.squeeze(1)).collect()
}

struct TimeSteps {
    batch: usize,
    len: usize,
    width: usize,
}

impl FusedOp for TimeSteps {
    const NAME: &'static str = "time_steps";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.width).into(); self.len]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let sequences = || ins[0].chunks_exact(self.len * self.width);
        let step = |t: usize| sequences().flat_map(move |x| &x[t * self.width..][..self.width]);
        (0..self.len).map_in_parallel(|t| step(t).copied().collect())
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let mut gx = zeros(call.ins[0].len());
        let sequences = gx.chunks_exact_mut(self.len * self.width).enumerate();
        sequences.in_parallel(|(sequence, gx)| {
            for (gx, out) in gx.chunks_exact_mut(self.width).zip(call.outs) {
                if let Some(out) = out {
                    gx.copy_from_slice(&out.grad[sequence * self.width..][..self.width]);
                }
            }
        });
        vec![gx]
    }

    fn launch(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let (io, count) = (ins[0].dtype(), self.batch * self.width);
        let steps = (0..self.len).map(|_| gpu.alloc(io, count));
        let mut steps = steps.collect::<Result<Vec<_>>>()?;
        for (i, steps) in steps.chunks_mut(AT_ONCE).enumerate() {
            let steps = steps.iter_mut().map(Arg::from).collect();
            let kernel = Kernel::of("time_steps", "time_steps_forward", io);
            self.run(gpu, kernel, i, steps, |steps| [ins[0].into(), steps])?;
        }
        Ok(steps)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (io, count) = (call.ins[0].dtype(), call.ins[0].len());
        let mut gx = call.gpu.alloc(io, count)?;
        for (i, outs) in call.outs.chunks(AT_ONCE).enumerate() {
            let grads = outs.iter().map(|out| out.map(|out| out.grad).into());
            let kernel = Kernel::of("time_steps", "time_steps_backward", io);
            let to = &mut gx;
            self.run(call.gpu, kernel, i, grads.collect(), |grads| [grads, to.into()])?;
        }
        Ok(vec![Some(gx)])
    }
}

/// Steps per launch; must equal that of `cuda/time_steps.cu`.
const AT_ONCE: usize = 64;

impl TimeSteps {
    /// Launches a kernel on group `index` of the steps; `place` pairs their views with x or with
    /// its gradient.
    fn run<'a>(
        &self,
        gpu: &Gpu,
        kernel: Kernel,
        index: usize,
        mut steps: Vec<Arg<'a>>,
        place: impl FnOnce(Arg<'a>) -> [Arg<'a>; 2],
    ) -> Result<()> {
        let tiles = Tiles::of(self.batch, self.width);
        let grid = tiles.grids(steps.len());
        steps.resize(AT_ONCE, Arg::Null);
        let sizes = [(index * AT_ONCE).into(), self.len.into()];
        let args = [&place(Arg::Table(steps))[..], &sizes, &tiles.args()].concat();
        gpu.launch(kernel, grid, &args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::check::{self, Case};

    fn case(batch: usize, len: usize, width: usize) -> Case {
        Case::new(format!("{batch} x {len} x {width}")).normal("x", &[batch, len, width])
    }

    /// A weighted sum of all steps but the first.
    fn but_one(steps: Vec<Tensor>) -> Result<Tensor> {
        let weighed = steps.iter().enumerate().map(|(t, x)| x * t as f64);
        Tensor::stack(&weighed.skip(1).collect::<Result<Vec<_>>>()?, 1)
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        but_one(time_steps(&ins[0])?)
    }

    #[test]
    fn fused_equals_reference() {
        let cases = [case(7, 2, 5), case(1, 64, 3), case(2, 65, 1)];
        check::agree(&cases, fused, |ins| but_one(super::reference(&ins[0])?));
    }

    #[test]
    fn kernels_equal_the_reference() {
        let cases = [case(7, 2, 5), case(1, 64, 3), case(2, 65, 40)];
        check::kernels_agree(&cases, fused, |ins| but_one(super::reference(&ins[0])?));
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&case(7, 9, 5), fused);
    }

    #[test]
    fn a_wrong_shape_is_named() {
        check::refuses(&[&[2, 3]], fused, "time_steps: x has shape [2, 3]");
    }
}
