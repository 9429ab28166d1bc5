//! Schema of the summaries: the one table of columns behind the CSV, the reports and `--columns`.

use super::column::{Absent, Column, Kind, Role};
use super::metrics::{Metric, METRICS};
use super::Cause;
use crate::config::{SettingColumn, Settings, Summary, SETTINGS};
use std::sync::LazyLock;

/// Version of the columns. It is raised when a column is renamed or changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;

/// Column of the checksum, which detects changed rows.
pub(super) const CHECKSUM: &str = "checksum";

/// Returns an optional column that is no setting.
fn other(name: &'static str, unit: &'static str, role: Role, kind: Kind, meaning: &'static str) -> Column {
    Column { name, unit, role, kind, at: Vec::new(), absent: Absent::Empty, meaning }
}

fn required(column: Column) -> Column {
    Column { absent: Absent::Required, ..column }
}

#[rustfmt::skip]
fn ids() -> [Column; 2] {
    [
        required(other("schema", "", Role::Id, Kind::Count, "version of these columns")),
        required(other("run_id", "", Role::Id, Kind::Word, "twelve hex digits over the config")),
    ]
}

/// Columns of a config that are no settings, each with its position among those.
#[rustfmt::skip]
fn beside_settings() -> [(usize, Column); 3] {
    let at = |at: &str, column: Column| Column { at: vec![at.to_owned()], ..required(column) };
    let setting = |name, kind, meaning| other(name, "", Role::Setting, kind, meaning);
    [
        (0, at("/format", setting("format", Kind::Count, "version of the meaning of a config"))),
        (1, at("/task/name", setting("task", Kind::Word, "task name"))),
        (5, at("/model/options", setting("options", Kind::Word, "options of the mixer, name=value;name=value"))),
    ]
}

#[rustfmt::skip]
fn endings() -> [Column; 4] {
    [
        required(other("status", "", Role::Result, Kind::OneOf(&["done", "failed"]), "done or failed")),
        other("outcome", "", Role::Result, Kind::OneOf(&["converged", "finished", "diverged"]), "converged, finished or diverged"),
        other("reason", "", Role::Result, Kind::Word, "message of the failure"),
        Column {
            absent: Absent::Where("status", "failed", "other"),
            ..other("cause", "", Role::Result, Kind::OneOf(&Cause::NAMES), "kind of the failure, from a fixed list")
        },
    ]
}

#[rustfmt::skip]
fn origins() -> [Column; 13] {
    let origin = |name, kind, meaning| other(name, "", Role::Origin, kind, meaning);
    let time = |name, meaning| other(name, "UTC", Role::Origin, Kind::Word, meaning);
    [
        origin("device", Kind::Word, "device trained on"),
        origin("threads", Kind::Count, "threads in use"),
        origin("host", Kind::Word, "name of the host"),
        origin("cpu", Kind::Word, "model of the processor"),
        origin("version", Kind::Word, "version of dsf"),
        origin("git_commit", Kind::Word, "commit it was built from, -dirty with changes"),
        time("started", "when the run was first begun"),
        time("ended", "when it ended"),
        origin("ops", Kind::Word, "implementations of the ops: fused, reference or both"),
        origin("data_digest", Kind::Word, "twelve hex digits over the examples seen"),
        origin("simd", Kind::Word, "instruction set of the ops: avx512, avx2, neon or baseline"),
        origin("micro_batch_used", Kind::Count, "examples per forward pass, if reduced because memory ran out"),
        origin(CHECKSUM, Kind::Word, "digest of the rest of the row: twelve hex digits, which reveal changes"),
    ]
}

/// Returns the columns of `settings`, in the order of a summary: first those of older files, then the others.
fn of_settings(settings: Settings) -> Vec<Column> {
    let mut columns: Vec<(usize, Column)> = beside_settings().into();
    for setting in settings.iter() {
        let Some(name) = setting.column() else {
            continue;
        };
        let at = setting.pointers();
        let shared = columns.iter_mut().find(|(_, known)| known.name == name);
        if let (Summary::In(_), Some((_, shared))) = (setting.summary, shared) {
            shared.at.extend(at);
            continue;
        }
        let column = match setting.summary {
            Summary::Column(column) => column,
            Summary::AsFlag | Summary::In(_) => SettingColumn::as_flag(setting.help),
        };
        let order = column.order;
        let column = Column {
            // Leaked once; columns live as long as the program.
            name: name.leak(),
            unit: column.unit,
            role: column.role,
            kind: setting.kind.into(),
            at: at.into_iter().collect(),
            absent: column.absent,
            meaning: column.meaning,
        };
        columns.push((order, column));
    }
    // The sort is stable: new columns stay in the order of their rows.
    columns.sort_by_key(|(order, _)| *order);
    columns.into_iter().map(|(_, column)| column).collect()
}

/// Returns the column of a metric.
fn of_metric(metric: &Metric) -> Column {
    Column {
        unit: metric.unit,
        // Every version wrote this column, so a file without it has a misspelt header.
        absent: match metric.name {
            "accuracy" => Absent::Required,
            _ => Absent::Empty,
        },
        ..other(metric.name, "", Role::Result, metric.kind(), metric.meaning)
    }
}

/// Returns the columns of a summary of runs with `settings`, in order: ids, settings, end of the run, metrics,
/// provenance.
pub fn columns(settings: Settings) -> Vec<Column> {
    let mut columns: Vec<Column> = ids().into();
    columns.extend(of_settings(settings));
    columns.extend(endings());
    columns.extend(METRICS.iter().map(of_metric));
    columns.extend(origins());
    columns
}

/// Every column of a summary.
pub static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| columns(SETTINGS));

/// Names and indices of the columns, grouped by the length of the name. Reports look up millions of names, and few
/// columns share a length.
static PLACES: LazyLock<Vec<Vec<(&str, usize)>>> = LazyLock::new(|| {
    let mut by_length = Vec::new();
    for (i, column) in COLUMNS.iter().enumerate() {
        let len = column.name.len();
        by_length.resize_with(by_length.len().max(len + 1), Vec::new);
        by_length[len].push((column.name, i));
    }
    by_length
});

/// Returns the index in [`COLUMNS`] of the column called `name`.
pub fn place(name: &str) -> Option<usize> {
    for (known, place) in PLACES.get(name.len())? {
        if *known == name {
            return Some(*place);
        }
    }
    None
}

/// Returns the indices of the columns with one of `roles`, in order.
pub fn places(roles: &[Role]) -> Vec<usize> {
    let places = 0..COLUMNS.len();
    places.filter(|i| roles.contains(&COLUMNS[*i].role)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Columns of configs in files of earlier versions.
    const WRITTEN: &str = "\
        format, task, protocol, mixer, variant, options, d, n, heads, layers, layout, state_mixer, \
        positions, seq_len, kv_pairs, vocab_size, train_examples, test_examples, data, data_seed, lr, \
        weight_decay, precision, embed_dropout, attn_dropout, schedule, batch_size, epochs_max, stop_above, \
        seed, dataset, contour_length, val_examples, expand, micro_batch, warmup_epochs, input, mlp_width, \
        dropout, lambda_skip, pool, mask, dual, loss, tokenizer, eos_between_articles, rotary, rotary_dims, \
        init, beta1, beta2, eps, clip, decay, hybrid, test_seq_len, copy_tokens, \
        key_tokens, overwrites, passes, position_embedding, bidirectional, source_digest, short_conv";

    fn names(columns: &[Column]) -> Vec<&str> {
        columns.iter().map(|column| column.name).collect()
    }

    #[test]
    fn every_setting_that_can_be_typed_is_in_a_summary() {
        for setting in SETTINGS.typed() {
            let pointers = setting.pointers();
            assert!(!pointers.is_empty(), "{} is nowhere", setting.name);
            let holds = |column: &&Column| pointers.iter().all(|at| column.at.contains(at));
            assert_eq!(COLUMNS.iter().filter(holds).count(), 1, "{}", setting.name);
        }
    }

    #[test]
    fn the_columns_of_older_files_stay_in_their_order_before_new_ones() {
        let written: Vec<&str> = WRITTEN.split(", ").collect();
        let found = of_settings(SETTINGS);
        assert_eq!(names(&found)[..written.len()], written);
        let orders = SETTINGS.iter().filter_map(|setting| match setting.summary {
            Summary::Column(column) => Some(column.order),
            _ => None,
        });
        let beside = beside_settings().map(|(order, _)| order);
        let mut orders: Vec<usize> = orders.chain(beside).collect();
        orders.sort_unstable();
        assert!(orders.into_iter().eq(0..written.len()));
    }

    #[test]
    fn no_two_columns_have_one_name_and_every_condition_names_a_column() {
        let names: BTreeSet<&str> = COLUMNS.iter().map(|column| column.name).collect();
        assert_eq!(names.len(), COLUMNS.len());
        for column in COLUMNS.iter() {
            if let Absent::Where(other, ..) = column.absent {
                assert!(place(other).is_some(), "{}: {other}", column.name);
            }
        }
    }
}
