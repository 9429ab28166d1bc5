//! What tells a run from the run that its preset would have made.

use super::panel::plain;
use crate::store::{Role, Row};
use std::fmt;

/// The runs that the presets would make of the task, mixer and protocol of a row, by name: `full`
/// first, if there is one. What the paper leaves open is 0 or empty in them.
pub type PresetsOf<'a> = &'a dyn Fn(&Row) -> Vec<(&'static str, Row)>;

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
    pub fn of(row: &Row, known: Vec<(&'static str, Row)>) -> Self {
        let each = known.into_iter().map(|(preset, usual)| Self {
            preset,
            lr: Some(usual.lr),
            differences: differences(row, &usual),
        });
        let unknown = || Self {
            preset: "",
            lr: None,
            differences: differences(row, &Row::default()),
        };
        each.min_by_key(|nearest| nearest.differences.len())
            .unwrap_or_else(unknown)
    }
}

fn differences(row: &Row, usual: &Row) -> Vec<Difference> {
    let values = |row: &Row| {
        let settings = row.values(Role::Setting);
        settings.into_iter().chain(row.values(Role::Cell))
    };
    let pairs = values(row).zip(values(usual));
    let differing = pairs.filter(|((column, value), (_, usual))| {
        let names_the_place = ["task", "protocol", "mixer", "dataset", "tokenizer"];
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
