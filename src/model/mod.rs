//! Networks around a mixer: embeddings, blocks, final norm, head.
//!
//! Language models ([`LanguageModel`]) and classifiers ([`Classifier`]) share one kind of block, which is described by
//! data: a [`Layout`](crate::config::Layout) determines the norm, the order of norm and addition, the feed-forward half
//! and the places of dropout.

mod auto_encoder;
mod block;
mod body;
mod classifier;
mod feed_forward;
pub mod generate;
mod initial;
mod language_model;
mod spec;
pub mod weights;

use crate::config::TaskConfig;
use crate::error::Result;
use crate::tasks::ExampleSizes;
pub use classifier::Classifier;
pub use initial::initial_values;
pub use language_model::{Decoder, LanguageModel};
pub use spec::weights_beside_mixer;

/// Sizes of a task for which a language model is built.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// Vocabulary size, V.
    pub vocab_size: usize,
    /// Length of the longest sequence, L.
    pub seq_len: usize,
}

impl Io {
    /// Sizes of `task`.
    pub fn of(task: &TaskConfig) -> Result<Self> {
        Ok(Self::from(&task.sizes()?))
    }
}

impl From<&ExampleSizes> for Io {
    fn from(sizes: &ExampleSizes) -> Self {
        Self { vocab_size: sizes.vocab_size, seq_len: sizes.longest() }
    }
}

#[cfg(test)]
mod tests;
