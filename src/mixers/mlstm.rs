//! mLSTM, the matrix memory of xLSTM (Beck et al. 2024): linear attention with a forget gate and an exponential input gate per head,
//!
//! C_t = f_t C_{t-1} + i_t k_t v_tᵀ,  n_t = f_t n_{t-1} + i_t k_t,  y_t = W (o_t ⊙ C_tᵀ q_t / max(|n_t·q_t|, 1)) + b
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | C, n | memory and normaliser, one state of e + 1 columns, divided by e^m | `(batch, heads, m, e + 1)` |
//! | f, i | forget gate σ(w·u + b) and input gate e^(w·u + b) | `(batch, seq_len, heads)` |
//! | o | output gate σ(W_o u + b) | `(batch, rows, d)` |
//! | m | stabiliser: the largest exponent so far, which cancels in y | `(batch, seq_len, heads)` |

use super::matrix_state::{log_sigmoid, work, HeadSizes, MatrixMixer, MatrixState, ScanInputs};
use super::rotary::RotaryPositions;
use super::running_max::running_max;
use super::{Entry, Family, Growth, MixerSpec, StateNormPlace};
use crate::nn::{linear, project, Init, Map, Params};
use crate::ops;
use crate::ops::rng::Rng;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "mlstm",
    equation: "C_i = f_i C_{i-1} + e^(w·u_i+b) k_i v_iᵀ, h_i = C_iᵀ q_i / max(|n_i·q_i|, 1)",
    cite: "Beck et al. 2024",
    dsf: "N = n d/s",
    heads: true,
    multi_head: true,
    expands: true,
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::Exact { zeroed: &["wq", "bq"], scaled: &["wk"] },
    stem: "mlstm",
    own_init: &["bf", "bi", "wf", "wi"],
    work: |spec| {
        let mut work = work(spec, 2);
        work.projections += 2 * spec.n_heads * spec.d_model;
        Some(work)
    },
    build: |spec, params| Ok(Box::new(MatrixMixer::new(MLstm::new(spec, params)?, spec, params)?)),
    ..Entry::of(Family::Recurrent)
};

/// Weights and biases of the projections.
struct MLstm {
    q: [Tensor; 2],
    k: [Tensor; 2],
    v: [Tensor; 2],
    /// Projection to the input gates, `(heads, d)`.
    i: [Tensor; 2],
    /// Projection to the forget gates, `(heads, d)`.
    f: [Tensor; 2],
    /// Projection to the output gate, `(d, d)`.
    o: [Tensor; 2],
    out: [Tensor; 2],
    sizes: HeadSizes,
}

/// Inputs of the readout at the queried positions.
struct MLstmReadout {
    /// Output gate before its activation, `(batch, rows, d)`.
    o: Tensor,
    /// Lower bound e^-m of the normaliser, `(batch, rows, heads)`.
    floor: Tensor,
}

impl MLstm {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n, heads) = (spec.d_model, spec.d_state, spec.n_heads);
        let map = |[weight, bias]: [&str; 2], rows: usize, std| -> Result<[Tensor; 2]> {
            Ok([params.weight(weight, (rows, d), std)?, params.bias(bias, rows, d)?])
        };
        // Initial gates ignore the input.
        let gate = |[weight, bias]: [&str; 2], init| -> Result<[Tensor; 2]> {
            Ok([params.map(weight, (heads, d), Init::Constant(0.0))?, params.get(bias, heads, init)?])
        };
        let sizes = HeadSizes::new(spec);
        Ok(Self {
            q: map(["wq", "bq"], n, spec.input_std)?,
            k: map(["wk", "bk"], n, spec.input_std)?,
            v: map(["wv", "bv"], d, spec.input_std)?,
            i: gate(["wi", "bi"], Init::Normal(0.1))?,
            f: gate(["wf", "bf"], Init::Each(&forget_bias(heads)))?,
            o: map(["wo", "bo"], d, spec.input_std)?,
            out: map(["wout", "bout"], d, spec.output_std)?,
            sizes: HeadSizes { columns: sizes.values + 1, ..sizes },
        })
    }
}

impl MLstm {
    /// ln i and ln f along u, `(batch, seq_len, heads)` each.
    fn log_gates(&self, u: &Tensor) -> Result<[Tensor; 2]> {
        let [w, b] = [0, 1].map(|part| Tensor::cat(&[&self.i[part], &self.f[part]], 0));
        let gates = linear(u, &w?, Some(&b?))?;
        let gate = |i: usize| gates.narrow(2, i * self.sizes.heads, self.sizes.heads);
        Ok([gate(0)?, log_sigmoid(&gate(1)?.contiguous()?)?])
    }
}

/// Initial biases of the forget gates, spread from 3 to 6.
pub(super) fn forget_bias(heads: usize) -> impl Fn(usize, &mut Rng) -> f64 {
    let last = heads.saturating_sub(1).max(1) as f64;
    move |head, _| 3.0 + 3.0 * head as f64 / last
}

/// Inputs of the cell.
pub(super) struct CellInputs {
    pub scan: ScanInputs,
    /// Input gate of the state divided by e^m, `(batch, seq_len, heads)`.
    pub gate: Tensor,
    /// Lower bound e^-m of the normaliser, `(batch, rows, heads)`.
    pub floor: Tensor,
}

impl CellInputs {
    /// Inputs for q at the queried positions, k and v, with their heads in the third axis, and ln i and ln f,
    /// `(batch, seq_len, heads)` each.
    pub fn new(q: Tensor, k: &Tensor, v: &Tensor, [log_i, log_f]: [Tensor; 2], at: &RotaryPositions) -> Result<Self> {
        let [log_f, log_i, m] = match at {
            RotaryPositions::Sequence(_) => stabilised(&log_i, &log_f)?,
            RotaryPositions::Token(_) => [log_f, log_i.clone(), log_i.zeros_like()?],
        };
        let gate = log_i.exp()?;
        let k = k.broadcast_mul(&gate.unsqueeze(3)?)?;
        let ones = v.narrow(3, 0, 1)?.ones_like()?;
        let floor = at.cx().select(&m.neg()?.exp()?)?;
        let v = Tensor::cat(&[v, &ones], 3)?; // (batch, seq_len, heads, e + 1)
        Ok(Self { scan: ScanInputs { q, k, v, g: log_f.unsqueeze(3)?, rank_one: None }, gate, floor })
    }
}

/// Factor 1 / max(|n·q|, floor) of the values in o `(batch, rows, heads, e + 1)`, `(batch, rows, heads · e)`.
pub(super) fn normaliser(o: &Tensor, floor: &Tensor, sizes: HeadSizes) -> Result<Tensor> {
    let HeadSizes { heads, values, .. } = sizes;
    let n_q = o.narrow(D::Minus1, values, 1)?.squeeze(D::Minus1)?; // (batch, rows, heads)
    let scale = n_q.abs()?.maximum(floor)?.recip()?.unsqueeze(3)?;
    let (batch, rows, ..) = o.dims4()?;
    scale.broadcast_as((batch, rows, heads, values))?.contiguous()?.flatten_from(2)
}

/// Stabilised gates of the state divided by e^m, ln f' and ln i', and m itself, `(batch, seq_len, heads)` each.
fn stabilised(log_i: &Tensor, log_f: &Tensor) -> Result<[Tensor; 3]> {
    let m = running_max(log_f, log_i)?;
    let m_prev = Tensor::cat(&[&m.narrow(1, 0, 1)?, &m.narrow(1, 0, m.dim(1)? - 1)?], 1)?;
    let log_f = (log_f + (m_prev - &m)?)?;
    Ok([log_f, (log_i - &m)?, m])
}

impl MatrixState for MLstm {
    type Gate = MLstmReadout;

    const AROUND: Option<&'static str> = None;

    fn sizes(&self) -> HeadSizes {
        self.sizes
    }

    fn project(&self, u: &Tensor, at: &RotaryPositions) -> Result<(ScanInputs, MLstmReadout)> {
        fn map([w, b]: &[Tensor; 2]) -> Map<'_> {
            (w, Some(b))
        }
        let sizes = self.sizes;
        let all = [map(&self.k), map(&self.v)];
        let maps = project(u, &all, &[map(&self.q), map(&self.o)], at.cx())?;
        // k = W_k u / √m + b: only the weights are scaled.
        let scale = (sizes.features as f64).powf(-0.5);
        let bias = (&self.k[1] * (1.0 - scale))?.to_dtype(u.dtype())?;
        let k = sizes.split(&(&maps.all[0] * scale)?.broadcast_add(&bias)?)?; // (batch, seq_len, heads, m)
        let v = sizes.split(&maps.all[1])?; // (batch, seq_len, heads, e)
        let inputs = CellInputs::new(sizes.split(&maps.queried[0])?, &k, &v, self.log_gates(u)?, at)?;
        let o = maps.queried[1].clone();
        Ok((inputs.scan, MLstmReadout { o, floor: inputs.floor }))
    }

    fn gate(&self, u: &Tensor) -> Result<Option<Tensor>> {
        let [log_i, log_f] = self.log_gates(u)?;
        let [_, log_i, _] = stabilised(&log_i, &log_f)?;
        log_i.exp().map(Some)
    }

    fn normaliser(&self, o: &Tensor, readout: &MLstmReadout) -> Result<Option<Tensor>> {
        normaliser(o, &readout.floor, self.sizes).map(Some)
    }

    fn output_scale(&self, _o: &Tensor, readout: &MLstmReadout) -> Result<Option<Tensor>> {
        ops::sigmoid(&readout.o).map(Some)
    }

    fn value(&self) -> Map<'_> {
        (&self.v[0], Some(&self.v[1]))
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.out[0], Some(&self.out[1])))
    }
}
