//! `dsf show`: one run of a results folder, begun, finished or failed.

use super::print::{self, columns, Align};
use super::{exit, Global};
use crate::config::RunConfig;
use crate::error::{refuse, Result};
use crate::export::ExportedRun;
use crate::recipes;
use crate::store::{Column, EpochRow, RunResult, RunStatus, SliceRow, Store, METRICS};
use crate::sweep::estimate::{counted, duration};
use crate::tasks::Task;
use clap::Args;
use serde_json::json;
use std::path::Path;

/// Maximum number of epochs that are listed individually.
const MOST_EPOCHS: usize = 20;

#[derive(Args)]
pub(super) struct ShowArguments {
    /// Id of a run in --out, a unique prefix of it, or a run folder.
    run: String,
}

pub(super) fn main(arguments: &ShowArguments, global: &Global) -> Result<u8> {
    let shown = LoadedRun::open(&arguments.run, global)?;
    if global.json {
        print::line(shown.event())?
    } else {
        print::result(&shown.text()?)?
    }
    Ok(exit::DONE)
}

/// A run with its results so far.
pub(super) struct LoadedRun {
    id: String,
    config: RunConfig,
    result: Option<RunResult>,
    epochs: Vec<EpochRow>,
    /// Task of the run, read from its config.
    task: Box<dyn Task>,
    /// Accuracies by slice of the test answers, if the task has slices.
    slices: Vec<SliceRow>,
    /// Time at which it was first begun.
    started: String,
    /// Command that trains it again.
    command: String,
}

impl LoadedRun {
    pub fn open(name: &str, global: &Global) -> Result<Self> {
        let (store, id) = found(name, global)?;
        let config = store.config(&id)?;
        let command = recipes::command(&config).unwrap_or_else(|| {
            let file = store.run_folder(&id).join("config.json");
            format!("dsf {} --config {}", config.task.name(), file.display())
        });
        Ok(Self {
            result: store.result(&id)?,
            epochs: store.epochs(&id)?,
            slices: store.slices(&id)?,
            task: config.task.read()?,
            started: store.started(&id)?.unwrap_or_default(),
            config,
            command,
            id,
        })
    }

    /// Returns the run for other formats.
    pub fn run(&self) -> ExportedRun<'_> {
        ExportedRun {
            id: &self.id,
            config: &self.config,
            result: self.result.as_ref(),
            epochs: &self.epochs,
            started: &self.started,
        }
    }

    fn text(&self) -> Result<String> {
        let (model, task) = (&self.config.model, &self.task);
        let mut text = format!(
            "run {}: {} ({}) on {}\n{}command   {}\n",
            self.id,
            model.mixer,
            model.variant,
            task.title(),
            self.outcome(),
            self.command
        );
        if let Some(result) = &self.result {
            let by = &result.provenance;
            text += &format!(
                "trained   {} to {} on {} ({}, {}, {}), dsf {} {}\n",
                result.started,
                result.ended,
                by.host,
                by.cpu,
                by.simd,
                counted(by.threads, "thread"),
                by.version,
                by.commit()
            );
            if !by.command.is_empty() {
                text += &format!("typed     {}\n", by.command);
            }
            let numbers = METRICS.iter().filter_map(|metric| {
                let value = result.metrics.get(metric.column)?;
                Some(vec![metric.name.to_owned(), format!("{value}"), metric.meaning.to_owned()])
            });
            text += &format!("\n{}", columns(&numbers.collect::<Vec<_>>(), Align::Left));
        }
        if !self.epochs.is_empty() {
            text += &format!("\n{}", self.curve());
            text += &self.task.without_skill().map_or(String::new(), |without| {
                let (skill, percent) = (without.skill(), 100.0 * without.accuracy);
                format!("accuracy without {skill}: {percent:.2} % ({})\n", without.predictor)
            });
        }
        for by in ["pair", "distance"] {
            text += &self.sliced(by);
        }
        Ok(text)
    }

    /// Describes the outcome, or the progress of an unfinished run.
    fn outcome(&self) -> String {
        match &self.result {
            None => format!(
                "status    not finished: {} of {}; the same command goes on\n",
                self.epochs.len(),
                counted(self.config.train.epochs, "epoch")
            ),
            Some(result) if result.status == RunStatus::Failed => {
                format!("status    failed: {}\n", result.reason)
            }
            Some(result) => {
                let how = result.outcome.map_or("", |outcome| outcome.name());
                let seconds = result.metrics.get(Column::SECONDS).unwrap_or(f64::NAN);
                let epochs = counted(self.epochs.len(), "epoch");
                format!("status    {how} after {epochs}, {}\n", duration(seconds))
            }
        }
    }

    /// Lists the epochs; if there are many, evenly spaced ones including the first and the last.
    fn curve(&self) -> String {
        let last = self.epochs.len() - 1;
        let most = MOST_EPOCHS.min(self.epochs.len());
        let chosen = (0..most).map(|i| &self.epochs[i * last / (most - 1).max(1)]);
        let header = ["epoch", "train loss", "test loss", "accuracy", "lr", "seconds"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(chosen.map(|epoch| {
            vec![
                epoch.epoch.to_string(),
                format!("{:.4}", epoch.train_loss),
                format!("{:.4}", epoch.test_loss),
                format!("{:.2} %", 100.0 * epoch.accuracy),
                format!("{:.3e}", epoch.lr),
                format!("{:.1}", epoch.seconds),
            ]
        }));
        columns(&rows, Align::Right)
    }

    /// Lists the test accuracies after the last epoch by a property of the answers; empty if the task has no such
    /// slices.
    fn sliced(&self, by: &str) -> String {
        let last = self.slices.last().map(|row| row.epoch);
        let rows = self.slices.iter().filter(|row| Some(row.epoch) == last && row.by == by).map(|row| {
            let slice = if row.from == row.to { row.from.to_string() } else { format!("{}-{}", row.from, row.to) };
            let percent = |share: f64| format!("{:.2} %", 100.0 * share);
            let level = self.task.without_skill_in(by, row.from, row.to);
            let without = self.task.without_skill().zip(level);
            let without = without.map(|(known, level)| format!("without {} {}", known.skill(), percent(level)));
            let cells = [Some(slice), Some(percent(row.accuracy)), without, Some(counted(row.answers, "answer"))];
            cells.into_iter().flatten().collect()
        });
        let rows: Vec<Vec<String>> = rows.collect();
        if rows.is_empty() {
            String::new()
        } else {
            format!("\ntest accuracy by {by}\n{}", columns(&rows, Align::Right))
        }
    }

    pub fn event(&self) -> serde_json::Value {
        json!({
            "event": "show", "schema": 1, "run": self.id, "config": self.config, "result": self.result,
            "epochs": self.epochs, "started": self.started, "command": self.command,
        })
    }
}

/// Returns the results folder and the id of the run that `name` denotes.
fn found(name: &str, global: &Global) -> Result<(Store, String)> {
    let path = Path::new(name);
    let parent = path.parent().and_then(Path::parent);
    if let (true, Some(out), Some(id)) = (path.join("config.json").exists(), parent, path.file_name()) {
        return Ok((Store::existing(out)?, id.to_string_lossy().into_owned()));
    }
    let store = Store::existing(&global.out)?;
    let out = global.out.display();
    if name.is_empty() || name.contains('/') {
        refuse!(path name, "not the folder of a run: give the id of one in {out}, or --out another folder");
    }
    match store.find(name)? {
        Some(id) => Ok((store, id)),
        None => refuse!(
            path & global.out,
            "there is no run {name} here; `dsf report --format csv --out {out}` lists the settings of all"
        ),
    }
}
