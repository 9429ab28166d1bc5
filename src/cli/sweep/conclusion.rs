//! What a sweep says when it is over.

use super::super::Global;
use crate::store::Store;
use crate::sweep::estimate::counted;
use crate::sweep::{Plan, Tally};
use crate::tasks;
use std::collections::BTreeSet;

/// How the runs ended, where the summaries of their tasks are, and what to type next.
pub(super) fn conclusion(tally: &Tally, plan: &Plan, store: &Store, global: &Global) -> String {
    let others = [
        (tally.failed, "failed"),
        (tally.done_before, "done before"),
        (
            tally.failed_before,
            "failed before (--retry-failed tries them again)",
        ),
        (tally.busy, "in the hands of another process"),
    ];
    let mut parts = vec![format!("{} finished", tally.finished)];
    let others = others.iter().filter(|other| other.0 > 0);
    parts.extend(others.map(|(count, what)| format!("{count} {what}")));
    let runs = counted(tally.settled(), "run");
    let tasks: BTreeSet<&str> = plan.runs.iter().map(|run| run.task.name()).collect();
    let summary = |task: &&str| store.summary_path(task).display().to_string();
    let summaries: Vec<String> = tasks.iter().map(summary).collect();
    let report = |task: &&str| {
        let table = tasks::find(task).map_or("", |entry| entry.report);
        format!("dsf report{table}{}", global.out_flag())
    };
    let reports: Vec<String> = tasks.iter().map(report).collect();
    format!(
        "{runs}: {}.\nresults: {}\nnext:    {}",
        parts.join(", "),
        summaries.join(", "),
        reports.join(", ")
    )
}
