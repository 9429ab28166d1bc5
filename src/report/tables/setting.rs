//! Where a run belongs among the tables.

use super::super::difference::{Difference, Nearest, PresetsOf};
use super::paper::Column;
use crate::store::Record;

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

/// Where a run belongs.
pub(super) struct Setting<'a> {
    pub row: &'a Record,
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
    pub fn of(row: &'a Record, column: Column, presets: PresetsOf) -> Self {
        let whole = column.whole(row);
        let mut known = presets(row);
        known.retain(|(name, _)| !whole || *name == "full");
        let nearest = Nearest::of(row, known);
        let of_table = |d: &Difference| OF_TABLE.contains(&d.name);
        let (of_table, of_cell) = nearest.differences.into_iter().partition(of_table);
        Self {
            row,
            column,
            whole,
            preset: nearest.preset,
            lr: nearest.lr,
            of_table,
            of_cell,
        }
    }
}
