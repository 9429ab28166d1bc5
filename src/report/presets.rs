//! What tells a run from the run that its preset would have made.

use crate::store::{places, Field, Record, Role, COLUMNS, SOURCE_DIGEST};
use std::fmt;
use std::sync::LazyLock;

/// The runs that the presets would make of the task, mixer and protocol of a record, by name: `full`
/// first, if there is one. What the paper leaves open is 0 or absent in them.
pub type PresetsOf<'a> = &'a dyn Fn(&Record) -> Vec<(&'static str, Record)>;

/// Settings that name a run's place in a report and are never differences.
const NAMES: [&str; 6] = [
    "task",
    "protocol",
    "mixer",
    "dataset",
    "tokenizer",
    SOURCE_DIGEST,
];

/// Settings that say how large a training is. Beside runs that differ in one of them from the preset `full`, the paper's
/// perplexities do not stand.
#[rustfmt::skip]
pub(super) const SIZES: [&str; 10] = [
    "d", "n", "heads", "layers", "mlp_width", "seq_len", "vocab_size", "train_examples", "batch_size", "epochs_max",
];

/// The column of validation examples, which is empty where a generated task has none: as typed, 0.
const VAL_EXAMPLES: &str = "val_examples";

/// Examples of released files, in the column `data`.
pub(super) const FILES: &str = "files";

/// The paper's tokens.
pub(super) const TOKENIZER: &str = "gpt-neox";

/// One setting that is not the preset's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// Its column.
    pub name: &'static str,
    /// What the run has.
    pub value: String,
    /// What the preset has; empty where it says nothing.
    pub preset: String,
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
    pub fn of(record: &Record, known: Vec<(&'static str, Record)>) -> Self {
        let each = known.into_iter().map(|(preset, planned)| Self {
            preset,
            lr: planned.number("lr"),
            differences: differences(record, &planned),
        });
        let unknown = || Self {
            preset: "",
            lr: None,
            differences: differences(record, &Record::default()),
        };
        each.min_by_key(|nearest| nearest.differences.len())
            .unwrap_or_else(unknown)
    }
}

static COMPARED: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let mut compared = places(&[Role::Setting]);
    compared.extend(places(&[Role::Cell]));
    compared.retain(|place| !NAMES.contains(&COLUMNS[*place].name));
    compared
});

fn differences(record: &Record, preset: &Record) -> Vec<Difference> {
    let pairs = COMPARED.iter().map(|i| (*i, record.at(*i), preset.at(*i)));
    let differing = pairs.filter(|(_, value, preset)| {
        let unsaid = value.is_nothing() && **preset == Field::Absent;
        value != preset && !unsaid
    });
    differing
        .map(|(i, value, preset)| Difference {
            name: COLUMNS[i].name,
            value: match value {
                Field::Absent if COLUMNS[i].name == VAL_EXAMPLES => "0".to_owned(),
                value => said(value),
            },
            preset: match preset {
                Field::Absent | Field::Count(0) => String::new(),
                preset => preset.to_string(),
            },
        })
        .collect()
}

/// The difference of generated examples from released files, where `run` has the former. Presets keep the data of a row,
/// and so make no difference of it.
pub(super) fn generated(run: &Record) -> Option<Difference> {
    let data = run.text("data");
    (data != FILES).then(|| Difference {
        name: "data",
        value: data.to_owned(),
        preset: FILES.to_owned(),
    })
}

/// A value as a title says it.
pub(super) fn said(value: &Field) -> String {
    match value {
        Field::Absent => "none".into(),
        value => value.to_string(),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl Difference {
    /// Beside what the preset has.
    pub(super) fn explained(&self) -> String {
        match self.preset.as_str() {
            "" => self.to_string(),
            preset => format!("{self} (preset: {preset})"),
        }
    }
}

/// Differences as one text.
pub(super) fn listed(differences: &[Difference]) -> String {
    let texts: Vec<String> = differences.iter().map(Difference::to_string).collect();
    texts.join(", ")
}
