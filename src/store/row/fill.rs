//! A row from a config and a result.

use super::super::columns::SCHEMA;
use super::super::RunResult;
use super::Row;
use crate::config::{LraDataset, RunConfig, TaskConfig};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

impl Row {
    /// The row of a finished run.
    pub fn new(config: &RunConfig, result: &RunResult) -> Self {
        let origin = &result.provenance;
        let language = result.language.unwrap_or_default();
        Self {
            status: Some(result.status),
            outcome: result.outcome,
            reason: result.reason.clone(),
            accuracy: result.accuracy,
            best_accuracy: result.best_accuracy,
            best_epoch: result.best_epoch,
            epochs_run: result.epochs_run,
            train_loss: result.train_loss,
            test_loss: result.test_loss,
            params: result.params,
            state_size: result.state_size,
            steps: result.steps,
            seconds: result.seconds,
            tokens_per_s: result.tokens_per_s,
            peak_memory_bytes: result.peak_memory_bytes,
            device: origin.device.clone(),
            threads: origin.threads,
            host: origin.host.clone(),
            cpu: origin.cpu.clone(),
            version: origin.version.clone(),
            git_commit: origin.commit(),
            started: result.started.clone(),
            ended: result.ended.clone(),
            ops: result.ops.clone(),
            val_accuracy: result.val_accuracy,
            selected_epoch: result.selected_epoch,
            selected_accuracy: result.selected_accuracy,
            majority: result.majority,
            data_digest: result.data_digest.clone(),
            train_ppl: language.train_ppl,
            train_ppl_eval: language.train_ppl_eval,
            val_ppl: language.val_ppl,
            best_val_ppl: language.best_val_ppl,
            test_ppl: language.test_ppl,
            selected_test_ppl: language.selected_test_ppl,
            val_word_ppl: language.val_word_ppl,
            test_word_ppl: language.test_word_ppl,
            val_bits_per_byte: language.val_bits_per_byte,
            test_bits_per_byte: language.test_bits_per_byte,
            unigram_ppl: language.unigram_ppl,
            train_tokens: result.language.map(|scores| scores.train_tokens),
            ..Self::planned(config)
        }
    }

    /// The row of a run without a result: its settings alone.
    pub fn planned(config: &RunConfig) -> Self {
        let (model, train) = (&config.model, &config.train);
        Self {
            schema: SCHEMA,
            run_id: config.id(),
            format: config.format,
            task: config.task.name().into(),
            protocol: config.protocol.as_str().into(),
            mixer: model.mixer.clone(),
            variant: model.variant.clone(),
            options: joined(&model.options),
            d: model.d_model,
            n: model.d_state,
            heads: model.n_heads,
            layers: model.n_layers,
            layout: spelling(&model.layout),
            state_mixer: spelling(&model.state_mixer),
            positions: model.positions,
            lr: train.lr,
            weight_decay: train.weight_decay,
            precision: spelling(&train.precision),
            embed_dropout: model.embed_dropout,
            attn_dropout: model.attn_dropout,
            schedule: spelling(&train.schedule),
            batch_size: train.batch_size,
            epochs_max: train.epochs,
            stop_above: train.stop_above,
            seed: config.seed,
            expand: model.expand,
            micro_batch: train.micro_batch,
            ..Self::of_optimizer(config)
        }
    }

    /// What only a run with an optimiser of its own has, and the rest.
    fn of_optimizer(config: &RunConfig) -> Self {
        let model = Self::of_language(config);
        let Some(adam) = &config.train.adam else {
            return model;
        };
        Self {
            beta1: Some(adam.beta1),
            beta2: Some(adam.beta2),
            eps: Some(adam.eps),
            clip: Some(adam.clip.unwrap_or(0.0)),
            decay: spelling(&adam.decay),
            ..model
        }
    }

    /// What only models of text have, and the rest.
    fn of_language(config: &RunConfig) -> Self {
        let rest = Self::of_classifier(config);
        let Some(language) = &config.model.language else {
            return rest;
        };
        Self {
            mlp_width: Some(language.mlp_width),
            rotary: spelling(&language.rotary),
            rotary_dims: Some(language.rotary_dims),
            init: spelling(&language.init),
            ..rest
        }
    }

    /// What only classifiers have, and the task.
    fn of_classifier(config: &RunConfig) -> Self {
        let task = Self::of_task(&config.task);
        let Some(classifier) = &config.model.classifier else {
            return task;
        };
        Self {
            warmup_epochs: Some(config.train.warmup_epochs),
            input: spelling(&classifier.input),
            mlp_width: Some(classifier.mlp_width),
            dropout: Some(classifier.dropout),
            lambda_skip: Some(classifier.lambda_skip),
            pool: spelling(&classifier.pool),
            mask: Some(classifier.mask),
            dual: spelling(&classifier.dual),
            loss: spelling(&classifier.loss),
            ..task
        }
    }

    fn of_task(task: &TaskConfig) -> Self {
        let common = Self {
            seq_len: task.seq_len(),
            vocab_size: task.vocab_size(),
            train_examples: task.train_examples(),
            ..Self::default()
        };
        match task {
            TaskConfig::Mqar(mqar) => Self {
                kv_pairs: mqar.kv_pairs,
                test_examples: mqar.test_examples,
                data: spelling(&mqar.data),
                data_seed: mqar.data_seed,
                ..common
            },
            TaskConfig::Lra(lra) => Self {
                dataset: lra.dataset.name().into(),
                contour_length: (lra.dataset == LraDataset::Pathfinder)
                    .then(|| lra.contour_length()),
                val_examples: Some(lra.val_examples),
                test_examples: lra.test_examples,
                data: spelling(&lra.data),
                data_seed: lra.data_seed,
                ..common
            },
            TaskConfig::Wikitext(text) => Self {
                dataset: text.corpus.name().into(),
                tokenizer: text.tokenizer.to_string(),
                eos_between_articles: Some(text.eos_between_articles),
                train_examples: text.train_examples.unwrap_or(0),
                test_examples: text.test_examples.unwrap_or(0),
                ..common
            },
        }
    }
}

fn joined(options: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = options.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.join(";")
}

/// An enum's value as its config spells it.
pub(super) fn spelling(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        other => unreachable!("a unit variant is a string, not {other:?}"),
    }
}
