//! Numbers per epoch, or per slice of the test answers: the mean over seeds, one line per setting and rate.

use super::super::grid::{fact, Baseline, Cell, Facts, Grid, GridLine, PanelForm, Style, Tick};
use super::super::score::{GroupStatus, Score};
use super::super::{By, SCHEMA};
use super::chance::{chance_of, say_without_skill, without_skill_in, WITHOUT_SKILL};
use super::panel::{filled, lines, of_lines, tasks, PanelRuns, Titles};
use super::{facts_at, Selected};
use crate::config::Objective;
use crate::store::{places, Column, EpochRow, Record, Role, SliceRow};
use std::collections::{BTreeMap, BTreeSet};

/// A run, and the rows of one of its files.
#[derive(Clone, Debug)]
pub struct Traced<R> {
    /// The run.
    pub run: Record,
    /// The rows, in the order of the file.
    pub rows: Vec<R>,
}

impl<R> AsRef<Record> for Traced<R> {
    fn as_ref(&self) -> &Record {
        &self.run
    }
}

/// One number of every epoch.
struct TracedMetric {
    /// Name for programs.
    name: &'static str,
    /// Title for readers.
    title: &'static str,
    style: Style,
    of: fn(&EpochRow) -> Option<f64>,
}

/// Measures of tasks with correct answers.
#[rustfmt::skip]
const ANSWERS: [TracedMetric; 2] = [
    TracedMetric { name: "train_loss", title: "training loss", style: Style::Loss, of: |row| Some(row.train_loss) },
    TracedMetric { name: "accuracy", title: "test accuracy", style: Style::Percent, of: |row| Some(row.accuracy) },
];

/// Measures of language models.
#[rustfmt::skip]
const TEXTS: [TracedMetric; 2] = [
    TracedMetric { name: "train_ppl", title: "training perplexity", style: Style::Perplexity, of: |row| Some(row.train_loss.exp()) },
    TracedMetric { name: "val_ppl", title: "validation perplexity", style: Style::Perplexity, of: |row| row.val_loss.map(f64::exp) },
];

/// Training curves: two numbers of every epoch.
pub(in super::super) fn curves(runs: &[Traced<EpochRow>]) -> Selected {
    let panels = Titles::of_task().panels(&[], runs);
    let each = panels.iter().flat_map(|panel| {
        let measures = measures(&panel.runs[0].run);
        measures.iter().map(|measure| curve(measure, panel))
    });
    let [names, task] = tasks(runs);
    selected(format!("Training curves: {names}, by epoch"), vec![fact("task", task)], each.collect())
}

/// Accuracies of slices of the test answers after the last epoch.
pub(in super::super) fn slices(runs: &[Traced<SliceRow>], by: By) -> Selected {
    let panels = Titles::of_task().panels(&[], runs);
    let grids = panels.iter().map(|panel| sliced(by, panel));
    let ([names, task], [name, meaning]) = (tasks(runs), by.names());
    let heading = format!("{names}: test accuracy (%) after the last epoch, by {meaning}");
    selected(heading, vec![fact("task", task), fact("by", name)], grids.collect())
}

fn selected(heading: String, facts: Facts, grids: Vec<Grid>) -> Selected {
    Selected { heading, facts: [vec![fact("schema", SCHEMA)], facts].concat(), grids, ..Selected::default() }
}

fn measures(run: &Record) -> &'static [TracedMetric; 2] {
    let task = crate::tasks::find(run.text(Column::TASK));
    match task.map(|task| task.objective) {
        Ok(Objective::NextToken) => &TEXTS,
        _ => &ANSWERS,
    }
}

fn curve(measure: &TracedMetric, panel: &PanelRuns<Traced<EpochRow>>) -> Grid {
    let rows = panel.runs.iter().flat_map(|run| &run.rows);
    let last = rows.map(|row| row.epoch).max().unwrap_or(0);
    let epochs: Vec<usize> = (1..=last).collect();
    let number = |row: &EpochRow| Some((row.epoch, (measure.of)(row)?));
    let at = |epoch: &usize| vec![fact("metric", measure.name), fact("epoch", *epoch)];
    let (lines, records) = means(&panel.runs, &epochs, number, at);
    let baselines = match measure.style {
        Style::Percent => chance_of(panel.runs.iter().map(|traced| &traced.run), epochs.len()).into_iter().collect(),
        _ => Vec::new(),
    };
    let title = format!("{}: {}", measure.title, panel.title);
    let mut grid = Grid {
        axes: ["mixer", "epoch"].map(str::to_owned),
        form: PanelForm::Lines { over: "epoch".into(), log: false, steps: false, named: false },
        place: [measure.title.to_owned(), panel.title.clone()],
        baselines,
        records,
        ..Grid::new(title, epochs.into_iter().map(Tick::whole), lines, measure.style)
    };
    let seeds = grid.about_seeds();
    grid.notes.extend(seeds.map(|seeds| seeds + " that were still training"));
    say_without_skill(&mut grid);
    grid
}

fn sliced(by: By, panel: &PanelRuns<Traced<SliceRow>>) -> Grid {
    let [name, _] = by.names();
    let rows = panel.runs.iter().flat_map(|run| &run.rows);
    let slices: BTreeSet<_> = rows.filter(|row| row.by == name).map(|row| (row.from, row.to)).collect();
    let slices: Vec<(usize, usize)> = slices.into_iter().collect();
    let number = |row: &SliceRow| (row.by == name).then_some(((row.from, row.to), row.accuracy));
    let run = &panel.runs[0].run;
    let known = slices.iter().map(|slice| without_skill_in(run, name, *slice));
    let levels: Vec<Option<(&str, f64)>> = known.collect();
    let level = |slice: &Option<(&str, f64)>| slice.map(|(_, level)| level);
    let at = |slice: &(usize, usize)| {
        let place = slices.binary_search(slice).expect("a slice of these rows");
        vec![fact("by", name), fact("from", slice.0), fact("to", slice.1), fact(WITHOUT_SKILL, level(&levels[place]))]
    };
    let (mut lines, records) = means(&panel.runs, &slices, number, at);
    let label = levels.iter().flatten().map(|(label, _)| *label).next();
    let cells = levels.iter().map(|known| Cell::value(level(known))).collect();
    lines.extend(label.map(|label| GridLine::of_baseline(label, cells)));
    let baseline =
        label.map(|name| Baseline { name, levels: levels.iter().map(|known| Vec::from_iter(level(known))).collect() });
    let titles = slices.iter().map(|(from, to)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    });
    let mut grid = Grid {
        axes: ["mixer", name].map(str::to_owned),
        place: [panel.title.clone(), String::new()],
        baselines: baseline.into_iter().collect(),
        records,
        ..Grid::new(panel.title.clone(), titles, lines, Style::Percent)
    };
    grid.notes.extend(grid.about_seeds());
    grid
}

/// Means over seeds in each of `columns`: one line per setting and rate, and one record per number. `number` returns
/// the column and the number of a row, `at` the facts on a column.
fn means<R, C: Ord>(
    runs: &[&Traced<R>],
    columns: &[C],
    number: impl Fn(&R) -> Option<(C, f64)>,
    at: impl Fn(&C) -> Facts,
) -> (Vec<GridLine>, Vec<Facts>) {
    let settings = places(&[Role::Setting, Role::Cell, Role::Rate]);
    let lines = lines(&[], runs, &of_lines(&[Role::Rate])).into_iter().map(|(line, seeds)| {
        let numbers = |run: &&Traced<R>| -> BTreeMap<C, f64> { run.rows.iter().filter_map(&number).collect() };
        (line, (&seeds[0].run, seeds.iter().map(numbers).collect()))
    });
    filled(lines, columns, |(run, numbers): &(&Record, Vec<BTreeMap<C, f64>>), _, column| {
        let found = numbers.iter().filter_map(|run| run.get(column).copied());
        let values: Vec<f64> = found.filter(|value| value.is_finite()).collect();
        if values.is_empty() {
            return (Cell::result(GroupStatus::NoNumber), None);
        }
        let score = Score::of(&values, run.number(Column::LR).unwrap_or(f64::NAN));
        let found = [fact("mean", score.mean), fact("std", score.std), fact("seeds", score.seeds)];
        let record = facts_at(run, &settings).into_iter().chain(at(column)).chain(found);
        (Cell::result(GroupStatus::Done(score)), Some(record.collect()))
    })
}
