//! A row from a config and a result.

use super::super::columns::SCHEMA;
use super::super::RunResult;
use super::Row;
use crate::config::{RunConfig, TaskConfig};
use crate::tasks::lra::{LraDataset, HARD_CONTOUR};
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
        let text = |name: &str| match task.get(name) {
            Some(Value::String(text)) => text.clone(),
            _ => String::new(),
        };
        let number = |name: &str| task.get(name).and_then(Value::as_u64);
        let count = |name: &str| number(name).map(|count| count as usize);
        let (dataset, corpus) = (text("dataset"), text("corpus"));
        let pathfinder = dataset == LraDataset::Pathfinder.name();
        Self {
            seq_len: count("seq_len").unwrap_or(0),
            vocab_size: count("vocab_size").unwrap_or(0),
            kv_pairs: count("kv_pairs").unwrap_or(0),
            train_examples: count("train_examples").unwrap_or(0),
            val_examples: count("val_examples"),
            test_examples: count("test_examples").unwrap_or(0),
            data: text("data"),
            data_seed: number("data_seed").unwrap_or(0),
            contour_length: pathfinder.then(|| count("contour_length").unwrap_or(HARD_CONTOUR)),
            tokenizer: text("tokenizer"),
            eos_between_articles: (!corpus.is_empty())
                .then(|| task.get("eos_between_articles") == Some(&Value::Bool(true))),
            dataset: dataset + &corpus,
            ..Self::default()
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
