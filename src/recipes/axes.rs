//! Axes of a grid: the values that each list of flags stands for, and their product.

use super::flags::Flags;
use super::{resolve, Choice, Resolved, TaskRow};
use crate::config::{RunConfig, Setting, ValueKind};
use crate::error::{refuse, Result};
use crate::mixers::MIXERS;

/// Maximum number of runs of one product.
const MOST_RUNS: u64 = 100_000;

impl Flags {
    /// Resolves the one run that these flags describe, on top of their preset.
    pub fn single(&self, task: TaskRow) -> Result<Resolved> {
        resolve(task, &self.chosen(task)?)
    }

    /// Resolves the run of `config`, read from `place`, with the settings of these flags on top.
    pub fn again(&self, task: TaskRow, config: &RunConfig, place: &str) -> Result<Resolved> {
        let base = Choice::again(config, place)?;
        resolve(task, &base.with(self.chosen(task)?)?)
    }

    /// Returns the choice for a single run.
    fn chosen(&self, task: TaskRow) -> Result<Choice> {
        let axes = axes(self, task)?;
        if let Some(axis) = axes.iter().find(|axis| axis.points.len() > 1) {
            let SweepAxis { flag, text, .. } = axis;
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
    fn set(&self, choice: &mut Choice, axis: &SweepAxis, (name, text): &AxisPoint) -> Result<()> {
        let places = [self.place(name), self.place(axis.flag)].into_iter().find(|place| !place.is_empty());
        let place = places.map_or_else(|| format!("--{}", axis.flag), str::to_owned);
        let weights = self.settings.find(name).is_some_and(|setting| setting.kind == ValueKind::Weights);
        match self.initial.get(text).filter(|_| weights) {
            Some(initial) => {
                choice.start_from(initial.clone(), &place);
                Ok(())
            }
            None => choice.set(name, text, &place),
        }
    }

    /// Returns every combination of the lists; the last axis varies fastest.
    pub fn product(&self, task: TaskRow) -> Result<Vec<Choice>> {
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
struct SweepAxis {
    /// Flag that defines it.
    flag: &'static str,
    /// List of values as typed.
    text: String,
    points: Vec<AxisPoint>,
}

/// A setting, and its value as typed.
type AxisPoint = (&'static str, String);

/// Returns the axes of `flags` for runs of `task`, in the order of `--help`.
fn axes(flags: &Flags, task: TaskRow) -> Result<Vec<SweepAxis>> {
    check_alternatives(flags)?;
    let mut axes = Vec::new();
    for setting in flags.settings.typed() {
        match (setting.kind, flags.seeds) {
            (ValueKind::MixerOption, _) => axes.extend(options(flags, setting.name)),
            (ValueKind::CountOf(counted), Some(count)) => {
                axes.retain(|axis: &SweepAxis| axis.flag != counted);
                axes.push(seeds(flags, [setting.name, counted], task, count)?);
            }
            _ => axes.push(axis(flags, setting, task)?),
        }
    }
    axes.retain(|axis| !axis.points.is_empty());
    Ok(axes)
}

fn axis(flags: &Flags, setting: &Setting, task: TaskRow) -> Result<SweepAxis> {
    let list = flags.list(setting.name);
    let mut points = Vec::new();
    for text in list {
        points.extend(values(setting, text, task)?.into_iter().map(|value| (setting.name, value)));
    }
    Ok(SweepAxis { flag: setting.name, text: list.join(","), points })
}

/// Expands an item of a list: a keyword stands for several values, any other item for itself.
fn values(setting: &Setting, text: &str, task: TaskRow) -> Result<Vec<String>> {
    Ok(match (setting.kind, text) {
        (ValueKind::Mixer, "all") => MIXERS.iter().map(|entry| entry.name.to_owned()).collect(),
        (ValueKind::LearningRate, "paper") => task.paper_rates()?.iter().map(f64::to_string).collect(),
        _ => vec![text.to_owned()],
    })
}

/// Returns one axis per option: several values of one option are alternatives, several options are combined.
fn options(flags: &Flags, flag: &'static str) -> Vec<SweepAxis> {
    let name = |item: &String| item.split('=').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = Vec::new();
    for item in flags.list(flag) {
        if !names.contains(&name(item)) {
            names.push(name(item));
        }
    }
    let of = |wanted: &String| {
        let items: Vec<String> = flags.list(flag).iter().filter(|item| name(item) == *wanted).cloned().collect();
        SweepAxis { flag, text: items.join(","), points: items.into_iter().map(|item| (flag, item)).collect() }
    };
    names.iter().map(of).collect()
}

/// Returns the axis of the flag `flag`, which gives `count` values of `seed`, counting up from the first that is given.
fn seeds(flags: &Flags, [flag, seed]: [&'static str; 2], task: TaskRow, count: u64) -> Result<SweepAxis> {
    if !(1..=MOST_RUNS).contains(&count) {
        refuse!(flag(format!("--{flag}")) = count, "must be 1 to {MOST_RUNS}");
    }
    let first = flags.list(seed).first().and_then(|text| text.parse().ok()).unwrap_or_else(|| task.seed());
    let Some(last) = first.checked_add(count - 1) else {
        refuse!(
            flag(format!("--{flag}")) = count,
            "with --{seed} {first} this is beyond the largest seed; start lower"
        );
    };
    let points = (first..=last).map(|value| (seed, value.to_string()));
    Ok(SweepAxis { flag, text: count.to_string(), points: points.collect() })
}

fn check_alternatives(flags: &Flags) -> Result<()> {
    for setting in flags.settings.typed() {
        let list = |name: &str| flags.list(name).join(",");
        match (setting.kind, setting.name) {
            (ValueKind::Pair(names), name)
                if !list(name).is_empty() && names.iter().any(|name| !list(name).is_empty()) =>
            {
                let [first, second] = names;
                refuse!(
                    flag(format!("--{name}")) = list(name),
                    "gives lengths and pairs: leave out --{first} and --{second}"
                );
            }
            (ValueKind::CountOf(seed), name) if flags.seeds.is_some() && flags.list(seed).len() > 1 => {
                refuse!(
                    flag(format!("--{seed}")) = list(seed),
                    "lists the seeds, and --{name} counts them: give a list, or a first seed and a count"
                );
            }
            _ => {}
        }
    }
    Ok(())
}
