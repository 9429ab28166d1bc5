//! The cartesian product of lists of settings, resolved run by run before anything is trained.

use super::flags::{size, Flags, OPTION, SIZES};
use crate::config::{RunConfig, TaskConfig};
use crate::error::{refuse, Error, Result};
use crate::mixers::MIXERS;
use crate::recipes::{self, Choice, Resolved, Task};
use crate::tasks::Sizes;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

/// Most runs of one product.
const MOST_RUNS: u64 = 100_000;

/// Runs in the order in which they are started, each of them once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The runs.
    pub runs: Vec<RunConfig>,
    /// Combinations left out because an earlier one describes the same run, such as a qLSTM at another n.
    pub duplicates: usize,
    /// What the user should be told about some of the runs, each sentence once.
    pub notes: BTreeSet<String>,
}

impl Plan {
    /// The grid of `flags`; for a list that is left out, what the task's recipe sweeps. The first run that cannot be
    /// trained refuses the whole plan.
    ///
    /// Datasets vary slowest, then mixers, then the other settings in the order of `--help`; seeds fastest.
    pub fn of(task: Task, flags: &Flags) -> Result<Self> {
        let mut plan = Self::default();
        plan.extend(task, flags)?;
        Ok(plan)
    }

    /// Names the files of every run by the digest of their content, see [`TaskConfig::identify`]. Runs whose files are
    /// not there stay as they are.
    ///
    /// # Errors
    /// The error of the first of these runs.
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

    /// The tasks of its runs, by name.
    pub fn tasks(&self) -> BTreeSet<&str> {
        self.runs.iter().map(|run| run.task.name()).collect()
    }

    /// Optimizer steps of all runs, if none stops early.
    pub fn steps(&self) -> Result<u64> {
        self.summed(|run, sizes| {
            let examples = sizes.examples[0];
            (run.train.epochs * examples.div_ceil(run.train.batch_size)) as u64
        })
    }

    /// Training tokens of all runs, if none stops early.
    pub fn tokens(&self) -> Result<u64> {
        self.summed(|run, sizes| {
            let epoch = sizes.examples[0] * sizes.tokens_per_example();
            (run.train.epochs * epoch) as u64
        })
    }

    fn summed(&self, of: impl Fn(&RunConfig, &Sizes) -> u64) -> Result<u64> {
        self.runs.iter().try_fold(0_u64, |sum, run| {
            Ok(sum.saturating_add(of(run, &run.task.sizes()?)))
        })
    }

    /// Adds the grid of `flags` behind what is planned already.
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
    /// The one run that these flags describe, on top of their preset.
    pub fn single(&self, task: Task) -> Result<Resolved> {
        recipes::resolve(task, &self.chosen(task)?)
    }

    /// The run of `config`, read from `place`, with what these flags set on top.
    pub fn again(&self, task: Task, config: &RunConfig, place: &str) -> Result<Resolved> {
        let base = Choice::again(config, place)?;
        recipes::resolve(task, &base.with(self.chosen(task)?)?)
    }

    /// What one run is made of.
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

    /// What all combinations start from.
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

/// One list of a grid.
struct Axis {
    /// As typed.
    flag: &'static str,
    /// Its list as typed.
    text: String,
    points: Vec<Point>,
}

/// Settings that one item of a list fixes.
type Point = Vec<(&'static str, String)>;

/// Every list of `flags` for runs of `task`, in the order of help.
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
    Ok(Axis {
        flag: name,
        text: list.join(","),
        points,
    })
}

/// What an item of a list stands for: itself, or several values that have a word.
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
        let (seq_len, kv_pairs) =
            size(text).map_err(|why| Error::flag_value(format!("--{SIZES}"), text, why))?;
        points.push(vec![
            ("seq-len", seq_len.to_string()),
            ("kv-pairs", kv_pairs.to_string()),
        ]);
    }
    Ok(Axis {
        flag: SIZES,
        text: flags.list(SIZES).join(","),
        points,
    })
}

/// One axis a name: several values of one option are alternatives, several options are set together.
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
        let items: Vec<String> = items
            .filter(|item| name(item) == *wanted)
            .cloned()
            .collect();
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
        points: (first..end)
            .map(|seed| vec![("seed", seed.to_string())])
            .collect(),
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

/// Every combination, the last axis varying fastest.
fn product(task: Task, flags: &Flags) -> Result<Vec<Choice>> {
    let axes = axes(flags, task)?;
    let size = axes.iter().try_fold(1u64, |size, axis| {
        size.checked_mul(axis.points.len() as u64)
            .filter(|size| *size <= MOST_RUNS)
    });
    if size.is_none() {
        let axes: Vec<String> = axes
            .iter()
            .map(|axis| format!("--{} {}", axis.flag, axis.text))
            .collect();
        refuse!(
            "{}: more than {MOST_RUNS} runs; shorten a list, or make several sweeps of it",
            axes.join(" ")
        );
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
