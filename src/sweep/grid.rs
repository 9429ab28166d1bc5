//! The cartesian product of lists of settings, resolved run by run before anything is trained.

use super::axes::{axes, Axis, MOST_RUNS};
use super::flags::Flags;
use crate::config::RunConfig;
use crate::error::{self, Error, Result};
use crate::model::protocol::Request;
use std::collections::HashSet;

/// What a sweep trains when no mixer is named: the five of the paper's figures 2 and 7.
const COMPARED: [&str; 5] = ["softmax", "linear", "normalized", "s6", "ssd"];

/// The tasks that can be swept.
const TASKS: [&str; 1] = ["mqar"];

/// Refuses a task that does not exist.
pub fn check_task(name: &str) -> Result<()> {
    if TASKS.contains(&name) {
        return Ok(());
    }
    Err(error::unknown("task", name, TASKS))
}

/// Runs in the order in which they are started, each of them once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The runs.
    pub runs: Vec<RunConfig>,
    /// Combinations left out because an earlier one describes the same run, such as a qLSTM at
    /// another n.
    pub duplicates: usize,
}

impl Plan {
    /// The grid of `flags`; the paper's five mixers where none is named. The first run that
    /// cannot be trained refuses the whole plan.
    ///
    /// Flags vary in the order of `--help`: mixers slowest, then variant, protocol, d, n, heads,
    /// layers and options, then the task, then lr and the rest of training; seeds fastest.
    pub fn of(flags: &Flags) -> Result<Self> {
        let mut plan = Self::default();
        plan.extend(flags)?;
        Ok(plan)
    }

    /// Optimizer steps of all runs, if none stops early.
    pub fn steps(&self) -> u64 {
        let steps = |run: &RunConfig| {
            let examples = run.task.train_examples();
            (run.train.epochs * examples.div_ceil(run.train.batch_size)) as u64
        };
        self.runs.iter().map(steps).fold(0, u64::saturating_add)
    }

    /// Training tokens of all runs, if none stops early.
    pub fn tokens(&self) -> u64 {
        let tokens = |run: &RunConfig| {
            let epoch = run.task.train_examples() * run.task.tokens_per_example();
            (run.train.epochs * epoch) as u64
        };
        self.runs.iter().map(tokens).fold(0, u64::saturating_add)
    }

    /// Adds the grid of `flags` behind what is planned already.
    pub(super) fn extend(&mut self, flags: &Flags) -> Result<()> {
        let mut flags = flags.clone();
        if flags.mixer.is_empty() {
            flags.mixer = COMPARED.map(str::to_owned).into();
        }
        let mut seen: HashSet<String> = self.runs.iter().map(RunConfig::id).collect();
        for request in product(&flags)? {
            let run = request.resolve()?;
            if seen.insert(run.id()) {
                self.runs.push(run);
            } else {
                self.duplicates += 1;
            }
        }
        Ok(())
    }
}

impl Flags {
    /// The one run that these flags describe, on top of their preset.
    pub fn single(&self) -> Result<RunConfig> {
        let axes = axes(self)?;
        if let Some(axis) = axes.iter().find(|axis| axis.settings.len() > 1) {
            let Axis { flag, text, .. } = axis;
            return Err(Error::usage(format!(
                "--{flag} {text}: one run takes one value; \
                 `dsf sweep --task mqar --{flag} {text}` trains them all"
            )));
        }
        let mut request = self.preset.unwrap_or_default().request();
        for setting in axes.iter().flat_map(|axis| &axis.settings) {
            setting(&mut request);
        }
        request.resolve()
    }
}

/// Every combination, the last axis varying fastest.
fn product(flags: &Flags) -> Result<Vec<Request>> {
    let axes = axes(flags)?;
    let size = axes.iter().try_fold(1usize, |size, axis| {
        size.checked_mul(axis.settings.len())
            .filter(|size| *size <= MOST_RUNS)
    });
    if size.is_none() {
        let axes: Vec<String> = axes
            .iter()
            .map(|a| format!("--{} {}", a.flag, a.text))
            .collect();
        return Err(Error::usage(format!(
            "{}: more than {MOST_RUNS} runs; shorten a list, or make several sweeps of it",
            axes.join(" ")
        )));
    }
    let mut requests = vec![flags.preset.unwrap_or_default().request()];
    for axis in &axes {
        let varied = requests.iter().flat_map(|request| {
            axis.settings.iter().map(|setting| {
                let mut request = request.clone();
                setting(&mut request);
                request
            })
        });
        requests = varied.collect();
    }
    Ok(requests)
}
