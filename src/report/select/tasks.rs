//! Panels of one task and its data each; their lines differ in all other settings.

use super::super::figures::Where;
use super::super::grid::Line;
use super::naming::{key, names, rank, settings, Key, Titles};
use crate::store::{places, Record, Role};
use std::collections::{BTreeMap, BTreeSet};

/// The settings that distinguish panels.
#[rustfmt::skip]
const PANEL: [&str; 9] = [
    "task", "protocol", "dataset", "tokenizer", "contour_length", "seq_len", "kv_pairs", "vocab_size", "train_examples",
];

/// A group of runs, or a single run with rows of its own.
pub(super) trait Recorded {
    /// A record with the common settings.
    fn record(&self) -> &Record;
}

/// The runs of one task and its data.
pub(super) struct Panel<'a, T> {
    pub title: String,
    /// Its column and its row among other panels, see `Grid::place`.
    pub place: [String; 2],
    pub runs: Vec<&'a T>,
}

/// Panels of `runs` by task and data, in the order of a figure's `Where`.
pub(super) fn panels<'a, T: Recorded>(order: Where, runs: &'a [T]) -> Vec<Panel<'a, T>> {
    let places = panel_places();
    let titles = Titles { head: places.len(), places, tasks: texts(runs, "task").len() > 1 };
    let protocols = texts(runs, "protocol").len();
    let split = split(order, runs, &titles.places).into_iter();
    let panels = split.map(|(key, runs)| {
        let title = titles.title(&key, &[]);
        let place = titles.place(&key, protocols, &title);
        Panel { title, place, runs }
    });
    panels.collect()
}

/// Places of the columns that tell panels apart.
fn panel_places() -> Vec<usize> {
    let (mut places, head) = settings(&PANEL, &[]);
    places.truncate(head);
    places
}

/// Splits `runs` by their values at `places`, in the order of a figure's `Where`.
pub(super) fn split<'a, T: Recorded>(order: Where, runs: &'a [T], places: &[usize]) -> Vec<(Key<'a>, Vec<&'a T>)> {
    let mut split: BTreeMap<Key, Vec<&T>> = BTreeMap::new();
    for run in runs {
        split.entry(key(run.record(), places)).or_default().push(run);
    }
    let mut split: Vec<(Key, Vec<&T>)> = split.into_iter().collect();
    if !order.is_empty() {
        split.sort_by_cached_key(|(key, _)| {
            let ranked = places.iter().zip(key).map(|(place, value)| (rank(order, *place, value), *value));

            ranked.collect::<Vec<_>>()
        });
    }
    split
}

/// Lines of a panel, still without cells, with the runs of each: one per setting, and also per value of the columns
/// with the roles `with`.
pub(super) fn lines<'a, T: Recorded>(order: Where, runs: &[&'a T], with: &[Role]) -> Vec<(Line, Vec<&'a T>)> {
    let mut telling = settings(&["mixer"], &panel_places()).0;
    telling.extend(places(with));
    let mut by_setting: BTreeMap<Key, Vec<&T>> = BTreeMap::new();
    for run in runs {
        by_setting.entry(key(run.record(), &telling)).or_default().push(run);
    }
    let named = names(order, &telling, by_setting.keys().cloned().collect());
    let lines = named.into_iter();
    lines.map(|(line, setting)| (line, by_setting.remove(&setting).unwrap_or_default())).collect()
}

/// The distinct texts of one column.
pub(super) fn texts<'a, T: Recorded>(runs: &'a [T], column: &str) -> BTreeSet<&'a str> {
    runs.iter().map(|run| run.record().text(column)).collect()
}

/// The tasks of `runs`, formatted for a heading and for programs.
pub(super) fn tasks<T: Recorded>(runs: &[T]) -> [String; 2] {
    let tasks: Vec<&str> = texts(runs, "task").into_iter().collect();
    [tasks.join(", ").to_uppercase(), tasks.join(",")]
}
