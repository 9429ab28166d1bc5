//! Complete sets of defaults, so that every command works with no flag at all.

use super::{Request, PAPER_RATES};
use crate::config::{Precision, Protocol};
use crate::tasks::mqar::MqarConfig;
use crate::tasks::Generator;
use std::collections::BTreeMap;

/// What the flags start from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// Learns within a minute on a laptop (MQAR: V 128, L 32, 4 pairs, 10,000 examples), or within
    /// minutes (LRA; WikiText: d 128, 2 layers, L 256, bytes of the sample). Also called `tiny`.
    #[default]
    #[value(alias = "tiny")]
    Quick,
    /// Ends within seconds and learns next to nothing: for tests of the machinery.
    Smoke,
    /// The paper's setting (MQAR: V 8192, L 64, 4 pairs, 100,000 examples, 64 epochs; LRA: the row of
    /// the dataset and the mixer; WikiText: 70 M parameters, L 1024, 50 epochs). Also called
    /// `pythia-70m`.
    #[value(alias = "pythia-70m")]
    Full,
}

/// What differs between presets.
struct Row {
    d_model: usize,
    d_state: usize,
    vocab_size: usize,
    seq_len: usize,
    kv_pairs: usize,
    train_examples: usize,
    test_examples: usize,
    /// `None` is the batch of the protocol.
    batch_size: Option<usize>,
    lr: f64,
    epochs: usize,
}

const QUICK: Row = Row {
    d_model: 64,
    d_state: 32,
    vocab_size: 128,
    seq_len: 32,
    kv_pairs: 4,
    train_examples: 10_000,
    test_examples: 1_000,
    batch_size: Some(64),
    lr: 2e-3,
    // Long enough that every seed tried finds the lookup; most need a third of it.
    epochs: 32,
};

const SMOKE: Row = Row {
    d_model: 16,
    d_state: 8,
    vocab_size: 32,
    seq_len: 16,
    kv_pairs: 2,
    train_examples: 200,
    test_examples: 100,
    batch_size: Some(32),
    lr: 2e-3,
    epochs: 1,
};

const FULL: Row = Row {
    d_model: 64,
    d_state: 64,
    vocab_size: 8192,
    seq_len: 64,
    kv_pairs: 4,
    train_examples: 100_000,
    test_examples: 3_000,
    batch_size: None,
    lr: PAPER_RATES[2],
    epochs: 64,
};

impl Preset {
    /// The run of MQAR that a preset describes; flags then change it.
    pub fn request(self) -> Request {
        let row = match self {
            Self::Quick => QUICK,
            Self::Smoke => SMOKE,
            Self::Full => FULL,
        };
        Request {
            protocol: Protocol::Reference,
            mixer: "softmax".to_owned(),
            variant: None,
            options: BTreeMap::new(),
            d_model: row.d_model,
            d_state: row.d_state,
            n_heads: 1,
            n_layers: 2,
            task: MqarConfig {
                data: Generator::Native,
                data_seed: 0,
                vocab_size: row.vocab_size,
                seq_len: row.seq_len,
                kv_pairs: row.kv_pairs,
                train_examples: row.train_examples,
                test_examples: row.test_examples,
            },
            lr: row.lr,
            epochs: row.epochs,
            batch_size: row.batch_size,
            micro_batch: None,
            weight_decay: 0.1,
            precision: Precision::F32,
            dropout: None,
            attn_dropout: None,
            expand: None,
            seed: super::Task::Mqar.entry().seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_preset_is_a_run_that_can_be_trained() {
        for preset in Preset::value_variants() {
            preset.request().resolve().unwrap();
        }
    }
}
