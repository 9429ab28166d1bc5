//! Lists of settings as typed: the flags of a command, or the keys of an experiment file.

use super::{preset as find_preset, InitialModel, PRESETS};
use crate::config::{spelt, Brief, Objective, Setting, Settings, ValueKind};
use crate::tasks::wikitext::TokenizerName;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::collections::BTreeMap;

/// Requested settings: for each a list of values, whose product is a grid. Missing lists are left to the recipe.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Preset, the source of every setting without a list.
    pub preset: Option<&'static str>,
    /// Number of seeds, counting up from the first.
    pub seeds: Option<u64>,
    /// Whether a GPU is used; no flag.
    pub gpu: bool,
    /// Settings that can be given.
    pub settings: Settings,
    /// Models of the weights that runs may start from, by their names as typed; no flag.
    pub initial: BTreeMap<String, InitialModel>,
    lists: BTreeMap<&'static str, ValueList>,
}

/// Values of one setting, and their origin in the flags or a file.
#[derive(Clone, Debug)]
struct ValueList {
    values: Vec<String>,
    place: String,
}

/// Compares values only, not their places.
impl PartialEq for Flags {
    fn eq(&self, other: &Self) -> bool {
        let values = |flags: &Self| -> Vec<(&str, Vec<String>)> {
            flags.lists.iter().map(|(name, list)| (*name, list.values.clone())).collect()
        };
        (self.preset, self.seeds, self.gpu) == (other.preset, other.seeds, other.gpu) && values(self) == values(other)
    }
}

impl Flags {
    /// Returns empty lists for `settings`.
    pub fn of(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Returns the values of a setting; empty if it is left to the recipe.
    pub fn list(&self, name: &str) -> &[String] {
        self.lists.get(name).map_or(&[], |list| &list.values)
    }

    /// Returns the place at which the list of a setting was given.
    pub(super) fn place(&self, name: &str) -> &str {
        self.lists.get(name).map_or("", |list| &list.place)
    }

    /// Returns the same lists, with `place` and the keys as their places.
    pub fn said_at(mut self, place: &str) -> Self {
        for (name, list) in &mut self.lists {
            list.place = format!("{place}, {name}");
        }
        self
    }

    /// Sets a list if it is missing.
    pub fn set_default(&mut self, name: &'static str, values: &[String]) {
        self.lists
            .entry(name)
            .or_insert_with(|| ValueList { values: values.to_vec(), place: "the default of dsf sweep".to_owned() });
    }

    /// Returns these lists on top of `base`: a list given here overrides the one there.
    ///
    /// Lists that exclude each other are replaced, too: lengths or pairs replace sizes and vice versa; seeds replace a
    /// number of seeds, and a number of seeds counts up from the first of the seeds below.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let mut lists = base.lists.clone();
        let has = |name: &str| !self.list(name).is_empty();
        let mut seeds = base.seeds;
        for setting in self.settings.typed() {
            match setting.kind {
                ValueKind::Pair(names) if has(setting.name) => names.iter().for_each(|name| drop(lists.remove(name))),
                ValueKind::Pair(names) if names.into_iter().any(has) => drop(lists.remove(setting.name)),
                ValueKind::CountOf(name) if self.seeds.is_some() => {
                    if let Some(first) = lists.get_mut(name) {
                        first.values.truncate(1);
                    }
                }
                ValueKind::CountOf(name) if has(name) => seeds = None,
                _ => {}
            }
        }
        lists.extend(self.lists.clone());
        Self {
            preset: self.preset.or(base.preset),
            seeds: self.seeds.or(seeds),
            gpu: self.gpu || base.gpu,
            settings: self.settings,
            initial: self.initial.clone(),
            lists,
        }
    }

    /// Returns `command` with the flags of `settings`.
    pub fn augment(command: Command, settings: Settings) -> Command {
        let presets =
            PRESETS.iter().map(|preset| PossibleValue::new(preset.name).aliases(preset.aliases).help(preset.help()));
        let preset = Arg::new("preset")
            .long("preset")
            .value_name("NAME")
            .value_parser(PossibleValuesParser::new(presets))
            .help("Preset sizes")
            .long_help(
                "Preset sizes, for every setting without a flag [default: quick; paper in LRA if a dataset is named]",
            );
        command.arg(preset).args(settings.typed().map(flag))
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        Self::augment(command, Settings::default())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if let Some(name) = matches.get_one::<String>("preset") {
            let preset = find_preset(name);
            self.preset =
                Some(preset.map_err(|e| clap::Error::raw(clap::error::ErrorKind::InvalidValue, e.to_string()))?);
        }
        for setting in self.settings.typed() {
            let name = setting.name;
            if let ValueKind::CountOf(_) = setting.kind {
                self.seeds = matches.get_one::<u64>(name).copied().or(self.seeds);
            } else if let Some(values) = matches.get_many::<String>(name) {
                let values = values.flat_map(|text| match setting.kind {
                    ValueKind::Layers => hybrids(text),
                    _ => vec![text.clone()],
                });
                let list = ValueList { values: values.collect(), place: format!("--{name}") };
                self.lists.insert(name, list);
            }
        }
        Ok(())
    }
}

/// Returns the flag of a setting: a comma-separated list, except for a count.
fn flag(setting: &'static Setting) -> Arg {
    let arg = Arg::new(setting.name)
        .long(setting.name)
        .value_name(setting.kind.placeholder())
        .aliases(setting.aliases)
        .help(setting.help)
        .long_help(setting.full_help(&Objective::ALL))
        .hide_short_help(setting.brief == Brief::Never)
        .hide_possible_values(true)
        .help_heading(setting.group.heading());
    let list = || arg.clone().action(ArgAction::Append).value_delimiter(',');
    match setting.kind {
        ValueKind::CountOf(_) => {
            let parser = |text: &str| setting.parse(text).map(|count| count.as_u64().unwrap_or_default());
            arg.allow_negative_numbers(true).value_parser(parser)
        }
        // One value, whose parts are separated by commas.
        ValueKind::Block => arg.action(ArgAction::Append).value_parser(|text: &str| item(setting, text)),
        // Items may contain commas.
        ValueKind::Layers => arg.action(ArgAction::Append).value_parser(|text: &str| {
            let parsed = hybrids(text).into_iter().try_for_each(|one| setting.parse(&one).map(drop));
            parsed.map(|()| text.to_owned())
        }),
        ValueKind::Bool => list().value_parser(PossibleValuesParser::new(["true", "false"])),
        ValueKind::OneOf(_) | ValueKind::Protocol => {
            list().value_parser(PossibleValuesParser::new(setting.names(&Objective::ALL).unwrap_or_default()))
        }
        ValueKind::Pair(names) => list().conflicts_with_all(names).value_parser(|text: &str| item(setting, text)),
        kind => list()
            .allow_negative_numbers(matches!(kind, ValueKind::Whole(..)))
            .allow_hyphen_values(kind.is_real())
            .value_parser(|text: &str| item(setting, text)),
    }
}

/// Splits a list of hybrids. Each item begins with the name of a mixer, not of a setting.
fn hybrids(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for part in text.split(',') {
        let goes_on = part.contains('=') && !part.contains(':');
        match items.last_mut().filter(|_| goes_on) {
            Some(item) => *item = format!("{item},{part}"),
            None => items.push(part.to_owned()),
        }
    }
    items
}

/// Validates one item of a list. It is kept as typed, except for spaces in items of two parts.
fn item(setting: &Setting, text: &str) -> Result<String, String> {
    let parsed = match (setting.kind, setting.parse(text)) {
        (ValueKind::LearningRate, _) if text == "paper" => Ok(()),
        (ValueKind::LearningRate, Err(_)) => Err("neither a number, such as 2e-3, nor the word `paper`".to_owned()),
        (ValueKind::Tokenizer, _) => text.parse::<TokenizerName>().map(drop),
        (ValueKind::Pair(_) | ValueKind::MixerOption, parsed) => return parsed.map(|value| spelt(&value)),
        (_, parsed) => parsed.map(drop),
    };
    parsed.map(|()| text.to_owned())
}
