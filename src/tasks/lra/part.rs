//! How many examples a file has to hold.

use crate::error::{Error, Result};
use std::path::Path;

/// A split and the flag that says how much of it is used.
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// What is trained on.
    Train,
    /// What chooses the epoch.
    Val,
    /// What is reported.
    Test,
}

impl Part {
    /// Refuses a file that `holds` fewer examples than are `wanted` of it.
    pub(super) fn enough(self, path: &Path, holds: usize, wanted: usize) -> Result<()> {
        if holds >= wanted {
            return Ok(());
        }
        let (noun, flag) = match self {
            Self::Train => ("training", "--train-examples"),
            Self::Val => ("validation", "--val-examples"),
            Self::Test => ("test", "--test-examples"),
        };
        let path = path.display();
        Err(Error::usage(if holds == 0 {
            format!("{path} holds no {noun} examples: get it again")
        } else {
            format!(
                "{path} holds {holds} {noun} examples, not {wanted}: give {flag} {holds} for a run \
                 on part of the data"
            )
        }))
    }
}
