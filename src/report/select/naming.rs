//! Formats settings as titles of grids and names of lines.

use super::super::figures::Where;
use super::super::grid::{Line, Tick};
use super::super::presets::formatted;
use crate::store::{place, places, Field, Record, Role, COLUMNS};
use std::collections::BTreeSet;

/// The values of some columns.
pub(super) type Key<'a> = Vec<&'a Field>;

/// Settings in the titles of grids: some in every title, the others only where grids differ in them.
pub(super) struct Titles {
    /// Indices of columns, those in every title first.
    pub places: Vec<usize>,
    /// Number of columns in every title.
    pub head: usize,
    /// Whether titles name the task.
    pub tasks: bool,
}

/// The settings in every title, in the order by which grids are sorted.
#[rustfmt::skip]
pub(super) const TITLE: [&str; 7] =
    ["task", "protocol", "seq_len", "kv_pairs", "vocab_size", "train_examples", "mixer"];

/// Index of a column that is named in this module or in [`FIGURES`](super::super::FIGURES).
pub(super) fn known(name: &str) -> usize {
    place(name).expect("a test walks the names of FIGURES")
}

/// The values of `run` at `places`.
pub(super) fn key<'a>(run: &'a Record, places: &[usize]) -> Key<'a> {
    places.iter().map(|place| run.at(*place)).collect()
}

/// Indices of all settings except those in `taken`, beginning with those called `first`; and the number of the latter.
pub(super) fn settings(first: &[&str], taken: &[usize]) -> (Vec<usize>, usize) {
    let free = |i: &usize| !taken.contains(i);
    let mut all: Vec<usize> = first.iter().map(|name| known(name)).filter(free).collect();
    let head = all.len();
    let rest: Vec<usize> =
        places(&[Role::Setting, Role::Cell]).into_iter().filter(|i| free(i) && !all.contains(i)).collect();
    all.extend(rest);
    (all, head)
}

/// Position of a value among those that `runs` lists for its column; after all of them if it is not listed.
pub(super) fn rank(runs: Where, place: usize, value: &Field) -> usize {
    let listed = runs.iter().find(|(column, _)| known(column) == place);
    let listed = listed.map_or(&[][..], |(_, values)| *values);
    let at = listed.iter().position(|listed| *listed == value.to_string());
    at.unwrap_or(listed.len())
}

impl Titles {
    fn value(&self, key: &Key, name: &str) -> String {
        let index = self.places.iter().position(|i| COLUMNS[*i].name == name);
        index.map_or(String::new(), |index| formatted(key[index]))
    }

    /// Lengths and sizes as letters: `L=64 k=4 V=8192`.
    pub fn sizes(&self, key: &Key) -> String {
        let sizes = [("L", "seq_len"), ("k", "kv_pairs"), ("V", "vocab_size")];
        let sizes = sizes.map(|(letter, name)| (letter, self.value(key, name)));
        // A size is empty if it is an axis, and 0 if the task has none.
        let sizes: Vec<String> = sizes
            .iter()
            .filter(|(_, size)| !matches!(&**size, "" | "0"))
            .map(|(letter, size)| format!("{letter}={size}"))
            .collect();
        sizes.join(" ")
    }

    /// Title of `key`: the settings in every title, and those in which it differs from its `twins`.
    pub fn title(&self, key: &Key, twins: &[Key]) -> String {
        let value = |name: &str| self.value(key, name);
        let mut parts = Vec::new();
        if self.tasks {
            parts.push(value("task"));
        }
        parts.extend([value("mixer"), value("protocol")]);
        let head = self.places[..self.head].iter().zip(key);
        let text = head.filter(|(place, field)| {
            ["dataset", "tokenizer"].contains(&COLUMNS[**place].name) && **field != &Field::Absent
        });
        parts.extend(text.map(|(_, field)| formatted(field)));
        let contour = Some(value("contour_length")).filter(|length| !matches!(&**length, "" | "0" | "none"));
        parts.extend(contour.map(|length| format!("contour_length={length}")));
        parts.push(self.sizes(key));
        let examples = Some(value("train_examples")).filter(|count| !count.is_empty());
        parts.extend(examples.map(|count| format!("{count} examples")));
        parts.retain(|part| !part.is_empty());
        let rest = self.places.iter().enumerate().skip(self.head);
        let told = rest.filter(|(i, place)| {
            let axis = COLUMNS[**place].role == Role::Cell;
            axis || twins.iter().any(|other| other[*i] != key[*i])
        });
        parts.extend(told.map(|(i, place)| format!("{}={}", COLUMNS[*place].name, formatted(key[i]))));
        parts.join(", ")
    }

    /// Column and row of a panel. Panels side by side differ in the mixer, otherwise in the protocol, otherwise in
    /// sizes.
    pub fn place(&self, key: &Key, protocols: usize, title: &str) -> [String; 2] {
        let across = match self.value(key, "mixer") {
            mixer if !mixer.is_empty() => mixer,
            _ if protocols > 1 => self.value(key, "protocol"),
            _ => self.sizes(key),
        };
        let down = title.replacen(&across, "", 1);
        [across, down]
    }
}

/// `lines` in the order of `runs`, each named by its first value and by what distinguishes it from others with that
/// value.
pub(super) fn names<'a>(runs: Where, places: &[usize], lines: BTreeSet<Key<'a>>) -> Vec<(Line, Key<'a>)> {
    let mut lines: Vec<Key> = lines.into_iter().collect();
    lines.sort_by_key(|line| rank(runs, places[0], line[0]));
    // Lines of one name are adjacent, since the sort by `rank` is stable and the set is ordered by first value.
    let mut named = Vec::new();
    for same in lines.chunk_by(|a, b| a[0] == b[0]) {
        let differs = |i: &usize| same.iter().any(|line| line[*i] != same[0][*i]);
        let telling: Vec<usize> = (1..places.len()).filter(differs).collect();
        let options = places.iter().position(|i| COLUMNS[*i].name == "options");
        let shared = options.map(|i| shared_options(same.iter().map(|line| line[i]))).unwrap_or_default();
        for line in same {
            let told = telling.iter().filter_map(|i| match COLUMNS[places[*i]].name {
                "options" => unshared_options(line[*i], &shared),
                name => Some(format!("{name}={}", formatted(line[*i]))),
            });
            let detail = told.collect::<Vec<String>>().join(", ");
            let first = Tick { title: formatted(line[0]), ..Tick::from(line[0]) };
            let tick = match detail.as_str() {
                "" => first,
                detail => Tick::from(format!("{}, {detail}", first.title)),
            };
            named.push((Line { detail, ..Line::new(tick, Vec::new()) }, line.clone()));
        }
    }
    named
}

/// The options, written `name=value;name=value`, that all of `lines` have.
fn shared_options<'a>(mut lines: impl Iterator<Item = &'a Field>) -> BTreeSet<String> {
    let options = |line: &Field| -> BTreeSet<String> {
        let text = line.to_string();
        text.split(';').map(str::to_owned).collect()
    };
    let first = lines.next().map(options).unwrap_or_default();
    lines.fold(first, |shared, line| &shared & &options(line))
}

/// The options of `own` that are not in `shared`, if any.
fn unshared_options(own: &Field, shared: &BTreeSet<String>) -> Option<String> {
    let own = own.to_string();
    let unshared: Vec<&str> = own.split(';').filter(|option| !shared.contains(*option)).collect();
    Some(unshared.join(";")).filter(|text| !text.is_empty())
}
