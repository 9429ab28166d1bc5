//! Curves over all runs of a setting, at every rate and seed: the share that has reached the stopping accuracy, and the
//! expected best of some of the rates.

use super::super::grid::{fact, Cell, Content, Form, Grid, Line, Style, Tick};
use super::super::score::distinct_rates;
use super::super::solved::{best_of, kaplan_meier, Time};
use super::super::Group;
use super::axes::selected;
use super::chance::chance_of;
use super::tasks::{lines, panels, Panel};
use super::{facts_at, Selected, Selection};
use crate::store::{places, Outcome, Record, Role};
use std::collections::BTreeSet;

/// The share of runs that have reached the accuracy at which training stops, over training examples.
pub(in super::super) fn times(of: &Selection) -> Selected {
    of_all_runs(of, |panel| {
        let times = |group: &Group| -> Vec<Time> { group.runs.iter().filter_map(|run| Time::of(run)).collect() };
        let lines: Vec<(Line, &Group, Vec<Time>)> = lines(of.figure.runs, &panel.runs, &[])
            .into_iter()
            .map(|(line, groups)| (line, groups[0], times(groups[0])))
            .collect();
        let all = lines.iter().flat_map(|(_, _, times)| times);
        let ends: BTreeSet<usize> =
            all.filter(|time| time.reached).map(|time| time.examples as usize).chain([0]).collect();
        let curves = lines.into_iter().map(|(line, group, times)| {
            let curve = kaplan_meier(&times);
            let reached = |end: &usize| {
                let before = curve.iter().rev().find(|(time, _)| *time <= *end as f64);
                1.0 - before.map_or(1.0, |(_, left)| *left)
            };
            let values: Vec<f64> = match times.is_empty() {
                true => Vec::new(),
                false => ends.iter().map(reached).collect(),
            };
            (line, group, values, times.len())
        });
        let columns: Vec<usize> = ends.iter().copied().collect();
        let mut grid = curves_of("examples", "reached", &columns, curves.collect());
        grid.form = Form::Lines { over: "examples".into(), log: false, steps: true };
        grid.style = Style::Share("runs at the stopping accuracy");
        grid.notes.push(
            "the estimate of Kaplan and Meier over all rates and seeds: a run that ended without is censored at its end"
                .to_owned(),
        );
        grid
    })
}

/// The expected best of k rates, over k.
pub(in super::super) fn tuning(of: &Selection) -> Selected {
    of_all_runs(of, |panel| {
        let lines = lines(of.figure.runs, &panel.runs, &[]).into_iter();
        let curves: Vec<(Line, &Group, Vec<f64>, usize)> = lines
            .map(|(line, groups)| {
                let rates = distinct_rates(groups[0].runs.iter().copied()).into_iter();
                let means: Vec<f64> = rates.filter_map(|lr| of_rate(of, &groups[0].runs, lr)).collect();
                (line, groups[0], best_of(&means), means.len())
            })
            .collect();
        let most = curves.iter().map(|(_, _, values, _)| values.len()).max();
        let columns: Vec<usize> = (1..=most.unwrap_or(0)).collect();
        let mut grid = curves_of("rates tried", of.metric.name, &columns, curves);
        grid.style = Style::of(of.metric);
        grid.baselines = chance_of(panel.runs[0].record, columns.len());
        grid.notes.push(
            "the expected best of k of the rates that were tried, of each the mean over seeds; a run that diverged counts as 0"
                .to_owned(),
        );
        grid
    })
}

/// One grid per task by `draw`, under the title of the figure, without notes on best rates.
fn of_all_runs(of: &Selection, draw: impl Fn(&Panel<Group>) -> Grid) -> Selected {
    let panels = panels(of.figure.runs, &of.groups);
    let grids =
        panels.into_iter().map(|panel| Grid { title: panel.title.clone(), place: panel.place.clone(), ..draw(&panel) });
    Selected {
        results: Vec::new(),
        heading: format!("{}: {}", of.figure.title(), of.figure.about),
        ..selected(of, grids.collect())
    }
}

/// The mean over the seeds of one rate, where diverged runs count as 0; `None` if no run has ended.
fn of_rate(of: &Selection, runs: &[&Record], lr: f64) -> Option<f64> {
    let own = runs.iter().filter(|run| run.number("lr") == Some(lr));
    let numbers: Vec<f64> = own
        .filter_map(|run| match run.outcome() {
            Some(Outcome::Diverged) => Some(0.0),
            _ => run.number(of.metric.name),
        })
        .collect();
    let count = numbers.len() as f64;
    (count > 0.0).then(|| numbers.iter().sum::<f64>() / count)
}

/// Curves over `over`, each with the number of runs or rates behind it. A curve may end before the others.
fn curves_of(
    over: &'static str,
    metric: &'static str,
    columns: &[usize],
    curves: Vec<(Line, &Group, Vec<f64>, usize)>,
) -> Grid {
    let all: Vec<usize> = places(&[Role::Setting, Role::Cell]);
    let (mut lines, mut records) = (Vec::new(), Vec::new());
    for (line, group, values, count) in curves {
        for (at, value) in columns.iter().zip(&values) {
            let mut record = facts_at(group.record, &all);
            record.extend([
                fact("over", over),
                fact("at", *at),
                fact("metric", metric),
                fact("value", *value),
                fact("of", count),
            ]);
            records.push(record);
        }
        let given = values.into_iter().map(|value| Cell::from(Content::Value(value)));
        let missing = std::iter::repeat_with(|| Cell::text("-"));
        let cells = given.chain(missing).take(columns.len()).collect();
        lines.push(Line { cells, ..line });
    }
    Grid {
        axes: ["mixer", over].map(str::to_owned),
        form: Form::Lines { over: over.into(), log: true, steps: false },
        records,
        ..Grid::new("", columns.iter().copied().map(Tick::whole), lines, Style::Percent)
    }
}
