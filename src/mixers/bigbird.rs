//! BigBird (Zaheer et al. 2020), causal and with blocks of one token: softmax attention over a window, a few global
//! tokens and random tokens.

use super::attention;
use super::softmax_attention::{AttentionPattern, SoftmaxAttention};
use super::{in_range, Core, Entry, Family, Gradient, Growth, MixerOption, MixerSpec, ReleasedBlock, StateNormPlace};
use crate::nn::{Params, Tables};
use crate::ops::rng::Rng;
use crate::ops::Pattern;
use candle_core::{DType, Device, Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "bigbird",
    equation: "o_i = Σ_j softmax_j(q_i·k_j/√m) v_j, j in the window, global or random",
    cite: "Zaheer et al. 2020",
    variants: &["reference"],
    dsf: "no (keys leave its window)",
    heads: true,
    multi_head: true,
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
        MixerOption {
            name: "n_global",
            help: "number of first tokens that are global, attended to by all later ones: `2`, or any number",
            default: |_| "2",
            accepts: |v| in_range(v, 0..=1 << 30),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "n_random",
            help: "random earlier tokens that a token also attends to: `3`, or any number up to 64",
            default: |_| "3",
            accepts: |v| in_range(v, 0..=64),
            ..MixerOption::DEFAULT
        },
    ],
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::Exact { zeroed: &["wq", "wk", "bq", "bk"], scaled: &["wq", "bq"] },
    stem: "bigbird_attention",
    gradient: &[("bk", Gradient::Cancels)],
    work: |spec| {
        let [window, globals, links] = counts(spec);
        let keys = window.saturating_add(globals).saturating_add(links);
        Some(attention::work(spec, Core::SparseAttention(keys)))
    },
    build: |spec, params| {
        let pattern = BigBird::new(spec, params)?;
        Ok(Box::new(SoftmaxAttention::new(spec, params, pattern)?))
    },
    ..Entry::of(Family::Attention)
};

/// Sizes of the pattern: window, global tokens, and random tokens per token.
fn counts(spec: &MixerSpec) -> [usize; 3] {
    let option = |name, default| spec.parsed(name).unwrap_or(default);
    [option("window", 64), option("n_global", 2), option("n_random", 3)]
}

/// Sparse graph of attended pairs.
struct BigBird {
    window: usize,
    globals: usize,
    per_token: usize,
    /// Random tokens that token i attends to, in row i, as weights were given with them.
    given: Option<Tensor>,
    links: Tables<Tensor>,
    rng: Rng,
    device: Device,
}

impl BigBird {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let [window, globals, per_token] = counts(spec);
        let device = params.device().clone();
        let given = match params.given_constant("random_links")? {
            Some(links) => Some(links.to_dtype(DType::U32)?.to_device(&device)?),
            None => None,
        };
        Ok(Self {
            window,
            globals,
            per_token,
            given,
            links: Tables::default(),
            rng: params.constant_rng("random_links"),
            device,
        })
    }

    /// Random tokens of the first `seq_len` tokens, `(seq_len, per_token)`; the same for every length of the sequence.
    fn links(&self, seq_len: usize) -> Result<Tensor> {
        let known = self.given.as_ref().filter(|given| given.dims()[0] >= seq_len);
        if let Some(given) = known {
            return given.narrow(0, 0, seq_len);
        }
        // Lengths up to a power of two share a table, since links do not depend on the length.
        let len = seq_len.next_power_of_two();
        let draw = || {
            let of = |token: usize| {
                let mut rng = self.rng.at(token as u64);
                (0..self.per_token).map(move |_| rng.below(token as u32 + 1))
            };
            let drawn: Vec<u32> = (0..len).flat_map(of).collect();
            Tensor::from_vec(drawn, (len, self.per_token), &self.device)
        };
        self.links.of(len, draw)?.narrow(0, 0, seq_len)
    }
}

impl AttentionPattern for BigBird {
    fn pattern(&self, seq_len: usize) -> Result<Pattern> {
        let links = match self.per_token {
            0 => None,
            _ => Some(self.links(seq_len)?),
        };
        Ok(Pattern { window: Some(self.window), globals: self.globals, links, ..Pattern::default() })
    }

    fn without_system(&self) -> &'static str {
        "a key that leaves the window would have to be subtracted from the state, which no diagonal transition does"
    }
}
