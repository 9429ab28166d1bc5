//! Configuration of a run: every setting that can change the result, and nothing about the host.

mod block;
mod classifier;
mod column;
mod from;
mod help_group;
mod hybrid;
mod language;
mod layout;
mod model;
mod named_block;
mod objective;
#[cfg(test)]
pub(crate) mod samples;
pub mod settings;
mod task;
mod train;
mod value_kind;

pub use block::{Activation, BlockConfig, NormKind};
pub use classifier::{ClassifierConfig, Dual, HeadKind, InputMap, Loss};
pub use column::{Absent, Role, SettingColumn, Summary};
pub use dsf_ops::Pool;
pub use from::InitialWeights;
pub use help_group::HelpGroup;
pub use hybrid::{Hybrid, HybridLayers};
pub use language::{InitScheme, LanguageConfig, Rotary};
pub use layout::{Layout, StateMixer};
pub use model::{MapInit, ModelConfig, PositionEmbedding};
pub use named_block::{NamedBlock, NAMED_BLOCKS};
pub use objective::Objective;
pub use settings::{spelt, At, Brief, Decides, Listed, Omitted, Setting, SettingScope, Settings, SETTINGS};
pub use task::TaskConfig;
pub use train::{AdamConfig, Decay, Precision, Schedule, TrainConfig};
pub use value_kind::{whole, ValueKind};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Version of the meaning of a [`RunConfig`]. It is raised whenever the same fields would train differently, so that
/// old results are never mistaken for new ones.
pub const FORMAT: u32 = 1;

/// Complete run. Unknown fields in a file are an error; the fields of the task are checked by the task itself, in
/// [`RunConfig::parse`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Version of this config's meaning, see [`FORMAT`].
    pub format: u32,
    /// Seed of initial weights and dropout, and by default of generated data.
    pub seed: u64,
    /// Protocol that filled the fields below; part of the run's identity and of every row.
    pub protocol: Protocol,
    /// Data.
    pub task: TaskConfig,
    /// Network.
    pub model: ModelConfig,
    /// Optimisation.
    pub train: TrainConfig,
    /// Trained weights that the run starts from; `None` for random ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<InitialWeights>,
}

/// Source of the choices that the paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The text of the paper's appendix J.
    Paper,
    /// The authors' released code, which produced the published numbers.
    Reference,
    /// One block for every mixer, so that only the mixer differs.
    Matched,
}

impl RunConfig {
    /// Canonical text: JSON with sorted keys and no whitespace.
    pub fn canonical(&self) -> String {
        let value = serde_json::to_value(self).expect("a run config is plain data");
        value.to_string() // serde_json's maps are ordered by key
    }

    /// Id of the run: twelve hex digits of the SHA-256 of [`Self::canonical`], in which the weights that the run starts
    /// from have their digest and no name.
    pub fn id(&self) -> String {
        let text = match &self.from {
            Some(from) => Self { from: Some(from.unnamed()), ..self.clone() }.canonical(),
            None => self.canonical(),
        };
        let digest = Sha256::digest(text.as_bytes());
        hex::encode(&digest[..6])
    }
}

impl Protocol {
    /// Names of the protocols, in the order of their definition.
    pub const NAMES: [&'static str; 3] = ["paper", "reference", "matched"];

    /// Name as typed in flags and written in rows.
    pub fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}
