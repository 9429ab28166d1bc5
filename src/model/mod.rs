//! The network around a mixer: embeddings, blocks, final norm, head.
//!
//! Language models ([`Model`]) and classifiers ([`Classifier`]) share one kind of block, which is described
//! by data: the name of a [`Layout`](crate::config::Layout) stands for a norm, an order, a feed-forward
//! half and the places of dropout.

mod block;
mod body;
mod classifier;
pub mod generate;
mod language_model;
mod spec;
pub mod weights;

use crate::config::{LraConfig, TaskConfig};
pub use classifier::Classifier;
pub use language_model::{Decoder, Model};

/// The sizes of a task that a language model is built for.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// Tokens of the vocabulary, V.
    pub vocab_size: usize,
    /// Longest sequence, L.
    pub seq_len: usize,
}

impl Io {
    /// The sizes of `task`.
    pub fn of(task: &TaskConfig) -> Self {
        Self {
            vocab_size: task.vocab_size(),
            seq_len: task.seq_len(),
        }
    }
}

/// The sizes of a task that a classifier is built for.
#[derive(Clone, Copy, Debug)]
pub struct ClassifierIo {
    /// Tokens of the vocabulary, V.
    pub vocab_size: usize,
    /// Longest document, L.
    pub seq_len: usize,
    /// Classes, C.
    pub classes: usize,
    /// Documents of an example: 1, or 2 where pairs are classified.
    pub documents: usize,
    /// Scale and shift that make a number of a token's id, for embeddings by a linear map.
    pub scalar: (f64, f64),
}

impl From<&LraConfig> for ClassifierIo {
    fn from(task: &LraConfig) -> Self {
        Self {
            vocab_size: task.vocab_size,
            seq_len: task.seq_len,
            classes: task.dataset.classes(),
            documents: task.dataset.documents(),
            scalar: task.dataset.scalar(),
        }
    }
}

#[cfg(test)]
mod tests;
