//! The text of a recipe: layers of settings, and when each of them holds.

use crate::config::Protocol;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a task's TOML file says. Layers hold from the first to the last.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Recipe {
    /// The learning rates that the paper tries, as `--lr paper`; none where it swept none.
    #[serde(default)]
    pub rates: Vec<f64>,
    /// Why it has none.
    #[serde(default)]
    pub why_no_rates: String,
    /// The protocols that the task has; all of them where it names none.
    #[serde(default)]
    pub protocols: Vec<Protocol>,
    /// Why it has no others.
    #[serde(default)]
    pub why_protocols: String,
    /// The protocol whose variants and options mixers have here, if not the run's.
    #[serde(default)]
    pub mixers_as_in: Option<Protocol>,
    #[serde(default)]
    pub presets: Presets,
    /// Lists that `dsf sweep` takes for flags that are left out.
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub compare: Compare,
    /// Which of several sets of hyperparameters a mixer takes: the first that fits.
    #[serde(default)]
    pub row: Vec<Row>,
    pub layer: Vec<Layer>,
}

/// Which preset a run has that names none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Presets {
    pub default: String,
    /// Another one where this setting is given.
    pub named: Option<Named>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    pub setting: String,
    pub preset: String,
}

impl Default for Presets {
    fn default() -> Self {
        Self {
            default: "quick".to_owned(),
            named: None,
        }
    }
}

/// How the preset of a finished run is found again: see [`super::presets_of`].
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Compare {
    /// Settings that are the run's own.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Settings that presets leave open.
    #[serde(default)]
    pub open: Vec<String>,
}

/// A set of hyperparameters by name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Row {
    pub name: String,
    #[serde(default)]
    pub when: BTreeMap<String, Values>,
    /// Said to the user where the row is another mixer's: whose it is.
    #[serde(default)]
    pub stands_in: Option<String>,
}

/// Settings that hold under conditions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Layer {
    /// Its name in `--explain`.
    pub of: String,
    /// All must hold; a list is any of its values.
    #[serde(default)]
    pub when: BTreeMap<String, Values>,
    #[serde(default)]
    pub set: BTreeMap<String, Value>,
    /// Options of mixers that have them.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Whether the block is that of the released configs, from the mixer's own row.
    #[serde(default)]
    pub released_block: bool,
}

/// One value or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Values {
    Several(Vec<Value>),
    One(Value),
}

impl Values {
    pub fn contain(&self, found: &Value) -> bool {
        match self {
            Self::Several(values) => values.contains(found),
            Self::One(value) => value == found,
        }
    }
}
