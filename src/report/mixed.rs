//! Warnings about grids that mix runs of different programs, instruction sets, protocols, data or sizes.

use super::presets::{Difference, SIZES};
use crate::store::{Field, Record};
use std::collections::BTreeMap;

/// Columns in which the runs of one grid should agree, and the plural of each.
const COLUMNS: [(&str, &str); 4] = [
    ("version", "versions of dsf"),
    ("simd", "instruction sets"),
    ("protocol", "protocols"),
    ("data", "sources of examples"),
];

/// One warning per column in which `runs` differ. Sources of examples are compared within a task only; missing values
/// are not compared.
pub(super) fn warnings<'a>(runs: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let mut counted: [BTreeMap<[&str; 2], BTreeMap<&str, usize>>; 4] = Default::default();
    for run in runs.filter(|run| run.status().is_some()) {
        for ((name, _), counts) in COLUMNS.iter().zip(&mut counted) {
            let Field::Text(value) = run.get(name) else {
                continue;
            };
            let task = match *name {
                "data" => ["task", "dataset"].map(|name| run.text(name)),
                _ => ["", ""],
            };
            *counts.entry(task).or_default().entry(value).or_default() += 1;
        }
    }
    let mut warnings = Vec::new();
    for ((_, what), counts) in COLUMNS.iter().zip(counted) {
        for values in counts.into_values().filter(|values| values.len() > 1) {
            let each: Vec<String> = values.iter().map(|(value, runs)| format!("{value} ({runs})")).collect();
            let each = each.join(", ");
            warnings.push(format!("warning: runs of several {what} are mixed: {each}"));
        }
    }
    warnings
}

/// Warning that lines at the preset's sizes stand beside lines at others. `lines` are the differences of each line from
/// its preset.
pub(super) fn sizes<'a>(lines: impl Iterator<Item = &'a [Difference]>) -> Option<String> {
    let sizes = |line: &[Difference]| -> Vec<String> {
        let reduced = line.iter().filter(|d| SIZES.contains(&d.name));
        reduced.map(ToString::to_string).collect()
    };
    let lines: Vec<Vec<String>> = lines.map(sizes).collect();
    let mut others: Vec<String> = lines.iter().filter(|l| !l.is_empty()).map(|l| l.join(" ")).collect();
    others.sort();
    others.dedup();
    let beside = lines.iter().any(Vec::is_empty) && !others.is_empty();
    beside.then(|| format!("warning: runs at the preset's sizes stand beside others: {}", others.join("; ")))
}
