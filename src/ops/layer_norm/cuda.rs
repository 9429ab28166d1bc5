//! Launches of the kernels of layer normalisation.

use super::{AddLayerNorm, LayerNorm};
use crate::gpu::sizes::row::THREADS;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Used};
use crate::runtime::sums::sums_of;
use crate::runtime::tuned::Tuned;
use candle_core::{DType, Result};

/// Blocks of a backward pass, each with partial sums of its own: four per multiprocessor of a large
/// GPU; few in tests, so that each has several rows.
pub(crate) const BLOCKS: Tuned = Tuned::new(528, 2);

impl CudaOp for LayerNorm {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        self.launch_rows(gpu, (ins[0], None), [ins[1], ins[2]])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (x, weight) = (call.ins[0], call.ins[1]);
        let of = Whole { x, y: None, grad: None };
        let grads = self.launch_gradients(call.gpu, of, weight, call.only().grad, false)?;
        Ok(vec![Some(grads.x), Some(grads.weight), Some(grads.bias)])
    }
}

impl CudaOp for AddLayerNorm {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        self.0.launch_rows(gpu, (ins[0], Some(ins[1])), [ins[2], ins[3]])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.0.launch_gradients_of_sum(&call)
    }
}

/// The prefix of the kernels for rows of `width` numbers, and the rows per block.
pub(crate) fn kernels(width: usize, views: &[Option<View>]) -> (&'static str, usize) {
    let aligned = views.iter().flatten().all(|view| view.aligned(4));
    match width {
        _ if !width.is_multiple_of(4) || !aligned => ("any", 1),
        ..=64 => ("64", THREADS / 16),
        65..=128 => ("128", THREADS / 32),
        129..=256 => ("256", THREADS / 32),
        257..=512 => ("512", THREADS / 32),
        513..=1024 => ("1024", THREADS / 32),
        _ => ("any", 1),
    }
}

/// Input of the norm in the backward pass: x, plus y if there is one, and the gradient of that sum.
pub(super) struct Whole<'a> {
    pub(super) x: View<'a>,
    pub(super) y: Option<View<'a>>,
    pub(super) grad: Option<View<'a>>,
}

/// The gradients of x, weight and bias, and a second copy of that of x.
pub(super) struct LayerNormGrads {
    pub(super) x: Buffer,
    pub(super) weight: Buffer,
    pub(super) bias: Buffer,
    pub(super) again: Option<Buffer>,
}

impl LayerNorm {
    /// The norm of x; or, with y, the sum x + y and its norm.
    fn launch_rows(&self, gpu: &Gpu, (x, y): (View, Option<View>), [weight, bias]: [View; 2]) -> Result<Vec<Buffer>> {
        let (io, width, rows) = (x.dtype(), self.width, x.len() / self.width);
        let mut sum = y.map(|_| gpu.alloc(io, x.len())).transpose()?;
        let mut normed = gpu.alloc(io, x.len())?;
        let outs = [sum.as_ref().map(Buffer::view), Some(normed.view())];
        let ins = [Some(x), y, Some(weight), Some(bias)];
        let (name, together) = kernels(width, &[&ins[..], &outs[..]].concat());
        let mut args: Vec<Arg> = ins.map(Arg::from).into();
        args.extend([sum.as_mut().into(), (&mut normed).into()]);
        args.extend([rows.into(), width.into(), (self.eps as f32).into()]);
        let kernel = Kernel::of("layer_norm", &format!("forward_{name}"), io);
        gpu.launch(kernel, Grid::of(rows.div_ceil(together), THREADS), &args)?;
        Ok(sum.into_iter().chain([normed]).collect())
    }

    /// Returns the gradients that follow from `gy`, the gradient of the norm; with a second copy of that of x if
    /// `twice`.
    fn launch_gradients(&self, gpu: &Gpu, of: Whole, weight: View, gy: View, twice: bool) -> Result<LayerNormGrads> {
        let (io, width, rows) = (gy.dtype(), self.width, gy.len() / self.width);
        let mut x = gpu.alloc(io, gy.len())?;
        let mut again = twice.then(|| gpu.alloc(io, gy.len())).transpose()?;
        let ins = [Some(of.x), of.y, Some(weight), of.grad, Some(gy)];
        let outs = [Some(x.view()), again.as_ref().map(Buffer::view)];
        let (name, together) = kernels(width, &[&ins[..], &outs[..]].concat());
        let blocks = rows.div_ceil(together).min(BLOCKS.get());
        let mut parts_w = gpu.alloc(DType::F32, blocks * width)?;
        let mut parts_b = gpu.alloc(DType::F32, blocks * width)?;
        let mut args: Vec<Arg> = ins.map(Arg::from).into();
        args.extend([(&mut x).into(), again.as_mut().into()]);
        args.extend([(&mut parts_w).into(), (&mut parts_b).into()]);
        args.extend([rows.into(), width.into(), (self.eps as f32).into()]);
        let kernel = Kernel::of("layer_norm", &format!("backward_{name}"), io);
        gpu.launch(kernel, Grid::of(blocks, THREADS), &args)?;
        let parts = [parts_w.view(), parts_b.view()];
        let [weight, bias] = sums_of(gpu, parts.map(|parts| (parts, width)))?;
        Ok(LayerNormGrads { x, weight, bias, again })
    }

    /// The gradients of x, y, weight and bias from those of the sum and of its norm.
    fn launch_gradients_of_sum(&self, call: &LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, [sum, normed]) = (call.gpu, [call.outs[0], call.outs[1]]);
        let Some(Used { grad: gy, .. }) = normed else {
            let grad = |_| sum.map(|sum| gpu.copy(sum.grad)).transpose();
            return Ok(vec![grad(0)?, grad(1)?, None, None]);
        };
        let of = match sum {
            Some(Used { value, grad }) => Whole { x: value, y: None, grad: Some(grad) },
            None => Whole { x: call.ins[0], y: Some(call.ins[1]), grad: None },
        };
        let both = call.needs_grad[0] && call.needs_grad[1];
        let grads = self.launch_gradients(gpu, of, call.ins[2], gy, both)?;
        let (x, y) = match call.needs_grad[0] {
            true => (Some(grads.x), grads.again),
            false => (None, Some(grads.x)),
        };
        Ok(vec![x, y, Some(grads.weight), Some(grads.bias)])
    }
}
