//! `dsf model`: trained and pretrained models as a whole.

use super::check::{describe, event};
use super::print::{columns, Align};
use super::{exit, weights, Global};
use crate::config::{whole, ModelConfig, Rotary};
use crate::error::Result;
use crate::golden;
use crate::mixers;
use crate::model::weights::Checkpoint;
use crate::sweep::estimate::grouped;
use clap::{Args, Subcommand};
use serde_json::{json, Value};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct ModelArguments {
    #[command(subcommand)]
    action: ModelAction,
}

#[derive(Subcommand)]
enum ModelAction {
    /// Show the architecture, the sizes and the state of a model.
    #[command(
        after_help = "Examples:\n  dsf model show state-spaces/mamba-130m-hf\n  dsf model show results/runs/0123456789ab"
    )]
    Show {
        /// Folder of a Hugging Face model, its name on the hub, file of weights, run folder, or id of a run.
        #[arg(value_name = "MODEL")]
        model: PathBuf,
        /// Number of tokens after which the size of the state is given.
        #[arg(long, value_name = "L", default_value_t = 2048, value_parser = whole::<u32>(1..=1 << 24))]
        seq_len: u32,
    },
    /// Compare a pretrained model with logits of `transformers`.
    ///
    /// DIR holds config.json, model.safetensors and expected.safetensors with `input_ids` and `logits_f64` (or
    /// `logits`), and may hold expected.json with `nll`, the mean negative log-likelihood of the ids. Compares the
    /// logits in f32 (2e-5 of the largest) and in f64, those of the model read token by token, and the likelihood to
    /// six digits. `transformers` computes norms and gates in f32 whatever the dtype, so that f64 is compared within
    /// 1e-6, and within 1e-9 if the header of expected.safetensors has `precision` = `float64`. Exits with code 4 if
    /// one is off.
    Check {
        /// Folder of the model and its logits.
        dir: PathBuf,
    },
}

pub(super) fn main(arguments: &ModelArguments, global: &Global) -> Result<u8> {
    match &arguments.action {
        ModelAction::Show { model, seq_len } => show(model, *seq_len as usize, global),
        ModelAction::Check { dir } => check(dir, global),
    }
}

fn check(dir: &Path, global: &Global) -> Result<u8> {
    let name = dir.display().to_string();
    let verdict = golden::check(dir);
    global.emit(&event(&name, &verdict), &format!("{name}  {}", describe(&verdict)))?;
    Ok(if matches!(verdict, golden::FileVerdict::Pass(_)) { exit::DONE } else { exit::CHECK_FAILED })
}

fn show(path: &Path, seq_len: usize, global: &Global) -> Result<u8> {
    let found = weights::open(path, global)?;
    let parameters = found.check()?;
    let (config, text) = (&found.config.model, found.text()?);
    let state = found.state_size(seq_len)?;
    let layers: Vec<Value> = mixers::of_model(config)?
        .iter()
        .map(|(entry, model, count)| {
            json!({ "mixer": entry.name, "variant": model.variant, "layers": count, "n": model.d_state,
                    "heads": model.n_heads, "expand": model.expand, "options": model.options,
                    "dsf": entry.dsf })
        })
        .collect();
    let shown = json!({
        "event": "model", "schema": 1, "path": found.place, "architecture": found.architecture.map(|class| class.name), "run": found.origin.run,
        "parameters": parameters, "d": config.d_model, "layers": config.n_layers, "mixers": layers,
        "layout": config.layout, "feed_forward": config.state_mixer, "block": config.block.to_string(),
        "mlp_width": config.language.as_ref().map(|language| language.mlp_width),
        "vocab_size": text.vocab_size, "seq_len": text.seq_len, "tokenizer": text.tokenizer.to_string(),
        "state": state, "state_seq_len": seq_len,
    });
    global.emit(&shown, &rows(&found, &shown, parameters)?)?;
    Ok(exit::DONE)
}

/// The model as a list of names and values.
fn rows(found: &Checkpoint, shown: &Value, parameters: usize) -> Result<String> {
    let (config, text) = (&found.config.model, found.text()?);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    match (&found.architecture, &found.origin.run) {
        (Some(architecture), _) => row("architecture", format!("{} of {}", architecture.name, architecture.library)),
        (None, Some(run)) => row("run", run.clone()),
        (None, None) => {}
    }
    row("parameters", grouped(parameters as u64));
    for (entry, model, count) in mixers::of_model(config)? {
        let options: String = model.options.iter().map(|(name, value)| format!(", {name} = {value}")).collect();
        let heads = if model.n_heads > 1 { format!(", {} heads", model.n_heads) } else { String::new() };
        let sizes = format!("d = {}, n = {}{heads}{options}", model.d_model, model.d_state);
        row("mixer", format!("{count} layers of {} ({}): {sizes}", entry.name, model.variant));
        row("  as (11)", entry.dsf.to_owned());
    }
    row("feed-forward", feed_forward(config));
    if !config.block.is_default() {
        row("block", config.block.to_string());
    }
    if let Some(language) = config.language.as_ref().filter(|language| language.rotary != Rotary::None) {
        row("positions", format!("rotary, {} channels of a head", language.rotary_dims));
    } else if config.positions {
        row("positions", format!("learnt, {}", text.seq_len));
    }
    let state = shown["state"].as_u64().unwrap_or(0);
    row("state", format!("{} numbers per sequence after {} tokens", grouped(state), shown["state_seq_len"]));
    row("vocabulary", format!("{} rows, tokenizer {}", grouped(text.vocab_size as u64), text.tokenizer));
    row("trained on", format!("windows of {} tokens", grouped(text.seq_len as u64)));
    Ok(columns(&rows, Align::Left).trim_end().to_owned())
}

fn feed_forward(config: &ModelConfig) -> String {
    let width = config.language.as_ref().map_or(4 * config.d_model, |language| language.mlp_width);
    match serde_json::to_value(config.state_mixer) {
        Ok(Value::String(name)) if name != "none" && name != "identity" => format!("{name}, hidden width {width}"),
        Ok(Value::String(name)) => name,
        _ => String::new(),
    }
}
