//! What can be fetched, over all tasks.

use crate::config::{Corpus, LraDataset};

/// One thing to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dataset {
    /// A task of the Long Range Arena.
    Lra(LraDataset),
    /// A text, one that the hub has.
    Wikitext(Corpus),
    /// The tokenizer of GPT-NeoX.
    GptNeox,
}

impl Dataset {
    /// As typed and as written in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lra(dataset) => dataset.name(),
            Self::Wikitext(corpus) => corpus.name(),
            Self::GptNeox => "gpt-neox",
        }
    }

    /// Whether it lies under the data root of the Long Range Arena, not under that of WikiText.
    pub fn is_lra(self) -> bool {
        matches!(self, Self::Lra(_))
    }
}

impl From<LraDataset> for Dataset {
    fn from(dataset: LraDataset) -> Self {
        Self::Lra(dataset)
    }
}
