//! The state of one application of a fused op, shared by its nodes in candle's graph.

use super::lock;
use super::producers::{NodePlace, Sink, Source};
use super::values::{Arrived, OpOn, Return, Values};
use candle_core::{bail, Result, Tensor, TensorId};
use std::sync::{Arc, Mutex, Weak};

/// Number of inputs that a tap carries, all but the last.
pub(super) const INPUTS_OF_TAP: usize = 3;

/// An application of `op`: its saved tensors and the gradients that pass through it.
pub(super) struct Application<V: Values> {
    pub(super) op: Box<dyn OpOn<V>>,
    /// The tensors saved for the backward pass, which runs once and then frees them.
    saved: Mutex<Option<Saved<V>>>,
    /// Whether each input needs a gradient.
    needs_grad: Vec<bool>,
    /// The fused op that produced each input, if one did.
    sources: Vec<Option<Producer<V>>>,
    outs: Mutex<Vec<Output<V>>>,
    grads: Mutex<Vec<Option<V>>>,
    /// The inputs that are variables.
    variables: Vec<Option<Tensor>>,
    /// The ids of the taps and the root; empty if candle must pass an input's gradient on.
    nodes: Mutex<Vec<TensorId>>,
}

struct Saved<V> {
    ins: Vec<Tensor>,
    values: Vec<V>,
}

/// An application of a fused op and the index of one of its outputs.
type Producer<V> = (Arc<dyn Sink<V>>, usize);

/// An output: the ids of its tensors while they are alive, its value until the backward pass, and its gradients so far,
/// whose sum is that of the output.
struct Output<V> {
    ids: Vec<TensorId>,
    value: Option<Tensor>,
    grads: Vec<V>,
}

impl<V: Values> Application<V> {
    pub(super) fn new(op: Box<dyn OpOn<V>>, ins: &[Tensor], sources: &[Option<Source<V>>], values: Vec<V>) -> Self {
        let empty = |_| Output { ids: Vec::new(), value: None, grads: Vec::new() };
        let source = |s: &Option<Source<V>>| s.as_ref().map(|s| (s.sink.clone(), s.index));
        Self {
            outs: Mutex::new(op.out_shapes().iter().map(empty).collect()),
            saved: Mutex::new(Some(Saved { ins: ins.iter().map(Tensor::detach).collect(), values })),
            needs_grad: ins.iter().map(Tensor::track_op).collect(),
            sources: sources.iter().map(source).collect(),
            grads: Mutex::new(ins.iter().map(|_| None).collect()),
            variables: ins.iter().map(|x| x.is_variable().then(|| x.clone())).collect(),
            nodes: Mutex::default(),
            op,
        }
    }

    /// Registers the taps, in the order of their inputs, and the root, unless an input's gradient must be passed on by
    /// candle, since neither a fused op produced the input nor is it a variable.
    pub(super) fn has_nodes(self: &Arc<Self>, taps: &[Tensor], root: &Tensor) {
        let others = (0..self.needs_grad.len()).filter(|i| self.sources[*i].is_none() && self.variables[*i].is_none());
        if others.into_iter().any(|i| self.needs_grad[i]) {
            return;
        }
        let firsts = (0..taps.len()).map(|tap| Some(INPUTS_OF_TAP * tap)).chain([None]);
        for (node, first) in taps.iter().chain([root]).zip(firsts) {
            let weak: Weak<Self> = Arc::downgrade(self);
            V::registry().insert_node(node.id(), weak, first);
            lock(&self.nodes).push(node.id());
        }
    }

    /// Registers the tensor `out`, which candle's graph ties to the token `root`, as output `index`.
    pub(super) fn produced(self: &Arc<Self>, index: usize, out: &Tensor, root: &Tensor) {
        let weak: Weak<Self> = Arc::downgrade(self);
        V::registry().insert(out, weak, index, root.clone());
        let mut outs = lock(&self.outs);
        outs[index].ids.push(out.id());
        outs[index].value = Some(out.detach());
    }

    /// Removes output `index`, whose tensor is no longer alive, from the registry.
    pub(super) fn dropped(&self, index: usize) {
        let ids = std::mem::take(&mut lock(&self.outs)[index].ids);
        ids.into_iter().for_each(|id| V::registry().remove(id));
    }

    /// Computes the gradients of all inputs from those of the outputs, and passes on those of inputs
    /// that fused ops produced.
    pub(super) fn run_backward(&self) -> Result<()> {
        let saved = self.take_saved()?;
        let arrived = |out: &mut Output<V>| -> Result<Arrived<V>> {
            let grad = V::total(std::mem::take(&mut out.grads))?;
            Ok(grad.zip(out.value.take()))
        };
        let outs = lock(&self.outs).iter_mut().map(arrived).collect::<Result<Vec<_>>>()?;
        let begun = if self.op.continues() { self.take_begun()? } else { Vec::new() };
        let grads = self.op.backward(Return {
            ins: &saved.ins,
            outs: &outs,
            saved: &saved.values,
            needs_grad: &self.needs_grad,
            begun: &begun,
        })?;
        self.pass_on(grads)
    }

    /// Takes the gradients that have arrived so far for inputs that are variables or outputs of fused ops.
    fn take_begun(&self) -> Result<Vec<Option<V>>> {
        let begun = |index: usize| match (&self.sources[index], &self.variables[index]) {
            _ if !self.needs_grad[index] => Ok(None),
            (Some((sink, output)), _) => sink.take_received(*output),
            (None, Some(variable)) => Ok(V::leaves(|leaves| leaves.take_sum(variable))),
            (None, None) => Ok(None),
        };
        (0..self.needs_grad.len()).map(begun).collect()
    }

    /// Takes what was saved for the backward pass, which runs once.
    fn take_saved(&self) -> Result<Saved<V>> {
        let Some(saved) = lock(&self.saved).take() else {
            bail!("{}: the backward pass of a graph with fused ops runs once", self.op.name());
        };
        Ok(saved)
    }

    /// Passes the gradients of inputs on to the fused ops that produced them, and keeps the others.
    fn pass_on(&self, grads: Vec<Option<V>>) -> Result<()> {
        for (index, grad) in grads.into_iter().enumerate() {
            match (&self.sources[index], grad) {
                (_, None) => {}
                (Some((sink, output)), Some(grad)) => sink.receive(*output, grad)?,
                (None, grad) => lock(&self.grads)[index] = grad,
            }
        }
        Ok(())
    }

    /// The gradient of input `index` for candle, whose graph has `tied` in the input's place. Candle
    /// requires one for every tracked argument; a token's is never read.
    pub(super) fn take_grad(&self, index: usize, tied: &Tensor) -> Result<Option<Tensor>> {
        if self.sources[index].is_some() {
            return Ok(Some(tied.clone()));
        }
        let Some(grad) = lock(&self.grads)[index].take() else {
            let zeros = tied.track_op().then(|| tied.zeros_like());
            return zeros.transpose();
        };
        let grad = V::leaves(|leaves| leaves.take(tied, grad))?;
        grad.map(|grad| grad.into_tensor(tied.shape())).transpose()
    }
}

impl<V: Values> Sink<V> for Application<V> {
    fn is_also(&self, index: usize, id: TensorId) {
        lock(&self.outs)[index].ids.push(id);
    }

    fn receive(&self, index: usize, grad: V) -> Result<()> {
        V::hold(&mut lock(&self.outs)[index].grads, grad)
    }

    fn take_received(&self, index: usize) -> Result<Option<V>> {
        V::total(std::mem::take(&mut lock(&self.outs)[index].grads))
    }

    fn saves_gradients_of(&self, index: usize) -> bool {
        index == 0 && self.op.saves_gradients()
    }

    fn pass_saved_back(&self) -> Result<()> {
        let grads = self.take_saved()?.values.into_iter().zip(&self.needs_grad);
        self.pass_on(grads.map(|(grad, needs)| needs.then_some(grad)).collect())
    }

    fn pass_back(&self, node: NodePlace) -> Result<()> {
        let Some(first) = node else { return self.run_backward() };
        let variables = self.variables.iter().enumerate().skip(first).take(INPUTS_OF_TAP);
        for (index, variable) in variables.filter_map(|(index, x)| Some((index, x.as_ref()?))) {
            // Only the zeros of a variable that the op has no gradient for are left to add.
            if let Some(zeros) = self.take_grad(index, variable)? {
                V::leaves(|leaves| leaves.take(variable, V::of(zeros)?))?;
            }
        }
        Ok(())
    }
}

impl<V: Values> Drop for Application<V> {
    fn drop(&mut self) {
        V::registry().remove_nodes(&lock(&self.nodes));
    }
}
