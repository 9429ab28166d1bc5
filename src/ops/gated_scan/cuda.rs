//! The gated scan on a GPU.

use super::rules::Rule;
use super::Scan;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::linear_scan::cuda::{Direction, REAL};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Used};
use crate::runtime::sums::sum_parts;
use candle_core::Result;

/// A launch of one rule's kernels on given inputs.
struct Call<'a, R: Rule> {
    scan: &'a Scan<R>,
    gpu: &'a Gpu,
    ins: &'a [View<'a>],
    /// The times whose states are returned; `None` for all.
    times: Option<View<'a>>,
}

impl<R: Rule> CudaOp for Scan<R> {
    /// Saves all states if only some are returned.
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        self.with_call(call.gpu, call.ins, |scan| scan.forward(call.tracked))
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let Used { value, grad } = call.only();
        let states = call.saved.first().map_or(value, Buffer::view);
        self.with_call(call.gpu, call.ins, |scan| scan.backward(states, grad))
    }
}

impl<'a, R: Rule> Call<'a, R> {
    pub(super) fn run(&self, part: &str, args: &[Arg]) -> Result<()> {
        let parameter = self.ins.get(2).copied();
        let inputs = [self.ins[0].into(), self.ins[1].into(), parameter.into(), self.scan.rule.eps().into()];
        let extent = &self.scan.sizes.extent;
        let kernel = format!("{}_{part}", R::KERNELS);
        let kernel = Kernel::of("gated_scan", &kernel, self.ins[1].dtype());
        let args = [&inputs[..], args, &extent.args()].concat();
        self.gpu.launch(kernel, extent.grid(), &args)
    }

    /// The arguments of kernels that return the states of selected times.
    pub(super) fn selected(&self) -> [Arg<'a>; 2] {
        [self.times.into(), self.scan.sizes.rows().into()]
    }

    fn starts(&self, direction: Direction, lines: impl FnOnce(&mut Buffer) -> Result<()>) -> Result<Option<Buffer>> {
        self.scan.sizes.extent.starts(self.gpu, REAL, direction, lines)
    }

    /// The selected states; then, if these are not all and a backward pass may follow, all states.
    fn forward(&self, tracked: bool) -> Result<Vec<Buffer>> {
        let starts = self.starts(Direction::Forward, |lines| self.run("forward_lines", &[lines.into()]))?;
        let x = self.ins[1];
        let mut all = match self.times.is_none() || tracked {
            true => Some(self.gpu.alloc(x.dtype(), x.len())?),
            false => None,
        };
        let mut picked = match self.times {
            Some(times) => {
                let count = times.len() * self.scan.sizes.extent.width;
                Some(self.gpu.alloc(x.dtype(), count)?)
            }
            None => None,
        };
        let [times, rows] = self.selected();
        let starts = starts.as_ref().map(Buffer::view);
        let to = [all.as_mut().into(), picked.as_mut().into()];
        self.run("forward", &[&[starts.into(), times, rows], &to[..]].concat())?;
        Ok(picked.into_iter().chain(all).collect())
    }

    pub(super) fn backward(&self, h: View, gh: View) -> Result<Vec<Option<Buffer>>> {
        let [times, rows] = self.selected();
        let starts = self.starts(Direction::Backward, |lines| {
            let args = [gh.into(), times.clone(), rows.clone(), lines.into()];
            self.run("backward_lines", &args)
        })?;
        let (gpu, extent) = (self.gpu, &self.scan.sizes.extent);
        let grad = |of: View| gpu.alloc(of.dtype(), of.len());
        let (mut gz, mut gx) = (grad(self.ins[0])?, grad(self.ins[1])?);
        let mut coefficients = match self.ins.get(2) {
            Some(parameter) => Some(gpu.alloc(parameter.dtype(), extent.slots())?),
            None => None,
        };
        let starts = starts.as_ref().map(Buffer::view);
        let to = [(&mut gz).into(), (&mut gx).into(), coefficients.as_mut().into()];
        let ins = [h.into(), gh.into(), starts.into(), times, rows];
        self.run("backward", &[&ins[..], &to[..]].concat())?;
        let mut grads = vec![Some(gz), Some(gx)];
        if let (Some(parameter), Some(coefficients)) = (self.ins.get(2), coefficients) {
            grads.push(Some(self.parameter_grad(*parameter, &coefficients)?));
        }
        Ok(grads)
    }

    /// The gradient of the parameter, given that of the channels' coefficients in each piece of
    /// time.
    fn parameter_grad(&self, parameter: View, coefficients: &Buffer) -> Result<Buffer> {
        let width = self.scan.sizes.extent.width;
        let coefficients = sum_parts(self.gpu, coefficients, width)?;
        let mut grad = self.gpu.alloc(parameter.dtype(), parameter.len())?;
        let kernel = Kernel::new("gated_scan", format!("{}_learn", R::KERNELS));
        let args = [parameter.into(), (&coefficients).into(), (&mut grad).into(), width.into()];
        self.gpu.launch(kernel, Grid::for_each(parameter.len()), &args)?;
        Ok(grad)
    }
}

impl<R: Rule> Scan<R> {
    /// Calls `run` with a launch on `ins` and the selected times.
    fn with_call<T>(&self, gpu: &Gpu, ins: &[View], run: impl FnOnce(Call<R>) -> Result<T>) -> Result<T> {
        let times = self.sizes.selected.as_ref().map(|s| &s.times);
        gpu.with_tensor(times, |times| run(Call { scan: self, gpu, ins, times }))
    }
}
