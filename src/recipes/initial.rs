//! Models of trained weights that runs start from.

use crate::config::{InitialWeights, ModelConfig, Objective, PositionEmbedding, RunConfig, Setting, SETTINGS};
use crate::error::Result;
use crate::tasks::wikitext::{Tokenizer, WikitextConfig};
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// Weights that a run starts from, and the model that they are of.
#[derive(Clone, Debug, PartialEq)]
pub struct InitialModel {
    /// Name and digest of the weights.
    pub weights: InitialWeights,
    /// Model; its dropout is not used.
    pub model: ModelConfig,
    /// Rows of the token table.
    pub vocab_size: usize,
    /// Number of positions that the model has or was trained on.
    pub positions: usize,
    /// Tokenizer of the model.
    pub tokenizer: Tokenizer,
}

impl InitialModel {
    /// Model that `weights`, which were saved under `config`, are of. Fails if the config is not that of a run on text.
    pub fn new(weights: InitialWeights, config: &RunConfig) -> Result<Self> {
        let text: WikitextConfig = config.task.typed()?;
        Ok(Self {
            weights,
            positions: config.model.n_positions.unwrap_or(text.seq_len),
            model: ModelConfig { n_positions: None, ..config.model.clone() },
            vocab_size: text.vocab_size,
            tokenizer: text.tokenizer,
        })
    }

    /// Model of the weights that the run of `config` starts from, as far as the config holds it; `None` if it starts from
    /// random ones.
    pub(super) fn of_run(config: &RunConfig) -> Option<Self> {
        Self::new(config.from.clone()?, config).ok()
    }

    /// Largest number of tokens that the model can read; `None` without a limit.
    pub(super) fn most_tokens(&self) -> Option<usize> {
        let learnt = self.model.positions && self.model.position_embedding == PositionEmbedding::Learnt;
        learnt.then_some(self.positions)
    }

    /// Settings that the weights fix, and the tokenizer.
    pub(super) fn settings(&self) -> BTreeMap<&'static str, Value> {
        let document = json!({
            "task": { "vocab_size": self.vocab_size, "tokenizer": self.tokenizer },
            "model": self.model,
            "from": self.weights,
        });
        let value = |setting: &Setting| document.pointer(&setting.pointer(Objective::NextToken)?).cloned();
        let dropout = |setting: &&Setting| setting.name.ends_with("dropout");
        let settings = SETTINGS.iter().filter(|setting| !dropout(setting));
        settings.filter_map(|setting| Some((setting.name, value(setting).filter(|value| !value.is_null())?))).collect()
    }
}
