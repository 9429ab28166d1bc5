//! One value that describes a run: everything that can change the number, nothing about the host.

mod lra;
mod mqar;

pub use lra::{
    ClassifierConfig, Dual, Head, Input, Loss, LraConfig, LraDataset, Pool, HARD_CONTOUR,
};
pub use mqar::{Generator, MqarConfig};

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Version of the meaning of a [`RunConfig`]. Raised when the same fields would train differently,
/// so that old results are never taken for new ones.
pub const FORMAT: u32 = 1;

/// A complete run. Unknown fields in a file are an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// See [`FORMAT`].
    pub format: u32,
    /// Seeds initial weights and dropout. The data has its own seed in the task.
    pub seed: u64,
    /// Which protocol filled the fields below; part of the identity and of every row.
    pub protocol: Protocol,
    /// The data.
    pub task: TaskConfig,
    /// The network.
    pub model: ModelConfig,
    /// The optimisation.
    pub train: TrainConfig,
}

/// Where the choices that the paper leaves open come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The text of the paper's appendix J.1.
    Paper,
    /// The authors' released code: what the published numbers came from.
    Reference,
    /// One block for every mixer, so that only the mixer differs.
    Matched,
}

/// A task and its sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum TaskConfig {
    /// Multi-query associative recall.
    Mqar(MqarConfig),
    /// One task of the Long Range Arena.
    Lra(LraConfig),
}

/// The network: `n_layers` blocks around one kind of mixer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// A name of the registry.
    pub mixer: String,
    /// One of the mixer's variants.
    pub variant: String,
    /// Options that only this mixer knows, resolved, e.g. `dt_init = "zero"`.
    pub options: BTreeMap<String, String>,
    /// Embedding width, d.
    pub d_model: usize,
    /// State expansion, n; also the query/key width of attention.
    pub d_state: usize,
    /// Heads, s.
    pub n_heads: usize,
    /// Blocks.
    pub n_layers: usize,
    /// How mixer and norms sit on the residual stream.
    pub layout: Layout,
    /// What follows the mixer in a `transformer` block.
    pub state_mixer: StateMixer,
    /// Learnt position embeddings.
    pub positions: bool,
    /// Dropout on the embeddings.
    pub embed_dropout: f64,
    /// Dropout on attention weights; mixers without weights ignore it.
    pub attn_dropout: f64,
    /// Inner width over `d_model` in mixers that widen; `None` is the mixer's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expand: Option<f64>,
    /// What a classifier has beyond a language model; `None` in a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier: Option<ClassifierConfig>,
}

/// Residual layouts of the released model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Norm, mixer, add, norm, state mixer, add.
    Transformer,
    /// Norm, mixer, add.
    Mamba,
    /// As `transformer`, but both norms of a block are one: the released classifier of attention.
    Shared,
    /// Norm, mixer, GELU, dropout, state mixer, dropout, add: the released classifier of state space
    /// models with `prenorm`.
    Prenorm,
    /// The same with the norm behind the sum.
    Postnorm,
    /// As `transformer`, with RMS norms and dropout behind each sum: the released Hawk.
    Hawk,
}

/// The second half of a `transformer` block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateMixer {
    /// Nothing at all (the `mamba` layout has no second half).
    None,
    /// The normed residual is added once more.
    Identity,
    /// Two linear maps around a GELU, of hidden width 4d in a language model.
    Mlp,
    /// A linear map to 2d, one half gated by the sigmoid of the other.
    Glu,
    /// A linear map to twice the hidden width, one half times the GELU of the other, a linear map to d.
    #[serde(rename = "gated-mlp")]
    GatedMlp,
}

/// AdamW with betas (0.9, 0.999) and eps 1e-8 on every parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// How the rate moves.
    pub schedule: Schedule,
    /// Peak learning rate.
    pub lr: f64,
    /// Epochs over which `warmup-cosine` rises; 0 is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warmup_epochs: usize,
    /// Epochs at most; also the period of the cosine.
    pub epochs: usize,
    /// Examples a step; the last batch of an epoch may be short.
    pub batch_size: usize,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Of activations and products; the text of a config leaves out the usual one.
    #[serde(default, skip_serializing_if = "Precision::is_usual")]
    pub precision: Precision,
    /// Examples of a step whose activations exist at one time; `None` is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<usize>,
    /// Training ends after the epoch whose test accuracy exceeds this.
    pub stop_above: f64,
}

/// Numbers that a model computes with. Weights, moments, states and sums are f32 in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// f32 throughout, as in the released code.
    #[default]
    F32,
    /// f32, but dense products round their factors to 11 bits; on a GPU only.
    Tf32,
    /// Activations and factors of products in bf16; on a GPU only.
    Bf16,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Precision {
    /// Whether it goes without saying.
    pub fn is_usual(&self) -> bool {
        *self == Self::F32
    }
}

/// Learning-rate schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// lr (1 + cos(pi e / epochs)) / 2, constant inside epoch e.
    CosinePerEpoch,
    /// Linear from 0 over the first tenth of all steps, then constant.
    WarmupConstant,
    /// The released schedule of the classifiers: in epoch e of E, with W = `warmup_epochs`, and a floor
    /// of 5e-6, (floor + (lr - floor) (1 + cos(pi e / E)) / 2) min(1, (e + 1) / W).
    WarmupCosine,
}

impl RunConfig {
    /// The canonical text: JSON with sorted keys and no blanks.
    pub fn canonical(&self) -> String {
        let value = serde_json::to_value(self).expect("a run config is plain data");
        value.to_string() // serde_json's maps are ordered by key
    }

    /// Twelve hex digits of the SHA-256 over [`Self::canonical`]: the name of the run.
    pub fn id(&self) -> String {
        let digest = Sha256::digest(self.canonical().as_bytes());
        digest[..6].iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Parses what [`Self::canonical`] or a run's `config.json` holds. `place` names the source.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let config: Self = serde_json::from_str(text)
            .map_err(|e| Error::usage(format!("{place}: not a run config: {e}")))?;
        if config.format != FORMAT {
            return Err(Error::usage(format!(
                "{place}: format {} is not the format {FORMAT} that this version trains",
                config.format
            )));
        }
        Ok(config)
    }
}

impl TaskConfig {
    /// The task's name as typed.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mqar(_) => "mqar",
            Self::Lra(_) => "lra",
        }
    }

    /// Training examples.
    pub fn train_examples(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.train_examples,
            Self::Lra(lra) => lra.train_examples,
        }
    }

    /// Examples that are tested after an epoch.
    pub fn tested_examples(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.test_examples,
            Self::Lra(lra) => lra.val_examples + lra.test_examples,
        }
    }

    /// Rows of the token table, V.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.vocab_size,
            Self::Lra(lra) => lra.vocab_size,
        }
    }

    /// Tokens of the longest sequence, L.
    pub fn seq_len(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.seq_len,
            Self::Lra(lra) => lra.seq_len,
        }
    }

    /// Tokens of an example at most.
    pub fn tokens_per_example(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.seq_len,
            Self::Lra(lra) => lra.seq_len * lra.dataset.documents(),
        }
    }

    /// Answers asked of an example.
    pub fn labels_per_example(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.kv_pairs,
            Self::Lra(_) => 1,
        }
    }
}

impl Protocol {
    /// As typed and as written in rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Reference => "reference",
            Self::Matched => "matched",
        }
    }
}
