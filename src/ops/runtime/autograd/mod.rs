//! The bridge into Candle's autograd: an op with one forward and one backward pass over any number of tensors, as nodes
//! of Candle's graph.
//!
//! Candle's custom ops have at most three inputs and one output. Here up to nine inputs pass
//! through *taps* (three each), the taps through one *root*, and the root through one *out* per
//! output; taps and root are tokens, tensors without elements. Candle walks the graph backwards:
//! every out stores its gradient, the root then runs the backward pass once, and the taps hand the
//! gradients of the inputs to candle. No input or gradient is copied.
//!
//! If the output of one fused op is an input of another, the tap is tied to the token of the former
//! instead of to its output, and the gradient is moved from op to op without a copy: candle would
//! add it to a fresh tensor of zeros, on one thread.

mod backward;
mod graph;
mod leaves;
mod producers;
mod state;
mod values;

use crate::gpu::{self, Buffer, Gpu, View};
use crate::runtime::float::Float;
use crate::runtime::parallel::lock;
use crate::runtime::route;
pub use backward::backward;
use candle_core::op::BackpropOp;
use candle_core::{bail, DType, Result, Shape, Storage, Tensor};
use graph::OutputNode;
pub(crate) use graph::MAX_INPUTS;
use state::Application;
use std::sync::{Arc, Mutex};
use values::{OpOn, Values};

/// An operation with hand-written forward and backward passes. Inputs are contiguous.
pub(crate) trait Op: Send + Sync + 'static {
    /// The name of the op in error messages.
    const NAME: &'static str;

    /// Whether the forward pass saves the gradients of the first output with respect to the inputs, in their order, and
    /// nothing else: those of a loss need no backward pass.
    const SAVES_GRADIENTS: bool = false;

    /// The shapes of the outputs.
    fn out_shapes(&self) -> Vec<Shape>;
}

/// An operation on slices of one number type on the CPU.
pub(crate) trait CpuOp: Op {
    /// Whether the backward pass continues the sums of gradients that other ops have begun for the inputs, adding its own
    /// terms one at a time, because the order of additions matters.
    const CONTINUES: bool = false;

    /// The outputs, followed by the vectors to save for the backward pass if `tracked`.
    fn forward<F: Float>(&self, call: Forward<F>) -> Vec<Vec<F>>;

    /// One gradient per input; it may be empty where `needs_grad` is false.
    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>>;
}

/// An operation on memory of a GPU, by launches of kernels.
pub(crate) trait CudaOp: Op {
    /// The outputs, followed by the buffers to save for the backward pass if `tracked`.
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>>;

    /// One gradient per input: `None` where `needs_grad` is false.
    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>>;
}

/// An operation on either device.
pub(crate) trait FusedOp: CpuOp + CudaOp {}

impl<O: CpuOp + CudaOp> FusedOp for O {}

/// The arguments of a forward pass on the CPU.
#[derive(Clone, Copy)]
pub(crate) struct Forward<'a, F> {
    pub(crate) ins: &'a [&'a [F]],
    /// True if a backward pass may follow.
    pub(crate) tracked: bool,
}

/// The arguments of a backward pass on the CPU.
#[derive(Clone, Copy)]
pub(crate) struct Backward<'a, F> {
    pub(crate) ins: &'a [&'a [F]],
    /// Each output with its gradient; `None` for an output that the loss does not depend on.
    pub(crate) outs: &'a [Option<Used<&'a [F]>>],
    /// The vectors that the forward pass saved.
    pub(crate) saved: &'a [&'a [F]],
    /// The inputs that need a gradient.
    pub(crate) needs_grad: &'a [bool],
    /// For an op that continues sums: the gradient that other ops have passed back to each input so far. Empty for others.
    pub(crate) begun: &'a [Option<&'a [F]>],
}

/// An output and the gradient of the loss with respect to it.
#[derive(Clone, Copy)]
pub(crate) struct Used<T> {
    pub(crate) value: T,
    pub(crate) grad: T,
}

/// The arguments of a forward pass on a GPU.
#[derive(Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) ins: &'a [View<'a>],
    /// True if a backward pass may follow.
    pub(crate) tracked: bool,
}

/// The arguments of a backward pass on a GPU, as in [`Backward`].
#[derive(Clone, Copy)]
pub(crate) struct LaunchBackward<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) ins: &'a [View<'a>],
    pub(crate) outs: &'a [Option<Used<View<'a>>>],
    pub(crate) saved: &'a [Buffer],
    pub(crate) needs_grad: &'a [bool],
}

/// The output of an op with a single output. Its backward pass runs only if the loss depends on
/// that output.
fn only<T: Copy>(outs: &[Option<Used<T>>]) -> Used<T> {
    match outs {
        [Some(used)] => *used,
        _ => unreachable!("the root of an op with one output runs after that output"),
    }
}

impl<'a, F> Backward<'a, F> {
    /// The output of an op with a single output.
    pub(crate) fn only(&self) -> Used<&'a [F]> {
        only(self.outs)
    }
}

impl<'a> LaunchBackward<'a> {
    /// The output of an op with a single output.
    pub(crate) fn only(&self) -> Used<View<'a>> {
        only(self.outs)
    }
}

/// Returns true if the fused implementation of an op runs for the device and number type of `x`;
/// otherwise the reference runs.
pub(crate) fn runs_on(x: &Tensor) -> bool {
    let can = match gpu::of(x) {
        Some(_) => matches!(x.dtype(), DType::F32 | DType::BF16),
        None => x.device().is_cpu() && matches!(x.dtype(), DType::F32 | DType::F64),
    };
    route::take(can)
}

/// Runs `op` and, if any input is tracked, records it in the graph for the backward pass.
pub(crate) fn apply<O: FusedOp>(op: O, ins: &[&Tensor]) -> Result<Vec<Tensor>> {
    if gpu::of(ins[0]).is_some() {
        return apply_as::<Buffer>(Box::new(op), ins);
    }
    match ins[0].dtype() {
        DType::F32 => apply_as::<Vec<f32>>(Box::new(op), ins),
        DType::F64 => apply_as::<Vec<f64>>(Box::new(op), ins),
        other => bail!("{}: no implementation for {other:?}", O::NAME),
    }
}

/// [`apply`] for an op with a single output.
pub(crate) fn apply_one<O: FusedOp>(op: O, ins: &[&Tensor]) -> Result<Tensor> {
    let mut outs = apply(op, ins)?;
    outs.pop().ok_or_else(|| candle_core::Error::Msg(format!("{}: no output", O::NAME)))
}

/// The single output of `op`: by its fused implementation if that runs on the first input, otherwise by `reference`.
pub(crate) fn apply_or<O: FusedOp>(
    op: O,
    ins: &[&Tensor],
    reference: impl FnOnce(&O) -> Result<Tensor>,
) -> Result<Tensor> {
    match runs_on(ins[0]) {
        true => apply_one(op, ins),
        false => reference(&op),
    }
}

/// `x` in another shape. If a fused op made `x`, fused ops that read the result pass their gradients straight to it;
/// Candle's reshape would first add them to zeros.
pub fn reshape(x: &Tensor, shape: impl Into<Shape>) -> Result<Tensor> {
    let y = x.reshape(shape.into())?;
    if route::prefers_fused() {
        match (gpu::of(x), x.dtype()) {
            (Some(_), _) => <Buffer as Values>::registry().alias(&y, x),
            (None, DType::F32) => <Vec<f32> as Values>::registry().alias(&y, x),
            (None, DType::F64) => <Vec<f64> as Values>::registry().alias(&y, x),
            _ => {}
        }
    }
    Ok(y)
}

fn apply_as<V: Values>(op: Box<dyn OpOn<V>>, ins: &[&Tensor]) -> Result<Vec<Tensor>> {
    let ins = ins.iter().map(|x| x.contiguous()).collect::<Result<Vec<_>>>()?;
    let tracked = ins.iter().any(Tensor::track_op);
    let mut values = op.forward(&ins, tracked)?;
    let shapes = op.out_shapes();
    let saved = values.split_off(shapes.len());
    let ready = shapes.into_iter().zip(values).map(|(shape, values)| Ok((values.into_storage()?, shape)));
    if !tracked {
        let bare = |ready: Result<(Storage, Shape)>| {
            let (values, shape) = ready?;
            Ok(Tensor::from_storage(values, shape, BackpropOp::none(), false))
        };
        return ready.map(bare).collect();
    }
    let producers = V::registry();
    let sources: Vec<_> = ins.iter().map(|x| producers.of(x)).collect();
    let state = Arc::new(Application::new(op, &ins, &sources, saved));
    let root = graph::root(&state, &ins, &sources)?;
    ready
        .enumerate()
        .map(|(index, ready)| {
            let out = OutputNode { state: state.clone(), index, ready: Mutex::new(Some(ready?)) };
            let out = root.apply_op1(out)?;
            state.produced(index, &out, &root);
            Ok(out)
        })
        .collect()
}

#[cfg(test)]
mod tests;
