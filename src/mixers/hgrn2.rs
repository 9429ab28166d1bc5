//! HGRN2 (Qin et al. 2024): a gated recurrence whose state is expanded by an outer product,
//!
//! S_t = diag(f_t) S_{t-1} + (1 - f_t) v_tᵀ,  y_t = W norm(S_tᵀ silu(W_q u_t)),  f = l + (1 - l) σ(W_f u)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | f | forget gate; the key is the input gate 1 - f | `(batch, seq_len, n)` |
//! | l | lower bound of f, which rises with depth: deeper layers forget less | scalar |

use super::matrix_state::{
    flat_heads, norm_eps, query_scale, work, HeadSizes, MatrixMixer, MatrixState, ScanInputs, SCALED_QUERIES,
};
use super::rotary::RotaryPositions;
use super::state_norm::rms_scale_of;
use super::{Entry, Family, Growth, MixerOption, MixerSpec, StateNormPlace, NORM_EPS};
use crate::nn::{project, Init, Map, Params};
use crate::ops::{self, Expression};
use candle_core::{DType, Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "hgrn2",
    equation: "S_i = diag(f_i) S_{i-1} + (1-f_i) v_iᵀ, f = l + (1-l) σ(W_f u)",
    cite: "Qin et al. 2024",
    dsf: "N = n d/s, inside its norm",
    heads: true,
    multi_head: true,
    expands: true,
    options: &[
        MixerOption {
            name: "lower_bound",
            help: "lower bound l of the forget gates: `auto` (layer / layers, the published initial value), a number in [0, 1), or `learnt`, one per feature and layer as published",
            default: |_| "auto",
            accepts: |v| ["auto", LEARNT].contains(&v) || v.parse().is_ok_and(|l: f64| (0.0..1.0).contains(&l)),
            ..MixerOption::DEFAULT
        },
        SCALED_QUERIES,
        MixerOption {
            help: "ε of the norm: `1e-5`, or a number between 0 and 1",
            default: |_| "1e-5",
            ..NORM_EPS
        },
    ],
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::Exact { zeroed: &["wq"], scaled: &[] },
    stem: "hgrn2",
    own_init: &["norm"],
    work: |spec| Some(work(spec, 1)),
    build: |spec, params| Ok(Box::new(MatrixMixer::new(Hgrn2::new(spec, params)?, spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// Value of the option for bounds that are trained.
const LEARNT: &str = "learnt";

/// ε of the RMS norm.
const EPS: f64 = 1e-5;

struct Hgrn2 {
    wq: Tensor,
    wf: Tensor,
    wv: Tensor,
    /// Weights of the norm, `(d)`.
    norm: Tensor,
    wout: Tensor,
    lower_bound: LowerBound,
    query_scale: f64,
    eps: f64,
    sizes: HeadSizes,
}

/// Lower bound l of the forget gates of a layer.
enum LowerBound {
    /// The same for all features.
    Fixed(f64),
    /// Row of the layer in the published l = Σ_{1 ≤ j ≤ layer} softmax(Γ)_j, softmax over the layers: logits Γ
    /// `(layers, n)`, which all layers share, and the number of the layer.
    Learnt { logits: Tensor, layer: usize },
}

impl LowerBound {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        if spec.option("lower_bound") == Some(LEARNT) {
            let shape = (spec.n_layers.max(spec.layer + 1), spec.d_state);
            let logits = params.root().get("lower_bounds", shape, Init::Constant(0.0))?;
            return Ok(Self::Learnt { logits, layer: spec.layer });
        }
        let initial = spec.layer as f64 / spec.n_layers.max(1) as f64;
        Ok(Self::Fixed(spec.parsed("lower_bound").unwrap_or(initial)))
    }

    /// Learnt bounds `(n)` of dtype `dtype`; `None` in the first layer, where they are 0.
    fn learnt(&self, dtype: DType) -> Result<Option<Tensor>> {
        match self {
            Self::Learnt { logits, layer } if *layer > 0 => {
                let shifted = logits.broadcast_sub(&logits.max_keepdim(0)?)?.exp()?;
                let shares = shifted.broadcast_div(&shifted.sum_keepdim(0)?)?;
                shares.narrow(0, 1, *layer)?.sum(0)?.to_dtype(dtype).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl Hgrn2 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let weight = |name, rows, std| params.weight(name, (rows, d), std);
        Ok(Self {
            wq: weight("wq", n, spec.input_std)?,
            wf: weight("wf", n, spec.input_std)?,
            wv: weight("wv", d, spec.input_std)?,
            norm: params.get("norm", d, Init::Constant(1.0))?,
            wout: weight("wout", d, spec.output_std)?,
            lower_bound: LowerBound::new(spec, params)?,
            query_scale: query_scale(spec),
            eps: norm_eps(spec, EPS),
            sizes: HeadSizes::new(spec),
        })
    }

    /// ln f and the key 1 - f for the pre-activation z `(batch, seq_len, n)`.
    fn gates(&self, z: &Tensor) -> Result<[Tensor; 2]> {
        let learnt = self.lower_bound.learnt(z.dtype())?;
        // σ(-z) keeps the digits that 1 - σ(z) loses where the gate is near 1.
        let z = Expression::of(z);
        let closed = (-z.clone()).sigmoid();
        let bound = match self.lower_bound {
            LowerBound::Fixed(bound) => bound,
            LowerBound::Learnt { .. } => 0.0,
        };
        if let Some(bounds) = learnt {
            let range = Expression::of(&(1.0 - &bounds)?);
            let open = &z.sigmoid() * &range + Expression::of(&bounds);
            return ops::tensors([&open.log(), &(closed * range)]);
        }
        let range = 1.0 - bound;
        let log_f = match bound {
            0.0 => z.log_sigmoid(),
            bound => z.sigmoid().affine(range, bound).log(),
        };
        ops::tensors([&log_f, &(closed * range)])
    }
}

impl MatrixState for Hgrn2 {
    type Gate = ();

    const AROUND: Option<&'static str> = Some(
        "driven by its values W_V u; C_i holds the scale of the norm, which is not linear in the state, and the output projection",
    );

    fn sizes(&self) -> HeadSizes {
        self.sizes
    }

    fn project(&self, u: &Tensor, at: &RotaryPositions) -> Result<(ScanInputs, ())> {
        let (all, queried) = ([&self.wf, &self.wv], [&self.wq]);
        let maps = project(u, &all.map(|w| (w, None)), &queried.map(|w| (w, None)), at.cx())?;
        let [log_f, key] = self.gates(&maps.all[0])?;
        let split = |x: &Tensor| self.sizes.split(x); // (batch, seq_len, heads, m or e)
        let q = ops::silu(&maps.queried[0])?;
        let q = if self.query_scale == 1.0 { q } else { (Expression::of(&q) * self.query_scale).tensor()? };
        let inputs =
            ScanInputs { q: split(&q)?, k: split(&key)?, v: split(&maps.all[1])?, g: split(&log_f)?, rank_one: None };
        Ok((inputs, ()))
    }

    fn output_scale(&self, o: &Tensor, _gate: &()) -> Result<Option<Expression>> {
        let o = flat_heads(o)?;
        let scale = rms_scale_of(&Expression::of(&o), o.dim(D::Minus1)?, self.eps) * Expression::parameter(&self.norm);
        Ok(Some(Expression::of(&self.sizes.split(&scale.tensor()?)?)))
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.wout, None))
    }
}
