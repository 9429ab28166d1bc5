//! Arguments of `dsf sweep`, and of its subcommands that take the same flags.

use crate::cli::device::DeviceChoice;
use crate::cli::{initial, print, Global};
use crate::config::{whole, RunConfig};
use crate::error::{ensure, refuse, Error, Result};
use crate::recipes::{self, Flags};
use crate::store::{read_summary, Record, RunStatus, Store};
use crate::sweep::slurm::Site;
use crate::sweep::{estimate, Limits, Options, Plan, PlanStatus, Shard, Training};
use clap::{Args, ValueEnum};
use std::collections::HashSet;
use std::path::PathBuf;

/// Task of a sweep that names none.
const TASK: &str = "mqar";

/// Place where the runs of a sweep are trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Executor {
    /// Trains on this machine.
    Local,
    /// Submits a job array to a Slurm cluster and returns.
    Slurm,
    /// Prints the job scripts that `slurm` would submit.
    Print,
}

/// Runs of a sweep, and how they are trained.
#[derive(Args)]
pub(super) struct Typed {
    /// Experiment files, or names of `dsf experiments`.
    ///
    /// A run that is part of several experiments is trained once. Flags override the settings of experiments.
    pub experiment: Vec<PathBuf>,
    /// Task [default: mqar].
    #[arg(long, value_name = "NAME")]
    task: Option<String>,
    #[command(flatten)]
    flags: Flags,
    /// Device: auto, cpu, cuda or cuda:1.
    ///
    /// With --per-gpu, `cuda` means all GPUs.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: DeviceChoice,
    /// Runs at a time [default: one per thread on a CPU].
    ///
    /// They share the threads. By default there is one per thread, or as many as fit into half of the memory of the machine
    /// or the job; on a GPU there is one.
    #[arg(short, long, value_name = "N", conflicts_with = "per_gpu")]
    jobs: Option<usize>,
    /// Number of runs at a time on each GPU, in one process. Several small models use a GPU better than one.
    #[arg(long, value_name = "N", hide_short_help = true)]
    per_gpu: Option<usize>,
    /// Train one shard of the plan: i/N, auto or auto/N.
    ///
    /// Runs are assigned to the N shards in turn, the most expensive first. `auto` takes i and N from the job array of
    /// the scheduler (Slurm, Grid Engine). `auto/N` takes only i from the scheduler: use it if the scheduler does not
    /// report the number of tasks (PBS, LSF, Kubernetes), or to resubmit some of N tasks.
    #[arg(long, value_name = "PART", hide_short_help = true)]
    shard: Option<String>,
    /// Skip runs that are done in this summary.
    ///
    /// FILE is a summary such as `results/figure7-cell.csv`, whose run folders need not exist; the flag may be given
    /// several times. Runs that failed there are trained. `dsf report` accepts such a file together with a results
    /// folder.
    #[arg(long, value_name = "FILE", conflicts_with = "halving", hide_short_help = true)]
    done_in: Vec<PathBuf>,
    #[command(flatten)]
    pub training: Training,
    #[command(flatten)]
    limits: Limits,
    /// Executor: local, slurm or print.
    ///
    /// `local` trains the runs on this machine, `slurm` submits a job array to a Slurm cluster and returns, and `print`
    /// prints the job scripts that `slurm` would submit.
    #[arg(long, value_enum, default_value_t = Executor::Local, value_name = "WHO", hide_possible_values = true)]
    pub executor: Executor,
    /// Retry runs that failed in earlier sweeps.
    #[arg(long, hide_short_help = true)]
    pub retry_failed: bool,
    /// Stop the worse learning rates of each cell early.
    ///
    /// Successive halving: each round of short runs keeps one in FACTOR rates of a cell (default 2), and the next round
    /// has FACTOR times as many epochs and seeds. The last rate is trained completely. The short runs are kept in the
    /// folder `halving` of the results, where reports do not mix them with complete runs. Rates are compared on
    /// validation data if there are any. A rate that is good only after many epochs may be dropped.
    #[arg(long, value_name = "FACTOR", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = whole::<u8>(2..=255), conflicts_with = "shard", hide_short_help = true)]
    pub halving: Option<u8>,
    /// Print the runs and their estimated cost; train nothing.
    #[arg(long)]
    pub dry_run: bool,
    // Last: its heading holds for what follows.
    #[command(flatten)]
    pub site: Site,
}

/// Runs that a command line describes.
pub(super) struct SelectedRuns {
    /// Runs of this shard.
    pub plan: Plan,
    /// Shard, and the runs of the other shards.
    pub shard: Option<(Shard, Vec<RunConfig>)>,
    /// Error of runs whose data files are missing, so that their ids could not include the digest of the files.
    pub unidentified: Option<Error>,
}

impl Typed {
    /// Returns every run that the flags or the experiment files describe.
    pub fn whole(&self, global: &Global) -> Result<Plan> {
        let mut flags = self.flags.clone();
        flags.gpu = self.device.is_gpu();
        let task = self.task.as_deref();
        let task = task.map(recipes::task).transpose()?;
        if self.experiment.is_empty() {
            let task = task.map_or_else(|| recipes::task(TASK), Ok)?;
            initial::open_all(&mut flags, &[], global)?;
            return Plan::of(task, &flags);
        }
        let plan = initial::plan_of(&self.experiment, flags, global)?;
        let other = |task: recipes::TaskRow| plan.tasks().into_iter().find(|name| *name != task.name);
        if let Some((task, other)) = task.and_then(|task| Some((task, other(task)?))) {
            refuse!(flag "--task" = task.name, "the experiment has runs of {other}, and names its tasks itself; leave --task out");
        }
        Ok(plan)
    }

    /// Returns [`Self::whole`], or the shard of it that `--shard` selects.
    pub fn asked(&self, global: &Global) -> Result<SelectedRuns> {
        let mut plan = self.whole(global)?;
        let unidentified = plan.identify(self.training.data_dir.as_deref()).err();
        Ok(SelectedRuns { unidentified, ..self.part(plan)? })
    }

    /// Returns [`Self::asked`], or all runs of the folder if none are described.
    pub fn asked_or_all(&self, store: &Store, global: &Global) -> Result<SelectedRuns> {
        let described = !self.experiment.is_empty() || self.task.is_some();
        if described || self.flags != Flags::default() {
            return self.asked(global);
        }
        let configs = store.configs()?;
        print::warnings(&configs.warnings);
        self.part(Plan { runs: configs.runs, ..Plan::default() })
    }

    fn part(&self, mut plan: Plan) -> Result<SelectedRuns> {
        for file in &self.done_in {
            ensure!(
                file.is_file(),
                flag "--done-in" = file.display(), "there is no such file; give a summary of runs, such as results/mqar.csv");
            let planned = plan.runs.len();
            let done = read_summary(file)?;
            let done = done.iter().filter(|row| row.status() == Some(RunStatus::Done));
            let done: HashSet<&str> = done.map(Record::run_id).collect();
            plan.runs.retain(|run| !done.contains(run.id().as_str()));
            let (out, file) = (planned - plan.runs.len(), file.display());
            plan.notes.insert(format!("--done-in: {out} of {planned} runs are done in {file}, and left out"));
        }
        let Some(text) = &self.shard else {
            return Ok(SelectedRuns { plan, shard: None, unidentified: None });
        };
        let shard = Shard::parse(text, &|name| std::env::var(name).ok())?;
        let (plan, others) = shard.split(&plan)?;
        Ok(SelectedRuns { plan, shard: Some((shard, others)), unidentified: None })
    }

    /// Returns the options for training the runs of `plan` that are not done.
    pub fn options(&self, plan: &Plan, global: &Global) -> Result<Options> {
        let threads = global.threads()?;
        let (devices, jobs) = self.places(|| self.default_jobs(plan, threads, global))?;
        Ok(Options {
            jobs,
            retry_failed: self.retry_failed,
            threads: (threads / jobs).max(1),
            devices,
            hosted: self.per_gpu.is_some_and(|each| each > 1),
            training: self.training.clone(),
            limits: self.limits.clone(),
        })
    }

    /// Returns the number of runs in parallel if no flag gives it.
    fn default_jobs(&self, plan: &Plan, threads: usize, global: &Global) -> Result<usize> {
        if self.device.is_gpu() {
            return Ok(1);
        }
        let store = global.out.is_dir().then(|| Store::existing(&global.out)).transpose()?;
        let standing = PlanStatus::of(&plan.runs, store.as_ref(), self.retry_failed)?;
        estimate::parallel_runs(&standing.to_do, threads)
    }

    /// Returns the devices that the runs share, and the number of runs in parallel.
    fn places(&self, default_jobs: impl FnOnce() -> Result<usize>) -> Result<(Vec<String>, usize)> {
        let within = |flag: &str, n: usize| match n {
            1..=1024 => Ok(n),
            _ => refuse!(flag(flag) = n, "must be 1 to 1024"),
        };
        let Some(each) = self.per_gpu else {
            let jobs = self.jobs.map_or_else(default_jobs, |jobs| within("--jobs", jobs))?;
            return Ok((vec![self.device.name()?], jobs));
        };
        let each = within("--per-gpu", each)?;
        let gpus = self.device.gpus()?;
        let jobs = each * gpus.len();
        Ok((gpus, jobs))
    }
}
