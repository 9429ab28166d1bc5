//! Results at the end of a sweep: the best run of each mixer in a sentence, and the grids of a small plan.

use crate::cli::screen::without_skill;
use crate::config::RunConfig;
use crate::error::Result;
use crate::recipes::presets_of;
use crate::report::{report, Figure, FigureSeries, ReportOptions, TextTarget, FORMATS};
use crate::store::{Column, Metric, MetricFormat, Outcome, Record, RunStatus, Store};
use crate::sweep::Plan;
use crate::tasks;
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of lines of grids at the end of a sweep; `dsf report` shows larger ones.
const MOST_LINES: usize = 40;

/// Settings that identify the best run of a mixer, if the plan varies them: column and name.
const VARIED: [(Column, &str); 6] = [
    (Column::D, "d"),
    (Column::N, "n"),
    (Column::SEQ_LEN, "L"),
    (Column::KV_PAIRS, "k"),
    (Column::LR, "lr"),
    (Column::SEED, "seed"),
];

pub(super) struct PlanResults<'a> {
    planned: &'a [RunConfig],
    rows: Vec<Record>,
}

/// Best run of one mixer on one task.
struct Best<'a> {
    /// Dataset, for a task that has several, otherwise the task.
    task: &'a str,
    metric: &'static Metric,
    value: f64,
    row: &'a Record,
}

impl<'a> PlanResults<'a> {
    /// Reads the available results of `plan`.
    pub fn of(plan: &'a Plan, store: &Store) -> Result<Self> {
        let mut rows = Vec::new();
        for run in &plan.runs {
            let result = store.result(&run.id())?;
            rows.extend(result.map(|result| Record::new(run, &result)));
        }
        let planned = &plan.runs;
        Ok(Self { planned, rows })
    }

    /// Returns the best run of each mixer on each task, the best mixer first.
    fn best(&self) -> Vec<Best<'_>> {
        let mut best: BTreeMap<(&str, &str), Best> = BTreeMap::new();
        for found in self.rows.iter().filter_map(Best::of) {
            let key = (found.task, found.row.text(Column::MIXER));
            let known = best.get(&key);
            if known.is_none_or(|known| found.is_above(known)) {
                best.insert(key, found);
            }
        }
        let mut best: Vec<Best> = best.into_values().collect();
        best.sort_by(|a, b| {
            let better = || a.metric.compare(b.value, a.value);
            a.task.cmp(b.task).then_with(better)
        });
        best
    }

    /// Returns one line per task for people; empty if no run has a metric.
    pub fn sentences(&self) -> Vec<String> {
        let best = self.best();
        let tasks: BTreeSet<&str> = best.iter().map(|best| best.task).collect();
        let line = |task: &&str| {
            let of_task = best.iter().filter(|best| best.task == *task);
            let each: Vec<String> = of_task.map(|best| self.described(best)).collect();
            format!("best on {task}: {}", each.join(", "))
        };
        tasks.iter().map(line).collect()
    }

    fn described(&self, best: &Best) -> String {
        let of_task = |row: &&Record| name(row) == best.task;
        let varied = VARIED.iter().filter(|(column, _)| {
            let mut values = self.rows.iter().filter(of_task).map(|row| row.get(*column));
            let first = values.next();
            values.any(|value| Some(value) != first)
        });
        let settings: Vec<String> = varied
            .map(|(column, name)| match best.row.number(*column) {
                Some(rate) if *column == Column::LR => format!("{name}={rate:.3e}"),
                _ => format!("{name}={}", best.row.get(*column)),
            })
            .collect();
        let mixer = best.row.text(Column::MIXER);
        let number = match best.metric.shown {
            MetricFormat::Percent => format!("{:.1} %", 100.0 * best.value),
            _ => format!("{} {:.2}", best.metric.name, best.value),
        };
        let settings = (!settings.is_empty()).then(|| settings.join(" "));
        let details: Vec<String> = settings.into_iter().chain(self.without_skill(best)).collect();
        if details.is_empty() {
            format!("{mixer} {number}")
        } else {
            format!("{mixer} {number} ({})", details.join(", "))
        }
    }

    /// Says so if the accuracy of a run is reached without the skill that its task tests.
    fn without_skill(&self, best: &Best) -> Option<String> {
        let config = self.planned.iter().find(|config| config.id() == best.row.run_id())?;
        let without = without_skill(config)?;
        let reached = best.metric.column == Column::ACCURACY && best.value <= without.accuracy;
        reached.then(|| format!("{} shown", without.label))
    }

    /// Returns the grids of the plan without their notes, if they fit on a screen.
    pub fn grids(&self, colour: bool) -> Result<Option<String>> {
        let drawn = |run: &Record| Figure::showing(run).series == FigureSeries::Grid;
        let rows: Vec<Record> = self.rows.iter().filter(|row| drawn(row)).cloned().collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let figure = Figure::find(FigureSeries::Grid, "")?;
        let runs: Vec<RunConfig> = self.planned.iter().filter(|run| drawn(&Record::planned(run))).cloned().collect();
        let mut report = report(figure, &rows, Some(&runs), &presets_of, &ReportOptions::default())?;
        report.notes.clear();
        report.grids.iter_mut().for_each(|grid| grid.notes.clear());
        let screen = TextTarget { colour, width: None };
        let text = FORMATS[0].render(&report, screen)?;
        let text = String::from_utf8_lossy(&text).trim_end().to_owned();
        Ok((text.lines().count() <= MOST_LINES).then_some(text))
    }

    pub fn events(&self) -> Vec<Value> {
        let event = |best: Best| {
            json!({ "task": best.task, "mixer": best.row.text(Column::MIXER), "run": best.row.run_id(),
                    "metric": best.metric.name, "value": best.value })
        };
        self.best().into_iter().map(event).collect()
    }
}

impl<'a> Best<'a> {
    /// Returns the run of `row` if it ended with a metric and has not diverged.
    fn of(row: &'a Record) -> Option<Self> {
        let done = row.status() == Some(RunStatus::Done);
        if !done || row.outcome() == Some(Outcome::Diverged) {
            return None;
        }
        let metric = Metric::find(tasks::find(row.text(Column::TASK)).ok()?.headline)?;
        Some(Self { task: name(row), metric, value: row.number(metric.column)?, row })
    }

    fn is_above(&self, other: &Self) -> bool {
        self.metric.compare(self.value, other.value).is_gt()
    }
}

/// Returns the dataset, for a task that has several, otherwise the task.
fn name(row: &Record) -> &str {
    match row.text(Column::DATASET) {
        "" => row.text(Column::TASK),
        dataset => dataset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes::task;
    use crate::recipes::Flags;
    use crate::store::samples::{diverged, done, provenance};
    use clap::{Args, Command, FromArgMatches};

    fn plan(line: &str) -> Plan {
        let command = Flags::augment_args(Command::new("dsf").no_binary_name(true));
        let found = command.try_get_matches_from(line.split_whitespace());
        let flags = Flags::from_arg_matches(&found.unwrap()).unwrap();
        Plan::of(task("mqar").unwrap(), &flags).unwrap()
    }

    #[test]
    fn the_best_run_of_each_mixer_is_named_by_what_the_plan_varies() {
        let plan = plan("--preset smoke --mixer softmax,linear,s6 --lr 1e-3,5e-3");
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let results = [done(0.5), done(0.25), done(0.125), done(0.75), diverged(), diverged()];
        for (run, result) in plan.runs.iter().zip(&results) {
            store.begin(run, &provenance()).unwrap().finish(result).unwrap();
        }
        let learnt = PlanResults::of(&plan, &store).unwrap();
        let said = "best on mqar: linear 75.0 % (lr=5.000e-3), softmax 50.0 % (lr=1.000e-3, no recall shown)";
        assert_eq!(learnt.sentences(), [said]);
        let events = learnt.events();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0]["run"], plan.runs[3].id());
        let drawn = learnt.grids(false).unwrap().unwrap();
        assert!(drawn.contains("softmax, reference") && drawn.contains("50.0"), "{drawn}");
        assert!(!drawn.contains("git"), "{drawn}");
    }

    #[test]
    fn without_a_result_nothing_is_said() {
        let plan = plan("--preset smoke");
        let folder = tempfile::tempdir().unwrap();
        let learnt = PlanResults::of(&plan, &Store::open(folder.path()).unwrap()).unwrap();
        assert!(learnt.sentences().is_empty() && learnt.events().is_empty());
        assert_eq!(learnt.grids(false).unwrap(), None);
    }
}
