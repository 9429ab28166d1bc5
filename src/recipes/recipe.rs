//! Format of a recipe: layers of settings with their conditions.

use super::partial::Partial;
use crate::config::Protocol;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Contents of a task's TOML file. Later layers override earlier ones.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Recipe {
    /// Learning rates that the paper tries, for `--lr paper`; empty if it tried none.
    #[serde(default)]
    pub rates: Vec<f64>,
    /// Reason why there are no rates.
    #[serde(default)]
    pub why_no_rates: String,
    /// Protocols of the task; empty for all of them.
    #[serde(default)]
    pub protocols: Vec<Protocol>,
    /// Reason why there are no other protocols.
    #[serde(default)]
    pub why_protocols: String,
    /// Protocol whose variants and options mixers use here, if it is not the run's.
    #[serde(default)]
    pub mixers_as_in: Option<Protocol>,
    #[serde(default)]
    pub presets: Presets,
    /// Values that `dsf sweep` uses for flags that are left out.
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub compare: PresetMatch,
    /// Sets of hyperparameters; a mixer takes the first whose conditions hold.
    #[serde(default)]
    pub row: Vec<PresetRow>,
    pub layer: Vec<Layer>,
}

/// Preset of runs that name none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Presets {
    pub default: String,
    /// Different preset if a certain setting is given.
    pub named: Option<PresetWhen>,
    /// Sizes of presets in words, for help.
    #[serde(default)]
    pub sizes: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PresetWhen {
    pub setting: String,
    pub preset: String,
}

impl Default for Presets {
    fn default() -> Self {
        Self { default: "quick".to_owned(), named: None, sizes: BTreeMap::new() }
    }
}

/// Settings needed to identify the preset of a finished run, see [`super::presets_of`].
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PresetMatch {
    /// Settings taken from the run.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Settings that presets leave open.
    #[serde(default)]
    pub open: Vec<String>,
}

/// Named set of hyperparameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PresetRow {
    pub name: String,
    #[serde(default)]
    pub when: BTreeMap<String, Values>,
    /// Owner of the hyperparameters if they are another mixer's; part of a note to the user.
    #[serde(default)]
    pub stands_in: Option<String>,
}

/// Settings that apply under conditions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Layer {
    /// Name in `--explain`.
    pub of: String,
    /// Conditions, all of which must hold; a list matches any of its values.
    #[serde(default)]
    pub when: BTreeMap<String, Values>,
    #[serde(default)]
    pub set: Partial,
    /// Options of mixers that have them.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Whether to use the block around the mixer in the released configs.
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
