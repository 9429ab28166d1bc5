//! The three kinds of node that candle sees: taps, one root, outs.

use super::producers::Sink;
use super::{lock, slice, FusedOp, State};
use crate::ops::float::Float;
use candle_core::{bail, CpuStorage, CustomOp1, CustomOp2, CustomOp3, Layout};
use candle_core::{Result, Shape, Tensor};
use std::sync::{Arc, Mutex};

fn token() -> Result<(CpuStorage, Shape)> {
    Ok((CpuStorage::F32(vec![0.0]), Shape::from(1)))
}

/// Stands for up to three inputs, `first` and its followers.
pub(super) struct Tap<O, F: Float> {
    pub(super) state: Arc<State<O, F>>,
    pub(super) first: usize,
}

/// Stands for the whole application.
pub(super) struct Root<O, F: Float>(pub(super) Arc<State<O, F>>);

/// Stands for output `index`, computed before the op was recorded.
pub(super) struct Out<O: FusedOp, F: Float> {
    pub(super) state: Arc<State<O, F>>,
    pub(super) index: usize,
    pub(super) ready: Mutex<Option<(CpuStorage, Shape)>>,
}

impl<O: FusedOp, F: Float> CustomOp1 for Out<O, F> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        match lock(&self.ready).take() {
            Some(ready) => Ok(ready),
            None => bail!("{}: output {} was moved out before", O::NAME, self.index),
        }
    }

    fn bwd(&self, token: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let grad = grad.contiguous()?;
        let (storage, layout) = grad.storage_and_layout();
        let values = slice::<F>(&storage, layout)?.to_vec();
        self.state.receive(self.index, values);
        Ok(Some(token.clone())) // nobody reads a token's gradient
    }
}

impl<O: FusedOp, F: Float> Drop for Out<O, F> {
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
}

/// Taps and roots with as many arguments as candle's trait has.
macro_rules! custom_ops {
    ($custom:ident, $grads:ty, $($arg:ident $offset:literal),+) => {
        impl<O: FusedOp, F: Float> $custom for Tap<O, F> {
            fn name(&self) -> &'static str {
                O::NAME
            }

            fn cpu_fwd(&self, $(_: storage!($arg), _: &Layout),+) -> Result<(CpuStorage, Shape)> {
                token()
            }

            #[allow(clippy::needless_question_mark)] // needless for one argument only
            fn bwd(&self, $($arg: &Tensor,)+ _: &Tensor, _: &Tensor) -> Result<$grads> {
                Ok(($(self.state.take_grad(self.first + $offset, $arg)?),+))
            }
        }

        impl<O: FusedOp, F: Float> $custom for Root<O, F> {
            fn name(&self) -> &'static str {
                O::NAME
            }

            fn cpu_fwd(&self, $(_: storage!($arg), _: &Layout),+) -> Result<(CpuStorage, Shape)> {
                token()
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
