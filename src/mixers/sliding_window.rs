//! Softmax attention over the last w tokens (Beltagy et al. 2020): time and state grow with the window alone.

use super::attention;
use super::softmax_attention::{AttentionPattern, SoftmaxAttention};
use super::{in_range, Core, Entry, Family, Gradient, Growth, MixerOption, MixerSpec, ReleasedBlock, StateNormPlace};
use crate::ops::Pattern;
use candle_core::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "sliding-window",
    equation: "o_i = Σ_j softmax_j(q_i·k_j/√m) v_j, i-w < j ≤ i",
    cite: "Beltagy et al. 2020",
    variants: &["reference"],
    dsf: "no (keys leave its window)",
    heads: true,
    expands: true,
    rotary: true,
    released: ReleasedBlock::ATTENTION,
    options: &[
        MixerOption {
            name: "window",
            help: "tokens that a token attends to, itself included: `64`, or any number from 1 on",
            default: |_| "64",
            accepts: |v| in_range(v, 1..=1 << 30),
            short: Some("3"),
            ..MixerOption::DEFAULT
        },
        attention::KV_HEADS,
        attention::HEAD_DIM,
        attention::BIAS,
    ],
    values: attention::values,
    check: attention::check,
    state_norm: StateNormPlace::Free(attention::value_width),
    growth: Growth::Exact { zeroed: &["wq", "wk", "bq", "bk"], scaled: &["wq", "bq"] },
    stem: "sliding_window_attention",
    gradient: &[("bk", Gradient::Cancels)],
    work: |spec| Some(attention::work(spec, Core::SparseAttention(window(spec)))),
    build: |spec, params| {
        let pattern = Window(window(spec));
        Ok(Box::new(SoftmaxAttention::new(spec, params, pattern)?))
    },
    ..Entry::of(Family::Attention)
};

/// Window size w.
fn window(spec: &MixerSpec) -> usize {
    spec.parsed("window").unwrap_or(64)
}

/// Window of the last w tokens.
struct Window(usize);

impl AttentionPattern for Window {
    fn pattern(&self, _seq_len: usize) -> Result<Pattern> {
        Ok(Pattern { window: Some(self.0), ..Pattern::default() })
    }

    fn cached(&self) -> usize {
        self.0
    }

    fn without_system(&self) -> &'static str {
        "a key that leaves the window would have to be subtracted from the state, which no diagonal transition does"
    }
}
