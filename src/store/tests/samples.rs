//! Small valid values for the tests of this module and of those that use it.

use crate::config::{
    AdamConfig, Decay, InitScheme, LanguageConfig, Layout, ModelConfig, PositionEmbedding, Precision, Protocol, Rotary,
    RunConfig, Schedule, StateMixer, TrainConfig, FORMAT,
};
use crate::store::{Cause, Column, Metrics, Outcome, Provenance, Record, RunResult, RunStatus};
use crate::tasks::mqar::MqarConfig;
use crate::tasks::wikitext::{Corpus, Tokenizer, WikitextConfig};
use crate::tasks::{Generator, Task};

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
            test_seq_len: None,
            kv_pairs: 4,
            key_tokens: 1,
            overwrites: 0,
            passes: 1,
            fresh_examples: false,
            val_examples: 0,
            train_examples: 100_000,
            test_examples: 3000,
        }
        .config(),
        model: ModelConfig {
            options: [("dt_init".into(), "zero".into())].into(),
            d_state: 32,
            layout: Layout::Transformer,
            state_mixer: StateMixer::Mlp,
            positions: true,
            embed_dropout: 0.1,
            attn_dropout: 0.1,
            ..ModelConfig::bare("linear", "reference", [64, 2])
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
            decay: None,
            adam: None,
            stop_above: 0.99,
        },
        from: None,
    }
}

/// Linear attention in the body of Pythia-70M, from Table 1.
pub(crate) fn text_config() -> RunConfig {
    let small = config();
    RunConfig {
        protocol: Protocol::Paper,
        task: WikitextConfig {
            corpus: Corpus::Wikitext103Raw,
            tokenizer: Tokenizer::GptNeox,
            vocab_size: 50_304,
            seq_len: 1024,
            source_digest: Some("5c7e0d1f2a3b".to_owned()),
            eos_between_articles: false,
            train_examples: None,
            test_examples: None,
        }
        .config(),
        model: ModelConfig {
            options: [].into(),
            d_model: 512,
            d_state: 512,
            n_heads: 8,
            n_layers: 6,
            layout: Layout::Parallel,
            positions: false,
            position_embedding: PositionEmbedding::Learnt,
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
            schedule: Schedule::WarmupConstant,
            epochs: 50,
            batch_size: 128,
            micro_batch: Some(8),
            adam: Some(AdamConfig { beta1: 0.9, beta2: 0.95, eps: 1e-8, clip: Some(1.0), decay: Decay::Matrices }),
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
        simd: "avx2".into(),
        os: "linux x86_64".into(),
        device: "cpu".into(),
        threads: 2,
        started: "2026-01-31T10:00:00Z".into(),
        command: "dsf mqar".into(),
    }
}

pub(crate) fn done(accuracy: f64) -> RunResult {
    RunResult {
        status: RunStatus::Done,
        outcome: Some(Outcome::Finished),
        reason: String::new(),
        cause: None,
        micro_batch_used: None,
        metrics: Metrics::default()
            .with(Column::ACCURACY, accuracy)
            .with(Column::BEST_ACCURACY, accuracy)
            .with(Column::BEST_EPOCH, 64usize)
            .with(Column::EPOCHS_RUN, 64usize)
            .with(Column::TRAIN_LOSS, 0.1)
            .with(Column::TEST_LOSS, 1.0 / 3.0)
            .with(Column::PARAMS, 600_000usize)
            .with(Column::STATE_SIZE, 4096usize)
            .with(Column::STEPS, 12_544usize)
            .with(Column::SECONDS, 31.2)
            .with(Column::TOKENS_PER_S, 1e6)
            .with(Column::PEAK_MEMORY_BYTES, 1usize << 28),
        ops: "fused".into(),
        data_digest: String::new(),
        started: "2026-01-31T10:00:00Z".into(),
        ended: "2026-01-31T10:00:32Z".into(),
        provenance: provenance(),
    }
}

/// A run on text with this training perplexity; the other perplexities are multiples of it.
pub(crate) fn read(train_ppl: f64) -> RunResult {
    let mut result = done(0.5);
    result.metrics.set(Column::EPOCHS_RUN, 50usize);
    for (column, factor) in [
        (Column::TRAIN_PPL, 1.0),
        (Column::TRAIN_PPL_EVAL, 0.75),
        (Column::VAL_PPL, 2.0),
        (Column::BEST_VAL_PPL, 1.25),
        (Column::TEST_PPL, 2.5),
        (Column::SELECTED_TEST_PPL, 1.5),
        (Column::VAL_WORD_PPL, 4.0),
        (Column::TEST_WORD_PPL, 5.0),
    ] {
        result.metrics.set(column, factor * train_ppl);
    }
    result.metrics = result
        .metrics
        .with(Column::VAL_BITS_PER_BYTE, 1.0)
        .with(Column::TEST_BITS_PER_BYTE, 1.25)
        .with(Column::UNIGRAM_PPL, 1100.0)
        .with(Column::TRAIN_TOKENS, 119_000_000usize);
    result
}

pub(crate) fn diverged() -> RunResult {
    let mut result = done(0.001);
    result.outcome = Some(Outcome::Diverged);
    result.metrics.set(Column::TRAIN_LOSS, f64::NAN);
    result.metrics.set(Column::TEST_LOSS, None::<f64>);
    result
}

pub(crate) fn failed(reason: &str) -> RunResult {
    let mut result = done(0.0);
    (result.status, result.outcome) = (RunStatus::Failed, None);
    (result.reason, result.cause) = (reason.into(), Some(Cause::infer(reason)));
    for column in [Column::ACCURACY, Column::BEST_ACCURACY, Column::BEST_EPOCH] {
        result.metrics.set(column, None::<usize>);
    }
    result
}

pub(crate) fn record(accuracy: f64) -> Record {
    Record::new(&config(), &done(accuracy))
}
