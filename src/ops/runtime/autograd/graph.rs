//! The three kinds of node that an application of a fused op has in candle's graph: taps, one root,
//! outs.

use super::lock;
use super::producers::{Sink, Source};
use super::state::{Application, INPUTS_OF_TAP};
use super::values::Values;
use crate::gpu;
use candle_core::{bail, CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, Layout};
use candle_core::{Result, Shape, Storage, Tensor};
use std::sync::{Arc, Mutex};

/// The most inputs that three taps can carry, and one root three taps.
pub(crate) const MAX_INPUTS: usize = 9;

/// The value of a tap and of a root: an empty tensor. Candle's backward pass clears a gradient for it and adds to that,
/// which would take two launches on a GPU if it had elements.
fn token() -> Result<(CpuStorage, Shape)> {
    Ok((CpuStorage::F32(Vec::new()), Shape::from(0)))
}

/// A tap or the root of an application.
struct Node<V: Values> {
    state: Arc<Application<V>>,
    /// The index of a tap's first input; `None` for the root, whose backward pass is that of the op.
    first: Option<usize>,
}

/// The node of output `index`, computed before the op was recorded.
pub(super) struct OutputNode<V: Values> {
    pub(super) state: Arc<Application<V>>,
    pub(super) index: usize,
    pub(super) ready: Mutex<Option<(Storage, Shape)>>,
}

/// The token of an application, tied to all its tracked inputs: an input that a fused op produced is
/// represented by the token of that op.
pub(super) fn root<V: Values>(
    state: &Arc<Application<V>>,
    ins: &[Tensor],
    sources: &[Option<Source<V>>],
) -> Result<Tensor> {
    if ins.len() > MAX_INPUTS {
        let given = ins.len();
        bail!("{}: {given} inputs, but at most {MAX_INPUTS} are possible", state.op.name());
    }
    let tied = |(x, source): (&Tensor, &Option<Source<V>>)| match source {
        Some(source) => source.token.clone(),
        None => x.clone(),
    };
    let tied: Vec<Tensor> = ins.iter().zip(sources).map(tied).collect();
    let mut tokens = Vec::new();
    for (third, tied) in tied.chunks(INPUTS_OF_TAP).enumerate() {
        let tap = Node { state: state.clone(), first: Some(INPUTS_OF_TAP * third) };
        tokens.push(match tied {
            [a, b, c] => a.apply_op3(b, c, tap)?,
            [a, b] => a.apply_op2(b, tap)?,
            [a] => a.apply_op1(tap)?,
            _ => unreachable!("chunks of three"),
        });
    }
    let root = Node { state: state.clone(), first: None };
    let root = match &tokens[..] {
        [a, b, c] => a.apply_op3(b, c, root),
        [a, b] => a.apply_op2(b, root),
        [a] => a.apply_op1(root),
        _ => bail!("{}: no inputs", state.op.name()),
    }?;
    state.has_nodes(&tokens, &root);
    Ok(root)
}

impl<V: Values> CustomOp1 for OutputNode<V> {
    fn name(&self) -> &'static str {
        self.state.op.name()
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        match lock(&self.ready).take() {
            Some((Storage::Cpu(values), shape)) => Ok((values, shape)),
            _ => bail!("{}: output {} is not on the CPU", self.state.op.name(), self.index),
        }
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        match lock(&self.ready).take() {
            Some((Storage::Cuda(values), shape)) => Ok((values, shape)),
            _ => bail!("{}: output {} is not on a GPU", self.state.op.name(), self.index),
        }
    }

    fn bwd(&self, token: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        // Candle stores every gradient in a tensor of its own and has removed this one, so its memory may be reused.
        self.state.receive(self.index, V::of(grad.contiguous()?)?)?;
        Ok(Some(token.clone())) // a token's gradient is never read
    }
}

impl<V: Values> Drop for OutputNode<V> {
    fn drop(&mut self) {
        self.state.dropped(self.index);
    }
}

type Grad = Option<Tensor>;

/// The type in which candle's traits pass an argument.
macro_rules! storage {
    ($arg:ident) => {
        &CpuStorage
    };
    ($arg:ident on a gpu) => {
        &CudaStorage
    };
}

/// Implements one of candle's traits of ops, by the number of arguments, for taps and roots.
macro_rules! custom_ops {
    ($custom:ident, $grads:ty, $($arg:ident $offset:literal),+) => {
        impl<V: Values> $custom for Node<V> {
            fn name(&self) -> &'static str {
                self.state.op.name()
            }

            fn cpu_fwd(&self, $(_: storage!($arg), _: &Layout),+) -> Result<(CpuStorage, Shape)> {
                token()
            }

            fn cuda_fwd(
                &self,
                $($arg: storage!($arg on a gpu), _: &Layout),+
            ) -> Result<(CudaStorage, Shape)> {
                gpu::empty([$($arg),+][0])
            }

            fn bwd(&self, $($arg: &Tensor,)+ _: &Tensor, _: &Tensor) -> Result<$grads> {
                match self.first {
                    Some(first) => Ok(($(self.state.take_grad(first + $offset, $arg)?),+)),
                    None => {
                        self.state.run_backward()?;
                        Ok(($(Some($arg.clone())),+))
                    }
                }
            }
        }
    };
}

custom_ops!(CustomOp1, Grad, a 0);
custom_ops!(CustomOp2, (Grad, Grad), a 0, b 1);
custom_ops!(CustomOp3, (Grad, Grad, Grad), a 0, b 1, c 2);
