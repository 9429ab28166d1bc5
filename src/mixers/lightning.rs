//! Lightning attention as in TransNormerLLM (Qin et al. 2023): linear attention with a constant decay per head, slower
//! in deeper layers, an RMS norm without weights and a linear output gate,
//!
//! S_t = e^(-r) S_{t-1} + k_t v_tᵀ,  y_t = W (W_g u_t ⊙ norm(S_tᵀ q_t)),  q, k = silu(W u)
//!
//! LRPE, the linearised relative position encoding of its first layer (Qin et al. 2023, equation (2)), gives each pair
//! of query and key the factor cos(θ_j (t - s)) in feature j: q and k become (q cos θt, q sin θt) and
//! (k cos θs, k sin θs), with twice the features and a learnt θ.
//!
//! The name is that of the tiled algorithm, which computes every mixer with a matrix-valued state here.

use super::matrix_state::{flat_heads, work, HeadSizes, MatrixMixer, MatrixState, ScanInputs};
use super::rotary::RotaryPositions;
use super::spec::ROTARY_BASE;
use super::state_norm::rms_scale_of;
use super::{Entry, Family, Growth, MixerOption, MixerSpec, MixerWork, StateNormPlace, FALSE_OR_TRUE};
use crate::nn::{project, Init, Map, Params, Tables};
use crate::ops::{self, Expression};
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "lightning",
    equation: "y_i = W (W_g u_i ⊙ norm(Σ_j e^(-r(i-j)) (q_i·k_j) v_j)), q, k = silu(W u)",
    cite: "Qin et al. 2023",
    dsf: "N = n d/s, inside its norm",
    heads: true,
    multi_head: true,
    expands: true,
    options: &[MixerOption {
        name: LRPE,
        help: "relative positions in the first layer, at learnt rates, with twice the states: `false` or `true`",
        ..FALSE_OR_TRUE
    }],
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::Exact { zeroed: &["wq"], scaled: &[] },
    stem: "lightning_attention",
    work: |spec| Some(MixerWork { states: features(spec), ..work(spec, 2) }),
    build: |spec, params| Ok(Box::new(MatrixMixer::new(Lightning::new(spec, params)?, spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// Option for relative positions in the first layer.
const LRPE: &str = "lrpe";

/// ε of the RMS norm.
const EPS: f64 = 1e-8;

struct Lightning {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wg: Tensor,
    wout: Tensor,
    lrpe: Option<Lrpe>,
    /// -r per head.
    log_decays: Vec<f64>,
    sizes: HeadSizes,
}

/// Linearised relative position encoding, see the module.
struct Lrpe {
    /// Rates θ, `(n)`.
    theta: Tensor,
    /// Positions of a sequence, `(1, len)`.
    positions: Tables<Tensor>,
}

impl Lrpe {
    /// The encoding with its initial rates, 10000^(-2j/n) in feature j of n.
    fn new(n: usize, params: &Params) -> Result<Self> {
        let rate = |j: usize, _: &mut _| ROTARY_BASE.powf(-2.0 * j as f64 / n as f64);
        Ok(Self { theta: params.get("theta", n, Init::Each(&rate))?, positions: Tables::default() })
    }

    /// x `(batch, rows, heads, m)` at the positions `at` `(batch or 1, rows)`, with 2m features.
    fn encode(&self, x: &Tensor, at: &Tensor) -> Result<Tensor> {
        let (_, _, heads, m) = x.dims4()?;
        let angles = at.to_dtype(self.theta.dtype())?.unsqueeze(2)?.broadcast_mul(&self.theta)?; // (batch or 1, rows, n)
        let (sequences, rows, _) = angles.dims3()?;
        let angles = angles.reshape((sequences, rows, heads, m))?;
        let part = |wave: Tensor| x.broadcast_mul(&wave.to_dtype(x.dtype())?);
        Tensor::cat(&[part(angles.cos()?)?, part(angles.sin()?)?], D::Minus1)
    }

    /// Queries and keys, `(batch, rows or seq_len, heads, m)` each, with 2m features.
    fn apply(&self, [q, k]: [&Tensor; 2], at: &RotaryPositions) -> Result<[Tensor; 2]> {
        let len = k.dim(1)?;
        let device = self.theta.device();
        let keys = match at {
            RotaryPositions::Sequence(_) => {
                self.positions.of(len, || Tensor::arange(0, len as u32, device)?.unsqueeze(0))?
            }
            RotaryPositions::Token(at) => Tensor::full(*at as u32, (1, len), device)?,
        };
        let queries = at.cx().rows().map_or(&keys, |rows| &rows.positions);
        Ok([self.encode(q, queries)?, self.encode(k, &keys)?])
    }
}

/// Whether the layer of `spec` has relative positions.
fn has_lrpe(spec: &MixerSpec) -> bool {
    spec.has(LRPE) && spec.layer == 0
}

/// Features of queries and keys of all heads.
fn features(spec: &MixerSpec) -> usize {
    match has_lrpe(spec) {
        true => 2 * spec.d_state,
        false => spec.d_state,
    }
}

/// -r per head: the slopes of ALiBi, 2^(-8(h+1)/s), times a factor that falls from 1 in the first layer to 1e-5 in the
/// last.
fn log_decays(spec: &MixerSpec) -> Vec<f64> {
    let last = spec.n_layers.saturating_sub(1).max(1) as f64;
    let depth = 1.0 - spec.layer as f64 / last + 1e-5;
    let slope = |head: usize| 2f64.powf(-8.0 * (head + 1) as f64 / spec.n_heads as f64);
    (0..spec.n_heads).map(|head| -slope(head) * depth).collect()
}

impl Lightning {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let weight = |name, rows, std| params.weight(name, (rows, d), std);
        Ok(Self {
            wq: weight("wq", n, spec.input_std)?,
            wk: weight("wk", n, spec.input_std)?,
            wv: weight("wv", d, spec.input_std)?,
            wg: weight("wg", d, spec.input_std)?,
            wout: weight("wout", d, spec.output_std)?,
            lrpe: has_lrpe(spec).then(|| Lrpe::new(n, params)).transpose()?,
            log_decays: log_decays(spec),
            sizes: HeadSizes { features: features(spec) / spec.n_heads, ..HeadSizes::new(spec) },
        })
    }
}

impl MatrixState for Lightning {
    /// Output gate `(batch, rows, d)`.
    type Gate = Tensor;

    const AROUND: Option<&'static str> = Some(
        "driven by its values W_V u; C_i holds the scale of the norm, which is not linear in the state, the gate W_g u and the \
         output projection",
    );

    fn sizes(&self) -> HeadSizes {
        self.sizes
    }

    fn project(&self, u: &Tensor, at: &RotaryPositions) -> Result<(ScanInputs, Tensor)> {
        let (all, queried) = ([&self.wk, &self.wv], [&self.wq, &self.wg]);
        let maps = project(u, &all.map(|w| (w, None)), &queried.map(|w| (w, None)), at.cx())?;
        let [mut q, mut k] =
            [self.sizes.split(&ops::silu(&maps.queried[0])?)?, self.sizes.split(&ops::silu(&maps.all[0])?)?];
        if let Some(lrpe) = &self.lrpe {
            [q, k] = lrpe.apply([&q, &k], at)?;
        }
        let inputs = ScanInputs {
            q,
            v: self.sizes.split(&maps.all[1])?,
            g: self.sizes.constant_decays(&self.log_decays, &k)?,
            k,
            rank_one: None,
        };
        Ok((inputs, maps.queried[1].clone()))
    }

    fn output_scale(&self, o: &Tensor, gate: &Tensor) -> Result<Option<Expression>> {
        let o = flat_heads(o)?;
        let scale = Expression::of(gate) * rms_scale_of(&Expression::of(&o), o.dim(D::Minus1)?, EPS);
        Ok(Some(Expression::of(&self.sizes.split(&scale.tensor()?)?)))
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.wout, None))
    }
}
