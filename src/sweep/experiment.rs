//! Experiment files: grids as data. A key is the long name of a flag, and means the same.
//!
//! ```toml
//! task = "mqar"
//! [defaults]                      # for every grid
//! preset = "paper"
//! lr = "paper"
//! [[grid]]                        # one or more; each is the product of its lists, and may have a task of its own
//! mixer = ["softmax", "linear"]
//! sizes = ["256:16", "512:64"]
//! ```
//!
//! Grids override the defaults; the command line overrides both.

use super::grid::Plan;
use super::shipped::Shipped;
use crate::config::{Settings, SETTINGS};
use crate::error::{self, Error, Position, Result};
use crate::files;
use crate::recipes::{self, Flags, Resolved, TaskRow};
use clap::{Command, FromArgMatches};
use std::io::ErrorKind;
use std::path::Path;
use toml::de::{DeTable, DeValue};
use toml::Spanned;

const TASK: &str = "task";
const KEYS: [&str; 3] = [TASK, "defaults", "grid"];

/// Parsed experiment file.
#[derive(Clone, Debug)]
pub struct Experiment {
    place: String,
    grids: Vec<GridTable>,
}

/// One `[[grid]]` on top of the defaults.
#[derive(Clone, Debug)]
struct GridTable {
    task: TaskRow,
    flags: Flags,
    line: usize,
}

impl Experiment {
    /// Reads the file at `path`. If there is none, reads the shipped experiment of that name.
    pub fn read(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        match (files::read_text(path), Shipped::find(path)) {
            (Ok(text), _) => Self::parse(&text, &place, SETTINGS),
            (Err(Error::Io { source, .. }), Some(shipped)) if source.kind() == ErrorKind::NotFound => {
                Self::parse(shipped.text, &place, SETTINGS)
            }
            (Err(Error::Io { source, .. }), _) => {
                let reason =
                    format!("cannot read it: {source}; `dsf experiments` lists the experiments that need no file");
                Err(Error::usage_at(path, reason))
            }
            (Err(e), _) => Err(e.into_refusal()),
        }
    }

    /// Parses `text`, which errors call `place` and whose keys are `settings`.
    pub fn parse(text: &str, place: &str, settings: Settings) -> Result<Self> {
        let source = ExperimentText { text, place, settings };
        let table = DeTable::parse(text).map_err(|e| {
            let start = e.span().map_or(0, |span| span.start);
            source.refuse(start, e.message())
        })?;
        let table = table.get_ref();
        for key in table.keys() {
            source.check_key(key, &KEYS)?;
        }
        let task = source.task(table)?;
        let defaults = match table.get("defaults") {
            Some(section) => source.flags(section, &[])?,
            None => Flags::of(settings),
        };
        let grids = source.grids(table)?.iter().map(|section| {
            let own = section.get_ref().as_table().and_then(|grid| grid.get(TASK));
            Ok(GridTable {
                task: own.map_or(Ok(task), |own| source.named(own))?,
                flags: source.flags(section, &[TASK])?.over(&defaults),
                line: source.line(section.span().start),
            })
        });
        Ok(Self { place: place.to_owned(), grids: grids.collect::<Result<_>>()? })
    }

    /// Resolves the one run that the file describes, under the flags of the command line. Fails if the file is for
    /// another task, or describes several runs.
    pub fn single(&self, task: TaskRow, flags: &Flags) -> Result<Resolved> {
        let place = &self.place;
        let [grid] = &self.grids[..] else {
            let reason = format!("has {} grids: `dsf sweep {place}` trains them all", self.grids.len());
            return Err(Error::usage_at(place, reason));
        };
        if grid.task.name != task.name {
            let other = grid.task.name;
            let reason = format!("describes a run of {other}: `dsf {other} --config {place}` trains it");
            return Err(Error::usage_at(place, reason));
        }
        let resolved = flags.over(&grid.flags).single(task);
        resolved.map_err(|e| e.in_file(place, Some(Position::Line(grid.line as u64))))
    }

    /// Returns the values of a setting in all grids, some of them several times.
    pub fn list<'a>(&'a self, setting: &'a str) -> impl Iterator<Item = &'a String> {
        self.grids.iter().flat_map(move |grid| grid.flags.list(setting))
    }

    /// Returns the runs of all grids of `experiments` under the flags of the command line, without repetitions.
    pub fn plan_of(experiments: &[Self], flags: &Flags) -> Result<Plan> {
        let mut plan = Plan::default();
        for experiment in experiments {
            experiment.add_to(&mut plan, flags)?;
        }
        Ok(plan)
    }

    /// Returns the runs of all grids under the flags of the command line.
    pub fn plan(&self, flags: &Flags) -> Result<Plan> {
        let mut plan = Plan::default();
        self.add_to(&mut plan, flags)?;
        Ok(plan)
    }

    /// Appends the runs of all grids to `plan`.
    fn add_to(&self, plan: &mut Plan, flags: &Flags) -> Result<()> {
        for grid in &self.grids {
            let added = plan.extend(grid.task, &flags.over(&grid.flags));
            added.map_err(|e| e.in_file(&self.place, Some(Position::Line(grid.line as u64))))?;
        }
        Ok(())
    }
}

/// Text of a file, and its name in errors.
struct ExperimentText<'a> {
    text: &'a str,
    place: &'a str,
    settings: Settings,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl ExperimentText<'_> {
    fn line(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
    }

    fn refuse(&self, offset: usize, reason: impl Into<String>) -> Error {
        self.at(offset, Error::usage(reason))
    }

    /// A refusal of what stands at `offset`.
    fn at(&self, offset: usize, error: Error) -> Error {
        let line = Position::Line(self.line(offset) as u64);
        error.in_file(self.place, Some(line))
    }

    fn check_key(&self, key: &Spanned<impl AsRef<str>>, known: &[&str]) -> Result<()> {
        let name = key.get_ref().as_ref();
        if known.contains(&name) {
            return Ok(());
        }
        let unknown = error::unknown("key", name, known.iter().copied());
        Err(self.at(key.span().start, unknown))
    }

    fn task(&self, table: &DeTable) -> Result<TaskRow> {
        let Some(task) = table.get(TASK) else {
            return Err(self.refuse(0, "no task; begin with: task = \"mqar\""));
        };
        self.named(task)
    }

    fn named(&self, task: &Value) -> Result<TaskRow> {
        let name = task.get_ref().as_str().unwrap_or_default();
        recipes::task(name).map_err(|e| self.at(task.span().start, e))
    }

    fn grids<'t>(&self, table: &'t DeTable<'t>) -> Result<&'t [Value<'t>]> {
        let example = "[[grid]]\n  mixer = \"ssd\"";
        let Some(grids) = table.get("grid") else {
            return Err(self.refuse(0, format!("no grid; add one, such as:\n  {example}")));
        };
        let sections = grids.get_ref().as_array().filter(|a| !a.is_empty()).ok_or_else(|| {
            let start = grids.span().start;
            self.refuse(start, format!("a grid is a section, such as:\n  {example}"))
        })?;
        Ok(sections)
    }

    /// Parses a section as flags, ignoring the keys in `aside`.
    fn flags(&self, section: &Value, aside: &[&str]) -> Result<Flags> {
        let start = section.span().start;
        let Some(table) = section.get_ref().as_table() else {
            return Err(self.refuse(start, "not a section of `key = value` lines"));
        };
        let command = Command::new("dsf").no_binary_name(true);
        let command = Flags::augment(command, self.settings);
        let known: Vec<&str> = command.get_arguments().filter_map(|a| a.get_long()).collect();
        let mut words = Vec::new();
        let keys = table.iter().filter(|(key, _)| !aside.contains(&key.get_ref().as_ref()));
        for (key, value) in keys {
            self.check_key(key, &known)?;
            let word = format!("--{}={}", key.get_ref(), self.items(value)?.join(","));
            self.parse(&command, std::slice::from_ref(&word)).map_err(|e| self.at(key.span().start, e))?;
            words.push(word);
        }
        let flags = self.parse(&command, &words).map_err(|e| self.at(start, e))?;
        Ok(flags.said_at(&format!("{}, line {}", self.place, self.line(start))))
    }

    /// Returns a value or a list of values in the syntax of the command line.
    fn items(&self, value: &Value) -> Result<Vec<String>> {
        let Some(list) = value.get_ref().as_array() else { return Ok(vec![self.item(value)?]) };
        if list.is_empty() {
            let message = "an empty list describes no run; leave the key out for the default";
            return Err(self.refuse(value.span().start, message));
        }
        list.iter().map(|item| self.item(item)).collect()
    }

    fn item(&self, value: &Value) -> Result<String> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) => Ok(number.to_string()),
            DeValue::Float(number) => Ok(number.to_string()),
            DeValue::Boolean(value) => Ok(value.to_string()),
            other => {
                let what = other.type_str();
                let message = format!("{what} where a number, a text or a list of them belongs");
                Err(self.refuse(value.span().start, message))
            }
        }
    }

    /// `words` as on a command line.
    fn parse(&self, command: &Command, words: &[String]) -> Result<Flags> {
        let mut flags = Flags::of(self.settings);
        let matches = command.clone().try_get_matches_from(words);
        let read = matches.and_then(|matches| flags.update_from_arg_matches(&matches));
        read.map(|()| flags).map_err(|e| Error::misuse(&e))
    }
}
