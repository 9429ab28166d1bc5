//! The cartesian product of lists of settings, resolved run by run before anything is trained.

use super::axes::{axes, Axis, MOST_RUNS};
use super::flags::Flags;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::model::protocol::{Asked, Task};
use crate::tasks::lra::LraDataset;
use crate::tasks::Sizes;
use std::collections::HashSet;

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
    /// The grid of `flags`; the mixers that the paper compares where none is named, and every dataset. The first run that
    /// cannot be trained refuses the whole plan.
    ///
    /// Datasets vary slowest, then mixers, then the other flags in the order of `--help`; seeds fastest.
    pub fn of(task: Task, flags: &Flags) -> Result<Self> {
        let mut plan = Self::default();
        plan.extend(task, flags)?;
        Ok(plan)
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
        if flags.mixer.is_empty() {
            flags.mixer = task
                .entry()
                .compared
                .iter()
                .map(|&name| name.to_owned())
                .collect();
        }
        if task == Task::Lra && flags.classifier.dataset.is_empty() {
            flags.classifier.dataset = LraDataset::ALL.into();
        }
        let mut seen: HashSet<String> = self.runs.iter().map(RunConfig::id).collect();
        for asked in product(task, &flags)? {
            let run = asked.resolve(task)?;
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
    pub fn single(&self, task: Task) -> Result<RunConfig> {
        let axes = axes(self, task)?;
        if let Some(axis) = axes.iter().find(|axis| axis.settings.len() > 1) {
            let Axis { flag, text, .. } = axis;
            return Err(Error::usage(format!(
                "--{flag} {text}: one run takes one value; \
                 `dsf sweep --task {} --{flag} {text}` trains them all",
                task.name()
            )));
        }
        let mut asked = first(self);
        for setting in axes.iter().flat_map(|axis| &axis.settings) {
            setting(&mut asked);
        }
        asked.resolve(task)
    }
}

/// Every combination, the last axis varying fastest.
fn product(task: Task, flags: &Flags) -> Result<Vec<Asked>> {
    let axes = axes(flags, task)?;
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
    let mut all = vec![first(flags)];
    for axis in &axes {
        let varied = all.iter().flat_map(|asked| {
            axis.settings.iter().map(|setting| {
                let mut asked = asked.clone();
                setting(&mut asked);
                asked
            })
        });
        all = varied.collect();
    }
    Ok(all)
}

/// What all axes start from.
fn first(flags: &Flags) -> Asked {
    Asked {
        preset: flags.preset,
        gpu: flags.gpu,
        ..Asked::default()
    }
}
