//! A complex diagonal state that all channels share, the same at every step: what the LRU and S5 have in common.
//!
//! h_i = λ ⊙ h_{i-1} + B u_i,  y_i = Re(C h_i) + D ⊙ u_i

use super::complex::Complex;
use super::{Mixer, Recurrent, State};
use crate::ltv::{Beside, Ltv};
use crate::nn::{linear, Cx};
use crate::ops;
use candle_core::{Result, Tensor};

/// The matrices as the recurrence uses them.
pub(super) struct Matrices {
    /// `(N)`.
    pub lambda: Complex,
    /// `(N, d)`.
    pub b: Complex,
    /// `(d, N)`.
    pub c: Complex,
}

/// A parametrisation of such a state.
pub(super) trait ComplexState {
    fn matrices(&self) -> Result<Matrices>;

    /// D, `(d)`.
    fn skip(&self) -> &Tensor;

    /// N, complex numbers.
    fn states(&self) -> usize;
}

/// A [`ComplexState`] as a mixer.
pub(super) struct ComplexMixer<S>(pub S);

impl Matrices {
    /// B u for u `(.., d)`: `(.., 2N)`, real parts first.
    fn written(&self, u: &Tensor) -> Result<Tensor> {
        linear(u, &Tensor::cat(&[&self.b.re, &self.b.im], 0)?, None)
    }

    /// y for h `(.., 2N)` and u `(.., d)`.
    fn read(&self, h: &Tensor, u: &Tensor, skip: &Tensor) -> Result<Tensor> {
        let c = Tensor::cat(&[&self.c.re, &self.c.im.neg()?], 1)?;
        ops::add_scaled(&linear(h, &c, None)?, u, skip)
    }
}

impl<S: ComplexState> Mixer for ComplexMixer<S> {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, _) = u.dims3()?;
        let shape = (batch, seq_len, 2, self.0.states());
        let matrices = self.0.matrices()?;
        // In the type of the parameters: of a decay near 1 half precision leaves nothing.
        let Complex { re, im } = &matrices.lambda;
        let lambda = Tensor::stack(&[re, im], 0)?.broadcast_as(shape)?;
        let x = matrices.written(u)?.reshape(shape)?;
        let x = x.to_dtype(lambda.dtype())?;
        let h = ops::complex_scan(&lambda.contiguous()?, &x)?;
        let h = h.flatten_from(2)?.to_dtype(u.dtype())?;
        matrices.read(&cx.select(&h)?, &cx.select(u)?, self.0.skip())
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        2 * self.0.states()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    /// N channels of real parts, and N of imaginary ones.
    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let Matrices { lambda, b, c } = self.0.matrices()?;
        let states = self.0.states();
        let along = |x: &Tensor| {
            let count = x.elem_count();
            x.reshape((1, count, 1))?
                .broadcast_as((u.dim(0)?, count, 1))
        };
        let ones = along(&Tensor::ones(2 * states, u.dtype(), u.device())?)?;
        let decay = along(&Tensor::cat(&[&lambda.re, &lambda.re], 0)?)?;
        let skip = self.0.skip();
        let direct = Tensor::eye(skip.elem_count(), skip.dtype(), skip.device())?;
        Ok(Some(Ltv {
            beside: Beside::Turn(along(&lambda.im)?),
            value: Some(Tensor::cat(&[&b.re, &b.im], 0)?),
            output: Some(Tensor::cat(&[&c.re, &c.im.neg()?], 1)?),
            direct: Some(direct.broadcast_mul(skip)?),
            ..Ltv::new(decay, ones.clone(), ones)
        }))
    }
}

impl<S: ComplexState> Recurrent for ComplexMixer<S> {
    /// The state `(batch, 2, N)`.
    fn init(&self, batch: usize) -> Result<State> {
        let like = self.0.skip();
        let shape = (batch, 2, self.0.states());
        let zeros = Tensor::zeros(shape, like.dtype(), like.device())?;
        Ok(State(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let matrices = self.0.matrices()?;
        let part = |i| state.0[0].narrow(1, i, 1)?.squeeze(1);
        let before = Complex {
            re: part(0)?,
            im: part(1)?,
        };
        let turned = before.times(&matrices.lambda)?;
        let turned = Tensor::stack(&[turned.re, turned.im], 1)?;
        let h = (&turned + matrices.written(x_t)?.reshape(turned.shape())?)?;
        let y = matrices.read(&h.flatten_from(1)?, x_t, self.0.skip())?;
        *state = State(vec![h]);
        Ok(y)
    }
}
