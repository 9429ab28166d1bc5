//! Grids: cartesian products of lists of settings, resolved run by run before anything is trained.

use crate::config::{RunConfig, TaskConfig};
use crate::error::Result;
use crate::recipes::{self, Flags, Resolved, TaskRow};
use crate::store::{Status, Store};
use crate::tasks::ExampleSizes;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

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
    pub fn of(task: TaskRow, flags: &Flags) -> Result<Self> {
        let mut plan = Self::default();
        plan.extend(task, flags)?;
        Ok(plan)
    }

    /// Records the digests of the data files in every run, see [`TaskConfig::identify`]. Runs whose files are missing
    /// are left unchanged. Returns the error of the first of these runs.
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

    fn summed(&self, of: impl Fn(&RunConfig, &ExampleSizes) -> u64) -> Result<u64> {
        self.runs.iter().try_fold(0_u64, |sum, run| Ok(sum.saturating_add(of(run, &run.task.sizes()?))))
    }

    /// Appends the grid of `flags` to the plan.
    pub(super) fn extend(&mut self, task: TaskRow, flags: &Flags) -> Result<()> {
        let mut flags = flags.clone();
        let pretrained = !flags.list("from").is_empty();
        for (name, values) in task.swept() {
            if let Some(setting) = flags.settings.find(name).filter(|one| !(pretrained && one.is_of_weights())) {
                flags.set_default(setting.name, values);
            }
        }
        let mut known: HashSet<String> = self.runs.iter().map(RunConfig::id).collect();
        for choice in flags.product(task)? {
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

/// Number of runs by status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanStatus {
    /// Finished.
    pub done: usize,
    /// Failed.
    pub failed: usize,
    /// Begun: resumed from a checkpoint if there is one.
    pub begun: usize,
    /// Runs that a sweep would train, in its order.
    pub to_do: Vec<RunConfig>,
}

impl PlanStatus {
    /// Determines the status of every one of `runs`. Without a store no run has begun.
    pub fn of(runs: &[RunConfig], store: Option<&Store>, retry_failed: bool) -> Result<Self> {
        let mut counted = Self::default();
        for run in runs {
            let status = store.map_or(Ok(Status::Missing), |store| store.status(&run.id()))?;
            counted.done += usize::from(status == Status::Done);
            counted.failed += usize::from(status == Status::Failed);
            counted.begun += usize::from(status == Status::Started);
            if status != Status::Done && (status != Status::Failed || retry_failed) {
                counted.to_do.push(run.clone());
            }
        }
        Ok(counted)
    }

    /// Returns the runs to be done as a plan.
    pub(super) fn plan(&self) -> Plan {
        Plan { runs: self.to_do.clone(), ..Plan::default() }
    }
}
