//! mLSTM, the matrix memory of xLSTM (Beck et al. 2024): linear attention with a forget gate and an exponential input
//! gate per head,
//!
//! C_t = f_t C_{t-1} + i_t k_t v_tᵀ,  n_t = f_t n_{t-1} + i_t k_t,  y_t = W (o_t ⊙ C_tᵀ q_t / max(|n_t·q_t|, 1)) + b
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | C, n | memory and normaliser, one state of e + 1 columns, divided by e^m | `(batch, heads, m, e + 1)` |
//! | f, i | forget gate σ(w·u + b) and input gate e^(w·u + b) | `(batch, seq_len, heads)` |
//! | o | output gate σ(W_o u + b) | `(batch, rows, d)` |
//! | m | stabiliser: the largest exponent so far, which cancels in y | `(batch, seq_len, heads)` |
//!
//! The variant `large` is [`mlstm_large`](super::mlstm_large).

use super::matrix_state::{self, work, HeadSizes, MatrixMixer, MatrixState, ScanInputs};
use super::mlstm_cell::{forget_bias, log_gates, normaliser, stabilised, CellInputs};
use super::mlstm_large::{self, MLstmLarge};
use super::rotary::RotaryPositions;
use super::{Entry, Family, Growth, MixerSpec, StateNormPlace};
use crate::nn::{project, Init, Map, Params};
use crate::ops::Expression;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "mlstm",
    equation: "C_i = f_i C_{i-1} + e^(w·u_i+b) k_i v_iᵀ, h_i = C_iᵀ q_i / max(|n_i·q_i|, 1)",
    cite: "Beck et al. 2024",
    variants: &["paper", mlstm_large::VARIANT],
    dsf: "N = n d/s (variant paper); N = n V/s, inside its norm (variant large)",
    heads: true,
    multi_head: true,
    expands: true,
    options: &mlstm_large::OPTIONS,
    values: matrix_state::values,
    state_norm: StateNormPlace::FreeInFirst(|spec| spec.d_model),
    growth: Growth::Exact { zeroed: &["wq", "bq"], scaled: &["wk"] },
    stem: "mlstm",
    own_init: &["bf", "bi", "norm", "wf", "wi"],
    work: |spec| {
        if spec.variant == mlstm_large::VARIANT {
            return Some(mlstm_large::work(spec));
        }
        let mut work = work(spec, 2);
        work.projections += 2 * spec.n_heads * spec.d_model;
        Some(work)
    },
    build: |spec, params| {
        Ok(match spec.variant {
            mlstm_large::VARIANT => Box::new(MLstmLarge::new(spec, params)?),
            _ => Box::new(MatrixMixer::new(MLstm::new(spec, params)?, spec, params)?),
        })
    },
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
        log_gates(u, &self.i, &self.f, None)
    }
}

impl MatrixState for MLstm {
    type Gate = MLstmReadout;

    const SAME_STATE: bool = false;

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
        normaliser(o, &readout.floor, 0.0, self.sizes).map(Some)
    }

    fn output_scale(&self, _o: &Tensor, readout: &MLstmReadout) -> Result<Option<Expression>> {
        Ok(Some(Expression::of(&self.sizes.split(&readout.o)?).sigmoid()))
    }

    fn value(&self) -> Map<'_> {
        (&self.v[0], Some(&self.v[1]))
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.out[0], Some(&self.out[1])))
    }
}
