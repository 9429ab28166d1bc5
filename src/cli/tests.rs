//! Tasks are rows of a table: a task of one file and one row is trained, resumed, swept and reported.

use super::run::{execute, KeptWeights, RunContext, RunEvent};
use super::*;
use crate::config::RunConfig;
use crate::error::Result;
use crate::recipes::Flags;
use crate::report::{report, Figure, FigureSeries, ReportOptions, TextTarget, FORMATS};
use crate::store::{snapshots, Column, RunResult, RunStatus, Store};
use crate::sweep::estimate;
use crate::sweep::{run_all, Ending, Job, Limits, Options, Plan, Training, Worker, WorkerMessage};
use candle_core::Device;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// The task whose file is `src/tasks/tests/toy.rs`.
fn toy() -> TaskRow {
    task("toy").unwrap()
}

/// Parses the flags of `dsf toy`.
fn typed(line: &str) -> Flags {
    let words = ["dsf", "toy"].into_iter().chain(line.split_whitespace());
    let found = tree().try_get_matches_from(words).unwrap();
    match Cli::from_arg_matches(&found).unwrap().command {
        Some(Command::Train(task, arguments)) => {
            assert_eq!(task.name, "toy");
            arguments.flags
        }
        _ => panic!("`dsf toy` trains no task"),
    }
}

/// Worker that trains in this process.
struct Here<'a> {
    store: &'a Store,
    /// Epoch after which a signal arrives.
    interrupted_after: Option<usize>,
    kept: KeptWeights,
}

impl Here<'_> {
    fn train(&self, run: &RunConfig, stop: &AtomicBool) -> Result<RunResult> {
        let context = RunContext {
            store: self.store.clone(),
            device: Device::Cpu,
            device_name: "cpu".to_owned(),
            training: &Training::default(),
            micro_batch: None,
            threads: 1,
            stop,
            kept: self.kept,
            alone: true,
        };
        execute(run, &context, &mut |event| {
            if let RunEvent::Epoch(row) = event {
                stop.fetch_or(self.interrupted_after == Some(row.epoch), Ordering::Relaxed);
            }
            Ok(())
        })
    }
}

impl Worker for Here<'_> {
    fn work(&self, job: &Job, stop: &AtomicBool, on: &mut dyn FnMut(WorkerMessage)) -> Result<Ending> {
        on(WorkerMessage::Start);
        self.train(job.run, stop).map(|_| Ending::Finished)
    }
}

#[test]
fn its_command_is_listed_and_its_help_speaks_of_its_settings() {
    let mut tree = tree();
    tree.build();
    // The list of commands has the name alone; what follows the colon stands in the command's own help.
    let (name, meaning) = toy().about.split_once(": ").unwrap();
    let command = tree.find_subcommand("toy").unwrap();
    let [listed, long] = [command.get_about(), command.get_long_about()];
    let [listed, long] = [listed, long].map(|about| about.unwrap().to_string());
    assert!(listed.ends_with(name) && long.ends_with(meaning), "{long}");
    let has = |flag: &str| {
        let mut flags = command.get_arguments();
        let shown = |known: &clap::Arg| !known.is_hide_set() && !known.is_hide_short_help_set();
        flags.any(|known| known.get_long() == Some(flag) && shown(known))
    };
    assert!(has("seq-len") && !has("kv-pairs"));
    assert!(!has("protocol"), "it has but one");
}

#[test]
fn it_is_trained_and_an_interrupted_run_ends_with_the_same_numbers() {
    let run = typed("--mixer s6").single(toy()).unwrap().config;
    let trained = |interrupted_after, every| {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let here =
            |interrupted_after| Here { store: &store, interrupted_after, kept: KeptWeights { last: false, every } };
        let stop = AtomicBool::new(false);
        let mut result = here(interrupted_after).train(&run, &stop);
        if is_set(&stop) {
            assert!(matches!(result, Err(Error::Stopped)));
            result = here(None).train(&run, &AtomicBool::new(false));
        }
        let kept = snapshots(&store.run_folder(&run.id())).unwrap();
        let read = |path: PathBuf| (path.file_name().unwrap().to_owned(), fs::read(path).unwrap());
        (result.unwrap(), kept.into_iter().map(read).collect::<Vec<_>>())
    };
    let ((whole, none), (resumed, kept)) = (trained(None, None), trained(Some(1), Some(1)));
    assert!(none.is_empty());
    let epochs = whole.metrics.count(Column::EPOCHS_RUN).unwrap();
    assert_eq!(kept.len(), epochs + 1, "the start, and after every epoch");
    assert_eq!(kept, trained(None, Some(1)).1);
    assert_eq!(whole.status, RunStatus::Done);
    let metrics = |result: &RunResult| {
        [Column::ACCURACY, Column::TRAIN_LOSS, Column::TEST_LOSS, Column::STEPS]
            .map(|column| result.metrics.get(column))
    };
    assert_eq!(metrics(&whole), metrics(&resumed));
    assert!(whole.metrics.get(Column::ACCURACY).unwrap() > 0.9);
}

#[test]
fn a_sweep_of_it_is_planned_trained_once_and_reported_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let plan = Plan::of(toy(), &typed("--seeds 2 --epochs 1 --train-examples 32")).unwrap();
    assert_eq!(plan.runs.len(), 4, "two mixers of the recipe, two seeds");
    let options = Options {
        jobs: 2,
        retry_failed: false,
        threads: 1,
        devices: vec!["cpu".to_owned()],
        hosted: false,
        training: Training::default(),
        limits: Limits::default(),
    };
    let dry = estimate::dry_run(&plan, folder.path(), &options, &Device::Cpu).unwrap();
    assert_eq!(dry.event().unwrap()["runs"], 4);
    let sweep = || {
        let worker = Here { store: &store, interrupted_after: None, kept: KeptWeights::default() };
        let stop = AtomicBool::new(false);
        run_all(&plan, &store, &worker, &options, &stop, &mut |_, _| ()).unwrap()
    };
    let (first, again) = (sweep(), sweep());
    assert_eq!((first.finished, again.done_before), (4, 4));
    let rows = crate::store::read_summary(&store.summary_path("toy")).unwrap();
    let grid = Figure::find(FigureSeries::Grid, "").unwrap();
    let presets = &crate::recipes::presets_of;
    let report = report(grid, &rows, Some(&plan.runs), presets, &ReportOptions::default()).unwrap();
    for format in FORMATS.iter().filter(|format| format.is_text()) {
        let drawn = format.render(&report, TextTarget::default()).unwrap();
        let drawn = String::from_utf8(drawn).unwrap().to_lowercase();
        let named = ["softmax", "linear", "toy"].map(|name| drawn.contains(name));
        assert_eq!(named, [true; 3], "{}: {drawn}", format.name);
    }
}

/// Returns every command below `command` with the words that call it.
fn commands(command: &clap::Command, words: &str) -> Vec<(String, clap::Command)> {
    let mut all = vec![(words.to_owned(), command.clone())];
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        all.extend(commands(inner, &format!("{words} {}", inner.get_name())));
    }
    all
}

#[test]
fn short_help_of_every_command_fits_a_terminal() {
    let mut tree = super::tree();
    tree.build();
    for (words, command) in commands(&tree, "dsf") {
        let help = command.term_width(80).render_help().to_string();
        let widest = help.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{words}: {widest:?}\n{help}");
        // The toy task exists in tests alone.
        let lines = help.lines().filter(|line| !line.trim_start().starts_with("toy ")).count();
        assert!(lines <= 40, "{words}: {lines} lines\n{help}");
    }
}

#[test]
fn the_examples_in_help_are_commands() {
    for task in super::TASKS {
        for example in task.examples {
            let parsed = super::tree().try_get_matches_from(example.split_whitespace());
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
        }
    }
}
