//! Grids of one metric over two axes, one grid per setting.

use super::super::figures::{Series, MIXERS};
use super::super::grid::{fact, rates_won, Cell, Form, Grid, Line, Style, Tick};
use super::super::mixed;
use super::super::score::Status;
use super::super::{Group, Orient, SCHEMA};
use super::chance::{baselines, say_without_recall};
use super::naming::{key as key_of, known, names, settings, Key, Titles, TITLE};
use super::tasks::{split, tasks, texts};
use super::{facts_at, numbers, Selected, Selection};
use crate::error::{refuse, Result};
use crate::store::{places, Field, Role, COLUMNS};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Columns of the lines, of the horizontal axis, and of the settings that distinguish grids.
struct Axes {
    lines: Vec<usize>,
    column: usize,
    titles: Titles,
    /// Number of protocols among the runs.
    protocols: usize,
}

pub(in super::super) fn axes(of: &Selection, lines: &[&str], column: &str) -> Result<Selected> {
    let axes = Axes::of(of, lines, column)?;
    let settings = split(of.figure.runs, &of.groups, &axes.titles.places);
    let mut grids = Vec::new();
    // Grids whose titles begin with the same settings are titled together, so that they name only their other
    // differences.
    let head = axes.titles.head;
    for twins in settings.chunk_by(|a, b| a.0[..head] == b.0[..head]) {
        let keys: Vec<Key> = twins.iter().map(|(key, _)| key.clone()).collect();
        for (key, groups) in twins {
            let title = axes.titles.title(key, &keys);
            grids.push(axes.grid(of, key, groups, title));
        }
    }
    Ok(selected(of, grids))
}

/// Selection of `grids`, with heading and notes for grids of one metric.
pub(super) fn selected(of: &Selection, grids: Vec<Grid>) -> Selected {
    let figure = of.figure;
    let [names, tasks] = tasks(&of.groups);
    let about = match figure.series {
        Series::Grid => names,
        _ => format!("{}, {}: {names}", figure.title(), figure.about),
    };
    let metric = of.metric.meaning.replacen("accuracy", "accuracy (%)", 1);
    let mut facts = vec![fact("schema", SCHEMA), fact("task", tasks), fact("metric", of.metric.name)];
    if figure.series == Series::Figure {
        facts.insert(1, fact("figure", figure.number));
    }
    Selected {
        heading: format!("{about}: {metric}, at the best rate"),
        facts,
        results: grids.iter().flat_map(Grid::results).collect(),
        grids,
        printed: Vec::new(),
        before: chosen(of),
        after: Vec::new(),
    }
}

/// Note on the runs that a figure of the paper selects; empty if it selects all runs of its tasks.
fn chosen(of: &Selection) -> Vec<String> {
    if matches!(of.figure.runs, [("task", _)]) {
        return Vec::new();
    }
    let settings: Vec<String> =
        of.figure.runs.iter().map(|(name, values)| format!("{name} {}", values.join(", "))).collect();
    let said = (!settings.is_empty()).then(|| format!("runs of {}", settings.join("; ")));
    said.into_iter().collect()
}

impl Axes {
    fn of(of: &Selection, lines: &[&str], column: &str) -> Result<Self> {
        let (mut lines, mut column) = (lines.to_vec(), column);
        if let Some(orient) = of.options.orient {
            if lines.len() > 1 {
                refuse!(flag "--orient", "turns grids of d and n: {} has mixers in its rows", of.figure.title());
            }
            (lines, column) = match orient {
                Orient::Brief => (vec!["n"], "d"),
                Orient::Paper => (vec!["d"], "n"),
            };
        }
        if let Some(over) = of.options.over {
            lines = MIXERS.to_vec();
            column = over.column();
        }
        lines.retain(|line| *line != column);
        let lines: Vec<usize> = lines.into_iter().map(known).collect();
        let column = known(column);
        let taken: Vec<usize> = lines.iter().copied().chain([column]).collect();
        let (places, head) = settings(&TITLE, &taken);
        Ok(Self {
            lines,
            column,
            titles: Titles { places, head, tasks: texts(&of.groups, "task").len() > 1 },
            protocols: texts(&of.groups, "protocol").len(),
        })
    }

    fn grid(&self, of: &Selection, key: &Key, groups: &[&Group], title: String) -> Grid {
        let mut cells: BTreeMap<(Key, &Field), Status> = BTreeMap::new();
        for group in groups {
            let at = (key_of(group.record, &self.lines), group.record.at(self.column));
            let status = Status::of(&group.runs, of.metric, of.metric, of.options.select);
            cells.insert(at, status);
        }
        let columns: BTreeSet<&Field> = cells.keys().map(|(_, column)| *column).collect();
        let lines = cells.keys().map(|(line, _)| line.clone()).collect();
        let names = names(of.figure.runs, &self.lines, lines);
        let status = |line: &Key, column: &&Field| {
            let found = cells.get(&(line.clone(), *column));
            found.copied().unwrap_or(Status::NotRun)
        };
        let lines = names.iter().map(|(line, key)| {
            let cells = columns.iter().map(|column| Cell::result(status(key, column)));
            Line { cells: cells.collect(), ..line.clone() }
        });
        let value = |line: &Key, column: &Field, i: usize| {
            let within = |places: &[usize], key: &Key| {
                let index = places.iter().position(|place| *place == i);
                index.map(|index| key[index].json())
            };
            let of_line = within(&self.lines, line).or_else(|| within(&self.titles.places, key));
            of_line.unwrap_or_else(|| column.json())
        };
        let of_record: Vec<usize> = places(&[Role::Setting]);
        let of_record: Vec<usize> =
            of_record.into_iter().filter(|i| !self.titles.places.contains(i)).chain(places(&[Role::Cell])).collect();
        let records = names.iter().flat_map(|(_, line)| {
            columns.iter().map(|column| {
                let mut record: Vec<(String, Value)> =
                    of_record.iter().map(|i| fact(COLUMNS[*i].name, value(line, column, *i))).collect();
                record.extend(numbers(of.metric, status(line, column)));
                record
            })
        });
        let mut shared: Vec<usize> = self.titles.places.clone();
        shared.sort_unstable();
        shared.retain(|i| COLUMNS[*i].role == Role::Setting);
        let mut grid = Grid {
            place: self.titles.place(key, self.protocols, &title),
            title,
            form: self.form(),
            baselines: baselines(groups, of.metric, columns.len()),
            axes: [self.lines[0], self.column].map(|place| COLUMNS[place].name.to_owned()),
            columns: columns.iter().map(|column| Tick::from(*column)).collect(),
            lines: lines.collect(),
            style: Style::of(of.metric),
            notes: Vec::new(),
            shared: facts_at(groups[0].record, &shared),
            facts: Vec::new(),
            records: records.collect(),
        };
        grid.notes.extend(caption(&grid));
        say_without_recall(&mut grid);
        let runs = groups.iter().flat_map(|group| group.runs.iter().copied());
        grid.notes.extend(mixed::warnings(runs));
        grid
    }

    /// Lines for mixers, a heatmap for cells of d and n.
    fn form(&self) -> Form {
        let [first, over] = [self.lines[0], self.column].map(|place| &COLUMNS[place]);
        match first.role {
            Role::Cell => Form::Heatmap,
            _ => Form::Lines {
                // The meaning of an axis is shown up to its first semicolon.
                over: format!("{} {}", over.meaning.split(';').next().unwrap_or(""), over.name),
                log: true,
                steps: false,
            },
        }
    }
}

/// Note on the best rates and on the averaging of cells; `None` without a number.
pub(super) fn caption(grid: &Grid) -> Option<String> {
    let seeds = grid.about_seeds();
    let seeds = seeds.map_or(String::new(), |seeds| seeds + "; ");
    rates_won(grid.results()).map(|rates| seeds + &rates)
}
