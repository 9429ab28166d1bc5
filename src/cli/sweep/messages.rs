//! Sentences about the runs of a sweep, and about its end.

use super::plan_results::PlanResults;
use crate::cli::Global;
use crate::config::RunConfig;
use crate::error::Result;
use crate::report::Figure;
use crate::store::{Column, Outcome, Record, Store};
use crate::sweep::estimate::{counted, duration};
use crate::sweep::{Plan, PlanStatus, Shard, Tally};
use serde_json::{json, Value};
use std::collections::BTreeSet;

/// Describes a run by the settings in which the runs of a sweep usually differ.
pub(super) fn describe(run: &RunConfig) -> String {
    let task = run.task.read().map_or(String::new(), |task| task.label());
    let model = &run.model;
    format!(
        "{}  d={} n={}  {task}  lr={:.3e}  seed={}",
        model.mixers(),
        model.d_model,
        model.d_state,
        run.train.lr,
        run.seed
    )
}

pub(super) fn finished(row: &Record) -> String {
    let seconds = duration(row.number(Column::SECONDS).unwrap_or(0.0));
    let epochs = counted(row.count(Column::EPOCHS_RUN), "epoch");
    match row.outcome() {
        Some(Outcome::Diverged) => format!("diverged after {seconds}"),
        _ if row.number(Column::TRAIN_TOKENS).is_some() => {
            let [train, test] = [Column::TRAIN_LOSS, Column::TEST_LOSS].map(|loss| {
                let perplexity = row.number(loss).map_or(f64::NAN, f64::exp);
                format!("{perplexity:.2}")
            });
            format!("train ppl {train}, test ppl {test}  {epochs}, {seconds}")
        }
        outcome => {
            let accuracy = 100.0 * row.number(Column::ACCURACY).unwrap_or(0.0);
            let early = outcome == Some(Outcome::Converged);
            let how = if early { "learnt, " } else { "" };
            format!("{accuracy:.1} %  {how}{epochs}, {seconds}")
        }
    }
}

/// Returns the event for the end of a sweep; `elsewhere` counts runs that other processes have yet to finish.
pub(super) fn ended(tally: &Tally, elsewhere: usize, plan: &Plan, store: &Store, learnt: &PlanResults) -> Value {
    let summaries: Vec<_> = plan.tasks().into_iter().map(|task| store.summary_path(task)).collect();
    json!({ "event": "sweep", "schema": 1, "runs": plan.runs.len(), "finished": tally.finished,
            "failed": tally.failed, "done_before": tally.done_before, "failed_before": tally.failed_before,
            "given_up": tally.given_up, "elsewhere": elsewhere, "summaries": summaries, "best": learnt.events() })
}

/// Describes the end of a sweep: outcomes, results, locations of the summaries, and the next commands.
pub(super) fn conclusion(
    tally: &Tally,
    plan: &Plan,
    store: &Store,
    learnt: &PlanResults,
    global: &Global,
) -> Result<String> {
    let others = [
        (tally.failed, "failed"),
        (tally.done_before, "done before"),
        (tally.failed_before, "failed before (--retry-failed tries them again)"),
        (tally.busy, "in the hands of another process"),
        (tally.given_up, "not begun after so many failures (--max-failures)"),
    ];
    let mut parts = vec![format!("{} finished", tally.finished)];
    parts.extend(others.iter().filter(|other| other.0 > 0).map(|(count, what)| format!("{count} {what}")));
    let runs = counted(tally.settled() + tally.given_up, "run");
    let tasks = plan.tasks();
    let summary = |task: &&str| store.summary_path(task).display().to_string();
    let summaries: Vec<String> = tasks.iter().map(summary).collect();
    let figures: BTreeSet<String> = plan.runs.iter().map(|run| Figure::showing(&Record::planned(run)).flag()).collect();
    let reports: Vec<String> = figures.iter().map(|flag| format!("dsf report{flag}{}", global.out_flag())).collect();
    let mut lines = vec![format!("{runs}: {}.", parts.join(", "))];
    if let Some(grids) = learnt.grids(global.coloured())? {
        lines.push(format!("\n{grids}\n"));
    }
    lines.extend(learnt.sentences());
    if tasks.is_empty() {
        lines.push("nothing is left to do".to_owned())
    } else {
        lines.push(format!("results: {}", summaries.join(", ")));
        lines.push(format!("next:    {}", reports.join(", ")));
    }
    Ok(lines.join("\n"))
}

/// Returns the number of runs of the other shards without a result, and a sentence about the state of all of them.
pub(super) fn others(shard: Shard, runs: &[RunConfig], store: &Store) -> Result<(usize, String)> {
    let PlanStatus { done, failed, .. } = PlanStatus::of(runs, Some(store), false)?;
    let left = runs.len() - done - failed;
    let runs = counted(runs.len(), "run");
    let said = format!("shard {shard}; of the {runs} of other shards {done} done, {failed} failed, {left} not over.");
    Ok((left, said))
}
