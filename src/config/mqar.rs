//! Multi-query associative recall.

use serde::{Deserialize, Serialize};

/// Multi-query associative recall (Arora et al. 2023; the paper's J.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MqarConfig {
    /// Which generator draws the examples.
    pub data: Generator,
    /// Seed of the data, apart from the model's seed: models vary over the same data.
    pub data_seed: u64,
    /// Vocabulary V; keys come from its lower half, values from its upper half, 0 is the filler.
    pub vocab_size: usize,
    /// Tokens an example, L.
    pub seq_len: usize,
    /// Key-value pairs an example, k.
    pub kv_pairs: usize,
    /// Training examples, generated once, used in the same order every epoch.
    pub train_examples: usize,
    /// Test examples.
    pub test_examples: usize,
}

/// Where examples come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Generator {
    /// Our own: seeded, parallel, fast.
    Native,
    /// Bit for bit what numpy's legacy generator gives the released code.
    Numpy,
    /// Nothing is generated: files of the released data.
    Files,
}
