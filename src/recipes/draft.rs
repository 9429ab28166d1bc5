//! Settings merged layer by layer, each with its origin.

use super::partial::{MergedSettings, Partial};
use super::recipe::{Layer, Recipe, Values};
use super::{Choice, TaskRow};
use crate::config::Protocol;
use crate::error::{self, refuse, Error, Result};
use crate::mixers::{self, Entry};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag, or a key of an experiment file.
    Given(String),
    /// The config of another run.
    Config(String),
    /// A layer of a recipe.
    Recipe {
        /// Task of the recipe.
        task: &'static str,
        /// Name of the layer.
        layer: String,
    },
    /// Block around this mixer in the released configs.
    Released(&'static str),
    /// Rule that computes the value from other settings, with its reason.
    Rule(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(place) | Self::Config(place) => f.write_str(place),
            Self::Recipe { task, layer } => write!(f, "recipes/{task}.toml, {layer}"),
            Self::Released(mixer) => write!(f, "released block of {mixer}"),
            Self::Rule(rule) => f.write_str(rule),
        }
    }
}

/// Settings of one run while they are merged.
pub(super) struct Draft<'a> {
    pub task: TaskRow,
    pub recipe: &'a Recipe,
    pub choice: &'a Choice,
    pub entry: &'static Entry,
    pub protocol: Protocol,
    preset: &'a str,
    /// Settings so far.
    pub set: MergedSettings,
    /// Options of the mixer that layers set.
    pub options: BTreeMap<String, (String, Origin)>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl<'a> Draft<'a> {
    /// Merges all layers of the recipe of `task` that hold for `choice`.
    pub fn new(task: TaskRow, recipe: &'a Recipe, choice: &'a Choice) -> Result<Self> {
        let unconditional = || recipe.layer.iter().filter(|layer| layer.when.is_empty());
        let first = |name: &str, layered: Option<Value>| {
            let fixed = choice.fixed.values.get(name);
            choice.value(name).or(fixed).cloned().or(layered).unwrap_or_default()
        };
        let mixer = first("mixer", unconditional().find_map(|layer| layer.set.mixer.as_ref()).map(|name| json!(name)));
        let protocol = first("protocol", unconditional().find_map(|layer| layer.set.protocol).map(|name| json!(name)));
        let entry = mixers::find(mixer.as_str().unwrap_or_default())?;
        let protocol = serde_json::from_value(protocol);
        let named = recipe.presets.named.as_ref();
        let named = named.filter(|named| choice.value(&named.setting).is_some());
        let default = named.map_or(&recipe.presets.default, |named| &named.preset);
        let mut draft = Self {
            task,
            recipe,
            choice,
            entry,
            protocol: protocol.map_err(|e| Error::flag("--protocol", e.to_string()))?,
            preset: choice.preset.unwrap_or(default),
            set: MergedSettings::default(),
            options: BTreeMap::new(),
            notes: Vec::new(),
        };
        for layer in &recipe.layer {
            if draft.holds(&layer.when) {
                draft.apply(layer);
            }
        }
        draft.note_substitute();
        draft.apply_fixed()?;
        Ok(draft)
    }

    fn apply(&mut self, layer: &Layer) {
        let origin = Origin::Recipe { task: self.task.name, layer: layer.of.clone() };
        if layer.released_block {
            let block = self.entry.released;
            let block = Partial {
                layout: Some(block.layout),
                state_mixer: Some(block.state_mixer),
                positions: Some(block.positions),
                ..Partial::default()
            };
            self.set.merge(&block, &Origin::Released(self.entry.name));
        }
        self.set.merge(&layer.set, &origin);
        for (name, value) in &layer.options {
            let set = (value.clone(), origin.clone());
            self.options.insert(name.clone(), set);
        }
    }

    /// Overrides the settings of the layers by those of the given config.
    fn apply_fixed(&mut self) -> Result<()> {
        let fixed = &self.choice.fixed;
        let origin = Origin::Config(fixed.place.clone());
        for (name, value) in &fixed.values {
            self.set(name, value, origin.clone())?;
        }
        for (name, value) in &fixed.options {
            let set = (value.clone(), origin.clone());
            self.options.insert(name.clone(), set);
        }
        Ok(())
    }

    /// Overrides all settings by the user's.
    pub fn apply_given(&mut self) -> Result<()> {
        let mut given = self.choice.values.iter();
        given.try_for_each(|(name, (value, place))| self.set(name, value, Origin::Given(place.clone())))
    }

    fn set(&mut self, name: &str, value: &Value, origin: Origin) -> Result<()> {
        let Some(setting) = self.choice.settings.find(name) else { return Ok(()) };
        if value.is_null() {
            self.set.unset(setting);
            return Ok(());
        }
        self.set.set(setting, value, origin).map_err(|e| no_run(self.task, &e))
    }

    fn holds(&self, when: &BTreeMap<String, Values>) -> bool {
        when.iter().all(|(name, values)| self.fact(name).is_some_and(|found| values.contain(&found)))
    }

    /// Value of a condition's key: a property of the run, or the value of a setting so far.
    fn fact(&self, name: &str) -> Option<Value> {
        Some(match name {
            "preset" => json!(self.preset),
            "protocol" => json!(self.protocol),
            "mixer" => json!(self.entry.name),
            "family" => json!(self.entry.family.name()),
            "attention" => json!(self.entry.family.is_attention()),
            "multi-head" => json!(self.entry.multi_head),
            "half-batch" => json!(self.entry.released.half_batch),
            "gpu" => json!(self.choice.gpu),
            "pretrained" => json!(self.choice.initial.is_some()),
            "row" => json!(self.row()?.name),
            _ => self.choice.value(name).cloned().or_else(|| Some(self.set.get(name)?.0))?,
        })
    }

    /// Set of hyperparameters for the mixer.
    fn row(&self) -> Option<&'a super::recipe::PresetRow> {
        self.recipe.row.iter().find(|row| self.holds(&row.when))
    }

    fn note_substitute(&mut self) {
        if let Some(whose) = self.row().and_then(|row| row.stands_in.as_deref()) {
            self.notes.push(format!(
                "no hyperparameters of `{}` were released for this task: those {whose} stand in",
                self.entry.name
            ));
        }
    }

    /// Checks what the user set. Fails if a setting does not apply to the task, a value is out of range, or the task
    /// lacks the protocol.
    pub fn check_given(&self) -> Result<()> {
        let scope = self.task.setting_scope();
        let task = self.task.name;
        for name in self.choice.values.keys() {
            let Some(setting) = self.choice.settings.find(name) else { continue };
            if !setting.is_of(&scope) {
                refuse!(flag(format!("--{name}")), "means nothing to the task {task}: leave it out");
            }
        }
        let protocols = &self.recipe.protocols;
        if !protocols.is_empty() && !protocols.contains(&self.protocol) {
            let (name, why) = (self.protocol.as_str(), &self.recipe.why_protocols);
            refuse!(flag "--protocol" = name, "{why}");
        }
        for (name, (value, _)) in &self.choice.values {
            if let Some(setting) = self.choice.settings.find(name) {
                setting.check(value)?;
            }
        }
        Ok(())
    }

    /// Options of the mixer: the user's, those of layers and of a named block, or the protocol's defaults.
    pub fn mixer_options(&self, variant: &str, protocol: Protocol) -> Result<BTreeMap<String, String>> {
        let (entry, given) = (self.entry, &self.choice.options);
        for (name, (value, _)) in given {
            check_option(entry, variant, name, value)?;
        }
        let set = |name: &str| {
            let given = given.get(name).map(|(value, _)| value);
            let layered = || self.options.get(name).map(|(value, _)| value);
            given.or_else(layered).map(String::as_str)
        };
        Ok(resolved_options(entry, variant, protocol, set))
    }
}

/// Fault of a recipe, or of a value that only the task itself can check.
pub(super) fn no_run(task: TaskRow, why: &serde_json::Error) -> Error {
    Error::usage(format!("the settings of {} make no run: {why}", task.name))
}

/// Options of a variant as recorded in a config. Options without a value in `set` have the protocol's defaults.
pub(super) fn resolved_options<'a>(
    entry: &Entry,
    variant: &str,
    protocol: Protocol,
    set: impl Fn(&str) -> Option<&'a str>,
) -> BTreeMap<String, String> {
    let resolved = entry.options.iter().filter_map(|option| {
        let default = (option.default)(protocol);
        let value = set(option.name).unwrap_or(default);
        let recorded = option.is_of(variant) && !(option.implied && value == default);
        recorded.then(|| (option.name.to_owned(), value.to_owned()))
    });
    resolved.collect()
}

pub(super) fn check_option(entry: &Entry, variant: &str, name: &str, value: &str) -> Result<()> {
    let mixer = entry.name;
    let Some(option) = entry.options.iter().find(|o| o.name == name) else {
        let known: Vec<&str> = entry.options.iter().map(|o| o.name).collect();
        if known.is_empty() {
            refuse!(flag "--option" = format!("{name}={value}"), "mixer `{mixer}` has no options");
        }
        return Err(error::unknown_value("--option", &format!("option of {mixer}"), name, known));
    };
    if !option.is_of(variant) {
        refuse!(flag "--option" = format!("{name}={value}"), "variant `{variant}` of {mixer} has no {name}; {} has it", option.variants.join(", "));
    }
    if !(option.accepts)(value) {
        refuse!(flag "--option" = format!("{name}={value}"), "not a value of {name}. {}: {}", option.name, option.help);
    }
    Ok(())
}
