//! Curves over all runs of a setting, at every rate and seed: the share that has reached the stopping accuracy, and the
//! expected best of some of the rates.

use super::super::grid::{fact, Cell, Content, Grid, GridLine, PanelForm, Style, Tick};
use super::super::score::distinct_rates;
use super::super::solved::{kaplan_meier, Time};
use super::super::tuning::{bands, best_of, DRAWS};
use super::super::RunGroup;
use super::chance::{baselines, say_without_skill};
use super::panel::{filled, lines, of_lines, Titles};
use super::{facts_at, selected_of_all_rates, settings, Selected, Selection};
use crate::store::{Column, Outcome, Record};
use std::collections::BTreeSet;

/// One curve.
#[derive(Default)]
struct Curve {
    /// Its numbers, which may end before those of others.
    values: Vec<f64>,
    /// Ends of the interval around each number; empty without intervals.
    bands: Vec<[f64; 2]>,
    /// Number of runs or rates behind it.
    of: usize,
}

/// The share of runs that have reached the accuracy at which training stops, over training examples.
pub(in super::super) fn times(of: &Selection) -> Selected {
    let curves = |groups: &[&RunGroup]| {
        let times = |group: &&RunGroup| -> Vec<Time> { group.runs.iter().filter_map(|run| Time::of(run)).collect() };
        let times: Vec<Vec<Time>> = groups.iter().map(times).collect();
        let reached = times.iter().flatten().filter(|time| time.reached);
        let ends: BTreeSet<usize> = reached.map(|time| time.examples as usize).chain([0]).collect();
        let ends: Vec<usize> = ends.into_iter().collect();
        let curve = |times: &Vec<Time>| -> Curve {
            let curve = kaplan_meier(times);
            let reached = |end: &usize| {
                let before = curve.iter().rev().find(|(time, _)| *time <= *end as f64);
                1.0 - before.map_or(1.0, |(_, left)| *left)
            };
            let ends = ends.iter().filter(|_| !times.is_empty());
            Curve { values: ends.map(reached).collect(), of: times.len(), ..Curve::default() }
        };
        (times.iter().map(curve).collect(), ends)
    };
    of_all_runs(of, ["examples", "reached"], curves, |grid, _| {
        grid.form = PanelForm::Lines { over: "examples".into(), log: false, steps: true, named: false };
        grid.style = Style::Share("runs at the stopping accuracy");
        grid.notes.push(
            "Kaplan-Meier estimate over all learning rates and seeds; a run that never reached the accuracy is censored at its end"
                .to_owned(),
        );
    })
}

/// The expected best of k rates, over k.
pub(in super::super) fn tuning(of: &Selection) -> Selected {
    let curves = |groups: &[&RunGroup]| {
        let curve = |group: &&RunGroup| -> Curve {
            let rates = distinct_rates(group.runs.iter().copied()).into_iter();
            let rates = rates.map(|lr| of_rate(of, &group.runs, lr)).filter(|seeds| !seeds.is_empty());
            let rates: Vec<Vec<f64>> = rates.collect();
            let mean = |seeds: &Vec<f64>| seeds.iter().sum::<f64>() / seeds.len() as f64;
            let means: Vec<f64> = rates.iter().map(mean).collect();
            Curve { values: best_of(&means), bands: bands(&rates), of: rates.len() }
        };
        let curves: Vec<Curve> = groups.iter().map(curve).collect();
        let most = curves.iter().map(|curve| curve.values.len()).max();
        (curves, (1..=most.unwrap_or(0)).collect())
    };
    let mut selected = of_all_runs(of, ["rates tried", of.metric.name], curves, |grid, groups| {
        grid.style = Style::of(of.metric);
        grid.baselines = baselines(groups, of.metric, grid.columns.len());
        grid.notes.push(
            "expected best of k of the learning rates tried, each by its mean over seeds; a diverged run counts as 0"
                .to_owned(),
        );
        say_without_skill(grid);
    });
    let mut cells = selected.grids.iter().flat_map(|grid| &grid.lines).flat_map(|line| &line.cells);
    let banded = cells.any(|cell| matches!(cell.content, Content::Between(..)));
    selected.after.extend(banded.then(|| {
        format!(
            "bands and parentheses: 95 % percentile intervals of {DRAWS} bootstrap samples of the seeds of every rate, none \
             where a rate has one seed; with five seeds or fewer they are too narrow"
        )
    }));
    selected
}

/// One grid per task, under the title of the figure, without notes on best rates: curves of `metric` over `over`.
/// `curves` returns one for each group of a grid, and their columns; `finish` completes a grid, given its groups.
fn of_all_runs(
    of: &Selection,
    [over, metric]: [&str; 2],
    curves: impl Fn(&[&RunGroup]) -> (Vec<Curve>, Vec<usize>),
    finish: impl Fn(&mut Grid, &[&RunGroup]),
) -> Selected {
    let settings = settings();
    let cell = |(group, curve): &(&RunGroup, Curve), i: usize, column: &usize| match curve.values.get(i) {
        None => (Cell::text("-"), None),
        Some(value) => {
            let band = curve.bands.get(i).copied();
            let [low, high] = [0, 1].map(|end| band.map(|band| band[end]));
            let content = band.map_or(Content::Value(*value), |band| Content::Between(*value, band));
            let found = [
                fact("over", over),
                fact("at", *column),
                fact("metric", metric),
                fact("value", *value),
                fact("low", low),
                fact("high", high),
                fact("of", curve.of),
            ];
            let facts = facts_at(group.record, &settings).into_iter().chain(found);
            (Cell::from(content), Some(facts.collect()))
        }
    };
    let grids = Titles::of_task().panels(of.figure.runs, &of.groups).into_iter().map(|panel| {
        let (lines, groups): (Vec<GridLine>, Vec<&RunGroup>) = lines(of.figure.runs, &panel.runs, &of_lines(&[]))
            .into_iter()
            .map(|(line, groups)| (line, groups[0]))
            .unzip();
        let (curves, columns) = curves(&groups);
        let (lines, records) = filled(lines.into_iter().zip(groups.into_iter().zip(curves)), &columns, cell);
        let mut grid = Grid {
            axes: ["mixer", over].map(str::to_owned),
            form: PanelForm::Lines { over: over.into(), log: true, steps: false, named: false },
            place: panel.place,
            records,
            ..Grid::new(panel.title, columns.into_iter().map(Tick::whole), lines, Style::Percent)
        };
        finish(&mut grid, &panel.runs);
        grid
    });
    selected_of_all_rates(of, grids.collect())
}

/// The numbers of one rate by seed, where diverged runs count as 0.
fn of_rate(of: &Selection, runs: &[&Record], lr: f64) -> Vec<f64> {
    let own = runs.iter().filter(|run| run.number(Column::LR) == Some(lr));
    let numbers = own.filter_map(|run| match run.outcome() {
        Some(Outcome::Diverged) => Some(0.0),
        _ => run.number(of.metric.column),
    });
    numbers.collect()
}
