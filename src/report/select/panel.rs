//! Panels of a figure and their lines: runs grouped by their settings, and the names of the groups.

use super::super::figures::Where;
use super::super::grid::{Cell, Facts, GridLine, Tick};
use super::super::presets::{formatted, formatted_at};
use super::super::{grouped, Key};
use crate::store::{places, Column, Field, Record, Role, COLUMNS};
use std::collections::BTreeSet;

/// Settings in every title of a grid of cells, in the order by which grids are sorted.
#[rustfmt::skip]
pub(super) const OF_CELLS: [&str; 8] =
    ["task", "protocol", "dataset", "seq_len", "kv_pairs", "vocab_size", "train_examples", "mixer"];

/// Settings of a task and its data, in the titles of panels whose lines differ in all other settings.
#[rustfmt::skip]
const OF_TASK: [&str; 9] = [
    "task", "protocol", "dataset", "tokenizer", "contour_length", "seq_len", "kv_pairs", "vocab_size", "train_examples",
];

/// Settings that distinguish panels.
pub(super) struct Titles {
    /// Indices of columns, those in every title first.
    pub places: Vec<usize>,
    /// Number of columns in every title; panels differ in the others only if their titles name them.
    head: usize,
}

/// Runs that agree in the settings of a title.
pub(super) struct PanelRuns<'a, T> {
    pub title: String,
    /// Its column and its row among other panels, see `Grid::place`.
    pub place: [String; 2],
    pub runs: Vec<&'a T>,
}

/// Index of a column that is named in this module or in [`FIGURES`](super::super::FIGURES).
pub(super) fn known(name: &str) -> usize {
    Column::find(name).expect("a test walks the names of FIGURES").place()
}

/// Indices of all settings except those in `taken`, beginning with those called `first`; and the number of the latter.
fn settings(first: &[&str], taken: &[usize]) -> (Vec<usize>, usize) {
    let mut all: Vec<usize> = first.iter().map(|name| known(name)).collect();
    all.retain(|place| !taken.contains(place));
    let head = all.len();
    let mut rest = places(&[Role::Setting, Role::Cell]);
    rest.retain(|place| !taken.contains(place) && !all.contains(place));
    all.extend(rest);
    (all, head)
}

/// Position of a value among those that `runs` lists for its column; after all of them if it is not listed.
fn rank(runs: Where, place: usize, value: &Field) -> usize {
    let listed = runs.iter().find(|(column, _)| column.place() == place);
    let listed = listed.map_or(&[][..], |(_, values)| *values);
    listed.iter().position(|listed| *listed == value.to_string()).unwrap_or(listed.len())
}

/// The distinct texts of one column.
pub(super) fn texts<T: AsRef<Record>>(runs: &[T], column: Column) -> BTreeSet<&str> {
    runs.iter().map(|run| run.as_ref().text(column)).collect()
}

/// The tasks of `runs`, formatted for a heading and for programs.
pub(super) fn tasks<T: AsRef<Record>>(runs: &[T]) -> [String; 2] {
    let tasks: Vec<&str> = texts(runs, Column::TASK).into_iter().collect();
    [tasks.join(", ").to_uppercase(), tasks.join(",")]
}

impl Titles {
    /// Titles by task and data only.
    pub fn of_task() -> Self {
        let (mut places, head) = settings(&OF_TASK, &[]);
        places.truncate(head);
        Self { places, head }
    }

    /// Takes a column out of the titles, since it is drawn.
    pub fn leave_out(&mut self, column: Column) {
        let place = self.places[..self.head].iter().position(|place| *place == column.place());
        if let Some(place) = place {
            self.places.remove(place);
            self.head -= 1;
        }
    }

    /// Titles by all settings except those of the axes, `taken`.
    pub fn of_cells(taken: &[usize]) -> Self {
        let (places, head) = settings(&OF_CELLS, taken);
        Self { places, head }
    }

    /// The panels of `runs`, in the order of a figure's `Where`.
    pub fn panels<'a, T: AsRef<Record>>(&self, order: Where, runs: &'a [T]) -> Vec<PanelRuns<'a, T>> {
        let [tasks, protocols] = [Column::TASK, Column::PROTOCOL].map(|column| texts(runs, column).len() > 1);
        let mut split = grouped(runs, &self.places);
        split.sort_by_cached_key(|(key, _)| {
            let ranked = self.places.iter().zip(key).map(|(place, value)| (rank(order, *place, value), *value));
            ranked.collect::<Vec<_>>()
        });
        let mut panels = Vec::new();
        // Titles that begin with the same settings name only the others in which they differ.
        for twins in split.chunk_by(|a, b| a.0[..self.head] == b.0[..self.head]) {
            for (key, runs) in twins {
                let title = self.title(key, twins.iter().map(|(key, _)| key), tasks);
                let place = self.place(key, protocols, &title);
                panels.push(PanelRuns { title, place, runs: runs.clone() });
            }
        }
        panels
    }

    fn value(&self, key: &Key, name: &str) -> String {
        let index = self.places.iter().position(|i| COLUMNS[*i].name == name);
        index.map_or(String::new(), |index| formatted(key[index]))
    }

    /// Lengths and sizes as letters: `L=64 k=4 V=8192`.
    fn sizes(&self, key: &Key) -> String {
        let sizes = [("L", "seq_len"), ("k", "kv_pairs"), ("V", "vocab_size")];
        let sizes = sizes.map(|(letter, name)| (letter, self.value(key, name)));
        // A size is empty if it is an axis, and 0 if the task has none.
        let sizes = sizes.iter().filter(|(_, size)| !matches!(&**size, "" | "0"));
        sizes.map(|(letter, size)| format!("{letter}={size}")).collect::<Vec<_>>().join(" ")
    }

    /// Title of `key`: the settings in every title, and those in which it differs from its `twins`.
    fn title<'a>(&self, key: &Key, twins: impl Iterator<Item = &'a Key<'a>> + Clone, tasks: bool) -> String {
        let value = |name: &str| self.value(key, name);
        let mut parts = Vec::new();
        if tasks {
            parts.push(value("task"));
        }
        parts.extend(["mixer", "protocol"].map(value));
        for (place, field) in self.places[..self.head].iter().zip(key) {
            if ["dataset", "tokenizer"].contains(&COLUMNS[*place].name) && **field != Field::Absent {
                parts.push(formatted(field));
            }
        }
        let contour = Some(value("contour_length")).filter(|length| !matches!(&**length, "" | "0" | "none"));
        parts.extend(contour.map(|length| format!("contour_length={length}")));
        parts.push(self.sizes(key));
        let examples = Some(value("train_examples")).filter(|count| !count.is_empty());
        parts.extend(examples.map(|count| format!("{count} examples")));
        parts.retain(|part| !part.is_empty());
        for (i, place) in self.places.iter().enumerate().skip(self.head) {
            let column = &COLUMNS[*place];
            if column.role == Role::Cell || twins.clone().any(|other| other[i] != key[i]) {
                parts.push(format!("{}={}", column.name, formatted_at(*place, key[i])));
            }
        }
        parts.join(", ")
    }

    /// Column and row of a panel. Panels side by side differ in the mixer, otherwise in the protocol, otherwise in
    /// sizes.
    fn place(&self, key: &Key, protocols: bool, title: &str) -> [String; 2] {
        let across = match self.value(key, "mixer") {
            mixer if !mixer.is_empty() => mixer,
            _ if protocols => self.value(key, "protocol"),
            _ => self.sizes(key),
        };
        let down = title.replacen(&across, "", 1);
        [across, down]
    }
}

/// Columns of the lines of panels with [`Titles::of_task`]: all other settings, and the columns with the roles `with`.
pub(super) fn of_lines(with: &[Role]) -> Vec<usize> {
    let mut all = settings(&["mixer"], &Titles::of_task().places).0;
    all.extend(places(with));
    all
}

/// Lines of a panel, still without cells, one for each combination of values at `places`, with its runs. They are in
/// the order of a figure's `Where`, and named by their first value and by what distinguishes them from others with it.
pub(super) fn lines<'a, T: AsRef<Record>>(
    order: Where,
    runs: &[&'a T],
    places: &[usize],
) -> Vec<(GridLine, Vec<&'a T>)> {
    let mut lines = grouped(runs.iter().copied(), places);
    lines.sort_by_cached_key(|(key, _)| (rank(order, places[0], key[0]), key.clone()));
    let options = places.iter().position(|i| COLUMNS[*i].name == "options");
    let mut named = Vec::new();
    for same in lines.chunk_by(|a, b| a.0[0] == b.0[0]) {
        let differs = |i: &usize| same.iter().any(|(key, _)| key[*i] != same[0].0[*i]);
        let telling: Vec<usize> = (1..places.len()).filter(differs).collect();
        let shared = options.and_then(|i| {
            let each = same.iter().map(|(key, _)| options_of(key[i]));
            each.reduce(|shared, own| &shared & &own)
        });
        for (key, runs) in same {
            let told = telling.iter().filter_map(|i| match &shared {
                Some(shared) if Some(*i) == options => unshared_options(key[*i], shared),
                _ => Some(format!("{}={}", COLUMNS[places[*i]].name, formatted_at(places[*i], key[*i]))),
            });
            let detail = told.collect::<Vec<String>>().join(", ");
            let first = Tick { title: formatted(key[0]), ..Tick::from(key[0]) };
            let tick = match detail.as_str() {
                "" => first,
                detail => Tick::from(format!("{}, {detail}", first.title)),
            };
            named.push((GridLine { detail, ..GridLine::new(tick, Vec::new()) }, runs.clone()));
        }
    }
    named
}

/// The options of a mixer, written `name=value;name=value`.
fn options_of(field: &Field) -> BTreeSet<String> {
    field.to_string().split(';').map(str::to_owned).collect()
}

/// The options of `own` that are not in `shared`, in their order, if any.
fn unshared_options(own: &Field, shared: &BTreeSet<String>) -> Option<String> {
    let own = own.to_string();
    let unshared: Vec<&str> = own.split(';').filter(|option| !shared.contains(*option)).collect();
    Some(unshared.join(";")).filter(|text| !text.is_empty())
}

/// Fills `lines` with a cell for each of `columns`, and returns them with the records of the cells. `cell` returns both
/// for the runs of a line and the index and value of a column.
pub(super) fn filled<L, C>(
    lines: impl IntoIterator<Item = (GridLine, L)>,
    columns: &[C],
    cell: impl Fn(&L, usize, &C) -> (Cell, Option<Facts>),
) -> (Vec<GridLine>, Vec<Facts>) {
    let (mut filled, mut records) = (Vec::new(), Vec::new());
    for (mut line, runs) in lines {
        for (i, column) in columns.iter().enumerate() {
            let (cell, record) = cell(&runs, i, column);
            line.cells.push(cell);
            records.extend(record);
        }
        filled.push(line);
    }
    (filled, records)
}
