//! Counts the runs behind a report, by result and by version of the program.

use super::score::{Edge, GroupStatus};
use crate::store::{Column, Outcome, Record, RunStatus};
use serde::Serialize;
use std::collections::BTreeMap;

/// Counts over the runs of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// Runs of the plan, if there was one.
    pub planned: Option<usize>,
    /// Runs with a result, diverged ones included.
    pub done: usize,
    /// Runs whose training diverged.
    pub diverged: usize,
    /// Failed runs by reason.
    pub failed: BTreeMap<String, usize>,
    /// Planned runs without a result.
    pub not_run: usize,
    /// Results left out because they are not in the plan.
    pub outside_plan: usize,
    /// Runs by the commit of the program.
    pub commits: BTreeMap<String, usize>,
    /// Total duration of training and testing in seconds.
    pub seconds: f64,
}

impl Coverage {
    pub(super) fn of(rows: &[&Record]) -> Self {
        let with = |status: Option<RunStatus>| rows.iter().filter(move |row| row.status() == status);
        let ended = || rows.iter().filter(|row| row.status().is_some());
        let reason = |row: &&Record| row.text(Column::REASON).lines().next().unwrap_or("no reason given").to_owned();
        Self {
            planned: None,
            done: with(Some(RunStatus::Done)).count(),
            diverged: ended().filter(|row| row.outcome() == Some(Outcome::Diverged)).count(),
            failed: tally(with(Some(RunStatus::Failed)).map(reason)),
            not_run: with(None).count(),
            outside_plan: 0,
            commits: tally(ended().map(|row| row.text(Column::GIT_COMMIT).to_owned())),
            seconds: ended().filter_map(|row| row.number(Column::SECONDS)).fold(0.0, |sum, seconds| sum + seconds),
        }
    }

    /// Notes below grids that show `results`.
    pub(super) fn notes(&self, results: &[GroupStatus]) -> Vec<String> {
        let mut notes = vec![self.runs()];
        notes.extend(self.failures());
        if self.outside_plan > 0 {
            let count = counted(self.outside_plan, "result");
            notes.push(format!("{count} outside the plan omitted"));
        }
        notes.extend(edges(results));
        notes.extend(passed_over(results));
        notes.extend(self.program());
        notes.push(format!("trained for {}", duration(self.seconds)));
        notes
    }

    /// Number of runs by result, the first of the [`Self::notes`].
    pub(super) fn runs(&self) -> String {
        let done = match self.planned {
            Some(planned) => format!("{} of {} done", self.done, counted(planned, "run")),
            None => format!("{} done", counted(self.done, "run")),
        };
        let failed = self.failed.values().sum();
        let rest = [(self.diverged, "of them diverged"), (failed, "failed"), (self.not_run, "not run")];
        let rest = rest.iter().filter(|(count, _)| *count > 0);
        rest.fold(done, |line, (count, what)| format!("{line}, {count} {what}"))
    }

    fn failures(&self) -> Vec<String> {
        let reasons = self.failed.iter();
        reasons.map(|(reason, count)| format!("failed in {}: {reason}", counted(*count, "run"))).collect()
    }

    fn program(&self) -> Option<String> {
        let commits: Vec<String> =
            self.commits.iter().map(|(commit, runs)| format!("{commit} ({})", counted(*runs, "run"))).collect();
        match commits.len() {
            0 => None,
            1 => self.commits.keys().next().map(|only| format!("git {only}")),
            many => Some(format!("warning: runs of {many} commits are mixed: {}", commits.join(", "))),
        }
    }
}

fn edges(results: &[GroupStatus]) -> Option<String> {
    let edges: Vec<Edge> = results.iter().filter_map(|status| status.score()?.edge).collect();
    let at = |edge| edges.iter().filter(|e| **e == edge).count();
    let (lowest, highest) = (at(Edge::Lowest), at(Edge::Highest));
    let place = match (lowest, highest) {
        (0, 0) => return None,
        (low, 0) => format!("the lowest rate tried won in {}", counted(low, "cell")),
        (0, high) => format!("the highest rate tried won in {}", counted(high, "cell")),
        (low, high) => format!("the lowest rate tried won in {low}, the highest in {high} cells"),
    };
    Some(format!("hint: {place}; a better one may lie outside"))
}

fn passed_over(results: &[GroupStatus]) -> Option<String> {
    let cells = results.iter().filter(|status| status.score().is_some_and(|score| score.passed_over)).count();
    let cells = (cells > 0).then(|| counted(cells, "cell"))?;
    Some(format!("note: in {cells} a rate that lacks seeds has a better mean so far; the best of those with the most seeds is shown"))
}

/// The number of times that each value occurs.
pub(super) fn tally<T: Ord>(values: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts
}

pub(super) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
