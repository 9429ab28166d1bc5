//! `dsf sweep`: a grid of runs, planned as a whole and trained by child processes; and commands on the runs of a
//! results folder.

mod arguments;
mod board;
mod messages;
mod plan_results;
mod remaining_work;
mod status;
mod submit;

use super::print;
use super::{exit, progress, stop_flag, stopped, typed_command, Global, TYPED};
use crate::error::{ensure, refuse, Error, Result};
use crate::store::{Cause, Store};
use crate::sweep::estimate::{self, counted};
use crate::sweep::{failed, run_all, CancelWatcher, Halving, Hosts, Options, Plan, Process, Program, Tally, Worker};
use arguments::{Executor, SelectedRuns, Typed};
use board::Board;
use clap::{Args, Subcommand};
use messages::{conclusion, ended, others};
use plan_results::PlanResults;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct SweepArguments {
    #[command(subcommand)]
    what: Option<SweepAction>,
    #[command(flatten)]
    typed: Typed,
}

/// Folder, inside a results folder, of the short runs of `--halving`.
const HALVING: &str = "halving";

/// Other commands on the runs of a folder.
#[derive(Subcommand)]
enum SweepAction {
    /// List the runs: done, running, failed, to do.
    ///
    /// Shows the host and progress of running runs, the reasons of failures, and the estimated time for the rest, as
    /// recorded in the results folder. With the flags of a sweep, only its runs are listed.
    Status(Box<Typed>),
    /// Show the status until all runs have ended.
    ///
    /// Refreshes the output of `status`. Ctrl-C stops the display, and not the runs.
    Watch(Box<Typed>),
    /// Retry failed runs.
    ///
    /// Continues failed runs from their last checkpoints; no other runs are trained.
    Retry(Box<Retry>),
    /// Stop every sweep on the results folder.
    ///
    /// Sweeps on any host write checkpoints of their runs and stop.
    Cancel,
    /// Merge results folders into the folder of --out.
    ///
    /// Copies every run once, and writes new summaries.
    Merge {
        /// Results folders to merge.
        #[arg(required = true, value_name = "FOLDER")]
        folders: Vec<PathBuf>,
    },
}

/// Names of the subcommands.
const COMMANDS: [&str; 5] = ["status", "watch", "retry", "cancel", "merge"];

#[derive(Args)]
struct Retry {
    /// Retry all failed runs, which is the default.
    #[arg(long, conflicts_with = "reason", hide_short_help = true)]
    failed: bool,
    /// Retry only runs that failed for these reasons: oom, nan, timeout, signal, panic, missing-data or other.
    #[arg(long, value_name = "REASON", value_delimiter = ',')]
    reason: Vec<String>,
    #[command(flatten)]
    typed: Typed,
}

pub(super) fn main(arguments: SweepArguments, global: &Global) -> Result<u8> {
    match arguments.what {
        None => sweep(&arguments.typed, global),
        Some(SweepAction::Status(typed)) => status::main(&typed, global),
        Some(SweepAction::Watch(typed)) => status::watch(&typed, global),
        Some(SweepAction::Retry(retry)) => retry.main(global),
        Some(SweepAction::Cancel) => cancel(global),
        Some(SweepAction::Merge { folders }) => merge(&folders, global),
    }
}

fn sweep(typed: &Typed, global: &Global) -> Result<u8> {
    let mut words = typed.experiment.iter().filter_map(|file| file.to_str());
    if let Some(command) = words.find(|word| COMMANDS.contains(word)) {
        refuse!(
            "`{command}` comes first, its flags after it: dsf sweep {command} ... (a file of that name is ./{command})"
        );
    }
    ensure!(
        typed.halving.is_none() || typed.executor == Executor::Local,
        flag "--halving", "the runs to train further are known only when the short ones are over; take --executor local");
    let asked = typed.asked(global)?;
    match typed.executor {
        Executor::Slurm | Executor::Print if !typed.dry_run => submit::main(typed, &asked, global),
        _ => train(typed, asked, global),
    }
}

/// Trains `asked`, or prints an estimate of its cost.
fn train(typed: &Typed, asked: SelectedRuns, global: &Global) -> Result<u8> {
    let SelectedRuns { mut plan, shard, unidentified } = asked;
    let device = typed.device;
    let training = &typed.training;
    device.serves(training)?;
    let options = typed.options(&plan, global)?;
    if !options.training.allow_swap && !device.is_gpu() {
        estimate::check_room(&plan.runs, Some("--allow-swap"))?;
    }
    let data_dir = training.data_dir.as_deref();
    if typed.dry_run {
        plan.notes.extend(unidentified.map(|e| format!("runs on files that are not here count as to be done: {e}")))
    } else {
        plan.identify(data_dir)?;
        training.check_data_dir(plan.runs.iter().map(|run| &run.task))?;
    }
    if !global.silent() {
        plan.notes.iter().for_each(|note| print::message(&format!("note: {note}")));
    }
    let halving = typed.halving.map(|factor| Halving::of(plan.clone(), factor.into()));
    if let Some(halving) = halving.as_ref().filter(|_| typed.dry_run && !global.silent()) {
        for (round, (runs, epochs)) in halving.outline().into_iter().enumerate() {
            let (round, runs) = (round + 1, counted(runs, "run"));
            let epochs = counted(epochs, "epoch");
            print::message(&format!("note: --halving: first round {round}, {runs} of {epochs}"));
        }
        print::message("note: --halving: then one rate a cell of the plan below");
    }
    if typed.dry_run {
        super::device::use_threads(options.threads)?;
        let (device, _) = device.open()?;
        let forecast = estimate::dry_run(&plan, &global.out, &options, &device)?;
        if global.json {
            print::line(forecast.event()?)?
        } else {
            print::result(&forecast.text()?)?
        }
        return Ok(exit::DONE);
    }
    let store = Store::open(&global.out)?;
    let stop = stop_flag()?;
    let cancelled = CancelWatcher::start(&store, &stop)?;
    let texts = plan.runs.iter().map(|run| &run.task);
    progress::prepare(texts, data_dir, global.silent(), &stop)?;
    let worker = worker(&global.out, &options)?;
    let left = halving.map_or(Ok(plan), |halving| halved(halving, &options, &stop, global));
    let worked_off = left.and_then(|plan| {
        let tally = work_off(&plan, &store, &global.out, &*worker, &options, &stop, global)?;
        Ok((plan, tally))
    });
    let (plan, tally) = match worked_off {
        Err(Error::Stopped) if cancelled.is_cancelled() => {
            return stopped("stopped by `dsf sweep cancel`", global);
        }
        worked_off => worked_off?,
    };
    let others = shard.map(|(shard, runs)| others(shard, &runs, &store)).transpose()?;
    let elsewhere = tally.busy + others.as_ref().map_or(0, |(left, _)| *left);
    let learnt = PlanResults::of(&plan, &store)?;
    if global.json {
        print::line(ended(&tally, elsewhere, &plan, &store, &learnt))?;
    } else if !global.quiet {
        print::line(conclusion(&tally, &plan, &store, &learnt, global)?)?;
        if let Some((_, said)) = others {
            print::line(said)?;
        }
    }
    Ok(match tally.failed + tally.failed_before {
        0 if elsewhere == 0 => exit::DONE,
        0 => exit::BUSY,
        _ => exit::SOME_RUNS_FAILED,
    })
}

/// Returns the worker that trains runs into the results folder `out`.
fn worker(out: &Path, options: &Options) -> Result<Box<dyn Worker>> {
    let program = Program::new(out, options)?.with(TYPED, &typed_command());
    Ok(if options.hosted { Box::new(Hosts::new(program)) } else { Box::new(Process::new(program)) })
}

/// Trains the runs of `plan` into the results folder `out`, which `store` has open.
fn work_off(
    plan: &Plan,
    store: &Store,
    out: &Path,
    worker: &dyn Worker,
    options: &Options,
    stop: &AtomicBool,
    global: &Global,
) -> Result<Tally> {
    if global.json {
        print::line(estimate::announced(plan, store, options, out)?)?;
    }
    let mut board = Board::new(plan, global);
    let tally = run_all(plan, store, worker, options, stop, &mut |i, event| board.show(i, &event));
    board.console.finish();
    let tally = tally?;
    if tally.finished + tally.failed + tally.done_before > 0 {
        // The summary may lack a row: a process was killed between result and summary, or two runs ended at once
        // without locks.
        plan.tasks().into_iter().try_for_each(|task| store.refresh_summary(task))?;
    }
    Ok(tally)
}

/// Returns the complete runs that remain after the rounds of short runs, which have a results folder of their own.
fn halved(mut halving: Halving, options: &Options, stop: &AtomicBool, global: &Global) -> Result<Plan> {
    let out = global.out.join(HALVING);
    let store = Store::open(&out)?;
    let worker = worker(&out, options)?;
    for round in 0..halving.rounds {
        let short = halving.round(round);
        if !global.silent() {
            let runs = counted(short.runs.len(), "short run");
            let (round, rounds) = (round + 1, halving.rounds);
            print::message(&format!("halving, round {round} of {rounds}: {runs}"));
        }
        let tally = work_off(&short, &store, &out, &*worker, options, stop, global)?;
        ensure!(
            tally.busy == 0,
            flag "--halving", "another process is at work on {}; start the same command again when it is done", out.display());
        halving.give_up(round, &store)?;
    }
    Ok(halving.left)
}

impl Retry {
    fn main(mut self, global: &Global) -> Result<u8> {
        ensure!(
            self.typed.executor == Executor::Local,
            flag "--executor", "a retry trains here; for a cluster type `dsf sweep ... --retry-failed --executor slurm`");
        // All runs of the plan have failed.
        self.typed.retry_failed = true;
        let causes: Vec<Cause> = self.reason.iter().map(|name| Cause::find(name)).collect::<Result<_>>()?;
        let store = Store::existing(&global.out)?;
        let mut asked = self.typed.asked_or_all(&store, global)?;
        asked.plan.runs = failed(&asked.plan.runs, &store, &causes)?;
        asked.shard = None;
        if asked.plan.runs.is_empty() {
            let text = "no run failed so: nothing is tried again";
            global.emit(&json!({ "event": "retry", "schema": 1, "runs": 0 }), text)?;
            return Ok(exit::DONE);
        }
        train(&self.typed, asked, global)
    }
}

fn cancel(global: &Global) -> Result<u8> {
    Store::existing(&global.out)?.cancel()?;
    let out = global.out.display();
    let event = json!({ "event": "cancel", "schema": 1, "out": global.out });
    let text = format!(
        "Every sweep that is at work on {out} is asked to stop: within seconds each writes checkpoints and ends with \
         exit code 75. The same commands go on from there; `dsf sweep status{}` shows what is still running.",
        global.out_flag()
    );
    global.emit(&event, &text)?;
    Ok(exit::DONE)
}

fn merge(folders: &[PathBuf], global: &Global) -> Result<u8> {
    let folders: Vec<Store> = folders.iter().map(|folder| Store::existing(folder)).collect::<Result<_>>()?;
    let merged = Store::open(&global.out)?.merge(&folders)?;
    print::warnings(&merged.warnings);
    let event = json!({ "event": "merge", "schema": 1, "taken": merged.taken, "left_out": merged.left_out,
                        "warnings": merged.warnings });
    let (taken, copies) = (counted(merged.taken, "run"), merged.left_out);
    let out = global.out.display();
    let text = format!("{taken} copied into {out}; of runs in several folders {copies} more left out.");
    global.emit(&event, &text)?;
    Ok(exit::DONE)
}
