//! Specification that a mixer is built from, and checks of its sizes.

use super::{Entry, Family};
use crate::config::{InitScheme, MapInit, ModelConfig, Rotary};
use crate::error::{self, refuse};
use crate::nn::GPT_STD;
use std::collections::BTreeMap;

/// Specification of a mixer: all it may know of the network around it, from widths to initial standard deviations.
#[derive(Clone, Copy, Debug)]
pub struct MixerSpec<'a> {
    /// Variant, one of the row's.
    pub variant: &'a str,
    /// Options of the mixer, by name.
    pub options: &'a BTreeMap<String, String>,
    /// Width of the input and output, d.
    pub d_model: usize,
    /// State expansion, n, or query/key width of attention.
    pub d_state: usize,
    /// Heads, s.
    pub n_heads: usize,
    /// Number of layers of the network.
    pub n_layers: usize,
    /// Index of the layer, from 0.
    pub layer: usize,
    /// Ratio of the inner width to d, in mixers that have one; `None` is 2.
    pub expand: Option<f64>,
    /// Rotary position embedding of queries and keys.
    pub rotary: Option<RotarySpec>,
    /// Dropout probability inside attention.
    pub attn_dropout: f64,
    /// Whether dropout of attention without a softmax acts on its output, as in the released classifiers, or on its
    /// weights.
    pub drops_output: bool,
    /// Whether outputs may depend on later tokens.
    pub bidirectional: bool,
    /// Whether a short convolution precedes the mixer.
    pub short_conv: bool,
    /// Whether an RMS norm of each head follows the state.
    pub state_norm: bool,
    /// Initial values of linear maps.
    pub map_init: MapInit,
    /// Standard deviation of initial weights of projections from the residual stream.
    pub input_std: f64,
    /// Standard deviation of initial weights of projections to the residual stream.
    pub output_std: f64,
    /// The same in the gated block of the RNNs, which the released code does not scale by depth.
    pub rnn_output_std: f64,
}

/// Rotary position embedding (Su et al. 2021).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotarySpec {
    /// Number of rotated channels of each head, its first ones; even.
    pub dims: usize,
    /// Whether φ(q) and φ(k) are rotated in the numerator, instead of q and k before φ.
    pub after_feature_map: bool,
    /// Base of the angles: pair j of n is rotated by p base^(-j/n) at position p.
    pub base: f64,
}

/// Base of the angles by Su et al. 2021: pair j of n is rotated by p base^(-j/n) at position p.
pub(super) const ROTARY_BASE: f64 = 10_000.0;

/// Default ratio of the inner width to d.
const EXPAND: f64 = 2.0;

/// Largest number of features of a head.
const MAX_FEATURES: usize = 1 << 20;

/// Largest ratio of the inner width to d.
const MAX_EXPAND: f64 = 64.0;

/// Standard deviations of projections from and to the residual stream by Nguyen and Salazar (2019) and Wang.
fn small_init(d_model: usize, layers: usize) -> (f64, f64) {
    let d = d_model as f64;
    ((2.0 / (5.0 * d)).sqrt(), 2.0 / (layers as f64 * d.sqrt()))
}

impl<'a> From<&'a ModelConfig> for MixerSpec<'a> {
    fn from(model: &'a ModelConfig) -> Self {
        let language = model.language.as_ref();
        let (input_std, output_std) = match language.map(|language| language.init) {
            Some(InitScheme::Pythia) => small_init(model.d_model, model.n_layers),
            Some(InitScheme::Hf) => (GPT_STD, GPT_STD),
            // GPT-2's rule, with two projections to the residual stream per layer.
            None => (GPT_STD, GPT_STD / (2.0 * model.n_layers as f64).sqrt()),
        };
        Self {
            variant: &model.variant,
            options: &model.options,
            d_model: model.d_model,
            d_state: model.d_state,
            n_heads: model.n_heads,
            n_layers: model.n_layers,
            layer: 0,
            expand: model.expand,
            rotary: model.rotary_positions().map(|(rotary, dims)| RotarySpec {
                dims,
                after_feature_map: rotary == Rotary::Post,
                base: model.block.rotary_base.unwrap_or(ROTARY_BASE),
            }),
            attn_dropout: model.attn_dropout,
            drops_output: model.classifier.is_some(),
            bidirectional: model.is_bidirectional(),
            short_conv: model.short_conv,
            state_norm: model.state_norm,
            map_init: model.map_init,
            input_std,
            output_std,
            rnn_output_std: language.map_or(input_std, |_| output_std),
        }
    }
}

impl MixerSpec<'_> {
    /// The same specification for layer `layer`.
    pub fn in_layer(self, layer: usize) -> Self {
        Self { layer, ..self }
    }

    /// The same specification with the standard deviations of xLSTM.
    pub(super) fn with_small_init(self) -> Self {
        let (input_std, output_std) = small_init(self.d_model, self.n_layers);
        Self { input_std, output_std, ..self }
    }

    /// Inner width E, rounded down.
    pub fn inner_width(&self) -> usize {
        (self.expand.unwrap_or(EXPAND) * self.d_model as f64) as usize
    }

    /// Heads of keys and values, in attention mixers; as many as heads of queries unless an option sets them.
    pub fn kv_heads(&self) -> usize {
        self.parsed("kv_heads").unwrap_or(self.n_heads)
    }

    /// Value of the option `name` as a number; `None` for `auto` and where it is not set.
    pub(super) fn parsed<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.option(name)?.parse().ok()
    }

    /// Whether the option `name` is `true`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.option(name) == Some("true")
    }

    /// Value of the option `name`, if it is set.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }
}

impl Entry {
    /// Error if the mixer cannot be built with these sizes, in one sentence that names the flag.
    pub fn check_sizes<'a>(&self, spec: impl Into<MixerSpec<'a>>) -> error::Result<()> {
        let spec = spec.into();
        self.check_direction(&spec)?;
        self.check_expand(&spec)?;
        self.check_heads(&spec)?;
        self.check_features(&spec)?;
        (self.check)(&spec)?;
        self.check_rotary(&spec)
    }

    fn check_direction(&self, spec: &MixerSpec) -> error::Result<()> {
        if !(self.has_two_passes(spec) && self.family == Family::Attention) {
            return Ok(());
        }
        refuse!(flag "--bidirectional" = true, "must be false for mixer `{}`, whose softmax is over earlier tokens alone; softmax, linear and normalized attention, taylor, performer and sinkhorn attend to all tokens, and mixers without a softmax read in both directions", self.name)
    }

    /// Whether a mixer of `spec` reads each sequence in both directions by two passes, each with parameters of its own.
    pub fn has_two_passes(&self, spec: &MixerSpec) -> bool {
        spec.bidirectional && !self.bidirectional
    }

    fn check_expand(&self, spec: &MixerSpec) -> error::Result<()> {
        let Some(expand) = spec.expand else {
            return Ok(());
        };
        if !self.widens || spec.variant != self.variants[0] {
            refuse!(flag "--expand" = expand, "mixer `{}`, variant `{}`, has no inner width; leave --expand out", self.name, spec.variant);
        }
        // Not-a-number fails the first comparison.
        if expand.is_finite() && expand <= MAX_EXPAND && spec.inner_width() >= 1 {
            return Ok(());
        }
        refuse!(flag "--expand" = expand, "must be at most {MAX_EXPAND} and make of --d {} an inner width of at least 1", spec.d_model)
    }

    fn check_heads(&self, spec: &MixerSpec) -> error::Result<()> {
        let (d, n, s) = (spec.d_model, spec.d_state, spec.n_heads);
        if s == 1 {
            return Ok(());
        }
        if !self.heads {
            refuse!(flag "--heads" = s, "mixer `{}` has no heads: it must be 1", self.name);
        }
        let values = match (self.values)(spec) {
            Some((option, width)) => (option, width),
            None => ("--d", d),
        };
        for (flag, size) in [values, ("--n", n)] {
            if size % s != 0 && (flag != "--n" || self.expands && self.splits_n) {
                refuse!(flag "--heads" = s, "does not divide {flag} {size}: each head takes an equal share");
            }
        }
        let width = spec.inner_width();
        if self.widens && !width.is_multiple_of(s) {
            refuse!(flag "--heads" = s, "does not divide the inner width {width} that --expand makes of --d {d}: each head takes an equal share");
        }
        Ok(())
    }

    /// Requires heads that divide n, so it runs after [`Self::check_heads`].
    fn check_features(&self, spec: &MixerSpec) -> error::Result<()> {
        let work = self.work(*spec).filter(|work| work.features > 0);
        let Some(states) = work.map(|work| work.states) else {
            return Ok(());
        };
        if states <= MAX_FEATURES {
            return Ok(());
        }
        refuse!(flag "--n" = spec.d_state, "with --heads {} this makes {states} features per head of mixer `{}`, more than {MAX_FEATURES}: take a smaller --n, more --heads, or a lower order", spec.n_heads, self.name)
    }

    /// Requires heads that divide n, like [`Self::check_features`].
    fn check_rotary(&self, spec: &MixerSpec) -> error::Result<()> {
        let Some(rotary) = spec.rotary else {
            return Ok(());
        };
        let dims = rotary.dims;
        if !self.rotary {
            refuse!(flag "--rotary", "mixer `{}` has no queries and keys that a rotary embedding could rotate: it must be none", self.name);
        }
        let products = self.work(*spec).is_some_and(|work| work.features > 0);
        if rotary.after_feature_map && products {
            refuse!(flag "--rotary" = "post", "the features of mixer `{}` are products and cannot be rotated; it must be pre or none", self.name);
        }
        let (n, s) = (spec.d_state, spec.n_heads);
        if dims >= 2 && dims % 2 == 0 && dims <= n / s {
            return Ok(());
        }
        if n / s < 2 {
            refuse!(flag "--rotary", "rotates pairs of channels, and --n {n} and --heads {s} give each head only {}", n / s);
        }
        refuse!(flag "--rotary-dims" = dims, "must be an even number from 2 to {}: --n {n} and --heads {s} give each head {} channels", n / s / 2 * 2, n / s)
    }
}
