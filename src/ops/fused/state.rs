//! What the nodes of one application share.

use super::graph::{Root, Tap};
use super::producers::{Sink, Source};
use super::{lock, slice, slices, Backward, FusedOp, Used};
use crate::ops::float::Float;
use candle_core::{bail, Device, Result, Tensor, TensorId};
use std::sync::{Arc, Mutex, Weak};

/// The most inputs that taps and a root can carry.
const MOST: usize = 9;

pub(super) struct State<O, F: Float> {
    op: O,
    /// What the backward pass reads; it runs once, and then lets go of it.
    saved: Mutex<Option<Saved<F>>>,
    wanted: Vec<bool>,
    /// Who made an input, if a fused op did.
    sources: Vec<Option<Maker<F>>>,
    outs: Mutex<Vec<Output<F>>>,
    grads: Mutex<Vec<Option<Vec<F>>>>,
}

struct Saved<F> {
    ins: Vec<Tensor>,
    kept: Vec<Vec<F>>,
}

/// A fused op and which of its outputs.
type Maker<F> = (Arc<dyn Sink<F>>, usize);

/// An output: its name and value while somebody holds it, and the gradient that has arrived.
struct Output<F> {
    id: Option<TensorId>,
    value: Option<Tensor>,
    grad: Option<Vec<F>>,
}

impl<O: FusedOp, F: Float> State<O, F> {
    pub(super) fn new(
        op: O,
        ins: &[Tensor],
        sources: &[Option<Source<F>>],
        kept: Vec<Vec<F>>,
    ) -> Self {
        let empty = |_| Output {
            id: None,
            value: None,
            grad: None,
        };
        let source = |s: &Option<Source<F>>| s.as_ref().map(|s| (s.sink.clone(), s.index));
        Self {
            outs: Mutex::new(op.out_shapes().iter().map(empty).collect()),
            saved: Mutex::new(Some(Saved {
                ins: ins.iter().map(Tensor::detach).collect(),
                kept,
            })),
            wanted: ins.iter().map(Tensor::track_op).collect(),
            sources: sources.iter().map(source).collect(),
            grads: Mutex::new(ins.iter().map(|_| None).collect()),
            op,
        }
    }

    /// The token of the application, tied to all tracked inputs.
    pub(super) fn root(
        self: &Arc<Self>,
        ins: &[Tensor],
        sources: &[Option<Source<F>>],
    ) -> Result<Tensor> {
        if ins.len() > MOST {
            let given = ins.len();
            bail!("{}: {given} inputs, one to {MOST} are possible", O::NAME);
        }
        let tied = |(x, source): (&Tensor, &Option<Source<F>>)| match source {
            Some(source) => source.token.clone(),
            None => x.clone(),
        };
        let tied: Vec<Tensor> = ins.iter().zip(sources).map(tied).collect();
        let mut tokens = Vec::new();
        for (third, tied) in tied.chunks(3).enumerate() {
            let tap = Tap {
                state: self.clone(),
                first: 3 * third,
            };
            tokens.push(match tied {
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
            _ => bail!("{}: no inputs", O::NAME),
        }
    }

    /// Output `index` has become the tensor `out`, which hangs on the token `root`.
    pub(super) fn produced(self: &Arc<Self>, index: usize, out: &Tensor, root: &Tensor) {
        let weak: Weak<Self> = Arc::downgrade(self);
        F::all().insert(out, weak, index, root.clone());
        let mut outs = lock(&self.outs);
        outs[index].id = Some(out.id());
        outs[index].value = Some(out.detach());
    }

    /// Nobody holds output `index` any more, so no new op can use it.
    pub(super) fn dropped(&self, index: usize) {
        let id = lock(&self.outs)[index].id.take();
        if let Some(id) = id {
            F::all().remove(id);
        }
    }

    pub(super) fn run_backward(&self) -> Result<()> {
        let Some(saved) = lock(&self.saved).take() else {
            bail!("{}: the backward pass of a graph runs once", O::NAME);
        };
        let outs: Vec<_> = lock(&self.outs)
            .iter_mut()
            .map(|out| out.grad.take().zip(out.value.take()))
            .collect();
        let ins: Vec<_> = saved.ins.iter().map(Tensor::storage_and_layout).collect();
        let guards: Vec<_> = outs
            .iter()
            .map(|out| out.as_ref().map(|(_, value)| value.storage_and_layout()))
            .collect();
        let views = guards
            .iter()
            .zip(&outs)
            .map(|(guard, out)| match (guard, out) {
                (Some(value), Some((grad, _))) => Ok(Some(Used {
                    value: slice::<F>(&value.0, value.1)?,
                    grad,
                })),
                _ => Ok(None),
            })
            .collect::<Result<Vec<_>>>()?;
        let grads = self.op.backward(Backward {
            ins: &slices::<F, _>(&ins)?,
            outs: &views,
            kept: &saved.kept,
            wanted: &self.wanted,
        });
        for (index, grad) in grads.into_iter().enumerate() {
            match (&self.sources[index], self.wanted[index]) {
                (_, false) => {}
                (Some((sink, output)), true) => sink.receive(*output, grad),
                (None, true) => lock(&self.grads)[index] = Some(grad),
            }
        }
        Ok(())
    }

    /// What candle is told of the gradient of input `index`, which it knows as `tied`. It wants
    /// something for every tracked one; nobody reads a token's gradient.
    pub(super) fn take_grad(&self, index: usize, tied: &Tensor) -> Result<Option<Tensor>> {
        if self.sources[index].is_some() {
            return Ok(Some(tied.clone()));
        }
        match lock(&self.grads)[index].take() {
            Some(grad) => Tensor::from_vec(grad, tied.shape(), &Device::Cpu).map(Some),
            None if tied.track_op() => tied.zeros_like().map(Some),
            None => Ok(None),
        }
    }
}

impl<O: FusedOp, F: Float> Sink<F> for State<O, F> {
    fn receive(&self, index: usize, grad: Vec<F>) {
        let mut outs = lock(&self.outs);
        match &mut outs[index].grad {
            Some(sum) => crate::ops::lanes::add_to(sum, &grad),
            empty => *empty = Some(grad),
        }
    }
}
