//! Lists of settings as typed: the flags of a command, or the keys of an experiment file.

use super::{preset as find_preset, PRESETS};
use crate::config::{Extra, Kind, Objective, Setting, Settings};
use crate::tasks::wikitext::TokenizerName;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::collections::BTreeMap;

/// Option of a mixer: `NAME=VALUE`; several values of one name are alternatives.
pub(super) const OPTION: &str = "option";
/// Sequence length together with the number of pairs.
pub(super) const SIZES: &str = "sizes";
const SEEDS: &str = "seeds";

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
    lists: BTreeMap<&'static str, List>,
}

/// Values of one setting, and their origin in the flags or a file.
#[derive(Clone, Debug)]
struct List {
    values: Vec<String>,
    place: String,
}

/// Compares values only, not their places.
impl PartialEq for Flags {
    fn eq(&self, other: &Self) -> bool {
        let values = |flags: &Self| -> Vec<(&str, Vec<String>)> {
            let lists = flags.lists.iter();
            lists.map(|(name, list)| (*name, list.values.clone())).collect()
        };
        (self.preset, self.seeds, self.gpu) == (other.preset, other.seeds, other.gpu) && values(self) == values(other)
    }
}

impl Flags {
    /// Returns empty lists for `settings`.
    pub fn of(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Returns the values of a setting, of [`OPTION`] or of [`SIZES`]; empty if it is left to the recipe.
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
            .or_insert_with(|| List { values: values.to_vec(), place: "the default of dsf sweep".to_owned() });
    }

    /// Returns these lists on top of `base`: a list given here overrides the one there.
    ///
    /// Lists that exclude each other are replaced, too: lengths or pairs replace sizes and vice versa; seeds replace a
    /// number of seeds, and a number of seeds counts up from the first of the seeds below.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let mut lists = base.lists.clone();
        let has = |name: &str| !self.list(name).is_empty();
        if has(SIZES) {
            lists.remove("seq-len");
            lists.remove("kv-pairs");
        }
        if has("seq-len") || has("kv-pairs") {
            lists.remove(SIZES);
        }
        if self.seeds.is_some() {
            if let Some(seed) = lists.get_mut("seed") {
                seed.values.truncate(1);
            }
        }
        lists.extend(self.lists.clone());
        let seeds = base.seeds.filter(|_| !has("seed"));
        Self {
            preset: self.preset.or(base.preset),
            seeds: self.seeds.or(seeds),
            gpu: self.gpu || base.gpu,
            settings: self.settings,
            lists,
        }
    }

    /// Returns `command` with the flags of `settings`.
    pub fn augment(mut command: Command, settings: Settings) -> Command {
        let presets =
            PRESETS.iter().map(|preset| PossibleValue::new(preset.name).aliases(preset.aliases).help(preset.help));
        let preset = Arg::new("preset")
            .long("preset")
            .value_name("NAME")
            .value_parser(PossibleValuesParser::new(presets))
            .help("Preset sizes")
            .long_help(
                "Preset sizes, for every setting without a flag [default: quick; paper in LRA if a dataset is named]",
            );
        command = command.arg(preset);
        for setting in settings.typed() {
            command = command.arg(flag(setting));
            command = match setting.extra {
                Some(Extra::Options) => command.arg(option()),
                Some(Extra::Sizes) => command.arg(sizes()),
                Some(Extra::Seeds) => command.arg(seeds()),
                None => command,
            };
        }
        command
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
        if let Some(seeds) = matches.get_one::<u64>(SEEDS) {
            self.seeds = Some(*seeds);
        }
        let settings = self.settings.typed();
        let names = settings.map(|setting| (setting.name, setting.kind == Kind::Layers));
        for (name, layers) in names.chain([(OPTION, false), (SIZES, false)]) {
            if let Some(values) = matches.get_many::<String>(name) {
                let values = values.flat_map(|text| match layers {
                    true => hybrids(text),
                    false => vec![text.clone()],
                });
                let list = List { values: values.collect(), place: format!("--{name}") };
                self.lists.insert(name, list);
            }
        }
        Ok(())
    }
}

/// Returns the flag of a setting, a comma-separated list.
fn flag(setting: &'static Setting) -> Arg {
    let arg = list(setting.name)
        .value_name(setting.value_name())
        .aliases(setting.aliases)
        .help(setting.help)
        .long_help(setting.full_help(&Objective::ALL))
        .hide_short_help(!setting.common)
        .hide_possible_values(true)
        .help_heading(setting.group.heading());
    let arg = match setting.kind {
        Kind::Whole(..) => arg.allow_negative_numbers(true),
        Kind::Bool | Kind::OneOf(_) | Kind::Name | Kind::Mixer | Kind::Layers | Kind::Tokenizer => arg,
        _ => arg.allow_hyphen_values(true),
    };
    if setting.kind == Kind::Layers {
        // Items may contain commas.
        let parser = move |text: &str| {
            let mut items = hybrids(text).into_iter();
            let parsed = items.try_for_each(|one| setting.parse(&one).map(drop));
            parsed.map(|()| text.to_owned())
        };
        return arg.value_delimiter(None).value_parser(parser);
    }
    if let Some(names) = setting.names(&Objective::ALL) {
        return arg.value_parser(PossibleValuesParser::new(names));
    }
    if matches!(setting.kind, Kind::Bool) {
        return arg.value_parser(PossibleValuesParser::new(["true", "false"]));
    }
    arg.value_parser(move |text: &str| item(setting, text))
}

fn list(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::Append).value_delimiter(',')
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

/// Validates one item of a list and returns it as typed.
fn item(setting: &Setting, text: &str) -> Result<String, String> {
    let spelt = match (setting.kind, setting.parse(text)) {
        (Kind::LearningRate, _) if text == "paper" => Ok(()),
        (Kind::LearningRate, Err(_)) => Err("neither a number, such as 2e-3, nor the word `paper`".to_owned()),
        (Kind::Tokenizer, _) => text.parse::<TokenizerName>().map(drop),
        (_, parsed) => parsed.map(drop),
    };
    spelt.map(|()| text.to_owned())
}

fn option() -> Arg {
    list(OPTION)
        .value_name("NAME=VALUE")
        .hide_short_help(true)
        .help("An option of one mixer, e.g. `dt_init=zero`; see `dsf mixers`")
        .help_heading(crate::config::Group::Model.heading())
        .value_parser(|text: &str| match text.split_once('=') {
            Some((name, value)) => Ok(format!("{}={}", name.trim(), value.trim())),
            None => Err("not NAME=VALUE, such as dt_init=zero".to_owned()),
        })
}

fn sizes() -> Arg {
    list(SIZES)
        .value_name("L:k")
        .hide_short_help(true)
        .help("L and k together, e.g. `64:4,128:8`, in place of --seq-len and --kv-pairs")
        .help_heading(crate::config::Group::Task.heading())
        .conflicts_with_all(["seq-len", "kv-pairs"])
        .value_parser(|text: &str| {
            let (seq_len, kv_pairs) = size(text)?;
            Ok::<_, String>(format!("{seq_len}:{kv_pairs}"))
        })
}

/// Parses a sequence length and a number of pairs.
pub(super) fn size(text: &str) -> Result<(usize, usize), String> {
    let pair = text
        .split_once(':')
        .and_then(|(seq_len, kv_pairs)| Some((seq_len.trim().parse().ok()?, kv_pairs.trim().parse().ok()?)));
    pair.ok_or_else(|| "not L:k, a length and a number of pairs such as 64:4".to_owned())
}

fn seeds() -> Arg {
    Arg::new(SEEDS)
        .long(SEEDS)
        .value_name("N")
        .allow_negative_numbers(true)
        .value_parser(|text: &str| {
            let number = text.parse::<u64>();
            number.map_err(|_| "not a whole number of 0 or more, such as 64".to_owned())
        })
        .help("Number of seeds, counting up from the first")
        .long_help(
            "Number of seeds, counting up from the first. Each seed draws initial weights and, except under --protocol \
             reference, generated examples; --data-seed fixes the examples.",
        )
        .help_heading(crate::config::Group::Training.heading())
}

#[cfg(test)]
pub(crate) mod testing {
    //! Flags of a line, for tests.

    use super::Flags;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    /// Parses the arguments of `dsf sweep`.
    pub fn parse(line: &str) -> Result<Flags, clap::Error> {
        let words = ["dsf"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.flags)
    }

    /// [`parse`] of a line without errors.
    pub fn flags(line: &str) -> Flags {
        parse(line).unwrap_or_else(|e| panic!("{line}: {e}"))
    }
}
