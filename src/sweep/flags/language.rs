//! Settings of text and of the model and optimiser that Pythia has.

use super::super::values::{number, TokenizerName};
use super::given;
use crate::config::{Decay, InitScheme, Rotary, Schedule};
use crate::tasks::wikitext::Corpus;

/// Heading of these flags in `--help`.
pub const LANGUAGE: &str = "WikiText (lists make a grid in `dsf sweep`)";

/// What [`super::Flags`] are, for language models of text.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct LanguageFlags {
    /// Text to learn [default: sample, a few pages that need no file; wikitext-103-raw in preset full].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = LANGUAGE)]
    pub corpus: Vec<Corpus>,
    /// What makes ids of it: bytes, gpt-neox, or a tokenizer.json [default: bytes; gpt-neox in preset
    /// full].
    #[arg(long, value_delimiter = ',', value_name = "NAME|FILE", help_heading = LANGUAGE)]
    pub tokenizer: Vec<TokenizerName>,
    /// Whether id 0 stands before each article [default: false].
    #[arg(long, value_delimiter = ',', value_name = "BOOL", help_heading = LANGUAGE)]
    pub eos_between_articles: Vec<bool>,
    /// Where rotary positions enter attention: before its feature map, behind it, or nowhere [default:
    /// pre; none for other mixers].
    #[arg(long, value_delimiter = ',', value_name = "WHERE", help_heading = LANGUAGE)]
    pub rotary: Vec<Rotary>,
    /// How weights start: as Pythia was trained, or as `transformers` makes it [default: pythia].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = LANGUAGE)]
    pub init: Vec<InitScheme>,
    /// How the rate goes on after its rise over the first tenth of all steps; two of them end at a
    /// tenth of the peak [default: cosine].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = LANGUAGE)]
    pub schedule: Vec<Schedule>,
    /// Norm over all gradients that none exceeds; 0 is no limit [default: 1].
    #[arg(long, value_delimiter = ',', value_name = "NORM", value_parser = number, help_heading = LANGUAGE, allow_hyphen_values = true)]
    pub clip: Vec<f64>,
    /// What weight decay shrinks: matrices and tables alone, or biases and norms too [default: matrices].
    #[arg(long, value_delimiter = ',', value_name = "WHAT", help_heading = LANGUAGE)]
    pub decay: Vec<Decay>,
    /// AdamW's memory of squared gradients [default: 0.95].
    #[arg(long, value_delimiter = ',', value_name = "X", value_parser = number, help_heading = LANGUAGE, allow_hyphen_values = true)]
    pub beta2: Vec<f64>,
}

impl LanguageFlags {
    /// These flags on top of `base`.
    #[must_use]
    pub(super) fn over(&self, base: &Self) -> Self {
        let base = base.clone();
        Self {
            corpus: given(&self.corpus, base.corpus),
            tokenizer: given(&self.tokenizer, base.tokenizer),
            eos_between_articles: given(&self.eos_between_articles, base.eos_between_articles),
            rotary: given(&self.rotary, base.rotary),
            init: given(&self.init, base.init),
            schedule: given(&self.schedule, base.schedule),
            clip: given(&self.clip, base.clip),
            decay: given(&self.decay, base.decay),
            beta2: given(&self.beta2, base.beta2),
        }
    }
}
