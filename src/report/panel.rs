//! Rows of one setting become one grid.

use super::cell::Cell;
use super::coverage::counted;
use super::table::rate;
use super::Metric;
use crate::store::{Column, Record, Role};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The settings that every title says, in the order that panels are sorted by.
const TITLE: [&str; 6] = [
    "protocol",
    "seq_len",
    "kv_pairs",
    "vocab_size",
    "train_examples",
    "mixer",
];

/// The runs of one setting as a grid over d and n.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Everything that its runs share.
    pub settings: Vec<(&'static Column, Value)>,
    /// Mixer, protocol, task, and what tells it from panels that have those three in common.
    pub title: String,
    /// Embedding widths, ascending.
    pub d: Vec<usize>,
    /// State expansions, ascending.
    pub n: Vec<usize>,
    cells: BTreeMap<(usize, usize), Cell>,
}

/// All panels of `rows`, in order, with their titles.
pub(super) fn panels(rows: &[&Record], metric: Metric) -> Vec<Panel> {
    let mut groups: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
    for row in rows {
        let settings: Vec<Value> = row.values(Role::Setting).map(|s| s.1.json()).collect();
        let key = Value::from(settings).to_string();
        groups.entry(key).or_default().push(row);
    }
    let mut panels: Vec<Panel> = groups.values().map(|g| Panel::of(g, metric)).collect();
    panels.sort_by(Panel::order);
    for twins in panels.chunk_by_mut(|a, b| a.head() == b.head()) {
        name(twins);
    }
    panels
}

/// Gives each panel its title; `twins` share all that every title says.
fn name(twins: &mut [Panel]) {
    let first = twins[0].settings.clone();
    let differs = |i: usize| twins.iter().any(|p| p.settings[i].1 != first[i].1);
    let telling: Vec<usize> = (0..first.len()).filter(|i| differs(*i)).collect();
    for panel in twins {
        let mut parts = vec![panel.head_title()];
        for (column, value) in telling.iter().map(|i| &panel.settings[*i]) {
            parts.push(format!("{}={}", column.name, plain(value)));
        }
        panel.title = parts.join(", ");
    }
}

impl Panel {
    fn of(rows: &[&Record], metric: Metric) -> Self {
        let mut places: BTreeMap<(usize, usize), Vec<&Record>> = BTreeMap::new();
        for row in rows {
            places
                .entry((row.count("d"), row.count("n")))
                .or_default()
                .push(row);
        }
        let ascending = |axis: fn(&(usize, usize)) -> usize| {
            let values: BTreeSet<usize> = places.keys().map(axis).collect();
            values.into_iter().collect()
        };
        Self {
            settings: rows[0]
                .values(Role::Setting)
                .map(|(column, value)| (column, value.json()))
                .collect(),
            title: String::new(),
            d: ascending(|place| place.0),
            n: ascending(|place| place.1),
            cells: places
                .iter()
                .map(|(place, runs)| (*place, Cell::of(runs, metric)))
                .collect(),
        }
    }

    /// The cell at (d, n).
    pub fn cell(&self, d: usize, n: usize) -> Cell {
        self.cells.get(&(d, n)).copied().unwrap_or(Cell::NotRun)
    }

    /// Every (d, n) of the grid with its cell, n by n.
    pub fn cells(&self) -> impl Iterator<Item = (usize, usize, Cell)> + '_ {
        let places = self
            .n
            .iter()
            .flat_map(|&n| self.d.iter().map(move |&d| (d, n)));
        places.map(|(d, n)| (d, n, self.cell(d, n)))
    }

    /// Seeds of the fullest cell.
    pub(super) fn seeds(&self) -> usize {
        let scores = self.cells.values().filter_map(Cell::score);
        scores.map(|score| score.seeds).max().unwrap_or(0)
    }

    /// Which rates won, and how the cells were averaged; `None` without a number.
    pub(super) fn caption(&self) -> Option<String> {
        let mut won: Vec<f64> = self
            .cells
            .values()
            .filter_map(|c| Some(c.score()?.lr))
            .collect();
        won.sort_by(f64::total_cmp);
        let wins: Vec<String> = won
            .chunk_by(|a, b| a == b)
            .map(|cells| format!("{} ({})", rate(cells[0]), counted(cells.len(), "cell")))
            .collect();
        let seeds = match self.seeds() {
            0 => return None,
            1 => String::new(),
            seeds => format!("mean ± std over {seeds} seeds; "),
        };
        let plural = if wins.len() == 1 { "" } else { "s" };
        Some(format!("{seeds}best rate{plural}: {}", wins.join(", ")))
    }

    fn setting(&self, name: &str) -> &Value {
        let found = self.settings.iter().find(|(column, _)| column.name == name);
        found.map_or(&Value::Null, |(_, value)| value)
    }

    fn head(&self) -> [&Value; TITLE.len()] {
        TITLE.map(|name| self.setting(name))
    }

    fn head_title(&self) -> String {
        let [protocol, seq_len, kv_pairs, vocab_size, examples, mixer] = self.head().map(plain);
        format!("{mixer}, {protocol}, L={seq_len} k={kv_pairs} V={vocab_size}, {examples} examples")
    }

    fn order(&self, other: &Self) -> Ordering {
        let heads = self.head().into_iter().zip(other.head());
        let rest = self.settings.iter().zip(&other.settings);
        let pairs = heads.chain(rest.map(|(a, b)| (&a.1, &b.1)));
        pairs
            .map(|(a, b)| match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => plain(a).cmp(&plain(b)),
            })
            .fold(Ordering::Equal, Ordering::then)
    }
}

/// A value as a title says it.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
