//! Conversion of a config back into a choice of settings, to train another run that differs in a few of them.

use super::rules::without_kernel_length;
use super::{resolve, Choice, FixedSettings, Task, PRESETS};
use crate::config::{spelt, Precision, RunConfig, Setting};
use crate::error::{refuse, Result};
use serde_json::{json, Value};

/// Settings that determine the defaults of others; a config has fixed all of those.
const DECIDING: [&str; 3] = ["mixer", "variant", "protocol"];

/// Settings that select the files that are read; a config holds the digest of their content.
const CHOOSING_FILES: [&str; 4] = ["dataset", "corpus", "data", "contour-length"];

/// Settings that `--dropout` sets.
const DROPOUTS: [&str; 2] = ["embed-dropout", "attn-dropout"];

impl Choice {
    /// All settings of `config`, with `place` as their origin.
    ///
    /// # Errors
    ///
    /// Fails if the task is unknown.
    pub fn again(config: &RunConfig, place: &str) -> Result<Self> {
        let objective = super::task(config.task.name())?.objective;
        let config = &without_kernel_length(config)?;
        let fields = config.task.entry()?.fields;
        let document = serde_json::to_value(config).expect("a run config is plain data");
        let mut choice = Self::default();
        let value = |setting: &Setting| {
            let at = setting.pointer(objective)?;
            let found = document.pointer(&at).filter(|value| !value.is_null());
            // A config leaves out settings that have no effect.
            found.cloned().or_else(|| match setting.name {
                "clip" => Some(json!(0)),
                "micro-batch" => Some(json!(config.train.batch_size)),
                "warmup-epochs" => Some(json!(0)),
                "val-examples" if fields.contains(&"val_examples") => Some(json!(0)),
                "precision" => Some(json!(Precision::F32)),
                _ => None,
            })
        };
        let values = choice.settings.iter().filter_map(|setting| Some((setting.name, value(setting)?)));
        choice.fixed =
            FixedSettings { values: values.collect(), options: config.model.options.clone(), place: place.to_owned() };
        Ok(choice)
    }

    /// Settings of `other` on top of the config from which this choice was made.
    ///
    /// # Errors
    ///
    /// Fails if `other` sets one that determines the defaults of others, since those are already fixed.
    pub fn with(self, mut other: Self) -> Result<Self> {
        let deciding = DECIDING.into_iter().find(|name| other.is_chosen(name));
        if let Some(name) = deciding.or(other.preset.map(|_| "preset")) {
            refuse!(flag(format!("--{name}")), "decides other settings, which --config has fixed: give one of the two");
        }
        other.fixed = self.fixed;
        if other.is_chosen("dropout") {
            other.fixed.values.retain(|name, _| !DROPOUTS.contains(name));
        }
        if CHOOSING_FILES.iter().any(|name| other.is_chosen(name)) {
            other.fixed.values.remove("source-digest");
        }
        Ok(other)
    }

    fn is_chosen(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }
}

/// Shortest command that trains `config`, such as `dsf mqar --mixer s6 --d 64`. A run on files assumes the same files
/// in `--data-dir`. `None` if no flags describe the run, as for runs of a version with other recipes.
pub fn command(config: &RunConfig) -> Option<String> {
    let config = &RunConfig { task: config.task.clone().of_any_files(), ..config.clone() };
    let task = super::task(config.task.name()).ok()?;
    let whole = Choice::again(config, "").ok()?.fixed;
    let named = PRESETS.iter().map(|preset| Some(preset.name));
    let presets = [None].into_iter().chain(named);
    let ways = presets.filter_map(|preset| flags(task, &whole, config, preset));
    let shortest = ways.min_by_key(Vec::len)?;
    let flags: String = shortest.iter().map(|(name, value)| format!(" --{name} {value}")).collect();
    Some(format!("dsf {}{flags}", task.name))
}

/// Flags that make `config`, starting from `preset`; `None` if none do.
fn flags(
    task: Task,
    whole: &FixedSettings,
    config: &RunConfig,
    preset: Option<&'static str>,
) -> Option<Vec<(String, String)>> {
    let mut chosen = Choice::of(preset, false);
    let mut typed: Vec<(String, String)> = Vec::new();
    typed.extend(preset.map(|preset| ("preset".to_owned(), preset.to_owned())));
    let made = |chosen: &Choice| {
        let made = resolve(task, chosen).ok()?;
        Some(Choice::again(&made.config, "").ok()?.fixed)
    };
    // Settings that determine others come first: once they are set, fewer of the others differ.
    let all = chosen.settings.typed().map(|setting| setting.name);
    let names: Vec<&str> = ["dataset", "corpus"].into_iter().chain(DECIDING).chain(["seed"]).chain(all).collect();
    let mut now = made(&chosen);
    for name in names {
        let Some(value) = whole.values.get(name) else {
            continue;
        };
        if now.as_ref().is_none_or(|now| now.values.get(name) != Some(value)) {
            typed.push((name.to_owned(), as_typed(value)));
            chosen.set(name, &as_typed(value), "").ok()?;
            now = made(&chosen);
        }
    }
    // The seed comes after all other settings.
    typed.sort_by_key(|(name, _)| name == "seed");
    for (name, value) in &whole.options {
        if now.as_ref()?.options.get(name) != Some(value) {
            let option = format!("{name}={value}");
            chosen.set("option", &option, "").ok()?;
            typed.push(("option".to_owned(), option));
        }
    }
    (resolve(task, &chosen).ok()?.config == *config).then_some(typed)
}

/// Value as typed on the command line.
pub fn as_typed(value: &Value) -> String {
    match value.as_str() {
        Some("warmup-constant") => "constant".to_owned(),
        _ => spelt(value),
    }
}
