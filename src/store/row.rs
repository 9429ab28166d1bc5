//! One run as one row of a summary.

mod fill;

use super::columns::{Column, Role, COLUMNS};
use super::{Outcome, RunStatus};
use crate::config::Precision;
use fill::spelling;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A run and its result, flat. What the columns mean stands in [`COLUMNS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Version of these columns.
    pub schema: u32,
    /// Twelve hex digits over the config.
    pub run_id: String,
    /// Version of the meaning of a config.
    pub format: u32,
    /// Task name.
    pub task: String,
    /// Paper, reference or matched.
    pub protocol: String,
    /// Sequence mixer.
    pub mixer: String,
    /// Variant of the mixer.
    pub variant: String,
    /// Options of the mixer, name=value;name=value.
    pub options: String,
    /// Embedding width.
    pub d: usize,
    /// State expansion; query and key width of attention.
    pub n: usize,
    /// Heads.
    pub heads: usize,
    /// Blocks.
    pub layers: usize,
    /// Residual layout of a block.
    pub layout: String,
    /// What follows the mixer in a block.
    pub state_mixer: String,
    /// Whether position embeddings are learnt.
    pub positions: bool,
    /// Tokens an example, L.
    pub seq_len: usize,
    /// Key-value pairs an example, k.
    pub kv_pairs: usize,
    /// Vocabulary, V.
    pub vocab_size: usize,
    /// Training examples.
    pub train_examples: usize,
    /// Test examples.
    pub test_examples: usize,
    /// Generator of the examples.
    pub data: String,
    /// Seed of the data.
    pub data_seed: u64,
    /// Peak learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Numbers computed with.
    #[serde(default = "usual_precision")]
    pub precision: String,
    /// Dropout on the embeddings.
    pub embed_dropout: f64,
    /// Dropout on attention weights.
    pub attn_dropout: f64,
    /// How the learning rate moves.
    pub schedule: String,
    /// Examples a step.
    pub batch_size: usize,
    /// Epochs at most.
    pub epochs_max: usize,
    /// Test accuracy above which training ends.
    pub stop_above: f64,
    /// Seed of initial weights and dropout.
    pub seed: u64,
    /// Done or failed.
    pub status: Option<RunStatus>,
    /// Converged, finished or diverged.
    pub outcome: Option<Outcome>,
    /// Why the run failed.
    pub reason: String,
    /// Test accuracy after the last epoch.
    pub accuracy: Option<f64>,
    /// Highest test accuracy after any epoch.
    pub best_accuracy: Option<f64>,
    /// Epoch of the highest accuracy, from 1.
    pub best_epoch: Option<usize>,
    /// Epochs trained.
    pub epochs_run: usize,
    /// Training loss of the last epoch.
    pub train_loss: Option<f64>,
    /// Test loss after the last epoch.
    pub test_loss: Option<f64>,
    /// Trained numbers of the model.
    pub params: Option<usize>,
    /// Numbers carried from token to token, all layers.
    pub state_size: Option<usize>,
    /// Optimizer steps.
    pub steps: usize,
    /// Training and testing, summed over interruptions.
    pub seconds: f64,
    /// Training tokens a second.
    pub tokens_per_s: Option<f64>,
    /// Most memory the process held.
    pub peak_memory_bytes: Option<u64>,
    /// Device trained on.
    pub device: String,
    /// Threads in use.
    pub threads: usize,
    /// Name of the host.
    pub host: String,
    /// Model of the processor.
    pub cpu: String,
    /// Version of dsf.
    pub version: String,
    /// Commit it was built from, -dirty with changes.
    pub git_commit: String,
    /// When the run was first begun.
    pub started: String,
    /// When it ended.
    pub ended: String,
    /// Which implementations the ops took.
    pub ops: String,
    /// Task of the Long Range Arena, or corpus.
    #[serde(default)]
    pub dataset: String,
    /// Paddles of Pathfinder's long paths.
    #[serde(default)]
    pub contour_length: Option<usize>,
    /// Validation examples.
    #[serde(default)]
    pub val_examples: Option<usize>,
    /// Inner width over d.
    #[serde(default)]
    pub expand: Option<f64>,
    /// Examples whose activations exist at one time.
    #[serde(default)]
    pub micro_batch: Option<usize>,
    /// Epochs over which the rate rises.
    #[serde(default)]
    pub warmup_epochs: Option<usize>,
    /// How a token becomes a vector.
    #[serde(default)]
    pub input: String,
    /// Hidden width of feed-forward halves and heads.
    #[serde(default)]
    pub mlp_width: Option<usize>,
    /// Dropout behind mixers and feed-forward halves.
    #[serde(default)]
    pub dropout: Option<f64>,
    /// Whether a learnt number scales residuals.
    #[serde(default)]
    pub lambda_skip: Option<bool>,
    /// How positions become one vector.
    #[serde(default)]
    pub pool: String,
    /// Whether pooling leaves out padding.
    #[serde(default)]
    pub mask: Option<bool>,
    /// What of two documents meets.
    #[serde(default)]
    pub dual: String,
    /// What is minimised.
    #[serde(default)]
    pub loss: String,
    /// Highest validation accuracy after any epoch.
    #[serde(default)]
    pub val_accuracy: Option<f64>,
    /// Epoch of the highest validation accuracy.
    #[serde(default)]
    pub selected_epoch: Option<usize>,
    /// Test accuracy after that epoch.
    #[serde(default)]
    pub selected_accuracy: Option<f64>,
    /// What the commonest answer scores on the test split.
    #[serde(default)]
    pub majority: Option<f64>,
    /// Digits over the examples seen.
    #[serde(default)]
    pub data_digest: String,
    /// What makes ids of a text.
    #[serde(default)]
    pub tokenizer: String,
    /// Whether id 0 stands before each article.
    #[serde(default)]
    pub eos_between_articles: Option<bool>,
    /// Where rotary positions enter.
    #[serde(default)]
    pub rotary: String,
    /// Channels of each head that they turn.
    #[serde(default)]
    pub rotary_dims: Option<usize>,
    /// Spread of initial weights.
    #[serde(default)]
    pub init: String,
    /// Decay of the mean of gradients.
    #[serde(default)]
    pub beta1: Option<f64>,
    /// Decay of the mean of their squares.
    #[serde(default)]
    pub beta2: Option<f64>,
    /// Added to the root of that.
    #[serde(default)]
    pub eps: Option<f64>,
    /// Norm that gradients are scaled down to; 0 is none.
    #[serde(default)]
    pub clip: Option<f64>,
    /// What decays.
    #[serde(default)]
    pub decay: String,
    /// Training perplexity as logged.
    #[serde(default)]
    pub train_ppl: Option<f64>,
    /// Under the final weights.
    #[serde(default)]
    pub train_ppl_eval: Option<f64>,
    /// Validation perplexity.
    #[serde(default)]
    pub val_ppl: Option<f64>,
    /// Lowest after any epoch.
    #[serde(default)]
    pub best_val_ppl: Option<f64>,
    /// Test perplexity.
    #[serde(default)]
    pub test_ppl: Option<f64>,
    /// After the epoch of the lowest on validation data.
    #[serde(default)]
    pub selected_test_ppl: Option<f64>,
    /// Validation perplexity a word.
    #[serde(default)]
    pub val_word_ppl: Option<f64>,
    /// Test perplexity a word.
    #[serde(default)]
    pub test_word_ppl: Option<f64>,
    /// Bits a byte of the validation split.
    #[serde(default)]
    pub val_bits_per_byte: Option<f64>,
    /// Bits a byte of the test split.
    #[serde(default)]
    pub test_bits_per_byte: Option<f64>,
    /// Test perplexity of token frequencies alone.
    #[serde(default)]
    pub unigram_ppl: Option<f64>,
    /// Training tokens an epoch.
    #[serde(default)]
    pub train_tokens: Option<usize>,
}

impl Row {
    /// The columns of one role with their values, in the order of the table.
    pub fn values(&self, role: Role) -> Vec<(&'static Column, Value)> {
        let row = serde_json::to_value(self).expect("a row is plain data");
        let columns = COLUMNS.iter().filter(|column| column.role == role);
        columns.map(|c| (c, row[c.name].clone())).collect()
    }
}

/// That of files written before there was a choice.
fn usual_precision() -> String {
    spelling(&Precision::default())
}

#[cfg(test)]
mod tests;
