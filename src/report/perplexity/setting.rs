//! Where a run belongs among the tables.

use super::super::difference::{Difference, Nearest, PresetsOf};
use crate::store::Row;
use crate::tasks::wikitext::{Corpus, Tokenizer};

/// What belongs to a mixer alone: it makes a line of its own and no table.
const OF_LINE: [&str; 7] = [
    "variant",
    "options",
    "n",
    "heads",
    "expand",
    "rotary",
    "rotary_dims",
];

/// Differences from the preset `full` beside which the paper's numbers do not stand. The others are open
/// in the paper, or its own words decide them and a title says what was done instead.
const SIZES: [&str; 10] = [
    "d",
    "n",
    "heads",
    "layers",
    "mlp_width",
    "seq_len",
    "vocab_size",
    "train_examples",
    "batch_size",
    "epochs_max",
];

/// A run beside its preset.
pub(super) struct Setting<'a> {
    pub row: &'a Row,
    /// Empty for a mixer that this version does not know.
    pub preset: &'static str,
    /// What puts it into another table.
    pub of_table: Vec<Difference>,
    /// What puts it on another line.
    pub of_line: Vec<Difference>,
}

impl<'a> Setting<'a> {
    pub fn of(row: &'a Row, presets: PresetsOf) -> Self {
        let nearest = Nearest::of(row, presets(row));
        let differences = nearest.differences.into_iter();
        let of_line = |d: &Difference| OF_LINE.contains(&d.name);
        let (of_line, of_table) = differences.partition(of_line);
        Self {
            row,
            preset: nearest.preset,
            of_table,
            of_line,
        }
    }

    /// Why the paper's numbers cannot stand beside its table; empty where they can.
    pub fn elsewhere(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let corpora = [Corpus::Wikitext103Raw, Corpus::Wikitext103];
        if !corpora.iter().any(|c| c.name() == self.row.dataset) {
            reasons.push(format!("corpus {}", self.row.dataset));
        }
        if self.row.tokenizer != Tokenizer::GptNeox.to_string() {
            reasons.push(format!("tokenizer {}", self.row.tokenizer));
        }
        match self.preset {
            "full" | "" => reasons.extend(sizes(&self.of_table)),
            other => reasons.push(format!("preset {other}")),
        }
        reasons
    }
}

/// Those of `differences` that keep the paper's numbers away.
pub(super) fn sizes(differences: &[Difference]) -> impl Iterator<Item = String> + '_ {
    let sizes = differences.iter().filter(|d| SIZES.contains(&d.name));
    sizes.map(Difference::to_string)
}
