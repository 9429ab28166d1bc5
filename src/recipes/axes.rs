//! Axes of a grid: the values that each list of flags stands for, and their product.

use super::flags::{size, Flags, OPTION, SIZES};
use super::{resolve, Choice, Resolved, Task};
use crate::config::{Extra, Kind, RunConfig, Setting};
use crate::error::{refuse, Error, Result};
use crate::mixers::MIXERS;

/// Maximum number of runs of one product.
const MOST_RUNS: u64 = 100_000;

impl Flags {
    /// Resolves the one run that these flags describe, on top of their preset.
    pub fn single(&self, task: Task) -> Result<Resolved> {
        resolve(task, &self.chosen(task)?)
    }

    /// Resolves the run of `config`, read from `place`, with the settings of these flags on top.
    pub fn again(&self, task: Task, config: &RunConfig, place: &str) -> Result<Resolved> {
        let base = Choice::again(config, place)?;
        resolve(task, &base.with(self.chosen(task)?)?)
    }

    /// Returns the choice for a single run.
    fn chosen(&self, task: Task) -> Result<Choice> {
        let axes = axes(self, task)?;
        if let Some(axis) = axes.iter().find(|axis| axis.points.len() > 1) {
            let Axis { flag, text, .. } = axis;
            refuse!(
                flag(format!("--{flag}")) = text,
                "one run takes one value; `dsf sweep --task {} --{flag} {text}` trains them all",
                task.name
            );
        }
        let mut choice = self.first();
        for axis in &axes {
            axis.points.iter().try_for_each(|point| self.set(&mut choice, axis, point))?;
        }
        Ok(choice)
    }

    /// Returns the choice that all combinations start from.
    fn first(&self) -> Choice {
        let mut choice = Choice::of(self.preset, self.gpu);
        choice.settings = self.settings;
        choice
    }

    /// Sets a point of `axis`. Its place is that of the setting, or else of the flag that stands for it.
    fn set(&self, choice: &mut Choice, axis: &Axis, point: &Point) -> Result<()> {
        let of_flag = match self.place(axis.flag) {
            "" => format!("--{}", axis.flag),
            place => place.to_owned(),
        };
        for (name, text) in point {
            let place = match self.place(name) {
                "" => &of_flag,
                place => place,
            };
            choice.set(name, text, place)?;
        }
        Ok(())
    }

    /// Returns every combination of the lists; the last axis varies fastest.
    pub fn product(&self, task: Task) -> Result<Vec<Choice>> {
        let axes = axes(self, task)?;
        let size = axes
            .iter()
            .try_fold(1u64, |size, axis| size.checked_mul(axis.points.len() as u64).filter(|size| *size <= MOST_RUNS));
        if size.is_none() {
            let axes: Vec<String> = axes.iter().map(|axis| format!("--{} {}", axis.flag, axis.text)).collect();
            refuse!("{}: more than {MOST_RUNS} runs; shorten a list, or make several sweeps of it", axes.join(" "));
        }
        let mut all = vec![self.first()];
        for axis in &axes {
            let mut varied = Vec::with_capacity(all.len() * axis.points.len());
            for choice in &all {
                for point in &axis.points {
                    let mut choice = choice.clone();
                    self.set(&mut choice, axis, point)?;
                    varied.push(choice);
                }
            }
            all = varied;
        }
        Ok(all)
    }
}

/// One axis of a grid.
struct Axis {
    /// Flag that defines it.
    flag: &'static str,
    /// List of values as typed.
    text: String,
    points: Vec<Point>,
}

/// Settings given by one item of a list.
type Point = Vec<(&'static str, String)>;

/// Returns the axes of `flags` for runs of `task`, in the order of `--help`.
fn axes(flags: &Flags, task: Task) -> Result<Vec<Axis>> {
    check_alternatives(flags)?;
    let mut axes = Vec::new();
    for setting in flags.settings.typed() {
        match (setting.extra, flags.seeds) {
            (Some(Extra::Seeds), Some(count)) => axes.push(seeds(flags, setting, task, count)?),
            _ => axes.push(axis(flags, setting, task)?),
        }
        match setting.extra {
            Some(Extra::Options) => axes.extend(options(flags)),
            Some(Extra::Sizes) => axes.push(sizes(flags)?),
            Some(Extra::Seeds) | None => {}
        }
    }
    axes.retain(|axis| !axis.points.is_empty());
    Ok(axes)
}

fn axis(flags: &Flags, setting: &Setting, task: Task) -> Result<Axis> {
    let name = setting.name;
    let list = flags.list(name);
    let mut points = Vec::new();
    for text in list {
        let values = values(setting, text, task)?;
        points.extend(values.into_iter().map(|value| vec![(name, value)]));
    }
    Ok(Axis { flag: name, text: list.join(","), points })
}

/// Expands an item of a list: a keyword stands for several values, any other item for itself.
fn values(setting: &Setting, text: &str, task: Task) -> Result<Vec<String>> {
    Ok(match (setting.kind, text) {
        (Kind::Mixer, "all") => MIXERS.iter().map(|entry| entry.name.to_owned()).collect(),
        (Kind::LearningRate, "paper") => task.paper_rates()?.iter().map(f64::to_string).collect(),
        _ => vec![text.to_owned()],
    })
}

fn sizes(flags: &Flags) -> Result<Axis> {
    let mut points = Vec::new();
    for text in flags.list(SIZES) {
        let (seq_len, kv_pairs) = size(text).map_err(|why| Error::flag_value(format!("--{SIZES}"), text, why))?;
        points.push(vec![("seq-len", seq_len.to_string()), ("kv-pairs", kv_pairs.to_string())]);
    }
    Ok(Axis { flag: SIZES, text: flags.list(SIZES).join(","), points })
}

/// Returns one axis per option: several values of one option are alternatives, several options are combined.
fn options(flags: &Flags) -> Vec<Axis> {
    let name = |item: &String| item.split('=').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = Vec::new();
    for item in flags.list(OPTION) {
        if !names.contains(&name(item)) {
            names.push(name(item));
        }
    }
    let of = |wanted: &String| {
        let items = flags.list(OPTION).iter();
        let items: Vec<String> = items.filter(|item| name(item) == *wanted).cloned().collect();
        Axis {
            flag: OPTION,
            text: items.join(","),
            points: items.into_iter().map(|item| vec![(OPTION, item)]).collect(),
        }
    };
    names.iter().map(of).collect()
}

/// Returns the axis of `count` seeds, counting up from the first that is given.
fn seeds(flags: &Flags, seed: &Setting, task: Task, count: u64) -> Result<Axis> {
    if !(1..=MOST_RUNS).contains(&count) {
        refuse!(flag "--seeds" = count, "must be 1 to {MOST_RUNS}");
    }
    let given = flags.list(seed.name).first().map(|text| text.parse().ok());
    let first = given.flatten().unwrap_or_else(|| task.seed());
    let Some(last) = first.checked_add(count - 1) else {
        refuse!(flag "--seeds" = count, "with --seed {first} this is beyond the largest seed; start lower");
    };
    Ok(Axis {
        flag: "seeds",
        text: count.to_string(),
        points: (first..=last).map(|value| vec![(seed.name, value.to_string())]).collect(),
    })
}

fn check_alternatives(flags: &Flags) -> Result<()> {
    let given = |name: &str| !flags.list(name).is_empty();
    if given(SIZES) && (given("seq-len") || given("kv-pairs")) {
        refuse!(flag "--sizes" = flags.list(SIZES).join(","), "gives lengths and pairs: leave out --seq-len and --kv-pairs");
    }
    if flags.seeds.is_some() && flags.list("seed").len() > 1 {
        refuse!(flag "--seed" = flags.list("seed").join(","), "lists the seeds, and --seeds counts them: give a list, or a first seed and a count");
    }
    Ok(())
}
