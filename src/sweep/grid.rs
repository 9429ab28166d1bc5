//! Grids: cartesian products of lists of settings, resolved run by run before anything is trained.

use super::flags::{size, Flags, OPTION, SIZES};
use crate::config::{RunConfig, TaskConfig};
use crate::error::{refuse, Error, Result};
use crate::mixers::MIXERS;
use crate::recipes::{self, Choice, Resolved, Task};
use crate::tasks::Sizes;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

/// Maximum number of runs of one product.
const MOST_RUNS: u64 = 100_000;

/// Distinct runs, in the order in which they are started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The runs.
    pub runs: Vec<RunConfig>,
    /// Number of combinations omitted because an earlier one describes the same run, such as a qLSTM with another n.
    pub duplicates: usize,
    /// Notes for the user about some of the runs, without repetitions.
    pub notes: BTreeSet<String>,
}

impl Plan {
    /// Returns the grid of `flags`. A list that is missing is taken from the task's recipe. If one run cannot be
    /// trained, the whole plan is refused.
    ///
    /// Datasets vary slowest, then mixers, then the other settings in the order of `--help`; seeds vary fastest.
    pub fn of(task: Task, flags: &Flags) -> Result<Self> {
        let mut plan = Self::default();
        plan.extend(task, flags)?;
        Ok(plan)
    }

    /// Records the digests of the data files in every run, see [`TaskConfig::identify`]. Runs whose files are missing
    /// are left unchanged.
    ///
    /// # Errors
    /// Returns the error of the first of these runs.
    ///
    /// [`TaskConfig::identify`]: crate::config::TaskConfig::identify
    pub fn identify(&mut self, data_dir: Option<&Path>) -> Result<()> {
        // Most runs of a plan share their task.
        let mut known: HashMap<String, TaskConfig> = HashMap::new();
        let mut first = Ok(());
        for run in &mut self.runs {
            let task = run.task.canonical();
            if let Some(identified) = known.get(&task) {
                run.task = identified.clone();
                continue;
            }
            let identified = run.task.identify(data_dir);
            first = first.and(identified);
            known.insert(task, run.task.clone());
        }
        first
    }

    /// Names of the tasks of its runs.
    pub fn tasks(&self) -> BTreeSet<&str> {
        self.runs.iter().map(|run| run.task.name()).collect()
    }

    /// Number of optimizer steps of all runs, if none stops early.
    pub fn steps(&self) -> Result<u64> {
        self.summed(|run, sizes| {
            let examples = sizes.examples[0];
            (run.train.epochs * examples.div_ceil(run.train.batch_size)) as u64
        })
    }

    /// Number of training tokens of all runs, if none stops early.
    pub fn tokens(&self) -> Result<u64> {
        self.summed(|run, sizes| {
            let epoch = sizes.examples[0] * sizes.tokens_per_example();
            (run.train.epochs * epoch) as u64
        })
    }

    fn summed(&self, of: impl Fn(&RunConfig, &Sizes) -> u64) -> Result<u64> {
        self.runs.iter().try_fold(0_u64, |sum, run| Ok(sum.saturating_add(of(run, &run.task.sizes()?))))
    }

    /// Appends the grid of `flags` to the plan.
    pub(super) fn extend(&mut self, task: Task, flags: &Flags) -> Result<()> {
        let mut flags = flags.clone();
        for (name, values) in task.swept() {
            if let Some(setting) = flags.settings.find(name) {
                flags.set_default(setting.name, values);
            }
        }
        let mut known: HashSet<String> = self.runs.iter().map(RunConfig::id).collect();
        for choice in product(task, &flags)? {
            let Resolved { config, notes, .. } = recipes::resolve(task, &choice)?;
            if known.insert(config.id()) {
                self.runs.push(config);
            } else {
                self.duplicates += 1;
            }
            self.notes.extend(notes);
        }
        Ok(())
    }
}

impl Flags {
    /// Resolves the one run that these flags describe, on top of their preset.
    pub fn single(&self, task: Task) -> Result<Resolved> {
        recipes::resolve(task, &self.chosen(task)?)
    }

    /// Resolves the run of `config`, read from `place`, with the settings of these flags on top.
    pub fn again(&self, task: Task, config: &RunConfig, place: &str) -> Result<Resolved> {
        let base = Choice::again(config, place)?;
        recipes::resolve(task, &base.with(self.chosen(task)?)?)
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
        for point in axes.iter().flat_map(|axis| &axis.points) {
            self.set(&mut choice, point)?;
        }
        Ok(choice)
    }

    /// Returns the choice that all combinations start from.
    fn first(&self) -> Choice {
        let mut choice = Choice::of(self.preset, self.gpu);
        choice.settings = self.settings;
        choice
    }

    fn set(&self, choice: &mut Choice, point: &Point) -> Result<()> {
        for (name, text) in point {
            let place = match self.place(name) {
                "" => self.place(SIZES),
                place => place,
            };
            choice.set(name, text, place)?;
        }
        Ok(())
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
        let name = setting.name;
        match (name, flags.seeds) {
            ("seed", Some(count)) => axes.push(seeds(flags, task, count)?),
            _ => axes.push(axis(flags, name, task)?),
        }
        match name {
            "expand" => axes.extend(options(flags)),
            "kv-pairs" => axes.push(sizes(flags)?),
            _ => {}
        }
    }
    axes.retain(|axis| !axis.points.is_empty());
    Ok(axes)
}

fn axis(flags: &Flags, name: &'static str, task: Task) -> Result<Axis> {
    let list = flags.list(name);
    let mut points = Vec::new();
    for text in list {
        let values = values(name, text, task)?;
        points.extend(values.into_iter().map(|value| vec![(name, value)]));
    }
    Ok(Axis { flag: name, text: list.join(","), points })
}

/// Expands an item of a list: a keyword stands for several values, any other item for itself.
fn values(name: &str, text: &str, task: Task) -> Result<Vec<String>> {
    Ok(match (name, text) {
        ("mixer", "all") => MIXERS.iter().map(|entry| entry.name.to_owned()).collect(),
        ("lr", "paper") => task.paper_rates()?.iter().map(f64::to_string).collect(),
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

fn seeds(flags: &Flags, task: Task, count: u64) -> Result<Axis> {
    if !(1..=MOST_RUNS).contains(&count) {
        refuse!(flag "--seeds" = count, "must be 1 to {MOST_RUNS}");
    }
    let given = flags.list("seed").first().map(|text| text.parse().ok());
    let first = given.flatten().unwrap_or_else(|| task.seed());
    let Some(end) = first.checked_add(count) else {
        refuse!(flag "--seeds" = count, "with --seed {first} this is beyond the largest seed; start lower");
    };
    Ok(Axis {
        flag: "seeds",
        text: count.to_string(),
        points: (first..end).map(|seed| vec![("seed", seed.to_string())]).collect(),
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

/// Returns every combination; the last axis varies fastest.
fn product(task: Task, flags: &Flags) -> Result<Vec<Choice>> {
    let axes = axes(flags, task)?;
    let size = axes
        .iter()
        .try_fold(1u64, |size, axis| size.checked_mul(axis.points.len() as u64).filter(|size| *size <= MOST_RUNS));
    if size.is_none() {
        let axes: Vec<String> = axes.iter().map(|axis| format!("--{} {}", axis.flag, axis.text)).collect();
        refuse!("{}: more than {MOST_RUNS} runs; shorten a list, or make several sweeps of it", axes.join(" "));
    }
    let mut all = vec![flags.first()];
    for axis in &axes {
        let mut varied = Vec::with_capacity(all.len() * axis.points.len());
        for choice in &all {
            for point in &axis.points {
                let mut choice = choice.clone();
                flags.set(&mut choice, point)?;
                varied.push(choice);
            }
        }
        all = varied;
    }
    Ok(all)
}
