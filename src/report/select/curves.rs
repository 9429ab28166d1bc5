//! Training curves: the numbers of every epoch, a line a setting and learning rate, the mean over seeds.

use super::super::grid::{fact, Cell, Form, Grid, Line, Style};
use super::super::score::{Score, Status};
use super::super::SCHEMA;
use super::chance::chance_of;
use super::naming::{key, names, settings, Key, Titles};
use super::Selected;
use crate::config::Objective;
use crate::store::{places, EpochRow, Record, Role, COLUMNS};
use std::collections::{BTreeMap, BTreeSet};

/// What tells panels apart: the task and its data. All else belongs to a line.
#[rustfmt::skip]
pub(super) const PANEL: [&str; 9] = [
    "task", "protocol", "dataset", "tokenizer", "contour_length", "seq_len", "kv_pairs", "vocab_size", "train_examples",
];

/// One run and its epochs.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The run.
    pub run: Record,
    /// Its epochs, from the first.
    pub epochs: Vec<EpochRow>,
}

/// One number of every epoch.
struct Measure {
    /// For programs.
    name: &'static str,
    /// For readers.
    title: &'static str,
    style: Style,
    of: fn(&EpochRow) -> Option<f64>,
}

/// Of tasks with right answers.
#[rustfmt::skip]
const ANSWERS: [Measure; 2] = [
    Measure { name: "train_loss", title: "training loss", style: Style::Loss, of: |row| Some(row.train_loss) },
    Measure { name: "accuracy", title: "test accuracy", style: Style::Percent, of: |row| Some(row.accuracy) },
];

/// Of language models.
#[rustfmt::skip]
const TEXTS: [Measure; 2] = [
    Measure { name: "train_ppl", title: "training perplexity", style: Style::Perplexity, of: |row| Some(row.train_loss.exp()) },
    Measure { name: "val_ppl", title: "validation perplexity", style: Style::Perplexity, of: |row| row.val_loss.map(f64::exp) },
];

pub(in super::super) fn curves(curves: &[&Curve]) -> Selected {
    let (mut panels, head) = settings(&PANEL, &[]);
    panels.truncate(head);
    let mut of_line = settings(&["mixer"], &panels).0;
    of_line.extend(places(&[Role::Rate]));
    let texts = |name: &str| -> BTreeSet<&str> {
        let texts = curves.iter().map(|curve| curve.run.text(name));
        texts.collect()
    };
    let tasks = texts("task");
    let titles = Titles {
        places: panels,
        head,
        tasks: tasks.len() > 1,
    };
    let mut by_task: BTreeMap<Key, Vec<&Curve>> = BTreeMap::new();
    for curve in curves {
        let key = key(&curve.run, &titles.places);
        by_task.entry(key).or_default().push(curve);
    }
    let mut grids = Vec::new();
    for (key, curves) in &by_task {
        let title = titles.title(key, &[]);
        for measure in measures(&curves[0].run) {
            let place = [measure.title.to_owned(), title.clone()];
            let panel = panel(measure, curves, &of_line);
            let title = format!("{}: {title}", measure.title);
            grids.push(Grid {
                title,
                place,
                ..panel
            });
        }
    }
    let names: Vec<String> = tasks.iter().map(|task| task.to_uppercase()).collect();
    Selected {
        heading: format!("Training curves: {}, by epoch", names.join(", ")),
        facts: vec![
            fact("schema", SCHEMA),
            fact("task", tasks.into_iter().collect::<Vec<_>>().join(",")),
        ],
        results: Vec::new(),
        printed: Vec::new(),
        grids,
        before: Vec::new(),
        after: Vec::new(),
    }
}

fn measures(run: &Record) -> &'static [Measure; 2] {
    let task = crate::tasks::find(run.text("task"));
    match task.map(|task| task.objective) {
        Ok(Objective::NextToken) => &TEXTS,
        _ => &ANSWERS,
    }
}

/// One number of the runs of one task.
fn panel(measure: &'static Measure, curves: &[&Curve], places_of_line: &[usize]) -> Grid {
    let mut seeds: BTreeMap<Key, Vec<&Curve>> = BTreeMap::new();
    for curve in curves {
        let key = key(&curve.run, places_of_line);
        seeds.entry(key).or_default().push(curve);
    }
    let last = curves
        .iter()
        .flat_map(|curve| &curve.epochs)
        .map(|row| row.epoch);
    let epochs: Vec<usize> = (1..=last.max().unwrap_or(0)).collect();
    let all: Vec<usize> = places(&[Role::Setting, Role::Cell, Role::Rate]);
    let (mut lines, mut records) = (Vec::new(), Vec::new());
    for (name, setting) in names(&[], places_of_line, seeds.keys().cloned().collect()) {
        let runs = &seeds[&setting];
        let at = |epoch: &usize| after(measure, runs, *epoch);
        let cells: Vec<Status> = epochs.iter().map(at).collect();
        for (epoch, status) in epochs.iter().zip(&cells) {
            let Some(score) = status.score() else {
                continue; // training had ended
            };
            let mut record: Vec<_> = all
                .iter()
                .map(|i| fact(COLUMNS[*i].name, runs[0].run.at(*i).json()))
                .collect();
            record.extend([
                fact("metric", measure.name),
                fact("epoch", *epoch),
                fact("mean", score.mean),
                fact("std", score.std),
                fact("seeds", score.seeds),
            ]);
            records.push(record);
        }
        lines.push(Line {
            name,
            printed: false,
            cells: cells.into_iter().map(Cell::result).collect(),
        });
    }
    let columns: Vec<String> = epochs.iter().map(ToString::to_string).collect();
    let baselines = match measure.style {
        Style::Percent => chance_of(&curves[0].run, columns.len()),
        _ => Vec::new(),
    };
    let mut grid = Grid {
        corner: "mixer \\ epoch".into(),
        form: Form::Lines {
            over: "epoch".into(),
            log: false,
            steps: false,
        },
        baselines,
        records,
        ..Grid::new(String::new(), columns, lines, measure.style)
    };
    let stopped = " that were still training";
    grid.notes
        .extend(grid.about_seeds().map(|seeds| seeds + stopped));
    grid
}

/// The mean over the seeds that were trained for so many epochs.
fn after(measure: &Measure, runs: &[&Curve], epoch: usize) -> Status {
    let rows = runs
        .iter()
        .filter_map(|curve| curve.epochs.iter().find(|row| row.epoch == epoch));
    let values = rows
        .filter_map(|row| (measure.of)(row))
        .filter(|value| value.is_finite());
    let values: Vec<f64> = values.collect();
    if values.is_empty() {
        return Status::NoNumber;
    }
    let lr = runs[0].run.number("lr").unwrap_or(f64::NAN);
    Status::Done(Score::of(&values, lr))
}
