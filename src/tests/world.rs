//! Small worlds for tests to live in: seeded numbers, small networks, distances.

use crate::classifiers::classifier;
use candle_core::{DType, Device, Shape, Tensor};
use dsf::config::{
    ClassifierConfig, InitScheme, LanguageConfig, Layout, ModelConfig, Protocol, Rotary, RunConfig, StateMixer,
};
use dsf::mixers::{find, Entry, Mixer, MixerSpec, StateNormPlace, MIXERS};
use dsf::nn::Params;
use dsf::ops::rng::Rng;
use dsf::recipes;
use dsf::train::Trainer;
use std::collections::BTreeMap;

/// All protocols.
pub const PROTOCOLS: [Protocol; 3] = [Protocol::Paper, Protocol::Reference, Protocol::Matched];

/// Normal numbers in f64, a function of `name`.
pub fn normal(name: &str, shape: impl Into<Shape>) -> Tensor {
    let (mut rng, shape) = (Rng::new(7, name, 0), shape.into());
    let values: Vec<f64> = (0..shape.elem_count()).map(|_| rng.normals().0).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Moves every parameter away from its initial value, so that biases and gates matter.
pub fn perturb(params: &Params) {
    for (name, var) in params.vars() {
        let noise = normal(&format!("perturb/{name}"), var.shape());
        let noise = (noise * 0.3).unwrap().to_dtype(var.dtype()).unwrap();
        var.set(&(var.as_tensor() + noise).unwrap()).unwrap();
    }
}

/// Parameters of a fixed seed in f64.
pub fn parameters() -> Params {
    Params::seeded(3, DType::F64, &Device::Cpu)
}

/// All numbers of a tensor of floats, row-major.
pub fn flat(x: &Tensor) -> Vec<f64> {
    let x = x.to_dtype(DType::F64).unwrap().flatten_all().unwrap();
    x.to_vec1().unwrap()
}

/// Largest difference, in units of the larger of 1 and the largest number of `b`.
pub fn distance(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.dims(), b.dims());
    let (a, b) = (flat(a), flat(b));
    let scale = b.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs() / scale);
    // A comparison that NaN fails: it must not pass for close.
    apart.fold(0.0, |worst, d| if d <= worst { worst } else { d })
}

/// The options of a mixer, at their defaults where those suit sequences of a few tokens.
fn options(entry: &Entry) -> BTreeMap<String, String> {
    let option = |o: &dsf::mixers::MixerOption| {
        let value = o.short.unwrap_or((o.default)(Protocol::Reference));
        (o.name.to_owned(), value.to_owned())
    };
    entry.options.iter().map(option).collect()
}

/// A mixer of the registry with a variant and sizes.
pub struct Case {
    pub entry: &'static Entry,
    pub config: ModelConfig,
}

impl Case {
    /// Every mixer in every variant, with one head and, where it has heads, with three; where positions
    /// can turn its queries and keys, also turned in either place.
    pub fn all() -> Vec<Self> {
        let heads = |e: &Entry| if e.heads { vec![1, 3] } else { vec![1] };
        let of = |e: &'static Entry| {
            let variants = e.variants.iter();
            variants.flat_map(move |v| heads(e).into_iter().map(move |s| Self::new(e, v, s)))
        };
        let turned = |case: Self| match case.entry.rotary {
            true => vec![case.turned(Rotary::Pre), case.turned(Rotary::Post), case],
            false => vec![case],
        };
        MIXERS.iter().flat_map(of).flat_map(turned).collect()
    }

    /// Every mixer in its first variant after a short convolution.
    pub fn convolved() -> Vec<Self> {
        let of = |entry: &'static Entry| {
            let case = Self::new(entry, entry.variants[0], 1);
            Self { config: ModelConfig { short_conv: true, ..case.config }, ..case }
        };
        MIXERS.iter().map(of).collect()
    }

    /// Every mixer that takes one with a norm after its state, in every variant.
    pub fn normed() -> Vec<Self> {
        let free = |case: &Self| matches!(case.entry.state_norm_of(&case.config.variant), StateNormPlace::Free(_));
        let normed = |case: Self| Self { config: ModelConfig { state_norm: true, ..case.config }, ..case };
        Self::all().into_iter().filter(free).map(normed).collect()
    }

    /// Mixers in the form that an option, away from its default, gives them.
    pub fn optional() -> Vec<Self> {
        const VALUES: [(&str, &str, usize, &str); 47] = [
            ("lru", "paper", 1, "activation=glu"),
            ("lru", "paper", 1, "eigenvalues=linear gamma=false"),
            ("lru", "paper", 1, "r_min=0 r_max=1 max_phase=0.5"),
            ("sinkhorn", "reference", 3, "block=3 sorting=network max_blocks=20 temperature=0.75"),
            ("sinkhorn", "reference", 1, "block=3 gumbel=true"),
            ("spatten", "cascade", 3, "keep_values=0.5"),
            ("s5", "paper", 1, "activation=glu"),
            ("taylor", "reference", 3, "unit_qk=true"),
            ("taylor", "paper", 3, "unit_qk=true scaled_output=true"),
            ("s4d", "lin_zoh", 1, "start=legs"),
            ("s4d", "inv_bilinear", 1, "start=real"),
            ("h3", "paper", 1, "head_dim=2"),
            ("h3", "paper", 1, "shift=states"),
            ("mamba", "block", 1, "bias=true conv_width=3"),
            ("mamba", "block", 1, "conv_bias=false bcdt_norm=rms norm_eps=1e-2"),
            ("mamba2", "block", 3, "groups=3 norm_groups=2 bias=true dt_limit=0.003:0.3"),
            ("s6", "reference", 1, "discretization=zoh"),
            ("s6", "paper", 1, "discretization=bilinear"),
            ("ssd", "paper", 1, "discretization=zoh"),
            ("ssd-mamba2", "mamba2", 3, "discretization=zoh"),
            ("mamba", "block", 1, "discretization=bilinear"),
            ("mamba2", "block", 3, "groups=3 discretization=zoh"),
            ("mamba2", "block", 3, "groups=3 discretization=bilinear"),
            ("hyena", "paper", 1, "order=3"),
            ("lightning", "paper", 3, "lrpe=true"),
            ("lmu", "recurrent", 1, "inputs=3"),
            ("s4", "dplr", 1, "start=legt n_ssm=3"),
            ("s4", "dplr", 1, "start=random n_ssm=d l_max=3"),
            ("rwkv4", "paper", 1, "width=20"),
            ("rg-lru", "griffin", 1, "width=20 blocks=4 conv_width=3"),
            ("mlstm", "large", 3, "value_width=15 bias=true denominator_eps=1e-2"),
            ("mlstm", "large", 3, "gate_cap=none norm_eps=1e-3"),
            ("softmax", "reference", 3, "kv_heads=1 bias=none"),
            ("softmax", "reference", 3, "head_dim=2 bias=qkv"),
            ("softmax", "paper", 3, "kv_heads=1"),
            ("sliding-window", "reference", 3, "kv_heads=1 head_dim=2 bias=out"),
            ("mamba2", "block", 3, "conv_bias=false conv_width=2 norm_eps=1e-3"),
            ("gla", "paper", 3, "value_width=15 gate_temperature=4 norm_eps=1e-2"),
            ("gla", "paper", 1, "output_gate=false"),
            ("retnet", "block", 3, "value_width=15 norm_weights=true norm_eps=1e-2"),
            ("retnet", "block", 1, "output_gate=false"),
            ("retnet", "block", 3, "angles=retnet norm=group norm_weights=true"),
            ("hgrn2", "paper", 3, "lower_bound=learnt scaled_queries=true norm_eps=1e-2"),
            ("delta-net", "paper", 3, "value_width=15 output_gate=true negative_eigenvalues=true scaled_queries=true"),
            ("gated-delta-net", "paper", 3, "key_heads=1 conv_bias=false conv_width=3 norm_eps=1e-2"),
            ("gated-delta-net", "paper", 1, "output_gate=false"),
            ("rwkv7", "paper", 3, "value_residual=true w_rank=3 a_rank=2 g_rank=5 norm_eps=1e-2 key_eps=1e-3"),
        ];
        let of = |(mixer, variant, heads, options): (&str, &str, usize, &str)| {
            let mut case = Self::new(find(mixer).unwrap(), variant, heads);
            let options = options.split(' ').filter_map(|option| option.split_once('='));
            case.config.options.extend(options.map(|(name, value)| (name.to_owned(), value.to_owned())));
            // A shift of as many taps as states is no longer than the sequences of tests.
            case.config.d_state = case.config.d_state.min(if mixer == "h3" { 3 } else { 6 });
            case
        };
        VALUES.into_iter().map(of).collect()
    }

    /// Every mixer that reads documents in both directions by two passes, in its first variant, with one head and,
    /// where it has heads, with three.
    pub fn both_directions() -> Vec<Self> {
        let of = |entry: &'static Entry| {
            let heads = if entry.heads { vec![1, 3] } else { vec![1] };
            heads.into_iter().map(move |heads| Self::new(entry, entry.variants[0], heads).in_both_directions())
        };
        let two_passes = |case: &Self| {
            let spec = MixerSpec::from(&case.config);
            case.entry.has_two_passes(&spec) && case.entry.check_sizes(spec).is_ok()
        };
        MIXERS.iter().flat_map(of).filter(two_passes).collect()
    }

    /// The same mixer in both directions.
    pub fn in_both_directions(self) -> Self {
        let classifier = ClassifierConfig { bidirectional: true, ..classifier() };
        Self { config: ModelConfig { classifier: Some(classifier), ..self.config }, ..self }
    }

    /// Two channels a head turned.
    pub fn turned(&self, rotary: Rotary) -> Self {
        let language = LanguageConfig { mlp_width: 10, rotary, rotary_dims: 2, init: InitScheme::Pythia };
        let config = ModelConfig { language: Some(language), ..self.config.clone() };
        Self { entry: self.entry, config }
    }

    /// d = 12, n = 6: numbers that three heads divide.
    pub fn new(entry: &'static Entry, variant: &str, n_heads: usize) -> Self {
        let config = ModelConfig {
            options: options(entry),
            d_state: if entry.expands { 6 } else { 1 },
            n_heads,
            ..ModelConfig::bare(entry.name, variant, [12, 2])
        };
        Self { entry, config }
    }

    /// The mixer with `params` as they are.
    pub fn mixer(&self, params: &Params) -> Box<dyn Mixer> {
        self.entry.build(&self.config, params).unwrap()
    }

    /// The mixer with perturbed parameters.
    pub fn build(&self) -> (Box<dyn Mixer>, Params) {
        let params = parameters();
        let mixer = self.mixer(&params);
        perturb(&params);
        (mixer, params)
    }

    /// The mixer of [`Self::build`] for evaluation, without gradients, as it decodes.
    pub fn build_detached(&self) -> Box<dyn Mixer> {
        self.mixer(&self.build().1.detached())
    }

    /// A random input `(batch, seq_len, d_model)`.
    pub fn input(&self, batch: usize, seq_len: usize) -> Tensor {
        normal("input", (batch, seq_len, self.config.d_model))
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let c = &self.config;
        write!(f, "{} {}, {} heads, {:?}", c.mixer, c.variant, c.n_heads, c.options)?;
        if c.state_norm {
            write!(f, " with a norm after the state")?;
        }
        if c.short_conv {
            write!(f, " after a short convolution")?;
        }
        if c.is_bidirectional() {
            write!(f, " in both directions")?;
        }
        match &c.language {
            Some(language) => write!(f, ", rotary {:?}", language.rotary),
            None => Ok(()),
        }
    }
}

/// Pythia's body around a mixer, at sizes for tests: two layers, two heads of 8 channels where the mixer
/// has heads.
pub fn pythia(entry: &Entry, variant: &str, rotary: Rotary) -> ModelConfig {
    ModelConfig {
        options: options(entry),
        d_state: if entry.expands { 16 } else { 1 },
        n_heads: if entry.heads { 2 } else { 1 },
        layout: Layout::Parallel,
        state_mixer: StateMixer::Mlp,
        language: Some(LanguageConfig {
            mlp_width: 32,
            rotary,
            rotary_dims: if rotary == Rotary::None { 0 } else { 4 },
            init: InitScheme::Pythia,
        }),
        ..ModelConfig::bare(entry.name, variant, [16, 2])
    }
}

/// Every mixer in every variant inside Pythia's body, in all three settings of positions where queries and
/// keys can be turned.
pub fn pythias() -> Vec<ModelConfig> {
    let mut all = Vec::new();
    for entry in MIXERS {
        for variant in entry.variants {
            let turned = [Rotary::None, Rotary::Pre, Rotary::Post];
            let settings = &turned[..if entry.rotary { 3 } else { 1 }];
            all.extend(settings.iter().map(|&r| pythia(entry, variant, r)));
        }
    }
    all
}

/// A recall task that trains in milliseconds; three steps an epoch, the last one short.
pub fn run(mixer: &str, protocol: Protocol, changes: &[(&str, &str)]) -> RunConfig {
    try_run(mixer, protocol, changes).unwrap()
}

/// [`run`], or what is said against it.
pub fn try_run(mixer: &str, protocol: Protocol, changes: &[(&str, &str)]) -> dsf::error::Result<RunConfig> {
    let settings = [
        ("mixer", mixer),
        ("protocol", protocol.as_str()),
        ("d", "16"),
        ("n", "8"),
        ("vocab-size", "32"),
        ("seq-len", "16"),
        ("kv-pairs", "2"),
        ("train-examples", "64"),
        ("test-examples", "40"),
        ("lr", "3e-3"),
        ("epochs", "2"),
        ("batch-size", "24"),
    ];
    recipes::run("mqar", &[&settings, changes].concat())
}

/// The bytes of a trainer's checkpoint.
pub fn checkpoint(trainer: &Trainer) -> Vec<u8> {
    let mut bytes = Vec::new();
    trainer.write_checkpoint(&mut bytes).unwrap();
    bytes
}
