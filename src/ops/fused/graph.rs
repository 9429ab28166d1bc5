//! The three kinds of node that candle sees: taps, one root, outs.

use super::producers::Sink;
use super::values::Values;
use super::{lock, FusedOp, State};
use crate::gpu;
use candle_core::{bail, CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, Layout};
use candle_core::{Result, Shape, Storage, Tensor};
use std::sync::{Arc, Mutex};

fn token() -> Result<(CpuStorage, Shape)> {
    Ok((CpuStorage::F32(vec![0.0]), Shape::from(1)))
}

/// Stands for up to three inputs, `first` and its followers.
pub(super) struct Tap<O, V: Values> {
    pub(super) state: Arc<State<O, V>>,
    pub(super) first: usize,
}

/// Stands for the whole application.
pub(super) struct Root<O, V: Values>(pub(super) Arc<State<O, V>>);

/// Stands for output `index`, computed before the op was recorded.
pub(super) struct Out<O: FusedOp, V: Values> {
    pub(super) state: Arc<State<O, V>>,
    pub(super) index: usize,
    pub(super) ready: Mutex<Option<(Storage, Shape)>>,
}

impl<O: FusedOp, V: Values> CustomOp1 for Out<O, V> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        match lock(&self.ready).take() {
            Some((Storage::Cpu(values), shape)) => Ok((values, shape)),
            _ => bail!("{}: output {} is not on the CPU", O::NAME, self.index),
        }
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        match lock(&self.ready).take() {
            Some((Storage::Cuda(values), shape)) => Ok((values, shape)),
            _ => bail!("{}: output {} is not on a GPU", O::NAME, self.index),
        }
    }

    fn bwd(&self, token: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        self.state
            .receive(self.index, V::copy(&grad.contiguous()?)?)?;
        Ok(Some(token.clone())) // nobody reads a token's gradient
    }
}

impl<O: FusedOp, V: Values> Drop for Out<O, V> {
    fn drop(&mut self) {
        self.state.dropped(self.index);
    }
}

type Grad = Option<Tensor>;

/// The type that candle's traits pass per argument, whichever it is.
macro_rules! storage {
    ($arg:ident) => {
        &CpuStorage
    };
    ($arg:ident on a gpu) => {
        &CudaStorage
    };
}

/// Taps and roots with as many arguments as candle's trait has.
macro_rules! custom_ops {
    ($custom:ident, $grads:ty, $($arg:ident $offset:literal),+) => {
        impl<O: FusedOp, V: Values> $custom for Tap<O, V> {
            fn name(&self) -> &'static str {
                O::NAME
            }

            fn cpu_fwd(&self, $(_: storage!($arg), _: &Layout),+) -> Result<(CpuStorage, Shape)> {
                token()
            }

            fn cuda_fwd(
                &self,
                $($arg: storage!($arg on a gpu), _: &Layout),+
            ) -> Result<(CudaStorage, Shape)> {
                gpu::token([$($arg),+][0])
            }

            #[allow(clippy::needless_question_mark)] // needless for one argument only
            fn bwd(&self, $($arg: &Tensor,)+ _: &Tensor, _: &Tensor) -> Result<$grads> {
                Ok(($(self.state.take_grad(self.first + $offset, $arg)?),+))
            }
        }

        impl<O: FusedOp, V: Values> $custom for Root<O, V> {
            fn name(&self) -> &'static str {
                O::NAME
            }

            fn cpu_fwd(&self, $(_: storage!($arg), _: &Layout),+) -> Result<(CpuStorage, Shape)> {
                token()
            }

            fn cuda_fwd(
                &self,
                $($arg: storage!($arg on a gpu), _: &Layout),+
            ) -> Result<(CudaStorage, Shape)> {
                gpu::token([$($arg),+][0])
            }

            fn bwd(&self, $($arg: &Tensor,)+ _: &Tensor, _: &Tensor) -> Result<$grads> {
                self.0.run_backward()?;
                Ok(($(Some($arg.clone())),+))
            }
        }
    };
}

custom_ops!(CustomOp1, Grad, a 0);
custom_ops!(CustomOp2, (Grad, Grad), a 0, b 1);
custom_ops!(CustomOp3, (Grad, Grad, Grad), a 0, b 1, c 2);
