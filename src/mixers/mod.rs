//! The registry of sequence mixers. To add one, write a file that exports an [`Entry`], and add its `mod`
//! line and its line in [`MIXERS`]: help, listings, sweeps, cost estimates and tests walk the table. The row states what
//! differs from the defaults of [`Entry::of`], exceptions that tests make for the mixer included.
//!
//! | here | paper | meaning |
//! |---|---|---|
//! | `d_model` | d | width of the input and output |
//! | `d_state` | n | state expansion; also the query/key width of attention |
//! | `n_heads` | s | heads; m = n/s query features and e = d/s values each |
//! | `x` → `y`, `h` | u, y, h | input, output and state |

mod alibi;
mod attention;
mod bigbird;
mod complex;
mod complex_state;
mod delta_net;
mod delta_state;
mod diagonal;
mod dss;
#[cfg(test)]
mod example;
mod gated_block;
mod gated_recurrence;
mod gateloop;
mod gla;
mod gru;
mod gss;
mod h3;
mod hgrn2;
mod hyena;
pub(crate) mod kernel_length;
mod lightning;
mod linear_attention;
mod lmu;
mod log_features;
mod lru;
mod lstm;
mod mamba;
mod mamba2;
mod matrix_state;
mod mlstm;
mod normalized_attention;
mod performer;
mod qlstm;
mod retention;
mod retnet;
mod rg_lru;
mod rnn;
mod rotary;
mod running_max;
mod rwkv4;
mod rwkv5;
mod rwkv7;
mod s4;
mod s4d;
mod s5;
mod s6;
mod sequential;
mod sgconv;
mod short_conv;
mod sinkhorn;
mod sliding_window;
mod slstm;
mod softmax_attention;
mod spatten;
mod spec;
mod ssd;
mod ssd_mamba2;
mod state_space;
mod t5_bias;
mod taylor_attention;
mod token_shift;
mod ttt_linear;
mod work;

use crate::config::{Layout, ModelConfig, Protocol, Rotary, StateMixer};
use crate::error;
use crate::ltv::{Inner, Ltv};
use crate::nn::{Cx, Params};
use candle_core::{Result, Tensor};
pub(crate) use softmax_attention::{GPT_NEOX, SOFTMAX};
pub use spec::{MixerSpec, RotarySpec};
use std::borrow::Cow;
pub use work::{Core, MixerWork};

/// A causal map from `(batch, seq_len, d_model)` to the same shape: as one pass over the sequence, step by
/// step, and as a linear time-varying system. Only the first two functions are required; contract tests
/// prove that the other forms agree with the pass.
pub trait Mixer {
    /// x `(batch, seq_len, d_model)` to y `(batch, rows, d_model)` at the positions that `cx` selects.
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor>;

    /// Numbers of the state kept per sequence after `seq_len` tokens.
    fn state_size(&self, seq_len: usize) -> usize;

    /// The same map token by token, where it has a recurrent form.
    fn recurrent(&self) -> Option<&dyn Recurrent> {
        None
    }

    /// The matrices of equation (11) along u `(seq_len, d_model)`; `None` where no finite system
    /// exists or the map is not of that form.
    fn ltv(&self, _u: &Tensor) -> Result<Option<Ltv>> {
        Ok(None)
    }

    /// The system inside a wrapping, along u `(seq_len, d_model)`, of a mixer that is none itself.
    fn inner(&self, _u: &Tensor) -> Result<Option<Inner>> {
        Ok(None)
    }

    /// Why there is neither, in words that end a sentence.
    fn without_system(&self) -> &'static str {
        "none is derived here"
    }
}

/// A mixer that can be stepped through time.
pub trait Recurrent {
    /// The state before the first token.
    fn init(&self, batch: usize) -> Result<State>;

    /// x_t `(batch, d_model)`, the token at position `at` of each sequence, to y_t; advances the state.
    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor>;
}

/// The state of a recurrent mixer: tensors whose first axis is the batch.
#[derive(Clone, Debug, Default)]
pub struct State(pub Vec<Tensor>);

impl State {
    /// Numbers per sequence.
    pub fn size(&self) -> usize {
        let batch = |t: &Tensor| t.dims().first().copied().unwrap_or(1).max(1);
        self.0.iter().map(|t| t.elem_count() / batch(t)).sum()
    }
}

/// A row of the registry.
pub struct Entry {
    /// As spelled in flags, configs and tables of results.
    pub name: &'static str,
    /// What it computes, in one line.
    pub equation: &'static str,
    /// The paper's equation, or another source.
    pub cite: &'static str,
    /// Variants; the protocols `reference` and `matched` train the first.
    pub variants: &'static [&'static str],
    /// The state dimension N of its system (11), with what surrounds the system where it is not the mixer itself, or why there
    /// is none; for each variant where they differ.
    pub dsf: &'static str,
    /// Whether `n_heads` may differ from 1.
    pub heads: bool,
    /// Whether it has a state expansion; where it has none, `d_state` is recorded as 1.
    pub expands: bool,
    /// Whether the first variant has an inner width that `expand` sets.
    pub widens: bool,
    /// Whether it has queries and keys that a rotary position embedding can rotate.
    pub rotary: bool,
    /// Whether its queries can see the keys of the whole document, later ones too, where a task allows it: attention whose
    /// only order in time is that of the sum.
    pub bidirectional: bool,
    /// The kind of mixer, by which recipes and reports group.
    pub family: Family,
    /// The block around it in the released MQAR configs.
    pub released: ReleasedBlock,
    /// Options of this mixer alone.
    pub options: &'static [MixerOption],
    /// How weights with a small n become weights with a larger one that compute the same (Lemma 2).
    pub growth: Growth,
    /// Its golden files are named `STEM_VARIANT`.
    pub stem: &'static str,
    /// Parameters with initial values of their own, which no scheme of linear maps changes.
    pub own_init: &'static [&'static str],
    /// Parameters whose initial values depend on the depth of the layer.
    pub depth_init: &'static [&'static str],
    /// Matrices that `work` does not count: they multiply no token, or give one number a head.
    pub uncounted: &'static [&'static str],
    /// Parameters whose gradient is not dense.
    pub gradient: &'static [(&'static str, Gradient)],
    /// Step of the finite differences that its gradients are tested against.
    pub difference_step: f64,
    /// Rounding error of f32, relative to that of most mixers.
    pub f32_rounding: f64,
    /// The arithmetic of one layer, which [`Entry::work`] asks for; `None` where no bound is known.
    pub work: fn(&MixerSpec) -> Option<MixerWork>,
    /// Builds it with parameters from a scope; [`Entry::build`] calls it.
    pub build: fn(&MixerSpec, &Params) -> Result<Box<dyn Mixer>>,
}

/// Reason why the gradient of a parameter is not dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// The forward pass never reads the parameter.
    Unused,
    /// The output is invariant to it: softmax or a normaliser cancels it, unless a rotary embedding rotates it.
    Cancels,
    /// A short sequence reads only some of its elements.
    Partial,
}

/// How a mixer's own parameters realise Lemma 2, which speaks of systems: the weights of the smaller one are the leading
/// part of those of the larger.
#[derive(Clone, Copy, Debug)]
pub enum Growth {
    /// Outputs are equal.
    Exact {
        /// Parameters that are 0 in their new part; all others may be anything there.
        zeroed: &'static [&'static str],
        /// Parameters that are multiplied by √(n'/n).
        scaled: &'static [&'static str],
    },
    /// Outputs are equal, where the parts of which some parameters are stacked grow each for itself.
    Stacked {
        /// Parameters that are 0 in their new rows; all others may be anything there.
        zeroed: &'static [&'static str],
        /// Rows of each part of a parameter.
        parts: fn(&str, &MixerSpec) -> Option<Vec<usize>>,
    },
    /// Outputs are equal only in the limit of a bias towards -∞.
    Limit {
        /// Parameters that are 0 in their new part.
        zeroed: &'static [&'static str],
        /// The bias, in its new part.
        bias: &'static str,
    },
    /// There is no such embedding, in words that say why.
    No(&'static str),
}

impl Growth {
    const STATE_SPACE: Self = Self::Exact {
        zeroed: &["wc"],
        scaled: &[],
    };
}

/// The kinds of sequence mixers that the literature tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Softmax attention: every token attends to all tokens before it.
    Attention,
    /// Attention through a feature map, with a state of constant size.
    LinearAttention,
    /// Linear attention whose past fades: a matrix of state with decays, given or gated.
    GatedLinear,
    /// State space models, selective or time-invariant.
    StateSpace,
    /// Convolutions as long as the sequence that are no recurrence.
    Convolution,
    /// Gated recurrent networks.
    Recurrent,
}

impl Family {
    /// As recipes and listings spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::LinearAttention => "linear-attention",
            Self::GatedLinear => "gated-linear",
            Self::StateSpace => "state-space",
            Self::Convolution => "convolution",
            Self::Recurrent => "recurrent",
        }
    }

    /// Whether every token weighs all tokens before it by queries and keys, with weights that dropout can drop.
    pub fn is_attention(self) -> bool {
        matches!(self, Self::Attention | Self::LinearAttention)
    }
}

/// The block of the released model around a mixer (protocol `reference`).
#[derive(Clone, Copy, Debug)]
pub struct ReleasedBlock {
    /// Residual layout.
    pub layout: Layout,
    /// Second half of the block, its state mixer.
    pub state_mixer: StateMixer,
    /// Learnt position embeddings.
    pub positions: bool,
    /// Whether the released configs train it with half the batch size of the others, as they do all RNNs.
    pub half_batch: bool,
}

impl ReleasedBlock {
    const ATTENTION: Self = Self {
        layout: Layout::Transformer,
        state_mixer: StateMixer::Identity,
        positions: true,
        half_batch: false,
    };
    const STATE_SPACE: Self = Self {
        layout: Layout::Mamba,
        state_mixer: StateMixer::None,
        positions: false,
        half_batch: false,
    };
    /// Of mixers that the released configs do not train and that tell places apart by themselves.
    const WITHOUT_POSITIONS: Self = Self {
        positions: false,
        ..Self::ATTENTION
    };
    /// Of mixers that mix no channels, which the second half of the block must do.
    const CHANNEL_BY_CHANNEL: Self = Self {
        state_mixer: StateMixer::Mlp,
        ..Self::WITHOUT_POSITIONS
    };
    const RNN: Self = Self {
        half_batch: true,
        ..Self::ATTENTION
    };
}

/// An option of one mixer, set by `--option NAME=VALUE`.
pub struct MixerOption {
    /// Its name.
    pub name: &'static str,
    /// What it does and which values it takes.
    pub help: &'static str,
    /// The value under a protocol when none is given.
    pub default: fn(Protocol) -> &'static str,
    /// Whether a value is allowed.
    pub accepts: fn(&str) -> bool,
    /// Variants that have it; all where it names none.
    pub variants: &'static [&'static str],
    /// Whether the default is left out of configs, so that run ids older than the option stay valid.
    pub implied: bool,
    /// A value for tests, whose sequences are shorter than the default has in mind.
    pub short: Option<&'static str>,
}

impl MixerOption {
    /// An option of every variant that accepts nothing: a row states its name, help, default and values.
    pub(crate) const DEFAULT: Self = Self {
        name: "",
        help: "",
        default: |_| "",
        accepts: |_| false,
        variants: &[],
        implied: false,
        short: None,
    };

    /// Whether `variant` has this option.
    pub fn is_of(&self, variant: &str) -> bool {
        self.variants.is_empty() || self.variants.contains(&variant)
    }
}

/// Every mixer, in the order of the listing.
pub static MIXERS: &[Entry] = &[
    softmax_attention::ENTRY,
    alibi::ENTRY,
    t5_bias::ENTRY,
    sliding_window::ENTRY,
    bigbird::ENTRY,
    sinkhorn::ENTRY,
    spatten::ENTRY,
    taylor_attention::ENTRY,
    performer::ENTRY,
    linear_attention::ENTRY,
    normalized_attention::GENERALIZED,
    normalized_attention::EXP,
    normalized_attention::SOFTPLUS,
    normalized_attention::SIGMOID,
    retention::ENTRY,
    retnet::ENTRY,
    lightning::ENTRY,
    gla::ENTRY,
    hgrn2::ENTRY,
    delta_net::ENTRY,
    delta_net::GATED,
    ttt_linear::ENTRY,
    rwkv5::EAGLE,
    rwkv5::FINCH,
    rwkv7::ENTRY,
    s6::ENTRY,
    mamba::ENTRY,
    ssd::ENTRY,
    ssd_mamba2::ENTRY,
    mamba2::ENTRY,
    lru::ENTRY,
    s4::ENTRY,
    s4d::ENTRY,
    dss::ENTRY,
    s5::ENTRY,
    h3::ENTRY,
    gss::ENTRY,
    lmu::ENTRY,
    hyena::ENTRY,
    sgconv::ENTRY,
    rnn::ENTRY,
    gru::ENTRY,
    lstm::ENTRY,
    qlstm::ENTRY,
    qlstm::REVERSED,
    rg_lru::ENTRY,
    gateloop::ENTRY,
    mlstm::ENTRY,
    slstm::ENTRY,
    rwkv4::ENTRY,
];

/// The entry called `name`, or the sentence that says which names exist.
pub fn find(name: &str) -> error::Result<&'static Entry> {
    MIXERS.iter().find(|e| e.name == name).ok_or_else(|| {
        error::unknown_value("--mixer", "mixer", name, MIXERS.iter().map(|e| e.name))
    })
}

/// The mixer of layer `layer`, from 0, and the model as if all its layers were like this one.
pub fn of_layer(
    model: &ModelConfig,
    layer: usize,
) -> error::Result<(&'static Entry, Cow<'_, ModelConfig>)> {
    let Some(hybrid) = &model.hybrid else {
        return Ok((find(&model.mixer)?, Cow::Borrowed(model)));
    };
    let mut of_layer = ModelConfig {
        hybrid: None,
        ..model.clone()
    };
    if hybrid.has(layer) {
        of_layer.mixer.clone_from(&hybrid.mixer);
        of_layer.variant.clone_from(&hybrid.variant);
        of_layer.options.clone_from(&hybrid.options);
    }
    let entry = find(&of_layer.mixer)?;
    // Settings that only the other one has.
    if !entry.heads {
        of_layer.n_heads = 1;
    }
    if !entry.expands {
        of_layer.d_state = 1;
    }
    if !(entry.widens && of_layer.variant == entry.variants[0]) {
        of_layer.expand = None;
    }
    if let Some(language) = of_layer.language.as_mut().filter(|_| !entry.rotary) {
        language.rotary = Rotary::None;
    }
    Ok((entry, Cow::Owned(of_layer)))
}

/// Every mixer of a model, each with the model as if all its layers were like its own, and how many layers have it.
pub fn of_model(
    model: &ModelConfig,
) -> error::Result<Vec<(&'static Entry, Cow<'_, ModelConfig>, usize)>> {
    let layers = || 0..model.n_layers;
    let Some(hybrid) = &model.hybrid else {
        let (entry, of_layer) = of_layer(model, 0)?;
        return Ok(vec![(entry, of_layer, model.n_layers)]);
    };
    let firsts = [false, true].map(|other| layers().find(|&layer| hybrid.has(layer) == other));
    let found = firsts.into_iter().flatten().map(|first| {
        let (entry, of_layer) = of_layer(model, first)?;
        let alike = layers().filter(|&layer| hybrid.has(layer) == hybrid.has(first));
        Ok((entry, of_layer, alike.count()))
    });
    found.collect()
}

impl Entry {
    /// The defaults of a row: a mixer with one head and no state expansion, of a width that nothing sets, in a single variant
    /// `paper`. A row states its name, equation, citation, system, stem and constructor, and what differs from here.
    pub const fn of(family: Family) -> Self {
        Self {
            name: "",
            equation: "",
            cite: "",
            variants: &["paper"],
            dsf: "",
            heads: false,
            expands: false,
            widens: false,
            rotary: false,
            bidirectional: false,
            family,
            released: ReleasedBlock::WITHOUT_POSITIONS,
            options: &[],
            growth: Growth::No("its state has the width d: there is no n to grow"),
            stem: "",
            own_init: &[],
            depth_init: &[],
            uncounted: &[],
            gradient: &[],
            difference_step: 1e-5,
            f32_rounding: 1.0,
            work: |_| None,
            build: |_, _| candle_core::bail!("a mixer without a constructor"),
        }
    }

    /// The mixer of `spec` with parameters from a scope, created on first use.
    pub fn build<'a>(
        &self,
        spec: impl Into<MixerSpec<'a>>,
        params: &Params,
    ) -> Result<Box<dyn Mixer>> {
        (self.build)(&spec.into(), params)
    }

    /// The variant a protocol trains when none is named.
    pub fn default_variant(&self, protocol: Protocol) -> &'static str {
        match protocol {
            Protocol::Paper if self.variants.contains(&"paper") => "paper",
            _ => self.variants[0],
        }
    }

    /// Refuses a variant that this mixer does not have.
    pub fn check_variant(&self, variant: &str) -> error::Result<()> {
        if self.variants.contains(&variant) {
            return Ok(());
        }
        let kind = format!("variant of {}", self.name);
        Err(error::unknown_value(
            "--variant",
            &kind,
            variant,
            self.variants.iter().copied(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};
    use dsf_emulation::emulated;

    /// The three forms of the mixer that the guide shows are one map.
    #[test]
    fn the_example_of_the_guide_is_a_mixer() {
        let model = crate::recipes::run("mqar", &[("preset", "smoke")])
            .unwrap()
            .model;
        let params = Params::seeded(1, DType::F64, &Device::Cpu);
        let mixer = example::ENTRY.build(&model, &params).unwrap();
        let u = Tensor::randn(0.0, 1.0, (1, 6, model.d_model), &Device::Cpu).unwrap();
        let y = mixer.forward(&u, &Cx::eval()).unwrap().squeeze(0).unwrap();
        let far = |other: &Tensor| {
            let apart = (&y - other).unwrap().abs().unwrap().max_all().unwrap();
            apart.to_scalar::<f64>().unwrap()
        };
        let along = u.squeeze(0).unwrap();
        assert!(far(&mixer.ltv(&along).unwrap().unwrap().run(&along).unwrap()) < 1e-12);
        let recurrent = mixer.recurrent().unwrap();
        let mut state = recurrent.init(1).unwrap();
        let steps = (0..6).map(|i| recurrent.step(&along.narrow(0, i, 1).unwrap(), i, &mut state));
        let steps: Vec<Tensor> = steps.collect::<Result<_>>().unwrap();
        assert!(far(&Tensor::cat(&steps, 0).unwrap()) < 1e-12);
        assert_eq!(state.size(), mixer.state_size(6));
        let params = Params::seeded(1, DType::F32, &Device::Cpu).for_activations(DType::BF16);
        let mixer = example::ENTRY.build(&model, &params).unwrap();
        let half = u.to_dtype(DType::BF16).unwrap();
        let y = emulated(|| mixer.forward(&half, &Cx::eval()).unwrap());
        assert_eq!(y.dtype(), DType::BF16);
    }

    #[test]
    fn the_guide_shows_the_whole_file_of_the_example() {
        let guide = include_str!("../guide/extending.md");
        assert!(
            guide.contains(include_str!("example.rs")),
            "copy src/mixers/example.rs into it"
        );
    }
}
