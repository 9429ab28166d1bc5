//! What can be fetched, over all tasks.

use crate::tasks::lra::LraDataset;
use crate::tasks::wikitext::Corpus;

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

    /// The name of the task that it is for, under whose data root it lies.
    pub fn task(self) -> &'static str {
        match self {
            Self::Lra(_) => "lra",
            Self::Wikitext(_) | Self::GptNeox => "wikitext",
        }
    }
}

impl From<LraDataset> for Dataset {
    fn from(dataset: LraDataset) -> Self {
        Self::Lra(dataset)
    }
}
