//! What tells a run from the run that its preset would have made.

use super::panel::plain;
use crate::store::{Field, Record, Role};
use std::fmt;

/// The runs that the presets would make of the task, mixer and protocol of a row, by name: `full`
/// first, if there is one. What the paper leaves open is 0 or empty in them.
pub type PresetsOf<'a> = &'a dyn Fn(&Record) -> Vec<(&'static str, Record)>;

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

/// The preset that a run differs least from.
pub(super) struct Nearest {
    /// Empty for a mixer that this version does not know.
    pub preset: &'static str,
    /// Its learning rate.
    pub lr: Option<f64>,
    /// Everything, where there is no preset.
    pub differences: Vec<Difference>,
}

impl Nearest {
    /// Of the presets in `known`; of equals the first.
    pub fn of(row: &Record, known: Vec<(&'static str, Record)>) -> Self {
        let each = known.into_iter().map(|(preset, usual)| Self {
            preset,
            lr: usual.number("lr"),
            differences: differences(row, &usual),
        });
        let unknown = || Self {
            preset: "",
            lr: None,
            differences: differences(row, &Record::default()),
        };
        each.min_by_key(|nearest| nearest.differences.len())
            .unwrap_or_else(unknown)
    }
}

fn differences(row: &Record, usual: &Record) -> Vec<Difference> {
    let values = |row: &Record| -> Vec<_> {
        let settings = row.values(Role::Setting);
        let values = settings.chain(row.values(Role::Cell));
        values
            .map(|(column, value)| (column, value.clone()))
            .collect()
    };
    let pairs = values(row).into_iter().zip(values(usual));
    let differing = pairs.filter(|((column, value), (_, usual))| {
        let names_the_place = ["task", "protocol", "mixer", "dataset", "tokenizer"];
        let nothing = value.is_nothing() && *usual == Field::Absent;
        value != usual && !nothing && !names_the_place.contains(&column.name)
    });
    differing
        .map(|((column, value), (_, usual))| Difference {
            name: column.name,
            value: plain(&value.json()),
            usual: match usual {
                Field::Absent | Field::Count(0) => String::new(),
                _ => plain(&usual.json()),
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
