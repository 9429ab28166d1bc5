//! HGRN2 (Qin et al. 2024): a gated recurrence whose state is expanded by an outer product,
//!
//! S_t = diag(f_t) S_{t-1} + (1 - f_t) v_tᵀ,  y_t = W norm(S_tᵀ silu(W_q u_t)),  f = l + (1 - l) σ(W_f u)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | f | forget gate; the key is the input gate 1 - f | `(batch, seq_len, n)` |
//! | l | lower bound of f, which rises with depth: deeper layers forget less | scalar |

use super::matrix_state::{log_sigmoid, work, HeadSizes, MatrixMixer, MatrixState, ScanInputs};
use super::rotary::RotaryPositions;
use super::state_norm::rms_scale;
use super::{Entry, Family, Growth, MixerOption, MixerSpec, StateNormPlace};
use crate::nn::{project, Init, Map, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "hgrn2",
    equation: "S_i = diag(f_i) S_{i-1} + (1-f_i) v_iᵀ, f = l + (1-l) σ(W_f u)",
    cite: "Qin et al. 2024",
    dsf: "N = n d/s, inside its norm",
    heads: true,
    multi_head: true,
    expands: true,
    options: &[MixerOption {
        name: "lower_bound",
        help: "lower bound l of the forget gates, in [0, 1): `auto` is layer / layers, the published initial value",
        default: |_| "auto",
        accepts: |v| v == "auto" || v.parse().is_ok_and(|l: f64| (0.0..1.0).contains(&l)),
        ..MixerOption::DEFAULT
    }],
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::Exact { zeroed: &["wq"], scaled: &[] },
    stem: "hgrn2",
    own_init: &["norm"],
    work: |spec| Some(work(spec, 1)),
    build: |spec, params| Ok(Box::new(MatrixMixer::new(Hgrn2::new(spec, params)?, spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// ε of the RMS norm.
const EPS: f64 = 1e-5;

struct Hgrn2 {
    wq: Tensor,
    wf: Tensor,
    wv: Tensor,
    /// Weights of the norm, `(d)`.
    norm: Tensor,
    wout: Tensor,
    lower_bound: f64,
    sizes: HeadSizes,
}

impl Hgrn2 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let given = spec.parsed("lower_bound");
        let initial = spec.layer as f64 / spec.n_layers.max(1) as f64;
        let weight = |name, rows, std| params.weight(name, (rows, d), std);
        Ok(Self {
            wq: weight("wq", n, spec.input_std)?,
            wf: weight("wf", n, spec.input_std)?,
            wv: weight("wv", d, spec.input_std)?,
            norm: params.get("norm", d, Init::Constant(1.0))?,
            wout: weight("wout", d, spec.output_std)?,
            lower_bound: given.unwrap_or(initial),
            sizes: HeadSizes::new(spec),
        })
    }

    /// ln f and the key 1 - f for the pre-activation z `(batch, seq_len, n)`.
    fn gates(&self, z: &Tensor) -> Result<[Tensor; 2]> {
        let range = 1.0 - self.lower_bound;
        // σ(-z) keeps the digits that 1 - σ(z) loses where the gate is near 1.
        let key = (ops::sigmoid(&z.neg()?)? * range)?;
        let log_f = match self.lower_bound {
            0.0 => log_sigmoid(z)?,
            bound => ops::sigmoid(z)?.affine(range, bound)?.log()?,
        };
        Ok([log_f, key])
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
        let inputs = ScanInputs {
            q: split(&ops::silu(&maps.queried[0])?)?,
            k: split(&key)?,
            v: split(&maps.all[1])?,
            g: split(&log_f)?,
            rank_one: None,
        };
        Ok((inputs, ()))
    }

    fn output_scale(&self, o: &Tensor, _gate: &()) -> Result<Option<Tensor>> {
        let scale = rms_scale(&o.flatten_from(2)?, EPS)?;
        scale.broadcast_mul(&self.norm.to_dtype(o.dtype())?).map(Some)
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.wout, None))
    }
}
