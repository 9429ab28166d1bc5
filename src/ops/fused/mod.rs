//! One forward and one backward over any number of tensors, inside candle's graph.
//!
//! Candle gives a custom op three inputs and one output. Here up to nine inputs pass through
//! *taps* (three each), the taps through one *root*, and the root through one *out* per output;
//! taps and root carry a single dummy element, a token. Candle walks the graph backwards: every out
//! stores its gradient, the root then runs the backward pass once, and the taps hand out what it
//! found. No input or gradient is copied.

mod graph;

use super::float::Float;
use candle_core::op::BackpropOp;
use candle_core::{bail, DType, Device, Layout};
use candle_core::{Result, Shape, Storage, Tensor, WithDType};
use graph::{Out, Root, Tap};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An operation on slices. Inputs are contiguous and of one number type.
pub(crate) trait FusedOp: Send + Sync + 'static {
    /// For messages and profiles.
    const NAME: &'static str;

    /// The shapes of the outputs.
    fn out_shapes(&self) -> Vec<Shape>;

    /// The outputs.
    fn forward<F: Float>(&self, ins: &[&[F]]) -> Vec<Vec<F>>;

    /// One gradient per input. An output that the loss does not use is `None`.
    fn backward<F: Float>(&self, ins: &[&[F]], outs: &[Option<Used<F>>]) -> Vec<Vec<F>>;
}

/// An output on the way back: what it was and the gradient of the loss with respect to it.
#[derive(Clone, Copy)]
pub(crate) struct Used<'a, F> {
    pub(crate) value: &'a [F],
    pub(crate) grad: &'a [F],
}

/// For ops with one output: the root runs only because that output was used.
pub(crate) fn only<'a, F>(outs: &[Option<Used<'a, F>>]) -> Used<'a, F> {
    match outs {
        [Some(used)] => Used { ..*used },
        _ => unreachable!("the root of an op with one output runs after that output"),
    }
}

/// Whether the fused implementations can run on `x`; the reference serves everything else.
pub(crate) fn runs_on(x: &Tensor) -> bool {
    x.device().is_cpu() && matches!(x.dtype(), DType::F32 | DType::F64)
}

/// Runs `op` and, if any input is tracked, records it for the backward pass.
pub(crate) fn apply<O: FusedOp>(op: O, ins: &[&Tensor]) -> Result<Vec<Tensor>> {
    match ins[0].dtype() {
        DType::F32 => apply_as::<O, f32>(op, ins),
        DType::F64 => apply_as::<O, f64>(op, ins),
        other => bail!("{}: no implementation for {other:?}", O::NAME),
    }
}

/// [`apply`] for an op with a single output.
pub(crate) fn apply_one<O: FusedOp>(op: O, ins: &[&Tensor]) -> Result<Tensor> {
    let mut outs = apply(op, ins)?;
    outs.pop()
        .ok_or_else(|| candle_core::Error::Msg(format!("{}: no output", O::NAME)))
}

fn apply_as<O: FusedOp, F: Float>(op: O, ins: &[&Tensor]) -> Result<Vec<Tensor>> {
    let ins = ins
        .iter()
        .map(|x| x.contiguous())
        .collect::<Result<Vec<_>>>()?;
    let guards: Vec<_> = ins.iter().map(Tensor::storage_and_layout).collect();
    let values = op.forward(&slices::<F, _>(&guards)?);
    drop(guards);
    let ready = op
        .out_shapes()
        .into_iter()
        .zip(values)
        .map(|(shape, values)| (F::to_cpu_storage_owned(values), shape));
    if !ins.iter().any(Tensor::track_op) {
        let bare = |(values, shape)| {
            Tensor::from_storage(Storage::Cpu(values), shape, BackpropOp::none(), false)
        };
        return Ok(ready.map(bare).collect());
    }
    let state = Arc::new(State::<O, F>::new(op, &ins));
    let root = state.root(&ins)?;
    ready
        .enumerate()
        .map(|(index, ready)| {
            let out = Out {
                state: state.clone(),
                index,
                ready: Mutex::new(Some(ready)),
            };
            root.apply_op1(out)
        })
        .collect()
}

/// The elements of tensors whose storages are held by guards `G`.
fn slices<'a, F, G>(guards: &'a [(G, &Layout)]) -> Result<Vec<&'a [F]>>
where
    F: WithDType,
    G: Deref<Target = Storage>,
{
    guards
        .iter()
        .map(|(storage, layout)| slice(storage, layout))
        .collect()
}

fn slice<'a, F: WithDType>(storage: &'a Storage, layout: &Layout) -> Result<&'a [F]> {
    match (storage, layout.contiguous_offsets()) {
        (Storage::Cpu(storage), Some((start, end))) => {
            Ok(&F::cpu_storage_as_slice(storage)?[start..end])
        }
        _ => bail!("a fused op reads contiguous tensors on the CPU only"),
    }
}

/// What the ops of one application share.
struct State<O, F> {
    op: O,
    ins: Vec<Tensor>,
    tracked: Vec<bool>,
    outs: Mutex<Vec<Option<UsedTensor>>>,
    grads: Mutex<Vec<Option<Vec<F>>>>,
}

struct UsedTensor {
    value: Tensor,
    grad: Tensor,
}

impl<O: FusedOp, F: Float> State<O, F> {
    fn new(op: O, ins: &[Tensor]) -> Self {
        Self {
            outs: Mutex::new(op.out_shapes().iter().map(|_| None).collect()),
            ins: ins.iter().map(Tensor::detach).collect(),
            tracked: ins.iter().map(Tensor::track_op).collect(),
            grads: Mutex::new(ins.iter().map(|_| None).collect()),
            op,
        }
    }

    fn root(self: &Arc<Self>, ins: &[Tensor]) -> Result<Tensor> {
        let mut tokens = Vec::new();
        for (third, ins) in ins.chunks(3).enumerate() {
            let tap = Tap {
                state: self.clone(),
                first: 3 * third,
            };
            tokens.push(match ins {
                [a, b, c] => a.apply_op3(b, c, tap)?,
                [a, b] => a.apply_op2(b, tap)?,
                [a] => a.apply_op1(tap)?,
                _ => unreachable!("chunks of three"),
            });
        }
        let root = Root(self.clone());
        match &tokens[..] {
            [a, b, c] => a.apply_op3(b, c, root),
            [a, b] => a.apply_op2(b, root),
            [a] => a.apply_op1(root),
            _ => bail!(
                "{}: {} inputs, one to nine are possible",
                O::NAME,
                ins.len()
            ),
        }
    }

    fn run_backward(&self) -> Result<()> {
        let outs: Vec<_> = lock(&self.outs).iter_mut().map(Option::take).collect();
        let ins: Vec<_> = self.ins.iter().map(Tensor::storage_and_layout).collect();
        let guards: Vec<_> = outs
            .iter()
            .map(|out| out.as_ref().map(UsedTensor::guards))
            .collect();
        let views = guards
            .iter()
            .map(|out| match out {
                None => Ok(None),
                Some([value, grad]) => Ok(Some(Used {
                    value: slice::<F>(&value.0, value.1)?,
                    grad: slice(&grad.0, grad.1)?,
                })),
            })
            .collect::<Result<Vec<_>>>()?;
        let grads = self.op.backward(&slices::<F, _>(&ins)?, &views);
        let wanted = grads
            .into_iter()
            .zip(&self.tracked)
            .map(|(grad, &tracked)| tracked.then_some(grad));
        *lock(&self.grads) = wanted.collect();
        Ok(())
    }

    /// The gradient of input `index`. Candle wants one for every tracked input.
    fn take_grad(&self, index: usize, input: &Tensor) -> Result<Option<Tensor>> {
        match lock(&self.grads)[index].take() {
            Some(grad) => Tensor::from_vec(grad, input.shape(), &Device::Cpu).map(Some),
            None if input.track_op() => input.zeros_like().map(Some),
            None => Ok(None),
        }
    }
}

impl UsedTensor {
    fn guards(&self) -> [(impl Deref<Target = Storage> + '_, &Layout); 2] {
        [
            self.value.storage_and_layout(),
            self.grad.storage_and_layout(),
        ]
    }
}

/// A panic elsewhere leaves no half-written state here, so poison does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
