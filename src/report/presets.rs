//! Differences of a run from the run that its preset would make.

use crate::config::{Omitted, SETTINGS};
use crate::store::{places, Column, Field, Record, Role, COLUMNS};
use std::fmt;
use std::sync::LazyLock;

/// Returns the runs that the presets make of a record's task, mixer and protocol, by name: `paper` first, if there is
/// one. Settings that the paper leaves open are 0 or absent in them.
pub type PresetsOf<'a> = &'a dyn Fn(&Record) -> Vec<(&'static str, Record)>;

/// Settings that determine a run's place in a report and are never differences.
const NAMES: [Column; 6] =
    [Column::TASK, Column::PROTOCOL, Column::MIXER, Column::DATASET, Column::TOKENIZER, Column::SOURCE_DIGEST];

/// Settings of the size of a training. The paper's perplexities are not shown beside runs that differ in one of them
/// from the preset `paper`.
#[rustfmt::skip]
pub(super) const SIZES: [&str; 10] = [
    "d", "n", "heads", "layers", "mlp_width", "seq_len", "vocab_size", "train_examples", "batch_size", "epochs_max",
];

/// Value of the column `data` for examples from released files.
pub(super) const FILES: &str = "files";

/// The paper's tokenizer.
pub(super) const TOKENIZER: &str = "gpt-neox";

/// One setting that differs from the preset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PresetDifference {
    /// Its column.
    pub name: &'static str,
    /// Value of the run.
    pub value: String,
    /// Value of the preset; empty if the preset leaves it open.
    pub preset: String,
}

/// The preset from which a run differs least.
pub(super) struct Nearest {
    /// Name of the preset; empty for a mixer that this version does not know.
    pub preset: &'static str,
    /// Learning rate of the preset.
    pub lr: Option<f64>,
    /// Differences from the preset; all settings if there is no preset.
    pub differences: Vec<PresetDifference>,
}

impl Nearest {
    /// Returns the nearest of the presets in `known`; among equals, the first.
    pub fn of(record: &Record, known: Vec<(&'static str, Record)>) -> Self {
        let each = known.into_iter().map(|(preset, planned)| Self {
            preset,
            lr: planned.number(Column::LR),
            differences: differences(record, &planned),
        });
        let unknown = || Self { preset: "", lr: None, differences: differences(record, &Record::default()) };
        each.min_by_key(|nearest| nearest.differences.len()).unwrap_or_else(unknown)
    }
}

static COMPARED: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let mut compared = places(&[Role::Setting]);
    compared.extend(places(&[Role::Cell]));
    compared.retain(|place| NAMES.iter().all(|column| column.place() != *place));
    compared
});

fn differences(record: &Record, preset: &Record) -> Vec<PresetDifference> {
    let pairs = COMPARED.iter().map(|i| (*i, record.at(*i), preset.at(*i)));
    let differing = pairs.filter(|(_, value, preset)| {
        let unsaid = value.is_nothing() && **preset == Field::Absent;
        value != preset && !unsaid
    });
    differing
        .map(|(i, value, preset)| PresetDifference {
            name: COLUMNS[i].name,
            value: formatted_at(i, value),
            preset: match preset {
                Field::Absent | Field::Count(0) => String::new(),
                preset => preset.to_string(),
            },
        })
        .collect()
}

/// Difference in the source of the examples if those of `run` are generated instead of released files. Presets keep the
/// `data` of a row, so [`Nearest`] does not contain this difference.
pub(super) fn generated(run: &Record) -> Option<PresetDifference> {
    let data = run.text(Column::DATA);
    (data != FILES).then(|| PresetDifference { name: "data", value: data.to_owned(), preset: FILES.to_owned() })
}

/// Formats the value of the column at `place`, where a missing value may stand for one, or have a name.
pub(super) fn formatted_at(place: usize, value: &Field) -> String {
    let name = COLUMNS[place].name.replace('_', "-");
    match (value, SETTINGS.find(&name).map(|setting| setting.omitted)) {
        (Field::Absent, Some(Omitted::Neutral(meant) | Omitted::Is(meant))) => meant.to_owned(),
        _ => formatted(value),
    }
}

/// Formats a value for a title.
pub(super) fn formatted(value: &Field) -> String {
    match value {
        Field::Absent => "none".into(),
        value => value.to_string(),
    }
}

impl fmt::Display for PresetDifference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl PresetDifference {
    /// The difference with the preset's value.
    pub(super) fn explained(&self) -> String {
        match self.preset.as_str() {
            "" => self.to_string(),
            preset => format!("{self} (preset: {preset})"),
        }
    }
}

/// Formats differences as one text.
pub(super) fn listed(differences: &[PresetDifference]) -> String {
    let texts: Vec<String> = differences.iter().map(PresetDifference::to_string).collect();
    texts.join(", ")
}
