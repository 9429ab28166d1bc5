//! One value that describes a run: everything that can change the number, nothing about the host.

mod lra;
mod model;
mod mqar;
#[cfg(test)]
pub(crate) mod samples;
mod settings;
mod train;
mod wikitext;

pub use lra::{
    ClassifierConfig, Dual, Head, Input, Loss, LraConfig, LraDataset, Pool, HARD_CONTOUR,
};
pub use model::{Layout, ModelConfig, StateMixer};
pub use mqar::{Generator, MqarConfig};
pub use settings::{setting, At, Body, Group, Kind, Setting, Taker, SETTINGS};
pub use train::{Precision, Schedule, TrainConfig};
pub use wikitext::{
    AdamConfig, Corpus, Decay, InitScheme, LanguageConfig, Rotary, Tokenizer, WikitextConfig,
};

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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
    /// Language modelling on WikiText.
    Wikitext(WikitextConfig),
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
        hex::encode(&digest[..6])
    }

    /// Parses what [`Self::canonical`] or a run's `config.json` holds. `place` names the source.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let config: Self = serde_json::from_str(text)
            .map_err(|e| Error::corrupt(place, format!("not a run config: {e}")))?;
        if config.format != FORMAT {
            let found = config.format;
            let reason =
                format!("format {found} is not the format {FORMAT} that this version trains");
            return Err(Error::corrupt(place, reason));
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
            Self::Wikitext(_) => "wikitext",
        }
    }

    /// Training examples; of a text that is not limited, about so many.
    pub fn train_examples(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.train_examples,
            Self::Lra(lra) => lra.train_examples,
            Self::Wikitext(text) => text.windows()[0],
        }
    }

    /// Examples that are tested after an epoch; of a text that is not limited, about so many.
    pub fn tested_examples(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.test_examples,
            Self::Lra(lra) => lra.val_examples + lra.test_examples,
            Self::Wikitext(text) => text.windows()[1] + text.windows()[2],
        }
    }

    /// Rows of the token table, V.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.vocab_size,
            Self::Lra(lra) => lra.vocab_size,
            Self::Wikitext(text) => text.vocab_size,
        }
    }

    /// Tokens of the longest sequence, L.
    pub fn seq_len(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.seq_len,
            Self::Lra(lra) => lra.seq_len,
            Self::Wikitext(text) => text.seq_len,
        }
    }

    /// Tokens of an example at most.
    pub fn tokens_per_example(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.seq_len,
            Self::Lra(lra) => lra.seq_len * lra.dataset.documents(),
            Self::Wikitext(text) => text.seq_len,
        }
    }

    /// Answers asked of an example.
    pub fn labels_per_example(&self) -> usize {
        match self {
            Self::Mqar(mqar) => mqar.kv_pairs,
            Self::Lra(_) => 1,
            Self::Wikitext(text) => text.seq_len,
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
