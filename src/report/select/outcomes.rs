//! All runs of a setting as one, over their rates and seeds: when they reach the accuracy at which training stops, and what the
//! best of some of their rates is expected to be.

use super::super::grid::{fact, Cell, Content, Facts, Form, Grid, Line, Style};
use super::super::score::distinct_rates;
use super::super::solved::{best_of, kaplan_meier, Time};
use super::super::Group;
use super::axes::selected;
use super::chance::chance_of;
use super::naming::{key, names, Key};
use super::points::by_task;
use super::{Selected, Selection};
use crate::store::{places, Outcome, Record, Role, COLUMNS};
use std::collections::{BTreeMap, BTreeSet};

/// The share of runs that have reached the accuracy at which training stops, over training examples.
pub(in super::super) fn times(of: &Selection) -> Selected {
    let grids = by_task(of, |groups, title, places_of_line| {
        let lines: Vec<(String, &Group, Vec<Time>)> = lines(of, groups, places_of_line)
            .into_iter()
            .map(|(name, group)| {
                let times = group.runs.iter().filter_map(|run| Time::of(run));
                (name, group, times.collect())
            })
            .collect();
        let ends: BTreeSet<u64> = lines
            .iter()
            .flat_map(|(_, _, times)| times.iter().filter(|time| time.reached))
            .map(|time| time.examples as u64)
            .chain([0])
            .collect();
        let curves = lines.into_iter().map(|(name, group, times)| {
            let curve = kaplan_meier(&times);
            let reached = |end: &u64| {
                let before = curve.iter().rev().find(|(time, _)| *time <= *end as f64);
                1.0 - before.map_or(1.0, |(_, left)| *left)
            };
            let values: Vec<f64> = match times.is_empty() {
                true => Vec::new(),
                false => ends.iter().map(reached).collect(),
            };
            (name, group, values, times.len())
        });
        let columns: Vec<String> = ends.iter().map(u64::to_string).collect();
        let mut grid = curves_of("examples", "reached", columns, curves.collect());
        grid.form = Form::Lines {
            over: "examples".into(),
            log: false,
            steps: true,
        };
        grid.title = title;
        grid.style = Style::Share("runs at the stopping accuracy");
        grid.notes.push(
            "the estimate of Kaplan and Meier over all rates and seeds: a run that ended without is censored at its end"
                .to_owned(),
        );
        grid
    });
    of_all_runs(of, grids)
}

/// The expected best of k rates, over k.
pub(in super::super) fn tuning(of: &Selection) -> Selected {
    let grids = by_task(of, |groups, title, places_of_line| {
        let curves: Vec<(String, &Group, Vec<f64>, usize)> = lines(of, groups, places_of_line)
            .into_iter()
            .map(|(name, group)| {
                let means: Vec<f64> = distinct_rates(group.runs.iter().copied())
                    .into_iter()
                    .filter_map(|lr| of_rate(of, &group.runs, lr))
                    .collect();
                (name, group, best_of(&means), means.len())
            })
            .collect();
        let most = curves.iter().map(|(_, _, values, _)| values.len()).max();
        let columns: Vec<String> = (1..=most.unwrap_or(0)).map(|k| k.to_string()).collect();
        let baselines = groups
            .first()
            .map(|group| chance_of(group.record, columns.len()));
        let mut grid = curves_of("rates tried", of.metric.name, columns, curves);
        grid.title = title;
        grid.style = Style::of(of.metric);
        grid.baselines = baselines.unwrap_or_default();
        grid.notes.push(
            "the expected best of k of the rates that were tried, of each the mean over seeds; a run that diverged counts as 0"
                .to_owned(),
        );
        grid
    });
    of_all_runs(of, grids)
}

/// `grids` under the title of their figure. No rate won in them.
fn of_all_runs(of: &Selection, grids: Vec<Grid>) -> Selected {
    Selected {
        results: Vec::new(),
        heading: format!("{}: {}", of.figure.title(), of.figure.about),
        ..selected(of, grids)
    }
}

/// The mean over the seeds of one rate; `None` where no run has ended.
fn of_rate(of: &Selection, runs: &[&Record], lr: f64) -> Option<f64> {
    let own = runs.iter().filter(|run| run.number("lr") == Some(lr));
    let numbers = own.filter_map(|run| match run.outcome() {
        Some(Outcome::Diverged) => Some(0.0),
        _ => run.number(of.metric.name),
    });
    let numbers: Vec<f64> = numbers.collect();
    let count = numbers.len() as f64;
    (count > 0.0).then(|| numbers.iter().sum::<f64>() / count)
}

/// The settings of a task by the names of their lines.
fn lines<'a>(
    of: &Selection,
    groups: &[&'a Group<'a>],
    places_of_line: &[usize],
) -> Vec<(String, &'a Group<'a>)> {
    let mut by_setting: BTreeMap<Key, &Group> = BTreeMap::new();
    for group in groups {
        by_setting.insert(key(group.record, places_of_line), group);
    }
    let keys = by_setting.keys().cloned().collect();
    let named = names(of.figure.runs, places_of_line, keys);
    named
        .into_iter()
        .map(|(name, setting)| (name, by_setting[&setting]))
        .collect()
}

/// Curves over `over`, of which a shorter one ends before the others; each with the runs or rates that it is of.
fn curves_of(
    over: &'static str,
    metric: &'static str,
    columns: Vec<String>,
    curves: Vec<(String, &Group, Vec<f64>, usize)>,
) -> Grid {
    let all: Vec<usize> = places(&[Role::Setting, Role::Cell]);
    let (mut lines, mut records) = (Vec::new(), Vec::new());
    for (name, group, values, count) in curves {
        for (at, value) in columns.iter().zip(&values) {
            let own = all.iter();
            let mut record: Facts = own
                .map(|i| fact(COLUMNS[*i].name, group.record.at(*i).json()))
                .collect();
            record.extend([
                fact("over", over),
                fact("at", at.parse::<u64>().unwrap_or(0)),
                fact("metric", metric),
                fact("value", *value),
                fact("of", count),
            ]);
            records.push(record);
        }
        let given = values
            .into_iter()
            .map(|value| Cell::from(Content::Value(value)));
        let missing = std::iter::repeat_with(|| Cell::text("-"));
        lines.push(Line {
            name,
            printed: false,
            cells: given.chain(missing).take(columns.len()).collect(),
        });
    }
    Grid {
        corner: format!("mixer \\ {over}"),
        form: Form::Lines {
            over: over.into(),
            log: true,
            steps: false,
        },
        records,
        ..Grid::new(String::new(), columns, lines, Style::Percent)
    }
}
