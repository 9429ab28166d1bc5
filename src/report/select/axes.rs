//! Grids of one metric over two axes, a grid a setting.

use super::super::coverage::counted;
use super::super::figures::Series;
use super::super::grid::{chosen_rate, fact, Cell, Grid, Line, Style};
use super::super::mixed;
use super::super::presets::said;
use super::super::score::Status;
use super::super::{Group, Orient, SCHEMA};
use super::{Selected, Selection};
use crate::error::{refuse, Result};
use crate::store::{place, places, Field, Role, COLUMNS};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The settings that every title says, in the order that grids are sorted by.
#[rustfmt::skip]
const TITLE: [&str; 7] =
    ["task", "protocol", "seq_len", "kv_pairs", "vocab_size", "train_examples", "mixer"];

/// What runs down, what runs across, and what tells grids apart: places of columns.
struct Axes {
    lines: Vec<usize>,
    column: usize,
    /// Those of titles first.
    grids: Vec<usize>,
    /// How many of `grids` every title says.
    head: usize,
}

/// The values of some columns.
type Key<'a> = Vec<&'a Field>;

pub(in super::super) fn axes(of: &Selection, lines: &[&str], column: &str) -> Result<Selected> {
    let axes = Axes::of(of, lines, column)?;
    let mut settings: BTreeMap<Key, Vec<&Group>> = BTreeMap::new();
    for group in &of.groups {
        let key = axes.grids.iter().map(|place| group.record.at(*place));
        settings.entry(key.collect()).or_default().push(group);
    }
    let settings: Vec<(Key, Vec<&Group>)> = settings.into_iter().collect();
    let tasks: BTreeSet<&str> = of.groups.iter().map(|g| g.record.text("task")).collect();
    let mut grids = Vec::new();
    // Twins share all that every title says.
    for twins in settings.chunk_by(|a, b| a.0[..axes.head] == b.0[..axes.head]) {
        for (key, groups) in twins {
            let title = axes.title(key, twins, tasks.len() > 1);
            grids.push(axes.grid(of, key, groups, title));
        }
    }
    let figure = of.figure;
    let names: Vec<String> = tasks.iter().map(|task| task.to_uppercase()).collect();
    let names = names.join(", ");
    let about = match figure.series {
        Series::Grid => names,
        _ => format!("{}, {}: {names}", figure.title(), figure.about),
    };
    let metric = of.metric.meaning.replacen("accuracy", "accuracy (%)", 1);
    let tasks: Vec<&str> = tasks.into_iter().collect();
    let mut facts = vec![
        fact("schema", SCHEMA),
        fact("task", tasks.join(",")),
        fact("metric", of.metric.name),
    ];
    if figure.series == Series::Figure {
        facts.insert(1, fact("figure", figure.number));
    }
    Ok(Selected {
        heading: format!("{about}: {metric}, at the best rate"),
        facts,
        results: grids.iter().flat_map(Grid::results).collect(),
        grids,
        printed: Vec::new(),
        before: chosen(of),
        after: Vec::new(),
    })
}

/// Which runs a figure of the paper selects.
fn chosen(of: &Selection) -> Vec<String> {
    let settings = of.figure.runs.iter();
    let settings: Vec<String> = settings
        .map(|(name, values)| format!("{name} {}", values.join(", ")))
        .collect();
    let said = (!settings.is_empty()).then(|| format!("runs of {}", settings.join("; ")));
    said.into_iter().collect()
}

impl Axes {
    fn of(of: &Selection, lines: &[&str], column: &str) -> Result<Self> {
        let (mut lines, mut column) = (lines.to_vec(), column);
        if let Some(orient) = of.asked.orient {
            if lines.len() > 1 {
                refuse!(
                    "--orient turns grids of d and n: {} has mixers in its rows",
                    of.figure.title()
                );
            }
            (lines, column) = match orient {
                Orient::Brief => (vec!["n"], "d"),
                Orient::Paper => (vec!["d"], "n"),
            };
        }
        lines.retain(|line| *line != column);
        let known = |name: &str| place(name).expect("a test walks the names of FIGURES");
        let lines: Vec<usize> = lines.into_iter().map(known).collect();
        let column = known(column);
        let free = |i: &usize| !lines.contains(i) && *i != column;
        let mut grids: Vec<usize> = TITLE.map(known).into_iter().filter(free).collect();
        let head = grids.len();
        let rest = places(&[Role::Setting, Role::Cell])
            .into_iter()
            .filter(free);
        let rest: Vec<usize> = rest.filter(|i| !grids.contains(i)).collect();
        grids.extend(rest);
        Ok(Self {
            lines,
            column,
            grids,
            head,
        })
    }

    /// Everything that titles always say, and what tells the grid from its `twins`.
    fn title(&self, key: &Key, twins: &[(Key, Vec<&Group>)], several_tasks: bool) -> String {
        let value = |name: &str| {
            let index = self.grids.iter().position(|i| COLUMNS[*i].name == name);
            index.map_or(String::new(), |index| said(key[index]))
        };
        let mut parts = Vec::new();
        if several_tasks {
            parts.push(value("task"));
        }
        parts.extend([value("mixer"), value("protocol")]);
        let sizes = [("L", "seq_len"), ("k", "kv_pairs"), ("V", "vocab_size")];
        let sizes = sizes.map(|(letter, name)| (letter, value(name)));
        // Empty where it is an axis, 0 where the task has none.
        let sizes = sizes
            .iter()
            .filter(|(_, size)| !matches!(&**size, "" | "0"));
        let sizes: Vec<String> = sizes
            .map(|(letter, size)| format!("{letter}={size}"))
            .collect();
        parts.push(sizes.join(" "));
        let examples = Some(value("train_examples")).filter(|count| !count.is_empty());
        parts.extend(examples.map(|count| format!("{count} examples")));
        parts.retain(|part| !part.is_empty());
        let rest = self.grids.iter().enumerate().skip(self.head);
        let told = rest.filter(|(i, place)| {
            let axis = COLUMNS[**place].role == Role::Cell;
            axis || twins.iter().any(|(other, _)| other[*i] != key[*i])
        });
        parts.extend(told.map(|(i, place)| format!("{}={}", COLUMNS[*place].name, said(key[i]))));
        parts.join(", ")
    }

    fn grid(&self, of: &Selection, key: &Key, groups: &[&Group], title: String) -> Grid {
        let mut cells: BTreeMap<(Key, &Field), Status> = BTreeMap::new();
        for group in groups {
            let line = self.lines.iter().map(|place| group.record.at(*place));
            let at = (line.collect(), group.record.at(self.column));
            cells.insert(
                at,
                Status::of(&group.runs, of.metric, of.metric, of.asked.select),
            );
        }
        let columns: BTreeSet<&Field> = cells.keys().map(|(_, column)| *column).collect();
        let names = self.names(of, cells.keys().map(|(line, _)| line.clone()).collect());
        let status = |line: &Key, column: &&Field| {
            let found = cells.get(&(line.clone(), *column));
            found.copied().unwrap_or(Status::NotRun)
        };
        let lines = names.iter().map(|(name, line)| Line {
            name: name.clone(),
            printed: false,
            cells: columns
                .iter()
                .map(|column| Cell::result(status(line, column)))
                .collect(),
        });
        let value = |line: &Key, column: &Field, i: usize| {
            let within = |places: &[usize], key: &Key| {
                let index = places.iter().position(|place| *place == i);
                index.map(|index| key[index].json())
            };
            let of_line = within(&self.lines, line).or_else(|| within(&self.grids, key));
            of_line.unwrap_or_else(|| column.json())
        };
        let of_record: Vec<usize> = places(&[Role::Setting]);
        let of_record = of_record.into_iter().filter(|i| !self.grids.contains(i));
        let of_record: Vec<usize> = of_record.chain(places(&[Role::Cell])).collect();
        let records = names.iter().flat_map(|(_, line)| {
            columns.iter().map(|column| {
                let status = status(line, column);
                let score = status.score();
                let mut record: Vec<(String, Value)> = of_record
                    .iter()
                    .map(|i| fact(COLUMNS[*i].name, value(line, column, *i)))
                    .collect();
                record.extend([
                    fact("metric", of.metric.name),
                    fact("mean", score.map(|s| s.mean)),
                    fact("std", score.and_then(|s| s.std)),
                    fact("seeds", score.map(|s| s.seeds)),
                    fact("lr", score.map(|s| s.lr)),
                    fact("status", status.name()),
                ]);
                record
            })
        });
        let mut shared: Vec<usize> = self.grids.clone();
        shared.sort_unstable();
        shared.retain(|i| COLUMNS[*i].role == Role::Setting);
        let mut grid = Grid {
            title,
            corner: format!(
                "{} \\ {}",
                COLUMNS[self.lines[0]].name, COLUMNS[self.column].name
            ),
            columns: columns.iter().map(ToString::to_string).collect(),
            lines: lines.collect(),
            style: Style::Saturating,
            notes: Vec::new(),
            shared: shared
                .iter()
                .map(|i| fact(COLUMNS[*i].name, groups[0].record.at(*i).json()))
                .collect(),
            facts: Vec::new(),
            records: records.collect(),
        };
        grid.notes.extend(caption(&grid));
        let runs = groups.iter().flat_map(|group| group.runs.iter().copied());
        grid.notes.extend(mixed::warnings(runs));
        grid
    }

    /// The lines in order, each with its name: its first value, and what tells it from others of that name.
    fn names<'a>(&self, of: &Selection, lines: BTreeSet<Key<'a>>) -> Vec<(String, Key<'a>)> {
        let first = COLUMNS[self.lines[0]].name;
        let asked = of.figure.runs.iter().find(|(column, _)| *column == first);
        let order = asked.map_or(&[][..], |(_, values)| *values);
        let mut lines: Vec<Key> = lines.into_iter().collect();
        lines.sort_by_key(|line| order.iter().position(|value| *value == line[0].text()));
        let name = |line: &Key| {
            let same = || lines.iter().filter(|other| other[0] == line[0]);
            let telling = (1..line.len()).filter(|i| same().any(|other| other[*i] != line[*i]));
            let telling =
                telling.map(|i| format!("{}={}", COLUMNS[self.lines[i]].name, said(line[i])));
            let parts: Vec<String> = std::iter::once(said(line[0])).chain(telling).collect();
            parts.join(", ")
        };
        lines
            .iter()
            .map(|line| (name(line), line.clone()))
            .collect()
    }
}

/// Which rates won, and how the cells were averaged; `None` without a number.
fn caption(grid: &Grid) -> Option<String> {
    let scores = grid.results().filter_map(|status| Some(status.score()?.lr));
    let mut won: Vec<f64> = scores.collect();
    won.sort_by(f64::total_cmp);
    let wins: Vec<String> = won
        .chunk_by(|a, b| a.total_cmp(b).is_eq())
        .map(|cells| {
            let cell = counted(cells.len(), "cell");
            format!("{} ({cell})", chosen_rate(cells[0]))
        })
        .collect();
    let plural = if wins.len() == 1 { "" } else { "s" };
    let seeds = grid
        .about_seeds()
        .map_or(String::new(), |seeds| seeds + "; ");
    (!wins.is_empty()).then(|| format!("{seeds}best rate{plural}: {}", wins.join(", ")))
}
