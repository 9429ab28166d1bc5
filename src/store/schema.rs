//! Schema of the summaries: the one table of columns from which the CSV, the reports and `--columns` are made.

use super::column::{Absent, Column, ColumnKind, ColumnSpec, Role, NAMES};
use super::metrics::{Metric, METRICS};
use super::Cause;
use crate::config::{SettingColumn, Settings, Summary, SETTINGS};
use std::sync::LazyLock;

/// Version of the columns. It is raised when a column is renamed or changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;

impl Column {
    /// Finds the column called `name`.
    pub fn find(name: &str) -> Option<Self> {
        COLUMNS.iter().position(|column| column.name == name).map(Self)
    }

    /// Definition of the column.
    pub fn spec(self) -> &'static ColumnSpec {
        &COLUMNS[self.0]
    }
}

/// Returns an optional column that is no setting.
fn other(name: &'static str, unit: &'static str, role: Role, kind: ColumnKind, meaning: &'static str) -> ColumnSpec {
    ColumnSpec { name, unit, role, kind, at: Vec::new(), absent: Absent::Empty, meaning }
}

fn required(column: ColumnSpec) -> ColumnSpec {
    ColumnSpec { absent: Absent::Required, ..column }
}

/// Columns that are neither settings nor metrics.
#[rustfmt::skip]
fn others() -> Vec<ColumnSpec> {
    let id = |name, kind, meaning| required(other(name, "", Role::Id, kind, meaning));
    let of_config = |at: &str, name, kind, meaning| {
        ColumnSpec { at: vec![at.to_owned()], ..required(other(name, "", Role::Setting, kind, meaning)) }
    };
    let end = |name, kind, meaning| other(name, "", Role::Result, kind, meaning);
    let origin = |name, kind, meaning| other(name, "", Role::Origin, kind, meaning);
    let time = |name, meaning| other(name, "UTC", Role::Origin, ColumnKind::Word, meaning);
    vec![
        id("schema", ColumnKind::Count, "version of these columns"),
        id("run_id", ColumnKind::Word, "twelve hex digits over the config"),
        of_config("/format", "format", ColumnKind::Count, "version of the meaning of a config"),
        of_config("/task/name", "task", ColumnKind::Word, "task name"),
        of_config("/model/options", "options", ColumnKind::Word, "options of the mixer, name=value;name=value"),
        required(end("status", ColumnKind::OneOf(&["done", "failed"]), "done or failed")),
        end("outcome", ColumnKind::OneOf(&["converged", "finished", "diverged"]), "converged, finished or diverged"),
        end("reason", ColumnKind::Word, "message of the failure"),
        ColumnSpec {
            absent: Absent::Where("status", &["failed"], "other"),
            ..end("cause", ColumnKind::OneOf(&Cause::NAMES), "kind of the failure, from a fixed list")
        },
        origin("device", ColumnKind::Word, "device trained on"),
        origin("threads", ColumnKind::Count, "threads in use"),
        origin("host", ColumnKind::Word, "name of the host"),
        origin("cpu", ColumnKind::Word, "model of the processor"),
        origin("version", ColumnKind::Word, "version of dsf"),
        origin("git_commit", ColumnKind::Word, "commit it was built from, -dirty with changes"),
        time("started", "when the run was first begun"),
        time("ended", "when it ended"),
        origin("ops", ColumnKind::Word, "implementations of the ops: fused, reference or both"),
        origin("data_digest", ColumnKind::Word, "twelve hex digits over the examples seen"),
        origin("simd", ColumnKind::Word, "instruction set of the ops: amx, avx512-bf16, avx512, avx2, neon or baseline"),
        origin("micro_batch_used", ColumnKind::Count, "examples per forward pass, if reduced because memory ran out"),
        origin("checksum", ColumnKind::Word, "digest of the rest of the row: twelve hex digits, which reveal changes"),
    ]
}

/// Returns the columns of `settings`.
fn of_settings(settings: Settings) -> Vec<ColumnSpec> {
    let mut columns: Vec<ColumnSpec> = Vec::new();
    for setting in settings.iter() {
        let Some(name) = setting.column() else {
            continue;
        };
        let at = setting.pointers();
        let shared = columns.iter_mut().find(|known| known.name == name);
        if let (Summary::In(_), Some(shared)) = (setting.summary, shared) {
            shared.at.extend(at);
            continue;
        }
        let column = match setting.summary {
            Summary::Column(column) => column,
            Summary::AsFlag | Summary::In(_) => SettingColumn::new(Absent::Empty, setting.help),
        };
        columns.push(ColumnSpec {
            // Leaked once; columns live as long as the program.
            name: name.leak(),
            unit: column.unit,
            role: column.role,
            kind: setting.kind.into(),
            at: at.into_iter().collect(),
            absent: column.absent,
            meaning: column.meaning,
        });
    }
    columns
}

/// Returns the column of a metric.
fn of_metric(metric: &Metric) -> ColumnSpec {
    ColumnSpec {
        unit: metric.unit,
        // Every version wrote this column, so a file without it has a misspelt header.
        absent: match metric.column {
            Column::ACCURACY => Absent::Required,
            _ => Absent::Empty,
        },
        ..other(metric.name, "", Role::Result, metric.kind(), metric.meaning)
    }
}

/// Returns the columns of a summary of runs with `settings`: those of [`NAMES`] in that order, then new settings.
pub fn columns(settings: Settings) -> Vec<ColumnSpec> {
    let mut columns = others();
    columns.extend(of_settings(settings));
    columns.extend(METRICS.iter().map(of_metric));
    columns.sort_by_key(|column| NAMES.iter().position(|name| *name == column.name).unwrap_or(NAMES.len()));
    columns
}

/// Every column of a summary.
pub static COLUMNS: LazyLock<Vec<ColumnSpec>> = LazyLock::new(|| columns(SETTINGS));

/// Returns the indices of the columns with one of `roles`, in order.
pub fn places(roles: &[Role]) -> Vec<usize> {
    let places = 0..COLUMNS.len();
    places.filter(|i| roles.contains(&COLUMNS[*i].role)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{At, Setting};
    use std::collections::BTreeSet;

    #[test]
    fn every_setting_that_can_be_typed_is_in_a_summary() {
        // Flags that set others, and settings from which rules compute others, leave nothing of their own.
        let leaves_none = |setting: &&Setting| [At::Others, At::Rule].contains(&setting.at);
        for setting in SETTINGS.typed().filter(|setting| !leaves_none(setting)) {
            let pointers = setting.pointers();
            assert!(!pointers.is_empty(), "{} is nowhere", setting.name);
            let holds = |column: &&ColumnSpec| pointers.iter().all(|at| column.at.contains(at));
            assert_eq!(COLUMNS.iter().filter(holds).count(), 1, "{}", setting.name);
        }
    }

    #[test]
    fn every_constant_is_the_column_of_its_name_and_new_ones_come_behind() {
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        assert_eq!(names[..NAMES.len()], *NAMES);
        assert_eq!(Column::find("checksum"), Some(Column::CHECKSUM));
    }

    #[test]
    fn no_two_columns_have_one_name_and_every_condition_names_a_column() {
        let names: BTreeSet<&str> = COLUMNS.iter().map(|column| column.name).collect();
        assert_eq!(names.len(), COLUMNS.len());
        for column in COLUMNS.iter() {
            if let Absent::Where(other, ..) = column.absent {
                assert!(Column::find(other).is_some(), "{}: {other}", column.name);
            }
        }
    }
}
