//! What the nodes of one application share.

use super::graph::{Root, Tap};
use super::producers::{Sink, Source};
use super::values::{Arrived, Values};
use super::{lock, FusedOp};
use candle_core::{bail, Result, Tensor, TensorId};
use std::sync::{Arc, Mutex, Weak};

/// The most inputs that taps and a root can carry.
const MOST: usize = 9;

pub(super) struct State<O, V: Values> {
    op: O,
    /// What the backward pass reads; it runs once, and then lets go of it.
    saved: Mutex<Option<Saved<V>>>,
    wanted: Vec<bool>,
    /// Who made an input, if a fused op did.
    sources: Vec<Option<Maker<V>>>,
    outs: Mutex<Vec<Output<V>>>,
    grads: Mutex<Vec<Option<V>>>,
}

struct Saved<V> {
    ins: Vec<Tensor>,
    kept: Vec<V>,
}

/// A fused op and which of its outputs.
type Maker<V> = (Arc<dyn Sink<V>>, usize);

/// An output: its name and value while somebody holds it, and the gradient that has arrived.
struct Output<V> {
    id: Option<TensorId>,
    value: Option<Tensor>,
    grad: Option<V>,
}

impl<O: FusedOp, V: Values> State<O, V> {
    pub(super) fn new(op: O, ins: &[Tensor], sources: &[Option<Source<V>>], kept: Vec<V>) -> Self {
        let empty = |_| Output {
            id: None,
            value: None,
            grad: None,
        };
        let source = |s: &Option<Source<V>>| s.as_ref().map(|s| (s.sink.clone(), s.index));
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
        sources: &[Option<Source<V>>],
    ) -> Result<Tensor> {
        if ins.len() > MOST {
            let given = ins.len();
            bail!("{}: {given} inputs, one to {MOST} are possible", O::NAME);
        }
        let tied = |(x, source): (&Tensor, &Option<Source<V>>)| match source {
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
        V::registry().insert(out, weak, index, root.clone());
        let mut outs = lock(&self.outs);
        outs[index].id = Some(out.id());
        outs[index].value = Some(out.detach());
    }

    /// Nobody holds output `index` any more, so no new op can use it.
    pub(super) fn dropped(&self, index: usize) {
        let id = lock(&self.outs)[index].id.take();
        if let Some(id) = id {
            V::registry().remove(id);
        }
    }

    pub(super) fn run_backward(&self) -> Result<()> {
        let Some(saved) = lock(&self.saved).take() else {
            bail!("{}: the backward pass of a graph runs once", O::NAME);
        };
        let outs: Vec<Arrived<V>> = lock(&self.outs)
            .iter_mut()
            .map(|out| out.grad.take().zip(out.value.take()))
            .collect();
        let grads = V::backward(&self.op, &saved.ins, &outs, &saved.kept, &self.wanted)?;
        for (index, grad) in grads.into_iter().enumerate() {
            match (&self.sources[index], grad) {
                (_, None) => {}
                (Some((sink, output)), Some(grad)) => sink.receive(*output, grad)?,
                (None, grad) => lock(&self.grads)[index] = grad,
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
        let Some(grad) = lock(&self.grads)[index].take() else {
            let zeros = tied.track_op().then(|| tied.zeros_like());
            return zeros.transpose();
        };
        let grad = V::leaves(|leaves| leaves.take(tied, grad))?;
        Ok(grad.map(|grad| grad.into_tensor(tied.shape())))
    }
}

impl<O: FusedOp, V: Values> Sink<V> for State<O, V> {
    fn receive(&self, index: usize, grad: V) -> Result<()> {
        match &mut lock(&self.outs)[index].grad {
            Some(sum) => V::add(sum, grad),
            empty => {
                *empty = Some(grad);
                Ok(())
            }
        }
    }
}
