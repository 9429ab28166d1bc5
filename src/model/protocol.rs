//! What a protocol fills in: from the few things a person names to a complete [`RunConfig`].

mod asked;
mod lra;
mod preset;
mod rows;
mod rules;
mod usual;
mod wikitext;

pub use crate::tasks::mqar::PAPER_RATES;
pub use asked::{Asked, Task};
pub use preset::Preset;
pub use usual::presets_of;
pub use wikitext::{BYTES, GPT_NEOX};

use super::mixers;
use crate::config::{
    Layout, ModelConfig, Precision, Protocol, RunConfig, Schedule, StateMixer, TrainConfig, FORMAT,
};
use crate::error::Result;
use crate::mixers::ReleasedBlock;
use crate::tasks::mqar::MqarConfig;
use rules::{check_decay, check_dropout, options, positive, within};
use std::collections::BTreeMap;

/// Tokens a step in every config of the paper: 32,768.
const TOKENS_PER_STEP: usize = 32_768;
/// Largest batch of the paper, reached at L = 64.
const LARGEST_BATCH: usize = 512;

/// What was asked for; `None` is left to the protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Protocol.
    pub protocol: Protocol,
    /// Mixer by name.
    pub mixer: String,
    /// Variant of the mixer.
    pub variant: Option<String>,
    /// `NAME=VALUE` options of the mixer.
    pub options: BTreeMap<String, String>,
    /// d.
    pub d_model: usize,
    /// n.
    pub d_state: usize,
    /// s.
    pub n_heads: usize,
    /// Blocks.
    pub n_layers: usize,
    /// The task.
    pub task: MqarConfig,
    /// Learning rate.
    pub lr: f64,
    /// Epochs at most.
    pub epochs: usize,
    /// Examples a step.
    pub batch_size: Option<usize>,
    /// Examples of a step whose activations exist at one time.
    pub micro_batch: Option<usize>,
    /// Weight decay.
    pub weight_decay: f64,
    /// Numbers to compute with.
    pub precision: Precision,
    /// Dropout on embeddings and on attention weights.
    pub dropout: Option<f64>,
    /// Dropout on attention weights, where it differs.
    pub attn_dropout: Option<f64>,
    /// Inner width over d, of mixers that widen.
    pub expand: Option<f64>,
    /// Seed of weights and dropout.
    pub seed: u64,
}

impl Request {
    /// The complete run, or the rule that the request breaks.
    pub fn resolve(&self) -> Result<RunConfig> {
        let entry = mixers::find(&self.mixer)?;
        let variant = match &self.variant {
            Some(v) => v.as_str(),
            None => entry.default_variant(self.protocol),
        };
        entry.check_variant(variant)?;
        self.check_numbers()?;
        crate::tasks::mqar::check(&self.task)?;
        let home = self.protocol.home(entry.released);
        let dropout = self.dropout.unwrap_or(self.protocol.dropout());
        let batch_size = self
            .batch_size
            .unwrap_or_else(|| batch_size(self.task.seq_len, home));
        let model = ModelConfig {
            mixer: self.mixer.clone(),
            variant: variant.to_owned(),
            options: options(entry, variant, &self.options, self.protocol)?,
            d_model: self.d_model,
            d_state: if entry.expands { self.d_state } else { 1 },
            n_heads: self.n_heads,
            n_layers: self.n_layers,
            layout: home.layout,
            state_mixer: home.state_mixer,
            positions: home.positions,
            embed_dropout: dropout,
            attn_dropout: self.attn_dropout.unwrap_or(dropout),
            expand: self.expand,
            classifier: None,
            language: None,
        };
        entry.check_sizes(&model)?;
        Ok(RunConfig {
            format: FORMAT,
            seed: self.seed,
            protocol: self.protocol,
            task: self.task.clone().into(),
            model,
            train: TrainConfig {
                schedule: self.protocol.schedule(),
                lr: self.lr,
                warmup_epochs: 0,
                epochs: self.epochs,
                batch_size,
                weight_decay: self.weight_decay,
                precision: self.precision,
                micro_batch: self.micro_batch.filter(|&size| size < batch_size),
                adam: None,
                stop_above: 0.99,
            },
        })
    }

    fn check_numbers(&self) -> Result<()> {
        within(&[
            ("--d", Some(self.d_model), 65_536),
            ("--n", Some(self.d_state), 65_536),
            ("--heads", Some(self.n_heads), 65_536),
            ("--layers", Some(self.n_layers), 1_000),
            ("--epochs", Some(self.epochs), 1_000_000),
            ("--batch-size", self.batch_size, 1_000_000),
            ("--micro-batch", self.micro_batch, 1_000_000),
        ])?;
        positive("--lr", self.lr)?;
        check_decay(self.weight_decay)?;
        check_dropout("--dropout", self.dropout)?;
        check_dropout("--attn-dropout", self.attn_dropout)
    }
}

impl Protocol {
    /// The block around a mixer: the released configs, or one GPT-2 block for every mixer.
    fn home(self, released: ReleasedBlock) -> ReleasedBlock {
        let gpt2 = ReleasedBlock {
            layout: Layout::Transformer,
            state_mixer: StateMixer::Mlp,
            positions: true,
            half_batch: false,
        };
        match self {
            Protocol::Reference => released,
            // The text says "for attention": state space models and RNNs see no positions.
            Protocol::Paper => ReleasedBlock {
                positions: released.positions && !released.half_batch,
                ..gpt2
            },
            Protocol::Matched => gpt2,
        }
    }

    fn schedule(self) -> Schedule {
        match self {
            Protocol::Paper => Schedule::WarmupConstant,
            Protocol::Reference | Protocol::Matched => Schedule::CosinePerEpoch,
        }
    }

    fn dropout(self) -> f64 {
        match self {
            Protocol::Paper => 0.0,
            Protocol::Reference | Protocol::Matched => 0.1,
        }
    }
}

/// The paper's batch: 512, 256, 128, 64 at L = 64, 128, 256, 512, and the same tokens elsewhere.
fn batch_size(seq_len: usize, released: ReleasedBlock) -> usize {
    let batch = (TOKENS_PER_STEP / seq_len).clamp(1, LARGEST_BATCH);
    if released.half_batch {
        (batch / 2).max(1)
    } else {
        batch
    }
}

#[cfg(test)]
mod tests;
