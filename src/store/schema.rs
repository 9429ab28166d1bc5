//! Every column of a summary: the one table that the CSV, the reports and `--columns` ask.

use super::column::{Absent, Column, Kind, Role};
use super::columns::SETTINGS;
use super::metrics::METRICS;
use crate::config::{settings, Objective};
use std::collections::{BTreeSet, HashMap};
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

/// The column of a setting that the table of columns does not list: named and explained as its flag is. Settings
/// that recipes alone set follow from others, and have none.
fn of_setting(setting: &settings::Setting) -> Option<Column> {
    let objectives = [Objective::PerToken, Objective::Pooled, Objective::NextToken];
    let pointers: BTreeSet<String> = objectives
        .into_iter()
        .filter_map(|objective| setting.pointer(objective))
        .collect();
    let listed = |column: &Column| column.at.iter().any(|at| pointers.contains(*at));
    if !setting.is_typed() || pointers.is_empty() || SETTINGS.iter().any(listed) {
        return None;
    }
    let kind = match setting.kind {
        settings::Kind::Whole(..) => Kind::Count,
        settings::Kind::Bool => Kind::Flag,
        settings::Kind::OneOf(_) | settings::Kind::Name | settings::Kind::Tokenizer => Kind::Word,
        _ => Kind::Real,
    };
    // Made once, and kept as long as the program runs.
    let at = pointers
        .into_iter()
        .map(|at| &*at.leak())
        .collect::<Vec<&str>>();
    Some(Column {
        at: at.leak(),
        ..other(
            setting.name.replace('-', "_").leak(),
            "",
            Role::Setting,
            kind,
            setting.help,
        )
    })
}

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
    let unlisted = settings::SETTINGS.iter().filter_map(of_setting);
    columns.extend(unlisted);
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
    fn every_setting_that_can_be_typed_is_in_a_summary() {
        let pointers: BTreeSet<&str> = COLUMNS.iter().flat_map(|c| c.at).copied().collect();
        for setting in settings::SETTINGS.iter().filter(|s| s.is_typed()) {
            let at = setting.pointer(Objective::Pooled);
            let at = at.or_else(|| setting.pointer(Objective::NextToken));
            let at = at.unwrap_or_else(|| panic!("{} is nowhere", setting.name));
            assert!(pointers.contains(at.as_str()), "{at}");
        }
    }

    #[test]
    fn a_setting_that_is_new_has_a_column_from_its_row_alone() {
        let made_up = settings::Setting {
            name: "grad-noise",
            at: settings::At::Train("grad_noise"),
            kind: settings::Kind::NotNegative,
            group: settings::Group::Training,
            help: "Standard deviation of noise on gradients",
        };
        let column = of_setting(&made_up).unwrap();
        assert_eq!((column.name, column.kind), ("grad_noise", Kind::Real));
        assert_eq!(
            (column.at, column.absent),
            (&["/train/grad_noise"][..], Absent::Empty)
        );
        assert_eq!(column.meaning, made_up.help);
        let old = settings::setting("lr").unwrap();
        assert!(of_setting(old).is_none(), "listed already");
    }

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
