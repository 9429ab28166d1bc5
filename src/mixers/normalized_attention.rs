//! Normalized attention (22), (29), (30): linear attention without a feature map, whose normaliser η is a learnt
//! function of the current token,
//!
//! o_i = (1/η_i) Σ_{j≤i} (q_i·k_j) v_j,  η = e^z, softplus(z) or σ(z),  z = w·u + b
//!
//! Scores may be negative, are not scaled, and do not sum to 1. Generalized linear attention (17) has η = 1.

use super::attention::{accumulate, Projections};
use super::rotary::RotaryPositions;
use super::{
    attention, Core, Entry, Family, Growth, Mixer, MixerSpec, Recurrent, ReleasedBlock, State, StateNormPlace,
};
use crate::config::StateMixer;
use crate::ltv::Ltv;
use crate::nn::{linear, Cx, Params};
use crate::ops::{self, Expression, Weights};
use candle_core::{Result, Tensor};

/// η = e^z, the paper's choice.
pub(super) const EXP: Entry = Entry {
    name: "normalized",
    equation: "o_i = Σ_j (q_i·k_j) v_j / η_i, η = e^(w·u_i)",
    cite: "(22), (29), (30)",
    variants: &["reference", "paper"],
    dsf: "N = n d/s",
    heads: true,
    expands: true,
    rotary: true,
    bidirectional: true,
    // Unlike other attention mixers, its released config keeps the MLP of the block.
    released: ReleasedBlock { state_mixer: StateMixer::Mlp, ..ReleasedBlock::ATTENTION },
    state_norm: StateNormPlace::No("divides each head by a number, which a norm of the head takes out again"),
    growth: Growth::Exact { zeroed: &["wq", "wk", "bq", "bk"], scaled: &[] },
    stem: "normalized_attention_exp",
    uncounted: &["wn"],
    work: |spec| Some(attention::work(spec, Core::ChunkedScan)),
    build: |spec, params| build(spec, params, Some(EtaFunction::Exp)),
    ..Entry::of(Family::LinearAttention)
};

/// η = softplus(z).
pub(super) const SOFTPLUS: Entry = Entry {
    name: "normalized-softplus",
    equation: "o_i = Σ_j (q_i·k_j) v_j / η_i, η = softplus(w·u_i)",
    stem: "normalized_attention_softplus",
    build: |spec, params| build(spec, params, Some(EtaFunction::Softplus)),
    ..EXP
};

/// η = σ(z).
pub(super) const SIGMOID: Entry = Entry {
    name: "normalized-sigmoid",
    equation: "o_i = Σ_j (q_i·k_j) v_j / η_i, η = σ(w·u_i)",
    stem: "normalized_attention_sigmoid",
    build: |spec, params| build(spec, params, Some(EtaFunction::Sigmoid)),
    ..EXP
};

/// η = 1.
pub(super) const GENERALIZED: Entry = Entry {
    name: "generalized-linear",
    equation: "o_i = Σ_j (q_i·k_j) v_j",
    cite: "(17)",
    released: ReleasedBlock::ATTENTION,
    state_norm: StateNormPlace::OF_WIDTH_D,
    stem: "generalized_linear_attention_none",
    uncounted: &[],
    build: |spec, params| build(spec, params, None),
    ..EXP
};

/// Function from z to η.
#[derive(Clone, Copy)]
enum EtaFunction {
    Exp,
    Softplus,
    Sigmoid,
}

impl EtaFunction {
    /// 1/η, in a form that does not overflow where the output is finite.
    fn inverse(self, z: &Tensor) -> Result<Tensor> {
        let z = Expression::of(z);
        let inverse = match self {
            EtaFunction::Exp => (-z).exp(),
            EtaFunction::Softplus => z.softplus().recip(),
            EtaFunction::Sigmoid => (-z).exp() + 1.0,
        };
        inverse.tensor()
    }
}

struct NormalizedAttention {
    projections: Projections,
    /// `None` for η = 1.
    normaliser: Option<Normaliser>,
}

/// Normaliser η of the current token.
struct Normaliser {
    /// Projection to z, `(heads, d)`.
    w: Tensor,
    b: Option<Tensor>,
    eta: EtaFunction,
}

fn build(spec: &MixerSpec, params: &Params, eta: Option<EtaFunction>) -> Result<Box<dyn Mixer>> {
    let (s, d) = (spec.n_heads, spec.d_model);
    let projections = Projections::new(spec, params)?;
    let bias = || params.bias("bn", s, d);
    let normaliser = |eta| -> Result<Normaliser> {
        Ok(Normaliser {
            w: params.weight("wn", (s, d), spec.input_std)?,
            b: (spec.variant == "reference").then(bias).transpose()?,
            eta,
        })
    };
    Ok(Box::new(NormalizedAttention { projections, normaliser: eta.map(normaliser).transpose()? }))
}

impl Normaliser {
    /// 1/η_i `(batch, rows, heads)` for x `(batch, rows, d)`, computed in the parameters' dtype: an absolute error of z
    /// is a relative error of η.
    fn inverse_eta(&self, x: &Tensor) -> Result<Tensor> {
        let wide = x.to_dtype(self.w.dtype())?;
        let z = linear(&wide, &self.w, self.b.as_ref())?;
        self.eta.inverse(&z)?.to_dtype(x.dtype())
    }
}

impl NormalizedAttention {
    /// Queries, keys and values, and 1/η; fused into one projection where their dtypes agree.
    fn project(&self, x: &Tensor, cx: &Cx) -> Result<([Tensor; 3], Option<Tensor>)> {
        let (p, at) = (&self.projections, RotaryPositions::Sequence(cx));
        match &self.normaliser {
            None => Ok((p.qkv(x, &at)?, None)),
            Some(normaliser) if x.dtype() != normaliser.w.dtype() => {
                let inverse = normaliser.inverse_eta(&cx.select(x)?)?;
                Ok((p.qkv(x, &at)?, Some(inverse)))
            }
            Some(Normaliser { w, b, eta }) => {
                let (qkv, z) = p.qkv_and(x, &at, &[(w, b.as_ref())])?;
                Ok((qkv, Some(eta.inverse(&z[0])?)))
            }
        }
    }
}

impl NormalizedAttention {
    /// Queries and keys `(1, heads, seq_len, m)`, and η `(heads, seq_len)`, along u `(seq_len, d_model)`.
    fn factors(&self, u: &Tensor) -> Result<[Tensor; 3]> {
        let (x, cx) = (u.unsqueeze(0)?, Cx::eval());
        let [phi, psi, _] = self.projections.heads(&x, &RotaryPositions::Sequence(&cx))?;
        let eta = match &self.normaliser {
            Some(normaliser) => normaliser.inverse_eta(&x)?.recip()?.squeeze(0)?.t()?,
            None => phi.sum(3)?.squeeze(0)?.ones_like()?,
        };
        Ok([phi, psi, eta])
    }
}

impl Mixer for NormalizedAttention {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let ([q, k, v], inverse) = self.project(x, cx)?;
        let p = &self.projections;
        let o = p.attend([&q, &k, &v], Weights::Plain, cx)?;
        p.output(&match inverse {
            Some(inverse) => ops::scale_heads(&o, &inverse)?,
            None => o,
        })
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.projections.state_size(self.projections.head_features)
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let [phi, psi, eta] = self.factors(u)?;
        self.projections.separable(&phi, &psi, &eta).map(Some)
    }

    fn ltv_of_both_sides(&self, u: &Tensor) -> Result<Option<[Ltv; 2]>> {
        let [phi, psi, eta] = self.factors(u)?;
        self.projections.separable_on_both_sides(&phi, &psi, &eta).map(Some)
    }
}

impl Recurrent for NormalizedAttention {
    fn init(&self, batch: usize) -> Result<State> {
        let p = &self.projections;
        Ok(State::new(vec![p.zero_state(batch, p.head_features)?]))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let (p, x) = (&self.projections, x_t.unsqueeze(1)?);
        let [q, k, v] = p.heads(&x, &RotaryPositions::Token(at))?;
        let s = accumulate(&state.0[0], &k, &v)?;
        let o = q.matmul(&s)?;
        *state = State::new(vec![s]);
        p.output_step(&match &self.normaliser {
            Some(normaliser) => {
                let inverse = normaliser.inverse_eta(&x)?;
                o.broadcast_mul(&inverse.transpose(1, 2)?.unsqueeze(3)?)?
            }
            None => o,
        })
    }
}
