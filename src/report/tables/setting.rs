//! What tells a run from the run that its preset would have made.

use super::super::panel::plain;
use super::paper::Column;
use crate::store::{Role, Row};
use std::fmt;

/// The runs that the presets would make of the task, mixer and protocol of a row, by name: `full`
/// first, if there is one. What the paper leaves open is 0 or empty in them.
pub type PresetsOf<'a> = &'a dyn Fn(&Row) -> Vec<(&'static str, Row)>;

/// Runs that differ in one of these are in different tables.
const OF_TABLE: [&str; 7] = [
    "loss",
    "input",
    "mask",
    "lambda_skip",
    "pool",
    "dual",
    "precision",
];

/// One setting that is not the preset's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// Its column.
    pub name: &'static str,
    /// What the run has.
    pub value: String,
    /// What the preset has; empty where it says nothing.
    pub usual: String,
}

/// Where a run belongs.
pub(super) struct Setting<'a> {
    pub row: &'a Row,
    pub column: Column,
    pub whole: bool,
    pub preset: &'static str,
    /// The preset's learning rate.
    pub lr: Option<f64>,
    /// What puts it into another table.
    pub of_table: Vec<Difference>,
    /// What is said below its number.
    pub of_cell: Vec<Difference>,
}

impl<'a> Setting<'a> {
    /// On part of the data the preset is the one that differs least.
    pub fn of(row: &'a Row, column: Column, presets: PresetsOf) -> Self {
        let whole = column.whole(row);
        let known = presets(row);
        let compared = known
            .into_iter()
            .filter(|(name, _)| !whole || *name == "full");
        let nearest = compared
            .map(|(name, usual)| (name, differences(row, &usual), Some(usual.lr)))
            .min_by_key(|(_, differences, _)| differences.len());
        // A mixer that this version does not know: everything is worth saying.
        let unknown = || ("", differences(row, &Row::default()), None);
        let (preset, differences, lr) = nearest.unwrap_or_else(unknown);
        let of_table = |d: &Difference| OF_TABLE.contains(&d.name);
        let (of_table, of_cell) = differences.into_iter().partition(of_table);
        Self {
            row,
            column,
            whole,
            preset,
            lr,
            of_table,
            of_cell,
        }
    }
}

fn differences(row: &Row, usual: &Row) -> Vec<Difference> {
    let values = |row: &Row| {
        let settings = row.values(Role::Setting);
        settings.into_iter().chain(row.values(Role::Cell))
    };
    let pairs = values(row).zip(values(usual));
    let differing = pairs.filter(|((column, value), (_, usual))| {
        let names_the_place = ["task", "protocol", "mixer", "dataset"];
        value != usual && !names_the_place.contains(&column.name)
    });
    differing
        .map(|((column, value), (_, usual))| Difference {
            name: column.name,
            value: plain(&value),
            usual: match usual.as_u64() {
                Some(0) => String::new(),
                _ if usual.is_null() => String::new(),
                _ => plain(&usual),
            },
        })
        .collect()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// Differences as one text.
pub(super) fn listed(differences: &[Difference]) -> String {
    let texts: Vec<String> = differences.iter().map(Difference::to_string).collect();
    texts.join(", ")
}
