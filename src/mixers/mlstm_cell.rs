//! Cell of mLSTM, which the bare mixer, the block of xLSTM and the layer of xLSTM 7B share: gates divided by e^m
//! against overflow, a column of ones that accumulates the normaliser, and the normaliser's lower bound.

use super::matrix_state::{log_sigmoid, HeadSizes, ScanInputs};
use super::rotary::RotaryPositions;
use super::running_max::running_max;
use crate::nn::{linear, Cx};
use crate::ops::{self, rng::Rng};
use candle_core::{Result, Tensor, D};

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
        Self::divided(q, k, v, [log_f, log_i, m], at.cx())
    }

    /// The same for gates of the state divided by e^m, ln f' and ln i', and m itself, `(batch, seq_len, heads)` each.
    pub fn divided(q: Tensor, k: &Tensor, v: &Tensor, [log_f, log_i, m]: [Tensor; 3], cx: &Cx) -> Result<Self> {
        let gate = log_i.exp()?;
        let k = k.broadcast_mul(&gate.unsqueeze(3)?)?;
        let ones = v.narrow(3, 0, 1)?.ones_like()?;
        let floor = cx.select(&m.neg()?.exp()?)?;
        let v = ops::join(&[v, &ones], 3)?; // (batch, seq_len, heads, e + 1)
        Ok(Self { scan: ScanInputs { q, k, v, g: log_f.unsqueeze(3)?, rank_one: None }, gate, floor })
    }
}

/// ln i and ln f `(batch, seq_len, heads)` of u, for maps `[W, b]` to the pre-activations of each, which lie within
/// `cap` · tanh if there is one.
pub(super) fn log_gates(u: &Tensor, i: &[Tensor; 2], f: &[Tensor; 2], cap: Option<f64>) -> Result<[Tensor; 2]> {
    let [w, b] = [0, 1].map(|part| ops::join(&[&i[part], &f[part]], 0));
    let gates = linear(u, &w?, Some(&b?))?;
    let gates = match cap {
        Some(cap) => (ops::tanh(&(gates / cap)?)? * cap)?,
        None => gates,
    };
    let heads = gates.dim(2)? / 2;
    let gates = ops::split(&gates, 2, &[heads; 2])?;
    Ok([gates[0].clone(), log_sigmoid(&gates[1])?])
}

/// Factor 1 / (max(|n·q|, floor) + eps) of the values in o `(batch, rows, heads, e + 1)`, `(batch, rows, heads · e)`.
pub(super) fn normaliser(o: &Tensor, floor: &Tensor, eps: f64, sizes: HeadSizes) -> Result<Tensor> {
    let HeadSizes { heads, values, .. } = sizes;
    let n_q = o.narrow(D::Minus1, values, 1)?.squeeze(D::Minus1)?; // (batch, rows, heads)
    let normaliser = n_q.abs()?.maximum(floor)?;
    let normaliser = if eps > 0.0 { (normaliser + eps)? } else { normaliser };
    let scale = normaliser.recip()?.unsqueeze(3)?;
    let (batch, rows, ..) = o.dims4()?;
    scale.broadcast_as((batch, rows, heads, values))?.contiguous()?.flatten_from(2)
}

/// Stabilised gates of the state divided by e^m, ln f' and ln i', and m itself, `(batch, seq_len, heads)` each.
pub(super) fn stabilised(log_i: &Tensor, log_f: &Tensor) -> Result<[Tensor; 3]> {
    let m = running_max(log_f, log_i)?;
    let m_prev = Tensor::cat(&[&m.narrow(1, 0, 1)?, &m.narrow(1, 0, m.dim(1)? - 1)?], 1)?;
    let log_f = (log_f + (m_prev - &m)?)?;
    Ok([log_f, (log_i - &m)?, m])
}
