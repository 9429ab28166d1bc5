//! Registry of sequence mixers. To add one, write a file that exports an [`Entry`], and add its `mod` line and its line
//! in [`MIXERS`]: help, listings, sweeps, cost estimates and tests walk the table. The row states what differs from the
//! defaults of [`Entry::of`], exceptions that tests make for the mixer included.
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
mod blockwise;
mod carried;
mod complex;
mod complex_state;
mod convolved;
mod delay_system;
mod delta_net;
mod diagonal;
mod dss;
#[cfg(test)]
mod example;
mod gated_block;
mod gated_recurrence;
mod gateloop;
mod gla;
mod griffin;
mod gru;
mod gss;
mod h3;
mod hgrn2;
mod hippo;
mod hyena;
pub(crate) mod kernel_length;
mod key_value_cache;
mod lightning;
mod linear_attention;
mod linear_rnn;
mod lmu;
mod lmu_cell;
mod log_features;
mod lru;
mod lstm;
mod mamba;
mod mamba2;
mod matrix_state;
mod mlstm;
mod mlstm_block;
mod mlstm_cell;
mod mlstm_large;
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
mod s4_dplr;
mod s4d;
mod s5;
mod s6;
mod sequential;
mod sgconv;
mod short_conv;
mod sinkhorn;
mod sliding_window;
mod slstm;
mod slstm_block;
mod softmax_attention;
mod spatten;
mod spatten_cascade;
mod spec;
mod ssd;
mod ssd_mamba2;
mod state_norm;
mod state_space;
mod t5_bias;
mod taylor_attention;
pub(crate) mod token_shift;
mod ttt_linear;
mod two_passes;
mod work;

use crate::config::{Layout, MapInit, ModelConfig, Protocol, StateMixer};
use crate::error::{self, refuse};
use crate::ltv::{Inner, Ltv};
use crate::nn::{Cx, Params, Scheme};
use candle_core::{Result, Tensor};
pub use carried::{Carried, Importance};
use convolved::Convolved;
use key_value_cache::Room;
pub(crate) use softmax_attention::SOFTMAX;
pub use spec::{MixerSpec, RotarySpec};
pub use state_norm::StateNormPlace;
use state_norm::{Normed, StateNorm};
use std::borrow::Cow;
use two_passes::TwoPasses;
pub(crate) use two_passes::BACKWARD;
pub use work::{Core, MixerWork};

/// Causal map from `(batch, seq_len, d_model)` to the same shape: as one forward pass over the sequence, step by step,
/// and as a linear time-varying system. Only the first two functions are required; contract tests check that the other
/// forms agree with the pass.
pub trait Mixer {
    /// y `(batch, rows, d_model)` at the positions that `cx` selects, for x `(batch, seq_len, d_model)`.
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor>;

    /// Same as [`Self::forward`] after layers that hand on `carried`, to which the mixer adds what later ones read.
    fn forward_with(&self, x: &Tensor, _carried: &mut Carried, cx: &Cx) -> Result<Tensor> {
        self.forward(x, cx)
    }

    /// Elements of the state per sequence after `seq_len` tokens.
    fn state_size(&self, seq_len: usize) -> usize;

    /// Recurrent form, if there is one.
    fn recurrent(&self) -> Option<&dyn Recurrent> {
        None
    }

    /// System (11) along u `(seq_len, d_model)`; `None` where no finite system exists or the map is not of that form.
    fn ltv(&self, _u: &Tensor) -> Result<Option<Ltv>> {
        Ok(None)
    }

    /// The systems (11) whose outputs add up to those of attention to all tokens, along u `(seq_len, d_model)`: over the
    /// tokens up to each one, and over those after it, along u in reverse order. `None` as in [`Self::ltv`].
    fn ltv_of_both_sides(&self, _u: &Tensor) -> Result<Option<[Ltv; 2]>> {
        Ok(None)
    }

    /// System (11) inside a mixer that is not one itself, along u `(seq_len, d_model)`.
    fn inner(&self, _u: &Tensor) -> Result<Option<Inner>> {
        Ok(None)
    }

    /// Reason why there is neither, as the end of a sentence.
    fn without_system(&self) -> &'static str {
        "none is derived here"
    }
}

/// Recurrent form of a mixer, token by token.
pub trait Recurrent {
    /// Initial state.
    fn init(&self, batch: usize) -> Result<State>;

    /// y_t `(batch, d_model)` for the token x_t at position `at` of each sequence; advances the state.
    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor>;

    /// Same as [`Self::step`] with what earlier layers carry for this token, see [`Mixer::forward_with`].
    fn step_with(&self, x_t: &Tensor, at: usize, state: &mut State, _carried: &mut Carried) -> Result<Tensor> {
        self.step(x_t, at, state)
    }

    /// y and the state after x, `(batch, seq_len, d_model)` each, for the first tokens of each sequence. Mixers whose
    /// ops give their last state do so in one pass.
    fn read(&self, x: &Tensor) -> Result<(Tensor, State)> {
        self.read_by_steps(x)
    }

    /// Same as [`Self::read`] with what earlier layers carry, see [`Mixer::forward_with`].
    fn read_with(&self, x: &Tensor, _carried: &mut Carried) -> Result<(Tensor, State)> {
        self.read(x)
    }

    /// Same as [`Self::read`], token by token.
    fn read_by_steps(&self, x: &Tensor) -> Result<(Tensor, State)> {
        let (batch, seq_len, _) = x.dims3()?;
        let mut state = self.init(batch)?;
        let mut step = |i| self.step(&x.narrow(1, i, 1)?.squeeze(1)?.contiguous()?, i, &mut state);
        let outputs = (0..seq_len).map(&mut step).collect::<Result<Vec<_>>>()?;
        Ok((Tensor::stack(&outputs, 1)?, state))
    }
}

/// State of a recurrent mixer: tensors whose first axis is the batch, and the room after those of a cache.
#[derive(Clone, Debug, Default)]
pub struct State(pub Vec<Tensor>, Room);

impl State {
    /// State of these tensors.
    pub fn new(tensors: Vec<Tensor>) -> Self {
        Self(tensors, Room::default())
    }

    /// The tensors, which may be replaced by others.
    pub fn tensors_mut(&mut self) -> &mut [Tensor] {
        self.1 = Room::default();
        &mut self.0
    }

    /// Elements per sequence.
    pub fn size(&self) -> usize {
        let batch = |t: &Tensor| t.dims().first().copied().unwrap_or(1).max(1);
        self.0.iter().map(|t| t.elem_count() / batch(t)).sum()
    }
}

/// Row of the registry.
pub struct Entry {
    /// Name in flags, configs and tables of results.
    pub name: &'static str,
    /// Equation, in one line.
    pub equation: &'static str,
    /// Source: an equation of the paper, or a citation.
    pub cite: &'static str,
    /// Variants; the protocols `reference` and `matched` train the first.
    pub variants: &'static [&'static str],
    /// State dimension N of its system (11), and the part around the system where that is not the whole mixer; or why
    /// there is no system. Per variant where they differ.
    pub dsf: &'static str,
    /// Whether `n_heads` may differ from 1.
    pub heads: bool,
    /// Whether its authors train it with several heads, of which the protocol `matched` gives it four.
    pub multi_head: bool,
    /// Whether heads divide n, where there are several; in Mamba-2 each has all of it.
    pub splits_n: bool,
    /// Whether it has a state expansion; where it has none, `d_state` is recorded as 1.
    pub expands: bool,
    /// Whether the first variant has an inner width, set by `expand`.
    pub widens: bool,
    /// Whether it has queries and keys that a rotary position embedding can rotate.
    pub rotary: bool,
    /// Whether its queries attend to later keys where a task allows it. Other mixers read a document in both directions by
    /// two passes.
    pub bidirectional: bool,
    /// Place for an RMS norm after its state, `--state-norm`.
    pub state_norm: StateNormPlace,
    /// Width of the values of all heads, which heads must divide, with its name in a refusal; d where this is `None`.
    pub values: fn(&MixerSpec) -> Option<(&'static str, usize)>,
    /// Error about values of options that do not fit the sizes.
    pub check: fn(&MixerSpec) -> error::Result<()>,
    /// Family, by which recipes and reports group mixers.
    pub family: Family,
    /// Block around it in the released MQAR configs.
    pub released: ReleasedBlock,
    /// Options of this mixer.
    pub options: &'static [MixerOption],
    /// Embedding of the weights for n into those for a larger n that compute the same (Lemma 2).
    pub growth: Growth,
    /// Stem of its golden files, `STEM_VARIANT`.
    pub stem: &'static str,
    /// Initial values of its linear maps by its authors, for `--map-init authors`; `None` for those of the released
    /// model.
    pub authors_init: Option<Scheme>,
    /// Parameters with initial values of their own, which no scheme of linear maps changes.
    pub own_init: &'static [&'static str],
    /// Parameters whose initial values depend on the depth of the layer.
    pub depth_init: &'static [&'static str],
    /// Matrices that `work` does not count: those that multiply no token, and projections to one number per head.
    pub uncounted: &'static [&'static str],
    /// Parameters whose gradient is not dense.
    pub gradient: &'static [(&'static str, Gradient)],
    /// Step of the finite differences that its gradients are tested against.
    pub difference_step: f64,
    /// Rounding error of f32, relative to that of most mixers.
    pub f32_rounding: f64,
    /// Arithmetic of one layer, called by [`Entry::work`]; `None` where no bound is known.
    pub work: fn(&MixerSpec) -> Option<MixerWork>,
    /// Constructor, called by [`Entry::build`], with parameters from a scope.
    pub build: fn(&MixerSpec, &Params) -> Result<Box<dyn Mixer>>,
}

/// Reason why the gradient of a parameter is not dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// The forward pass never reads the parameter.
    Unused,
    /// The output is invariant to it: softmax or a normaliser cancels it, unless a rotary embedding rotates it.
    Cancels,
    /// A short sequence reads only some of its elements, or a ReLU passes only some.
    Partial,
}

/// Realisation of Lemma 2 by a mixer's parameters: the weights of the smaller mixer are the leading part of those of
/// the larger.
#[derive(Clone, Copy, Debug)]
pub enum Growth {
    /// Outputs are equal.
    Exact {
        /// Parameters that are 0 in their new part; all others are arbitrary there.
        zeroed: &'static [&'static str],
        /// Parameters that are multiplied by √(n'/n).
        scaled: &'static [&'static str],
    },
    /// Outputs are equal, where each part of a stacked parameter grows separately.
    Stacked {
        /// Parameters that are 0 in their new rows; all others are arbitrary there.
        zeroed: &'static [&'static str],
        /// Number of rows of each part of a stacked parameter.
        parts: fn(&str, &MixerSpec) -> Option<Vec<usize>>,
    },
    /// Outputs are equal only in the limit of a bias to -∞.
    Limit {
        /// Parameters that are 0 in their new part.
        zeroed: &'static [&'static str],
        /// Name of the bias.
        bias: &'static str,
    },
    /// No such embedding exists, with the reason.
    No(&'static str),
}

impl Growth {
    const STATE_SPACE: Self = Self::Exact { zeroed: &["wc"], scaled: &[] };
}

/// Family of sequence mixers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Softmax attention.
    Attention,
    /// Attention through a feature map, with a state of constant size and no decay.
    LinearAttention,
    /// Linear attention with a decay, constant or gated.
    GatedLinear,
    /// State space models, selective or time-invariant.
    StateSpace,
    /// Long convolutions without a finite-dimensional state.
    Convolution,
    /// Gated recurrent networks.
    Recurrent,
}

impl Family {
    /// Name in recipes and listings.
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

    /// Whether tokens attend to earlier ones with weights of queries and keys, on which dropout can act.
    pub fn is_attention(self) -> bool {
        matches!(self, Self::Attention | Self::LinearAttention)
    }
}

/// Block around a mixer in the released model (protocol `reference`).
#[derive(Clone, Copy, Debug)]
pub struct ReleasedBlock {
    /// Residual layout.
    pub layout: Layout,
    /// State mixer, the second half of the block.
    pub state_mixer: StateMixer,
    /// Learnt position embeddings.
    pub positions: bool,
    /// Whether the released configs halve the batch size, as they do for all RNNs.
    pub half_batch: bool,
}

impl ReleasedBlock {
    const ATTENTION: Self =
        Self { layout: Layout::Transformer, state_mixer: StateMixer::Identity, positions: true, half_batch: false };
    const STATE_SPACE: Self =
        Self { layout: Layout::Mamba, state_mixer: StateMixer::None, positions: false, half_batch: false };
    /// Block of mixers that have no released config and need no position embeddings.
    const WITHOUT_POSITIONS: Self = Self { positions: false, ..Self::ATTENTION };
    /// Block of mixers that act on each channel alone, which leaves mixing channels to an MLP.
    const CHANNEL_BY_CHANNEL: Self = Self { state_mixer: StateMixer::Mlp, ..Self::WITHOUT_POSITIONS };
    const RNN: Self = Self { half_batch: true, ..Self::ATTENTION };
}

/// Option of one mixer, set by `--option NAME=VALUE`.
pub struct MixerOption {
    /// Name.
    pub name: &'static str,
    /// Help: its effect and its values.
    pub help: &'static str,
    /// Default value under a protocol.
    pub default: fn(Protocol) -> &'static str,
    /// Whether a value is valid.
    pub accepts: fn(&str) -> bool,
    /// Variants that have it; empty for all.
    pub variants: &'static [&'static str],
    /// Whether the default is left out of configs, so that run ids older than the option stay valid.
    pub implied: bool,
    /// Whether `auto` becomes the length of the task in every run, since parameters depend on that length.
    pub of_task: bool,
    /// Value for tests, where the default is too long for sequences of a few tokens.
    pub short: Option<&'static str>,
}

impl MixerOption {
    /// Defaults of a row, which states the name, help, default and values.
    pub(crate) const DEFAULT: Self = Self {
        name: "",
        help: "",
        default: |_| "",
        accepts: |_| false,
        variants: &[],
        implied: false,
        of_task: false,
        short: None,
    };

    /// Whether `variant` has the option.
    pub fn is_of(&self, variant: &str) -> bool {
        self.variants.is_empty() || self.variants.contains(&variant)
    }
}

/// Option that is off or on, off by default.
const FALSE_OR_TRUE: MixerOption = MixerOption {
    default: |_| "false",
    accepts: |v| v == "false" || v == "true",
    implied: true,
    ..MixerOption::DEFAULT
};

/// ε of a norm, by which the mean square is kept away from 0.
const NORM_EPS: MixerOption = MixerOption { name: "norm_eps", accepts: is_eps, implied: true, ..MixerOption::DEFAULT };

/// Whether the value of an option is a number above 0 and below 1.
fn is_eps(value: &str) -> bool {
    value.parse().is_ok_and(|eps: f64| eps > 0.0 && eps < 1.0)
}

/// Whether the value of an option is a whole number in `range`.
fn in_range(value: &str, range: std::ops::RangeInclusive<usize>) -> bool {
    value.parse().is_ok_and(|number| range.contains(&number))
}

/// Names of mixers of pretrained models.
pub(crate) const DELTA_NET: &str = delta_net::ENTRY.name;
pub(crate) const GATED_DELTA_NET: &str = delta_net::GATED.name;
pub(crate) const GLA: &str = gla::ENTRY.name;
pub(crate) const HGRN2: &str = hgrn2::ENTRY.name;
pub(crate) const MAMBA: &str = mamba::ENTRY.name;
pub(crate) const MAMBA2: &str = mamba2::ENTRY.name;
pub(crate) const MLSTM: &str = mlstm::ENTRY.name;
pub(crate) const RETNET: &str = retnet::ENTRY.name;
pub(crate) const RG_LRU: &str = rg_lru::ENTRY.name;
pub(crate) const RWKV4: &str = rwkv4::ENTRY.name;
pub(crate) const RWKV7: &str = rwkv7::ENTRY.name;
pub(crate) const SLIDING_WINDOW: &str = sliding_window::ENTRY.name;

/// Name of the option that sets the rule by which Δ makes A and B discrete, and its value for the zero-order hold.
pub(crate) const ZERO_ORDER_HOLD: (&str, &str) = (state_space::DISCRETIZATION.name, "zoh");

/// All mixers, in the order of listings.
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
    mlstm_block::ENTRY,
    slstm::ENTRY,
    slstm_block::ENTRY,
    rwkv4::ENTRY,
];

/// Entry called `name`, or an error that lists the known names.
pub fn find(name: &str) -> error::Result<&'static Entry> {
    MIXERS.iter().find(|e| e.name == name).ok_or_else(|| match name {
        "attention" | "transformer" | "self-attention" => error::Error::flag_value(
            "--mixer",
            name,
            format!("unknown mixer. Did you mean `{SOFTMAX}`? `dsf mixers` lists all"),
        ),
        _ => error::unknown_value("--mixer", "mixer", name, MIXERS.iter().map(|e| e.name)),
    })
}

/// Error if `--state-norm` asks for a norm after the state of a mixer that takes none.
pub fn check_state_norm(entry: &Entry, model: &ModelConfig) -> error::Result<()> {
    let StateNormPlace::No(why) = entry.state_norm_of(&model.variant) else {
        return Ok(());
    };
    if !model.state_norm {
        return Ok(());
    }
    let free = MIXERS.iter().filter(|entry| !matches!(entry.state_norm, StateNormPlace::No(_)));
    let free: Vec<&str> = free.map(|entry| entry.name).collect();
    refuse!(flag "--state-norm" = true, "mixer `{}` {why}: it must be false; these mixers take one: {}", entry.name, free.join(", "))
}

/// Mixer of layer `layer`, from 0, and the model as if all its layers had this mixer.
pub fn of_layer(model: &ModelConfig, layer: usize) -> error::Result<(&'static Entry, Cow<'_, ModelConfig>)> {
    let Some(hybrid) = &model.hybrid else {
        return Ok((find(&model.mixer)?, Cow::Borrowed(model)));
    };
    let mut of_layer = ModelConfig { hybrid: None, ..model.clone() };
    if hybrid.has(layer) {
        of_layer.mixer.clone_from(&hybrid.mixer);
        of_layer.variant.clone_from(&hybrid.variant);
        of_layer.options.clone_from(&hybrid.options);
        of_layer.n_heads = hybrid.n_heads.unwrap_or(of_layer.n_heads);
        of_layer.d_state = hybrid.d_state.unwrap_or(of_layer.d_state);
    }
    let entry = find(&of_layer.mixer)?;
    // Reset settings that only the other mixer has.
    if !entry.heads {
        of_layer.n_heads = 1;
    }
    if !entry.expands {
        of_layer.d_state = 1;
    }
    if !(entry.widens && of_layer.variant == entry.variants[0]) {
        of_layer.expand = None;
    }
    if !entry.rotary {
        of_layer = of_layer.without_rotary_positions();
    }
    Ok((entry, Cow::Owned(of_layer)))
}

/// Mixers of a model, each with the model as if all its layers had this mixer, and the number of its layers.
pub fn of_model(model: &ModelConfig) -> error::Result<Vec<(&'static Entry, Cow<'_, ModelConfig>, usize)>> {
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
    /// Defaults of a row: one head, no state expansion or inner width, no options, and the single variant `paper`. A
    /// row states its name, equation, citation, system, stem and constructor, and what differs from the defaults.
    pub const fn of(family: Family) -> Self {
        Self {
            name: "",
            equation: "",
            cite: "",
            variants: &["paper"],
            dsf: "",
            heads: false,
            multi_head: false,
            splits_n: true,
            expands: false,
            widens: false,
            rotary: false,
            bidirectional: false,
            state_norm: StateNormPlace::MISSING,
            values: |_| None,
            check: |_| Ok(()),
            family,
            released: ReleasedBlock::WITHOUT_POSITIONS,
            options: &[],
            growth: Growth::No("its state has the width d: there is no n to grow"),
            stem: "",
            authors_init: None,
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

    /// Mixer of `spec` with parameters from a scope, created on first use.
    pub fn build<'a>(&self, spec: impl Into<MixerSpec<'a>>, params: &Params) -> Result<Box<dyn Mixer>> {
        let spec = spec.into();
        match self.has_two_passes(&spec) {
            true => Ok(Box::new(TwoPasses::new(|params| self.build_pass(spec, params), params)?)),
            false => self.build_pass(spec, params),
        }
    }

    /// [`Self::build`] for one pass.
    fn build_pass(&self, spec: MixerSpec, params: &Params) -> Result<Box<dyn Mixer>> {
        let params = params.clone().with_origin(self.cite);
        let authors = self.authors_init.filter(|_| spec.map_init == MapInit::Authors);
        let spec = if authors == Some(Scheme::Small) { spec.with_small_init() } else { spec };
        let params = match authors {
            Some(scheme) => params.with_scheme(scheme),
            None => params,
        };
        let mixer = (self.build)(&spec, &params)?;
        let norm = match self.state_norm_of(spec.variant) {
            StateNormPlace::Free(width) => StateNorm::new(&spec, width(&spec), &params)?,
            StateNormPlace::FreeInFirst(_) | StateNormPlace::No(_) => None,
        };
        let mixer = match norm {
            Some(norm) => Box::new(Normed { mixer, norm }),
            None => mixer,
        };
        Ok(match spec.short_conv {
            true => Box::new(Convolved::new(mixer, spec.d_model, &params)?),
            false => mixer,
        })
    }

    /// Place for a norm after the state in a variant.
    pub fn state_norm_of(&self, variant: &str) -> StateNormPlace {
        match self.state_norm {
            StateNormPlace::FreeInFirst(width) if variant == self.variants[0] => StateNormPlace::Free(width),
            StateNormPlace::FreeInFirst(_) => StateNormPlace::No("has a norm after its state already in this variant"),
            place => place,
        }
    }

    /// Default variant under a protocol.
    pub fn default_variant(&self, protocol: Protocol) -> &'static str {
        match protocol {
            Protocol::Paper if self.variants.contains(&"paper") => "paper",
            _ => self.variants[0],
        }
    }

    /// Error if the mixer has no such variant.
    pub fn check_variant(&self, variant: &str) -> error::Result<()> {
        if self.variants.contains(&variant) {
            return Ok(());
        }
        let kind = format!("variant of {}", self.name);
        Err(error::unknown_value("--variant", &kind, variant, self.variants.iter().copied()))
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
        let model = crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap().model;
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

    /// The kernels of a GPU, emulated, in bf16, against f64 on the CPU.
    #[test]
    fn layers_of_released_models_run_on_a_gpu() {
        for (mixer, variant, heads, options) in [
            ("mamba", "block", "1", &["bcdt_norm=rms", "bias=true", "conv_width=3"][..]),
            ("mamba2", "block", "4", &["groups=2", "norm_groups=2", "dt_limit=0.01:0.5", "conv_bias=false"]),
            ("softmax", "reference", "4", &["kv_heads=2", "head_dim=4", "bias=out"]),
            ("sliding-window", "reference", "4", &["kv_heads=1", "window=3", "bias=none"]),
            ("rg-lru", "griffin", "1", &["width=24", "blocks=3"]),
            ("mlstm", "large", "4", &["value_width=24", "bias=true"]),
            ("rwkv4", "paper", "1", &["width=24"]),
            ("gla", "paper", "4", &["value_width=24", "output_gate=false"]),
            ("hgrn2", "paper", "4", &["lower_bound=learnt"]),
        ] {
            let mut settings = vec![("preset", "smoke"), ("mixer", mixer), ("variant", variant), ("heads", heads)];
            settings.extend([("d", "16"), ("n", if mixer == "rg-lru" || mixer == "rwkv4" { "1" } else { "16" })]);
            settings.extend(options.iter().map(|option| ("option", *option)));
            let model = crate::recipes::run("mqar", &settings).unwrap().model;
            let u = Tensor::randn(0.0, 1.0, (2, 9, 16), &Device::Cpu).unwrap();
            let output = |params: &Params, dtype| {
                let mixer = find(mixer).unwrap().build(&model, params).unwrap();
                mixer.forward(&u.to_dtype(dtype).unwrap(), &Cx::eval()).unwrap()
            };
            let wanted = output(&Params::seeded(1, DType::F64, &Device::Cpu), DType::F64);
            let params = Params::seeded(1, DType::F32, &Device::Cpu).for_activations(DType::BF16);
            let got = emulated(|| output(&params, DType::BF16));
            assert_eq!(got.dtype(), DType::BF16, "{mixer}");
            let largest = |x: &Tensor| x.abs().unwrap().max_all().unwrap().to_scalar::<f64>().unwrap();
            let apart = (got.to_dtype(DType::F64).unwrap() - &wanted).unwrap();
            let (apart, scale) = (largest(&apart), largest(&wanted));
            assert!(apart < 0.05 * scale, "{mixer} {variant}: {apart:e} of {scale:e}");
        }
    }

    #[test]
    fn the_guide_shows_the_whole_file_of_the_example() {
        let guide = include_str!("../guide/extending.md");
        assert!(guide.contains(include_str!("example.rs")), "copy src/mixers/example.rs into it");
    }
}
