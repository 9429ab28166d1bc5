//! Conversion of a config back into a choice of settings, to train another run that differs in a few of them.

use super::rules::without_kernel_length;
use super::{quoted, resolve, Choice, FixedSettings, InitialModel, TaskRow, PRESETS};
use crate::config::{spelt, At, Decides, Omitted, RunConfig, Setting, ValueKind, NAMED_BLOCKS};
use crate::error::{refuse, Result};
use serde_json::Value;
use std::collections::BTreeMap;

impl Choice {
    /// All settings of `config`, with `place` as their origin. Fails if the task is unknown.
    pub fn again(config: &RunConfig, place: &str) -> Result<Self> {
        let objective = super::task(config.task.name())?.objective;
        let initial = InitialModel::of_run(config);
        // The options of a model of trained weights stay as they are.
        let config = &if initial.is_some() { config.clone() } else { without_kernel_length(config)? };
        let fields = config.task.entry()?.fields;
        let document = serde_json::to_value(config).expect("a run config is plain data");
        let mut choice = Self { initial, ..Self::default() };
        let settings = choice.settings;
        let value = |setting: &Setting| {
            let at = setting.pointer(objective)?;
            let found = |at: &str| document.pointer(at).filter(|value| !value.is_null()).cloned();
            let has = |setting: &Setting| !matches!(setting.at, At::Task(field) if !fields.contains(&field));
            found(&at).or_else(|| match setting.omitted {
                Omitted::Is(text) if has(setting) => setting.parse(text).ok(),
                Omitted::As(name) => found(&settings.find(name)?.pointer(objective)?),
                _ => None,
            })
        };
        let values = settings.iter().filter_map(|setting| Some((setting.name, value(setting)?)));
        let mut values: BTreeMap<&str, Value> = values.collect();
        // A config leaves out a block without parts of its own, also where the task's block has some.
        if super::task(config.task.name())?.has_block() {
            values.entry("block").or_insert_with(|| "".into());
        }
        choice.fixed = FixedSettings { values, options: config.model.options.clone(), place: place.to_owned() };
        Ok(choice)
    }

    /// Settings of `other` on top of the config from which this choice was made. Fails if `other` sets one that
    /// determines the defaults of others, since those are already fixed.
    pub fn with(self, mut other: Self) -> Result<Self> {
        let chosen: Vec<&Setting> = other.settings.iter().filter(|s| other.values.contains_key(s.name)).collect();
        let deciding = chosen.iter().find(|setting| setting.decides == Decides::Defaults);
        if let Some(name) = deciding.map(|setting| setting.name).or(other.preset.map(|_| "preset")) {
            refuse!(flag(format!("--{name}")), "decides other settings, which --config has fixed: give one of the two");
        }
        (other.fixed, other.initial) = (self.fixed, self.initial);
        for name in chosen.iter().flat_map(|setting| setting.decides.replaced()) {
            other.fixed.values.remove(name);
        }
        Ok(other)
    }
}

/// Shortest command that trains `config`, such as `dsf mqar --mixer s6 --d 64`. A run on files assumes the same files
/// in `--data-dir`. `None` if no flags describe the run, as for runs of a version with other recipes.
pub fn command(config: &RunConfig) -> Option<String> {
    Some(format!("dsf {}{}", config.task.name(), words(&shortest(config)?)))
}

/// Command of a sweep of `config` at half, once and twice its learning rate. `None` as for [`command`].
pub fn sweep_of_rates(config: &RunConfig) -> Option<String> {
    let task = super::task(config.task.name()).ok()?;
    let values = Choice::again(config, "").ok()?.fixed.values;
    let mut flags = shortest(config)?;
    // Settings of which a sweep would take several values.
    for (name, value) in task.layers().sweep.keys().filter_map(|name| values.get_key_value(name.as_str())) {
        if flags.iter().all(|(flag, _)| flag != name) {
            flags.insert(0, ((*name).to_owned(), as_typed(value)));
        }
    }
    flags.retain(|(name, _)| name != "lr");
    let rates = [0.5, 1.0, 2.0].map(|factor| format!("{:e}", factor * config.train.lr));
    flags.push(("lr".to_owned(), rates.join(",")));
    Some(format!("dsf sweep --task {}{}", config.task.name(), words(&flags)))
}

fn words(flags: &[(String, String)]) -> String {
    flags.iter().map(|(name, value)| format!(" --{name} {}", quoted(value))).collect()
}

/// Fewest flags that make `config`.
fn shortest(config: &RunConfig) -> Option<Vec<(String, String)>> {
    let config = &RunConfig { task: config.task.clone().of_any_files(), ..config.clone() };
    let task = super::task(config.task.name()).ok()?;
    let whole = Choice::again(config, "").ok()?.fixed;
    let presets = || [None].into_iter().chain(PRESETS.iter().map(|preset| Some(preset.name)));
    let shortest = |block: Option<&str>| {
        let ways = presets().filter_map(|preset| flags(task, &whole, config, preset, block));
        ways.min_by_key(Vec::len)
    };
    let plain = shortest(None);
    match plain {
        Some(flags) if flags.iter().all(|(name, _)| name != "block") => Some(flags),
        plain => {
            let named = NAMED_BLOCKS.iter().filter_map(|block| shortest(Some(block.name)));
            named.chain(plain).min_by_key(Vec::len)
        }
    }
}

/// Flags that make `config`, starting from `preset` and from the whole block `block`; `None` if none do.
fn flags(
    task: TaskRow,
    whole: &FixedSettings,
    config: &RunConfig,
    preset: Option<&'static str>,
    block: Option<&str>,
) -> Option<Vec<(String, String)>> {
    let mut chosen = Choice::of(preset, false);
    let mut typed: Vec<(String, String)> = Vec::new();
    typed.extend(preset.map(|preset| ("preset".to_owned(), preset.to_owned())));
    if let Some(block) = block {
        typed.push(("block".to_owned(), block.to_owned()));
        chosen.set("block", block, "").ok()?;
    }
    if let Some(initial) = InitialModel::of_run(config) {
        typed.push(("from".to_owned(), initial.weights.name.clone()));
        chosen.start_from(initial, "");
    }
    let made = |chosen: &Choice| {
        let made = resolve(task, chosen).ok()?;
        Some(Choice::again(&made.config, "").ok()?.fixed)
    };
    // Settings that determine others come first: once they are set, fewer of the others differ.
    let mut settings: Vec<&Setting> = chosen.settings.typed().collect();
    settings.sort_by_key(|setting| setting.decides.min(Decides::Files));
    let mut now = made(&chosen);
    // Until none is typed: one that is typed later may change one that was right before.
    loop {
        let before = typed.len();
        for setting in &settings {
            let name = setting.name;
            let Some(value) = whole.values.get(name) else { continue };
            let differs = now.as_ref().is_none_or(|now| now.values.get(name) != Some(value));
            if differs && typed.iter().all(|(known, _)| known != name) {
                typed.push((name.to_owned(), as_typed(value)));
                chosen.set(name, &as_typed(value), "").ok()?;
                now = made(&chosen);
            }
        }
        if typed.len() == before {
            break;
        }
    }
    // The seed comes after all other settings.
    let seed = settings.iter().find(|setting| setting.decides == Decides::Seeds)?;
    typed.sort_by_key(|(name, _)| name == seed.name);
    let flag = settings.iter().find(|setting| setting.kind == ValueKind::MixerOption)?.name;
    for (name, value) in &whole.options {
        if now.as_ref()?.options.get(name) != Some(value) {
            let option = format!("{name}={value}");
            chosen.set(flag, &option, "").ok()?;
            typed.push((flag.to_owned(), option));
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
