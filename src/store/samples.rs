//! Small valid values for the tests of this room and of those above it.

use super::{LanguageScores, Outcome, Provenance, Row, RunResult, RunStatus};
use crate::config::{
    AdamConfig, Decay, InitScheme, LanguageConfig, Layout, ModelConfig, Precision, Protocol,
    Rotary, RunConfig, Schedule, StateMixer, TrainConfig, FORMAT,
};
use crate::tasks::mqar::MqarConfig;
use crate::tasks::wikitext::{Corpus, Tokenizer, WikitextConfig};
use crate::tasks::Generator;

pub(crate) fn config() -> RunConfig {
    RunConfig {
        format: FORMAT,
        seed: 0,
        protocol: Protocol::Matched,
        task: MqarConfig {
            data: Generator::Native,
            data_seed: 0,
            vocab_size: 8192,
            seq_len: 64,
            kv_pairs: 4,
            train_examples: 100_000,
            test_examples: 3000,
        }
        .into(),
        model: ModelConfig {
            mixer: "linear".into(),
            variant: "reference".into(),
            options: [("dt_init".into(), "zero".into())].into(),
            d_model: 64,
            d_state: 32,
            n_heads: 1,
            n_layers: 2,
            layout: Layout::Transformer,
            state_mixer: StateMixer::Mlp,
            positions: true,
            embed_dropout: 0.1,
            attn_dropout: 0.1,
            expand: None,
            classifier: None,
            language: None,
        },
        train: TrainConfig {
            schedule: Schedule::CosinePerEpoch,
            lr: 1e-3,
            warmup_epochs: 0,
            epochs: 64,
            batch_size: 512,
            weight_decay: 0.1,
            precision: Precision::F32,
            micro_batch: None,
            adam: None,
            stop_above: 0.99,
        },
    }
}

/// Linear attention in the body of Pythia-70M, as in Table 1.
pub(crate) fn text_config() -> RunConfig {
    let small = config();
    RunConfig {
        protocol: Protocol::Paper,
        task: WikitextConfig {
            corpus: Corpus::Wikitext103Raw,
            tokenizer: Tokenizer::GptNeox,
            vocab_size: 50_304,
            seq_len: 1024,
            eos_between_articles: false,
            train_examples: None,
            test_examples: None,
        }
        .into(),
        model: ModelConfig {
            options: [].into(),
            d_model: 512,
            d_state: 512,
            n_heads: 8,
            n_layers: 6,
            layout: Layout::Parallel,
            positions: false,
            embed_dropout: 0.0,
            attn_dropout: 0.0,
            language: Some(LanguageConfig {
                mlp_width: 2048,
                rotary: Rotary::Pre,
                rotary_dims: 16,
                init: InitScheme::Pythia,
            }),
            ..small.model
        },
        train: TrainConfig {
            schedule: Schedule::Cosine,
            epochs: 50,
            batch_size: 128,
            micro_batch: Some(8),
            adam: Some(AdamConfig {
                beta1: 0.9,
                beta2: 0.95,
                eps: 1e-8,
                clip: Some(1.0),
                decay: Decay::Matrices,
            }),
            stop_above: 1.0,
            ..small.train
        },
        ..small
    }
}

pub(crate) fn provenance() -> Provenance {
    Provenance {
        version: "0.1.0".into(),
        git_commit: "3f2c1e0".into(),
        dirty: false,
        host: "laptop".into(),
        cpu: "Some CPU, 2 GHz".into(),
        os: "linux x86_64".into(),
        device: "cpu".into(),
        threads: 2,
        started: "2026-01-31T10:00:00Z".into(),
    }
}

pub(crate) fn done(accuracy: f64) -> RunResult {
    RunResult {
        status: RunStatus::Done,
        outcome: Some(Outcome::Finished),
        reason: String::new(),
        accuracy: Some(accuracy),
        best_accuracy: Some(accuracy),
        best_epoch: Some(64),
        epochs_run: 64,
        train_loss: Some(0.1),
        test_loss: Some(1.0 / 3.0),
        params: Some(600_000),
        state_size: Some(4096),
        steps: 12_544,
        seconds: 31.2,
        tokens_per_s: Some(1e6),
        peak_memory_bytes: Some(1 << 28),
        ops: "fused".into(),
        val_accuracy: None,
        selected_epoch: None,
        selected_accuracy: None,
        majority: None,
        data_digest: String::new(),
        language: None,
        started: "2026-01-31T10:00:00Z".into(),
        ended: "2026-01-31T10:00:32Z".into(),
        provenance: provenance(),
    }
}

/// A run on text of this training perplexity; the others are multiples of it.
pub(crate) fn read(train_ppl: f64) -> RunResult {
    let times = |factor: f64| Some(factor * train_ppl);
    RunResult {
        epochs_run: 50,
        language: Some(LanguageScores {
            train_ppl: times(1.0),
            train_ppl_eval: times(0.75),
            val_ppl: times(2.0),
            best_val_ppl: times(1.25),
            test_ppl: times(2.5),
            selected_test_ppl: times(1.5),
            val_word_ppl: times(4.0),
            test_word_ppl: times(5.0),
            val_bits_per_byte: Some(1.0),
            test_bits_per_byte: Some(1.25),
            unigram_ppl: Some(1100.0),
            train_tokens: 119_000_000,
        }),
        ..done(0.5)
    }
}

pub(crate) fn diverged() -> RunResult {
    RunResult {
        outcome: Some(Outcome::Diverged),
        train_loss: Some(f64::NAN),
        test_loss: None,
        ..done(0.001)
    }
}

pub(crate) fn failed(reason: &str) -> RunResult {
    RunResult {
        status: RunStatus::Failed,
        outcome: None,
        reason: reason.into(),
        accuracy: None,
        best_accuracy: None,
        best_epoch: None,
        ..done(0.0)
    }
}

pub(crate) fn row(accuracy: f64) -> Row {
    Row::new(&config(), &done(accuracy))
}
