//! Resolution of a few chosen settings into a complete [`RunConfig`].
//!
//! A run is one document, filled by layers, each of which overrides the ones before it:
//!
//! ```text
//! the layers of recipes/TASK.toml (base, protocol, the mixer's row, preset) < experiment file < flags
//! ```
//!
//! Recipes are data; values that must be computed from others are rules in `rules.rs`. The merge records the origin of
//! each value, which `--explain` prints.

mod again;
mod axes;
mod draft;
mod flags;
mod initial;
mod kernel_length;
mod partial;
mod recipe;
mod rules;
mod shell;
mod tuning;

pub use crate::tasks::find as task;
pub use crate::tasks::TASKS;
pub use again::{as_typed, command, sweep_of_rates};
pub use draft::Origin;
pub use flags::Flags;
pub use initial::InitialModel;
pub use shell::{all_quoted, quoted};

use crate::config::{spelt, RunConfig, SettingScope, Settings, ValueKind, SETTINGS};
use crate::error::{self, ensure, refuse, Error, Result};
use crate::store::{Column, Record};
use crate::tasks::wikitext::adopt;
use crate::tasks::TaskEntry;
use draft::Draft;
use recipe::Recipe;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

/// Row of [`TASKS`].
pub type TaskRow = &'static TaskEntry;

/// Values from the recipe of a task.
impl TaskEntry {
    /// Properties that determine which settings apply to the task.
    pub fn setting_scope(&self) -> SettingScope<'static> {
        SettingScope { task: self.name, objective: self.objective, fields: self.fields }
    }

    fn layers(&self) -> &'static Recipe {
        &RECIPES[self.name]
    }

    /// Learning rates that the paper tries. Fails with the reason if the paper tried none for this task.
    pub fn paper_rates(&self) -> Result<&'static [f64]> {
        let Recipe { rates, why_no_rates, .. } = self.layers();
        ensure!(
            !rates.is_empty(),
            flag "--lr" = "paper", "{why_no_rates}; name rates, such as --lr 1e-3,3e-3");
        Ok(rates)
    }

    /// Whether the user can choose between protocols.
    pub fn has_protocols(&self) -> bool {
        self.layers().protocols.len() != 1
    }

    /// Sizes of `preset` in words; `None` if the recipe describes none.
    pub fn sizes_of(&self, preset: &str) -> Option<&'static str> {
        self.layers().presets.sizes.get(preset).map(String::as_str)
    }

    /// Preset of a run that names none, with the setting that selects another.
    pub fn preset_rule(&self) -> String {
        let presets = &self.layers().presets;
        let other = presets.named.as_ref();
        let other = other.map(|other| format!("; {} if --{} is given", other.preset, other.setting));
        format!("{}{}", presets.default, other.unwrap_or_default())
    }

    /// Default seed of a run.
    pub fn seed(&self) -> u64 {
        self.layers().layer.iter().find_map(|layer| layer.set.seed).unwrap_or_default()
    }

    /// Values that `dsf sweep` uses for flags that are left out, such as the mixers that the paper compares.
    pub fn swept(&self) -> impl Iterator<Item = (&'static str, &'static [String])> {
        self.layers().sweep.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }
}

static RECIPES: LazyLock<BTreeMap<&str, Recipe>> = LazyLock::new(|| {
    let parsed = TASKS.iter().map(|task| {
        let recipe = toml::from_str(task.recipe).unwrap_or_else(|e| panic!("recipes/{}.toml: {e}", task.name));
        (task.name, recipe)
    });
    parsed.collect()
});

/// Preset: its name, other names for it, and a description.
pub struct Preset {
    /// Name as in recipes.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// Description, without sizes.
    pub about: &'static str,
}

/// All presets, the paper's sizes first.
pub static PRESETS: [Preset; 3] = [
    Preset { name: "paper", aliases: &["full", "pythia-70m"], about: "The paper's sizes" },
    Preset { name: "quick", aliases: &["tiny"], about: "Minutes on a laptop" },
    Preset { name: "smoke", aliases: &[], about: "Smoke test: seconds, too short to learn" },
];

impl Preset {
    /// Help for commands of all tasks, with the sizes that recipes describe.
    pub fn help(&self) -> String {
        let sizes = TASKS.iter().filter_map(|task| Some(format!("{}: {}", task.name, task.sizes_of(self.name)?)));
        self.described(&sizes.collect::<Vec<_>>().join("; "))
    }

    /// Description with `sizes` and the other names.
    pub fn described(&self, sizes: &str) -> String {
        let sizes = if sizes.is_empty() { String::new() } else { format!(" ({sizes})") };
        let also = self.aliases.iter().map(|alias| format!("`{alias}`")).collect::<Vec<_>>().join(" or ");
        let also = if also.is_empty() { also } else { format!(". Also {also}") };
        format!("{}{sizes}{also}", self.about)
    }
}

/// Returns the name of the preset called `name`, which may be an alias.
pub fn preset(name: &str) -> Result<&'static str> {
    let known = |preset: &&Preset| preset.name == name || preset.aliases.contains(&name);
    let found = PRESETS.iter().find(known).map(|preset| preset.name);
    found.ok_or_else(|| error::unknown_value("--preset", "preset", name, PRESETS.iter().map(|preset| preset.name)))
}

/// Settings that a user chose for one run, each with its origin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Preset; `None` for the recipe's default.
    pub preset: Option<&'static str>,
    /// Whether the run is computed on a GPU, on which some recipes train in bf16.
    pub gpu: bool,
    /// Table of settings.
    pub settings: Settings,
    values: BTreeMap<&'static str, (Value, String)>,
    options: BTreeMap<String, (String, String)>,
    fixed: FixedSettings,
    /// Model of the weights that the run starts from; `None` for random weights.
    initial: Option<InitialModel>,
    /// Number of rows that the token table needs for the tokenizer of a file.
    tokenizer_rows: Option<usize>,
}

/// Settings of a config. They override all layers and are overridden by the user's settings.
#[derive(Clone, Debug, Default, PartialEq)]
struct FixedSettings {
    values: BTreeMap<&'static str, Value>,
    options: BTreeMap<String, String>,
    /// File that they come from.
    place: String,
}

impl Choice {
    /// Choice of a preset and nothing else.
    pub fn of(preset: Option<&'static str>, gpu: bool) -> Self {
        Self { preset, gpu, ..Self::default() }
    }

    /// Sets `name` to the value of `text`; `place` is its origin. A tokenizer's file is copied into the cache. Fails if
    /// the name is unknown, the text is not a value of the setting, or the tokenizer cannot be read.
    pub fn set(&mut self, name: &str, text: &str, place: &str) -> Result<()> {
        if name == "preset" {
            self.preset = Some(preset(text)?);
            return Ok(());
        }
        let known = || self.settings.iter().map(|setting| setting.name);
        let setting = self.settings.find(name);
        let setting = setting.ok_or_else(|| error::unknown("setting", name, known()))?;
        let refused = |why| Error::flag_value(format!("--{name}"), text, why);
        let mut value = setting.parse(text).map_err(refused)?;
        match (setting.kind, spelt(&value).split_once(['=', ':'])) {
            (ValueKind::MixerOption, Some((option, value))) => {
                self.options.insert(option.to_owned(), (value.to_owned(), place.to_owned()));
                return Ok(());
            }
            (ValueKind::Pair(names), Some((first, second))) => {
                return names.iter().zip([first, second]).try_for_each(|(name, text)| self.set(name, text, place));
            }
            (ValueKind::Tokenizer, _) if Path::new(text).is_file() => {
                let (tokenizer, rows) = adopt(Path::new(text))?;
                value = Value::from(tokenizer.to_string());
                self.tokenizer_rows = Some(rows);
            }
            (ValueKind::Weights, _) => {
                refuse!(flag(format!("--{name}")) = text, "only `dsf wikitext` and `dsf sweep` open weights")
            }
            _ => {}
        }
        self.values.insert(setting.name, (value, place.to_owned()));
        Ok(())
    }

    /// Starts the run from the weights of `initial`, whose model is then the run's; `place` is the origin of their name.
    fn start_from(&mut self, initial: InitialModel, place: &str) {
        let name = &initial.weights.name;
        let (options, place_of_model) = (initial.model.options.clone(), format!("weights of {name}"));
        self.values.insert("from", (Value::from(name.as_str()), place.to_owned()));
        self.fixed = FixedSettings { values: initial.settings(), options, place: place_of_model };
        self.initial = Some(initial);
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name).map(|(value, _)| value)
    }
}

/// Complete run and the origins of its settings.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Config of the run.
    pub config: RunConfig,
    /// All settings in the config, in the order of [`Settings`].
    pub explained: Vec<Explained>,
    /// Notes for the user, for example on hyperparameters that stand in for unreleased ones.
    pub notes: Vec<String>,
}

impl Resolved {
    /// Records the digest of the content of the run's files, see [`TaskConfig::identify`].
    ///
    /// [`TaskConfig::identify`]: crate::config::TaskConfig::identify
    pub fn identify(&mut self, data_dir: Option<&Path>) -> Result<()> {
        let named = self.config.task.source_digest().is_some();
        self.config.task.identify(data_dir)?;
        let digest = self.config.task.source_digest().filter(|_| !named);
        self.explained.extend(digest.map(|digest| Explained {
            name: "source-digest".to_owned(),
            value: Value::from(digest),
            origin: Origin::Rule("the content of its files"),
        }));
        Ok(())
    }
}

/// Value of a setting and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// Name of a setting, or `option NAME` of the mixer.
    pub name: String,
    /// Value in the config.
    pub value: Value,
    /// Origin of the value.
    pub origin: Origin,
}

/// Resolves `choice` into a complete run of `task`. Fails with the flag of a setting that does not apply to the task, a
/// value out of range, or sizes that do not fit together.
pub fn resolve(task: TaskRow, choice: &Choice) -> Result<Resolved> {
    let mut draft = Draft::new(task, task.layers(), choice)?;
    draft.check_given()?;
    if let Some(initial) = &choice.initial {
        tuning::check(&draft, initial)?;
    }
    draft.apply_given()?;
    match &choice.initial {
        Some(initial) => tuning::finish(&mut draft, initial),
        None => rules::finish(&mut draft),
    }
}

/// Resolves a run of the task called `task_name` from `settings`, pairs of a flag's name and its text.
pub fn run(task_name: &str, settings: &[(&str, &str)]) -> Result<RunConfig> {
    let mut choice = Choice::default();
    for (name, text) in settings {
        choice.set(name, text, &format!("--{name}"))?;
    }
    Ok(resolve(task(task_name)?, &choice)?.config)
}

/// One run of every mixer by the defaults of `dsf mqar`.
const QUICK: &str = include_str!("../../results/mqar-quick.csv");

/// The published test accuracy of `config`, 0 to 1, and the instruction set that computed it, where
/// `results/mqar-quick.csv` has that run under its own seed.
pub fn published_accuracy(config: &RunConfig) -> Option<(f64, String)> {
    let mut rows = csv::Reader::from_reader(QUICK.as_bytes());
    let header = rows.headers().ok()?.clone();
    let at = |name: &str| header.iter().position(|column| column == name);
    let (id, seed, accuracy, simd) = (at("run_id")?, at("seed")?, at("accuracy")?, at("simd")?);
    let mut same = rows.records().filter_map(Result::ok).filter(|row| {
        let seed = row[seed].parse();
        seed.is_ok_and(|seed| RunConfig { seed, ..config.clone() }.id() == row[id])
    });
    let row = same.next()?;
    Some((row[accuracy].parse().ok()?, row[simd].to_owned()))
}

/// Rows of the runs that the presets make of the task, mixer and protocol of `row`, for reports on how a run differs
/// from a preset. Settings that presets leave open, such as d and n of MQAR, are 0. Empty for a mixer or a dataset that
/// this version does not know.
pub fn presets_of(row: &Record) -> Vec<(&'static str, Record)> {
    PRESETS.iter().filter_map(|preset| Some((preset.name, planned(row, preset.name)?))).collect()
}

fn planned(row: &Record, preset: &'static str) -> Option<Record> {
    let task = task(row.text(Column::TASK)).ok()?;
    let mut choice = Choice::of(Some(preset), false);
    let compare = &task.layers().compare;
    let column = |name: &str| Column::find(&SETTINGS.find(name)?.column()?);
    let named = ["mixer", "protocol"].into_iter();
    let kept = compare.keep.iter().chain(&compare.open).map(String::as_str);
    for name in named.chain(kept) {
        choice.set(name, &row.get(column(name)?).to_string(), "the row").ok()?;
    }
    let config = resolve(task, &choice).ok()?.config;
    let mut planned = Record::planned(&config);
    if planned.may_draw_own_data() {
        planned.set_own_data();
    }
    for name in &compare.open {
        planned.set(column(name)?, 0usize);
    }
    Some(planned)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::testing;
