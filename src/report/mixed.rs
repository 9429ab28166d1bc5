//! Warnings about grids that mix runs of different programs, instruction sets, protocols, data or sizes.

use super::coverage::tally;
use super::presets::{PresetDifference, SIZES};
use crate::store::{Column, Field, Record};
use std::collections::{BTreeMap, BTreeSet};

/// Columns in which the runs of one grid should agree, and the plural of each.
const COLUMNS: [(Column, &str); 4] = [
    (Column::VERSION, "versions of dsf"),
    (Column::SIMD, "instruction sets"),
    (Column::PROTOCOL, "protocols"),
    (Column::DATA, "sources of examples"),
];

/// One warning per column in which `runs` differ. Sources of examples are compared within a task only; missing values
/// are not compared.
pub(super) fn warnings<'a>(runs: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let runs: Vec<&Record> = runs.filter(|run| run.status().is_some()).collect();
    let mut warnings = Vec::new();
    for (name, plural) in COLUMNS {
        let mut counted: BTreeMap<[&str; 2], Vec<&str>> = BTreeMap::new();
        for run in runs.iter().filter(|run| *run.get(name) != Field::Absent) {
            let task = match name {
                Column::DATA => [Column::TASK, Column::DATASET].map(|column| run.text(column)),
                _ => ["", ""],
            };
            counted.entry(task).or_default().push(run.text(name));
        }
        for values in counted.into_values().map(|values| tally(values.into_iter())).filter(|values| values.len() > 1) {
            let each: Vec<String> = values.iter().map(|(value, runs)| format!("{value} ({runs})")).collect();
            warnings.push(format!("warning: runs of several {plural} are mixed: {}", each.join(", ")));
        }
    }
    warnings
}

/// Warning that lines at the preset's sizes stand beside lines at others. `lines` are the differences of each line from
/// its preset.
pub(super) fn sizes<'a>(lines: impl Iterator<Item = &'a [PresetDifference]>) -> Option<String> {
    let sizes = |line: &[PresetDifference]| -> String {
        let reduced = line.iter().filter(|d| SIZES.contains(&d.name));
        reduced.map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let lines: BTreeSet<String> = lines.map(sizes).collect();
    let others: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    let beside = lines.contains("") && !others.is_empty();
    beside
        .then(|| format!("warning: runs at the preset's sizes are shown beside runs at others: {}", others.join("; ")))
}
