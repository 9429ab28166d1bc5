//! From the few things that a person names to a complete [`RunConfig`].
//!
//! A run is one document, filled by layers, each over the ones before it:
//!
//! ```text
//! the layers of recipes/TASK.toml (base, protocol, the mixer's row, preset) < experiment file < flags
//! ```
//!
//! Recipes are data; what a value has to be computed from others is a rule in `rules.rs`. The merge remembers where
//! each value came from, which `--explain` prints.

mod again;
mod draft;
mod kernel_length;
mod recipe;
mod rules;

pub use crate::tasks::find as task;
pub use crate::tasks::TASKS;
pub use again::{as_typed, command};
pub use draft::Origin;

use crate::config::{RunConfig, Settings, Taker, SETTINGS};
use crate::error::{self, ensure, Error, Result};
use crate::store::{place, Record};
use crate::tasks::wikitext::adopt;
use crate::tasks::TaskEntry;
use draft::Draft;
use recipe::Recipe;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

/// A row of [`TASKS`].
pub type Task = &'static TaskEntry;

/// What the recipe of a task says.
impl TaskEntry {
    /// What decides which settings it takes.
    pub fn taker(&self) -> Taker<'static> {
        Taker {
            task: self.name,
            objective: self.objective,
            fields: self.fields,
        }
    }

    fn layers(&self) -> &'static Recipe {
        &RECIPES[self.name]
    }

    /// The learning rates that the paper tries.
    ///
    /// # Errors
    /// Where it swept none, in a sentence that says so.
    pub fn paper_rates(&self) -> Result<&'static [f64]> {
        let Recipe {
            rates,
            why_no_rates,
            ..
        } = self.layers();
        ensure!(
            !rates.is_empty(),
            flag "--lr" = "paper", "{why_no_rates}; name rates, such as --lr 1e-3,3e-3");
        Ok(rates)
    }

    /// Whether there is a protocol to choose.
    pub fn has_protocols(&self) -> bool {
        self.layers().protocols.len() != 1
    }

    /// The seed of a run that names none.
    pub fn seed(&self) -> u64 {
        let mut layers = self.layers().layer.iter();
        let set = layers.find_map(|layer| layer.set.get("seed"));
        set.and_then(Value::as_u64).unwrap_or_default()
    }

    /// What `dsf sweep` trains for a flag that is left out, such as the mixers that the paper compares.
    pub fn swept(&self) -> impl Iterator<Item = (&'static str, &'static [String])> {
        let lists = self.layers().sweep.iter();
        lists.map(|(name, values)| (name.as_str(), values.as_slice()))
    }
}

static RECIPES: LazyLock<BTreeMap<&str, Recipe>> = LazyLock::new(|| {
    let parsed = TASKS.iter().map(|task| {
        let recipe = toml::from_str(task.recipe);
        let recipe = recipe.unwrap_or_else(|e| panic!("recipes/{}.toml: {e}", task.name));
        (task.name, recipe)
    });
    parsed.collect()
});

/// A preset: its name, other names for it, and what it is.
pub struct Preset {
    /// As recipes spell it.
    pub name: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// One sentence for help.
    pub help: &'static str,
}

/// Every preset, the paper's sizes first.
pub static PRESETS: [Preset; 3] = [
    Preset {
        name: "paper",
        aliases: &["full", "pythia-70m"],
        help: "The paper's sizes (MQAR: V 8192, L 64, 4 pairs, 100,000 examples, 64 epochs; LRA: the released \
               hyperparameters of dataset and mixer; WikiText: 70 M parameters, L 1024, 50 epochs). \
               Also called `full` and `pythia-70m`",
    },
    Preset {
        name: "quick",
        aliases: &["tiny"],
        help: "Small enough for a laptop, in minutes (MQAR: V 128, L 32, 4 pairs, 10,000 examples, which softmax, \
               ssd and others learn it; the rest print the published accuracy at their end; LRA; WikiText: d 128, 2 layers, L 256, bytes of the sample). Also called `tiny`",
    },
    Preset {
        name: "smoke",
        aliases: &[],
        help: "Ends within seconds and hardly learns: for smoke tests",
    },
];

/// The preset called `name`.
pub fn preset(name: &str) -> Result<&'static str> {
    let known = |preset: &&Preset| preset.name == name || preset.aliases.contains(&name);
    let found = PRESETS.iter().find(known).map(|preset| preset.name);
    found.ok_or_else(|| {
        error::unknown_value(
            "--preset",
            "preset",
            name,
            PRESETS.iter().map(|preset| preset.name),
        )
    })
}

/// What a user chose for one run: a value a setting, and where it was said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The preset; `None` is the recipe's default.
    pub preset: Option<&'static str>,
    /// Whether a GPU computes, on which some recipes train in bf16.
    pub gpu: bool,
    /// What can be set.
    pub settings: Settings,
    values: BTreeMap<&'static str, (Value, String)>,
    options: BTreeMap<String, (String, String)>,
    fixed: Fixed,
    /// Rows that a table of tokens needs for the tokenizer of a file.
    tokenizer_rows: Option<usize>,
}

/// The settings of a config, which stand over all layers and below what a user sets.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fixed {
    values: BTreeMap<&'static str, Value>,
    options: BTreeMap<String, String>,
    /// The file that they come from.
    place: String,
}

impl Choice {
    /// Nothing but a preset.
    pub fn of(preset: Option<&'static str>, gpu: bool) -> Self {
        Self {
            preset,
            gpu,
            ..Self::default()
        }
    }

    /// Sets `name` to what `text` spells; `place` is where it was said. A tokenizer's file is adopted on the way.
    ///
    /// # Errors
    /// An unknown name, a text that spells no value, a tokenizer that cannot be read.
    pub fn set(&mut self, name: &str, text: &str, place: &str) -> Result<()> {
        if name == "preset" {
            self.preset = Some(preset(text)?);
            return Ok(());
        }
        if name == "option" {
            let (option, value) = text.split_once('=').ok_or_else(|| {
                Error::flag_value("--option", text, "not NAME=VALUE, such as dt_init=zero")
            })?;
            let set = (value.trim().to_owned(), place.to_owned());
            self.options.insert(option.trim().to_owned(), set);
            return Ok(());
        }
        let known = || self.settings.iter().map(|setting| setting.name);
        let setting = self.settings.find(name);
        let setting = setting.ok_or_else(|| error::unknown("setting", name, known()))?;
        let refused = |why| Error::flag_value(format!("--{name}"), text, why);
        let mut value = setting.parse(text).map_err(refused)?;
        if name == "tokenizer" && Path::new(text).is_file() {
            let (tokenizer, rows) = adopt(Path::new(text))?;
            value = Value::from(tokenizer.to_string());
            self.tokenizer_rows = Some(rows);
        }
        self.values.insert(setting.name, (value, place.to_owned()));
        Ok(())
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name).map(|(value, _)| value)
    }
}

/// A complete run, and how it came about.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The run.
    pub config: RunConfig,
    /// Every setting that the config has, in the order of [`Settings`].
    pub explained: Vec<Explained>,
    /// What the user should be told, such as hyperparameters that stand in for some that were never released.
    pub notes: Vec<String>,
}

impl Resolved {
    /// Names the files of the run by the digest of their content, see [`TaskConfig::identify`].
    ///
    /// [`TaskConfig::identify`]: crate::config::TaskConfig::identify
    ///
    /// # Errors
    /// The errors of that function.
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

/// A value of a run and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// A setting, or `option NAME` of the mixer.
    pub name: String,
    /// Its value in the config.
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
}

/// The complete run of `task` that was chosen, or the rule that it breaks.
///
/// # Errors
/// One sentence that names the flag: a setting that the task does not take, a value out of range, sizes that do not
/// fit each other.
pub fn resolve(task: Task, choice: &Choice) -> Result<Resolved> {
    let mut draft = Draft::new(task, task.layers(), choice)?;
    draft.check_given()?;
    rules::finish(&mut draft)
}

/// The run of the task called `task` with these settings, each as typed behind its flag.
///
/// # Errors
/// As [`resolve`].
pub fn run(task_name: &str, settings: &[(&str, &str)]) -> Result<RunConfig> {
    let mut choice = Choice::default();
    for (name, text) in settings {
        choice.set(name, text, &format!("--{name}"))?;
    }
    Ok(resolve(task(task_name)?, &choice)?.config)
}

/// One run of every mixer by the defaults of `dsf mqar`.
const QUICK: &str = include_str!("../../results/mqar-quick.csv");

/// The published test accuracy of `config`, 0 to 1, where `results/mqar-quick.csv` has that run under its own seed.
pub fn published_accuracy(config: &RunConfig) -> Option<f64> {
    let mut rows = csv::Reader::from_reader(QUICK.as_bytes());
    let header = rows.headers().ok()?.clone();
    let at = |name: &str| header.iter().position(|column| column == name);
    let (id, seed, accuracy) = (at("run_id")?, at("seed")?, at("accuracy")?);
    let mut same = rows.records().filter_map(Result::ok).filter(|row| {
        let seed = row[seed].parse();
        seed.is_ok_and(|seed| {
            RunConfig {
                seed,
                ..config.clone()
            }
            .id()
                == row[id]
        })
    });
    same.next()?[accuracy].parse().ok()
}

/// The runs that the presets make of the task, mixer and protocol of `row`, by preset, each as a row, for reports
/// that say how a run differs. Settings that presets leave open, such as d and n of MQAR, are 0. Empty for a
/// mixer or a dataset that this version does not know.
pub fn presets_of(row: &Record) -> Vec<(&'static str, Record)> {
    let of = |preset: &Preset| Some((preset.name, planned(row, preset.name)?));
    PRESETS.iter().filter_map(of).collect()
}

fn planned(row: &Record, preset: &'static str) -> Option<Record> {
    let task = task(row.text("task")).ok()?;
    let mut choice = Choice::of(Some(preset), false);
    let compare = &task.layers().compare;
    let named = ["mixer", "protocol"].into_iter();
    let kept = compare.keep.iter().chain(&compare.open).map(String::as_str);
    for name in named.chain(kept) {
        let column = SETTINGS.find(name)?.column()?;
        let text = row.at(place(&column)?).to_string();
        choice.set(name, &text, "the row").ok()?;
    }
    let config = resolve(task, &choice).ok()?.config;
    let mut planned = Record::planned(&config);
    if config.draws_own_data() {
        planned.set_own_data();
    }
    for name in &compare.open {
        planned.set(&name.replace('-', "_"), 0usize);
    }
    Some(planned)
}

#[cfg(test)]
mod tests;
