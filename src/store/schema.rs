//! Every column of a summary: the one table that the CSV, the reports and `--columns` ask.

use super::column::{Absent, Column, Kind, Role};
use super::columns::SETTINGS;
use super::metrics::METRICS;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Version of the columns. Columns may be added; a rename or a new meaning raises it.
pub const SCHEMA: u32 = 1;

const fn other(
    name: &'static str,
    unit: &'static str,
    role: Role,
    kind: Kind,
    meaning: &'static str,
) -> Column {
    Column {
        name,
        unit,
        role,
        kind,
        at: &[],
        absent: Absent::Empty,
        meaning,
    }
}

const fn required(column: Column) -> Column {
    Column {
        absent: Absent::Required,
        ..column
    }
}

const IDS: [Column; 2] = [
    required(other(
        "schema",
        "",
        Role::Id,
        Kind::Count,
        "version of these columns",
    )),
    required(other(
        "run_id",
        "",
        Role::Id,
        Kind::Word,
        "twelve hex digits over the config",
    )),
];

#[rustfmt::skip]
const ENDS: [Column; 3] = [
    required(other("status", "", Role::Result, Kind::OneOf(&["done", "failed"]), "done or failed")),
    other("outcome", "", Role::Result, Kind::OneOf(&["converged", "finished", "diverged"]), "converged, finished or diverged"),
    other("reason", "", Role::Result, Kind::Word, "why the run failed"),
];

#[rustfmt::skip]
const ORIGINS: [Column; 10] = [
    other("device", "", Role::Origin, Kind::Word, "device trained on"),
    other("threads", "", Role::Origin, Kind::Count, "threads in use"),
    other("host", "", Role::Origin, Kind::Word, "name of the host"),
    other("cpu", "", Role::Origin, Kind::Word, "model of the processor"),
    other("version", "", Role::Origin, Kind::Word, "version of dsf"),
    other("git_commit", "", Role::Origin, Kind::Word, "commit it was built from, -dirty with changes"),
    other("started", "UTC", Role::Origin, Kind::Word, "when the run was first begun"),
    other("ended", "UTC", Role::Origin, Kind::Word, "when it ended"),
    other("ops", "", Role::Origin, Kind::Word, "implementations that the ops took: fused, reference or both"),
    other("data_digest", "", Role::Origin, Kind::Word, "twelve hex digits over the examples seen"),
];

/// Every column of a summary, in order: ids, settings, how the run ended, metrics, provenance.
pub static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let metrics = METRICS.iter().map(|metric| Column {
        unit: metric.unit,
        // A file without it is misspelt: every version has written it.
        absent: match metric.name {
            "accuracy" => Absent::Required,
            _ => Absent::Empty,
        },
        ..other(metric.name, "", Role::Result, metric.kind(), metric.meaning)
    });
    let mut columns: Vec<Column> = IDS.into();
    columns.extend_from_slice(SETTINGS);
    columns.extend(ENDS);
    columns.extend(metrics);
    columns.extend(ORIGINS);
    columns
});

static PLACES: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
    let names = COLUMNS.iter().map(|column| column.name);
    names.enumerate().map(|(i, name)| (name, i)).collect()
});

/// Where in [`COLUMNS`] the column called `name` is.
pub fn place(name: &str) -> Option<usize> {
    PLACES.get(name).copied()
}

/// Places of the columns with one of `roles`, in order.
pub fn places(roles: &[Role]) -> Vec<usize> {
    let places = 0..COLUMNS.len();
    places
        .filter(|i| roles.contains(&COLUMNS[*i].role))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_columns_have_one_name_and_every_condition_names_a_column() {
        assert_eq!(PLACES.len(), COLUMNS.len());
        for column in COLUMNS.iter() {
            if let Absent::Where(other, ..) = column.absent {
                assert!(place(other).is_some(), "{}: {other}", column.name);
            }
        }
    }
}
