//! HGRN2 (Qin et al. 2024): a gated recurrence whose state is expanded by an outer product. Keys are what the forget gates leave
//! open, 1 - f, and deeper layers forget less.

use super::matrix_state::{log_sigmoid, rms_factor, work, Drive, MatrixMixer, MatrixState, Sizes};
use super::rotary::Positions;
use super::{Entry, Family, Growth, MixerOption, MixerSpec};
use crate::nn::{project, Init, Map, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "hgrn2",
    equation: "S_i = diag(f_i) S_{i-1} + (1-f_i) v_iᵀ, f = l + (1-l) σ(W_f u)",
    cite: "Qin et al. 2024",
    dsf: "N = n d/s, inside its norm",
    heads: true,
    expands: true,
    options: &[MixerOption {
        name: "lower_bound",
        help: "lower bound l of the gates, from 0 to below 1: `auto` is layer / layers, where the published one starts",
        default: |_| "auto",
        accepts: |v| v == "auto" || v.parse().is_ok_and(|l: f64| (0.0..1.0).contains(&l)),
        ..MixerOption::DEFAULT
    }],
    growth: Growth::Exact {
        zeroed: &["wq"],
        scaled: &[],
    },
    stem: "hgrn2",
    own_init: &["norm"],
    work: |spec| Some(work(spec, 1)),
    build: |spec, params| Ok(Box::new(MatrixMixer(Hgrn2::new(spec, params)?))),
    ..Entry::of(Family::GatedLinear)
};

/// Added to the mean square in the norm.
const EPS: f64 = 1e-5;

struct Hgrn2 {
    wq: Tensor,
    wf: Tensor,
    wv: Tensor,
    /// Of the norm over all heads, `(d)`.
    norm: Tensor,
    wout: Tensor,
    lower_bound: f64,
    sizes: Sizes,
}

impl Hgrn2 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let given = spec.option("lower_bound").and_then(|l| l.parse().ok());
        let by_depth = spec.layer as f64 / spec.n_layers.max(1) as f64;
        let weight = |name, rows, std| params.weight(name, (rows, d), std);
        Ok(Self {
            wq: weight("wq", n, spec.input_std)?,
            wf: weight("wf", n, spec.input_std)?,
            wv: weight("wv", d, spec.input_std)?,
            norm: params.get("norm", d, Init::Constant(1.0))?,
            wout: weight("wout", d, spec.output_std)?,
            lower_bound: given.unwrap_or(by_depth),
            sizes: Sizes::of(spec),
        })
    }

    /// ln f and 1 - f for the pre-activations of the gates.
    fn gates(&self, z: &Tensor) -> Result<[Tensor; 2]> {
        let open = 1.0 - self.lower_bound;
        // 1 - σ(z) is σ(-z): of gates near 1 nothing is lost.
        let key = (ops::sigmoid(&z.neg()?)? * open)?;
        let log = match self.lower_bound {
            0.0 => log_sigmoid(z)?,
            bound => ops::sigmoid(z)?.affine(open, bound)?.log()?,
        };
        Ok([log, key])
    }
}

impl MatrixState for Hgrn2 {
    const AROUND: Option<&'static str> = Some(
        "driven by its values W_V u; C_i holds what is not linear in the state, the scale of the norm, and the output projection",
    );

    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn drive(&self, u: &Tensor, at: &Positions) -> Result<Drive> {
        let (all, queried) = ([&self.wf, &self.wv], [&self.wq]);
        let maps = project(
            u,
            &all.map(|w| (w, None)),
            &queried.map(|w| (w, None)),
            at.cx(),
        )?;
        let [log, key] = self.gates(&maps.all[0])?;
        let split = |x: &Tensor| self.sizes.split(x);
        Ok(Drive {
            q: split(&ops::silu(&maps.queried[0])?)?,
            k: split(&key)?,
            v: split(&maps.all[1])?,
            g: split(&log)?,
            beside: maps.selected,
        })
    }

    fn factor(&self, o: &Tensor, _u: &Tensor) -> Result<Option<Tensor>> {
        let scale = rms_factor(&o.flatten_from(2)?, EPS)?;
        scale
            .broadcast_mul(&self.norm.to_dtype(o.dtype())?)
            .map(Some)
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.wout, None))
    }
}
