//! Accuracies of slices of the test answers: a line a setting and learning rate, the mean over seeds, a column a slice.

use super::super::grid::{fact, Cell, Form, Grid, Line, Style};
use super::super::score::{Score, Status};
use super::super::SCHEMA;
use super::curves::PANEL;
use super::naming::{key, names, settings, Key, Titles};
use super::Selected;
use crate::store::{places, Record, Role, SliceRow, COLUMNS};
use std::collections::{BTreeMap, BTreeSet};

/// One run and the accuracies of its slices after the last epoch.
#[derive(Clone, Debug)]
pub struct Sliced {
    /// The run.
    pub run: Record,
    /// Its slices.
    pub slices: Vec<SliceRow>,
}

/// The least and the greatest value of a slice.
type Bounds = (usize, usize);

/// The slices by the property `by`; `meaning` says what that is.
pub(in super::super) fn slices(runs: &[&Sliced], by: &str, meaning: &str) -> Selected {
    let (mut panels, head) = settings(&PANEL, &[]);
    panels.truncate(head);
    let mut of_line = settings(&["mixer"], &panels).0;
    of_line.extend(places(&[Role::Rate]));
    let tasks: BTreeSet<&str> = runs.iter().map(|run| run.run.text("task")).collect();
    let titles = Titles {
        places: panels,
        head,
        tasks: tasks.len() > 1,
    };
    let mut by_task: BTreeMap<Key, Vec<&Sliced>> = BTreeMap::new();
    for run in runs {
        let key = key(&run.run, &titles.places);
        by_task.entry(key).or_default().push(run);
    }
    let grids = by_task.iter().map(|(key, runs)| {
        let title = titles.title(key, &[]);
        Grid {
            place: [title.clone(), String::new()],
            title,
            ..panel(runs, by, &of_line)
        }
    });
    let names: Vec<String> = tasks.iter().map(|task| task.to_uppercase()).collect();
    Selected {
        heading: format!(
            "{}: test accuracy (%) after the last epoch, by {meaning}",
            names.join(", ")
        ),
        facts: vec![
            fact("schema", SCHEMA),
            fact("task", tasks.into_iter().collect::<Vec<_>>().join(",")),
            fact("by", by),
        ],
        results: Vec::new(),
        printed: Vec::new(),
        grids: grids.collect(),
        before: Vec::new(),
        after: Vec::new(),
    }
}

/// The runs of one task.
fn panel(runs: &[&Sliced], by: &str, places_of_line: &[usize]) -> Grid {
    let mut seeds: BTreeMap<Key, Vec<&Sliced>> = BTreeMap::new();
    for run in runs {
        let key = key(&run.run, places_of_line);
        seeds.entry(key).or_default().push(run);
    }
    let rows = runs.iter().flat_map(|run| &run.slices);
    let bounds = rows.filter(|row| row.by == by);
    let bounds: BTreeSet<Bounds> = bounds.map(|row| (row.from, row.to)).collect();
    let all: Vec<usize> = places(&[Role::Setting, Role::Cell, Role::Rate]);
    let (mut lines, mut records) = (Vec::new(), Vec::new());
    for (name, setting) in names(&[], places_of_line, seeds.keys().cloned().collect()) {
        let runs = &seeds[&setting];
        let cells: Vec<Status> = bounds.iter().map(|at| accuracy(runs, by, *at)).collect();
        for ((from, to), status) in bounds.iter().zip(&cells) {
            let Some(score) = status.score() else {
                continue; // tested at another length
            };
            let mut record: Vec<_> = all
                .iter()
                .map(|i| fact(COLUMNS[*i].name, runs[0].run.at(*i).json()))
                .collect();
            record.extend([
                fact("by", by),
                fact("from", *from),
                fact("to", *to),
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
    let columns = bounds.iter().map(|(from, to)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    });
    let mut grid = Grid {
        corner: format!("mixer \\ {by}"),
        form: Form::Columns,
        records,
        ..Grid::new(String::new(), columns.collect(), lines, Style::Percent)
    };
    grid.notes.extend(grid.about_seeds());
    grid
}

/// The mean over seeds of the accuracy in one slice.
fn accuracy(runs: &[&Sliced], by: &str, bounds: Bounds) -> Status {
    let of_run = |run: &&Sliced| {
        let mut rows = run.slices.iter();
        let row = rows.find(|row| row.by == by && (row.from, row.to) == bounds);
        row.map(|row| row.accuracy)
    };
    let values: Vec<f64> = runs.iter().filter_map(of_run).collect();
    if values.is_empty() {
        return Status::NoNumber;
    }
    let lr = runs[0].run.number("lr").unwrap_or(f64::NAN);
    Status::Done(Score::of(&values, lr))
}
