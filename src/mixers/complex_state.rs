//! Time-invariant system with one complex diagonal state for all channels (MIMO): the LRU and S5,
//!
//! h_i = λ ⊙ h_{i-1} + B u_i,  y_i = Re(C h_i) + D ⊙ u_i
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | h, λ | state and its eigenvalues, complex; stored as real, then imaginary parts | `(batch, 2, N)`, `(N)` |
//! | B, C | complex input and output matrix | `(N, d)`, `(d, N)` |
//! | D | feedthrough (`skip`) | `(d)` |

use super::complex::Complex;
use super::{Mixer, MixerOption, MixerSpec, Recurrent, State};
use crate::ltv::{Ltv, OffDiagonal};
use crate::nn::{linear, Cx, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Discrete-time matrices.
pub(super) struct ComplexMatrices {
    /// Eigenvalues λ, `(N)`.
    pub lambda: Complex,
    /// Input matrix B, `(N, d)`.
    pub b: Complex,
    /// Output matrix C, `(d, N)`.
    pub c: Complex,
}

/// Parametrisation of such a system.
pub(super) trait ComplexState {
    fn matrices(&self) -> Result<ComplexMatrices>;

    /// Feedthrough D, `(d)`.
    fn skip(&self) -> &Tensor;

    /// Number of complex states, N.
    fn states(&self) -> usize;
}

/// A [`ComplexState`] as a mixer.
pub(super) struct ComplexMixer<S> {
    core: S,
    glu: Option<Glu>,
}

/// Nonlinearity of the published block after its state: (W_1 g + b_1) ⊙ σ(W_2 g + b_2) with g = gelu(y), or
/// g ⊙ σ(W_2 g + b_2).
pub(super) struct Glu {
    /// W_1 and b_1; `None` is the identity.
    value: Option<[Tensor; 2]>,
    /// W_2 and b_2.
    gate: [Tensor; 2],
}

impl Glu {
    /// The nonlinearity of `spec`, whose value has a linear map or is the identity; `None` if it has none.
    pub fn of(value: bool, spec: &MixerSpec, params: &Params) -> Result<Option<Self>> {
        if !has_glu(spec) {
            return Ok(None);
        }
        let d = spec.d_model;
        let map = |[weight, bias]: [&str; 2]| -> Result<[Tensor; 2]> {
            Ok([params.weight(weight, (d, d), spec.input_std)?, params.bias(bias, d, d)?])
        };
        Ok(Some(Self { value: value.then(|| map(["wv", "bv"])).transpose()?, gate: map(["wg", "bg"])? }))
    }

    /// The nonlinearity of y `(.., d)`, or y itself without one.
    pub fn after(y: Tensor, glu: Option<&Self>) -> Result<Tensor> {
        let Some(Self { value, gate: [w, b] }) = glu else {
            return Ok(y);
        };
        let g = ops::gelu(&y)?;
        let gate = ops::sigmoid(&linear(&g, w, Some(b))?)?;
        match value {
            Some([w, b]) => linear(&g, w, Some(b))? * gate,
            None => g * gate,
        }
    }
}

/// Nonlinearity after the state, an option of the same name in every mixer of this kind.
pub(super) const ACTIVATION: MixerOption = MixerOption {
    name: "activation",
    default: |_| "none",
    accepts: |v| v == "none" || v == "glu",
    implied: true,
    ..MixerOption::DEFAULT
};

/// Whether the option [`ACTIVATION`] asks for a nonlinearity.
pub(super) fn has_glu(spec: &MixerSpec) -> bool {
    spec.option(ACTIVATION.name) == Some("glu")
}

impl<S> ComplexMixer<S> {
    /// `core` with the nonlinearity of `spec`, whose value has a linear map or is the identity.
    pub fn new(core: S, value: bool, spec: &MixerSpec, params: &Params) -> Result<Self> {
        Ok(Self { core, glu: Glu::of(value, spec, params)? })
    }
}

impl ComplexMatrices {
    /// B u `(.., 2N)`, real parts first, for u `(.., d)`.
    fn bu(&self, u: &Tensor) -> Result<Tensor> {
        linear(u, &ops::join(&[&self.b.re, &self.b.im], 0)?, None)
    }

    /// y for h `(.., 2N)` and u `(.., d)`.
    fn readout(&self, h: &Tensor, u: &Tensor, skip: &Tensor) -> Result<Tensor> {
        let c = ops::join(&[&self.c.re, &self.c.im.neg()?], 1)?;
        ops::add_scaled(&linear(h, &c, None)?, u, skip)
    }
}

impl<S: ComplexState> Mixer for ComplexMixer<S> {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, _) = u.dims3()?;
        let shape = (batch, seq_len, 2, self.core.states());
        let matrices = self.core.matrices()?;
        // In the parameters' dtype: bf16 rounds a decay near 1 to 1.
        let Complex { re, im } = &matrices.lambda;
        let lambda = Tensor::stack(&[re, im], 0)?.broadcast_as(shape)?;
        let bu = ops::reshape(&matrices.bu(u)?, shape)?; // (batch, seq_len, 2, N)
        let bu = bu.to_dtype(lambda.dtype())?;
        let h = ops::complex_scan(&lambda.contiguous()?, &bu)?;
        let h = ops::reshape(&h, (batch, seq_len, 2 * self.core.states()))?.to_dtype(u.dtype())?; // (batch, seq_len, 2N)
        Glu::after(matrices.readout(&cx.select(&h)?, &cx.select(u)?, self.core.skip())?, self.glu.as_ref())
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        2 * self.core.states()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    /// System of 2N channels with one state each: N real parts, then N imaginary parts.
    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        if self.glu.is_some() {
            return Ok(None);
        }
        let ComplexMatrices { lambda, b, c } = self.core.matrices()?;
        let states = self.core.states();
        let repeat = |x: &Tensor| {
            let count = x.elem_count();
            x.reshape((1, count, 1))?.broadcast_as((u.dim(0)?, count, 1))
        };
        let ones = repeat(&Tensor::ones(2 * states, u.dtype(), u.device())?)?;
        let decay = repeat(&Tensor::cat(&[&lambda.re, &lambda.re], 0)?)?;
        let skip = self.core.skip();
        let eye = Tensor::eye(skip.elem_count(), skip.dtype(), skip.device())?;
        Ok(Some(Ltv {
            off_diagonal: OffDiagonal::Complex(repeat(&lambda.im)?),
            value: Some(Tensor::cat(&[&b.re, &b.im], 0)?),
            output: Some(Tensor::cat(&[&c.re, &c.im.neg()?], 1)?),
            direct: Some(eye.broadcast_mul(skip)?),
            ..Ltv::new(decay, ones.clone(), ones)
        }))
    }

    fn without_system(&self) -> &'static str {
        "the GELU and the GLU after its state are not linear in it; without them (activation=none) it is one"
    }
}

impl<S: ComplexState> Recurrent for ComplexMixer<S> {
    /// h `(batch, 2, N)`.
    fn init(&self, batch: usize) -> Result<State> {
        let like = self.core.skip();
        let shape = (batch, 2, self.core.states());
        let zeros = Tensor::zeros(shape, like.dtype(), like.device())?;
        Ok(State::new(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let matrices = self.core.matrices()?;
        let part = |i| state.0[0].narrow(1, i, 1)?.squeeze(1);
        let h = Complex { re: part(0)?, im: part(1)? };
        let lambda_h = h.times(&matrices.lambda)?;
        let lambda_h = Tensor::stack(&[lambda_h.re, lambda_h.im], 1)?; // (batch, 2, N)
        let h = (&lambda_h + matrices.bu(x_t)?.reshape(lambda_h.shape())?)?;
        let y = matrices.readout(&h.flatten_from(1)?, x_t, self.core.skip())?;
        *state = State::new(vec![h]);
        Glu::after(y, self.glu.as_ref())
    }
}
