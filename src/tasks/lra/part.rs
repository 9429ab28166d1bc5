//! How many examples a file has to hold.

use super::vocab::encode;
use super::{Documents, Splits};
use crate::error::{Error, Result};
use crate::tasks::lra::LraConfig;
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

/// The splits whose `files` lie in `dir`, one each, as ids: `split` reads as many examples as are wanted.
pub(super) fn of_files(
    dir: &Path,
    files: [&str; 3],
    config: &LraConfig,
    split: impl Fn(&Path, Part, usize) -> Result<Documents>,
) -> Result<Splits> {
    let mut splits = Splits {
        train: split(&dir.join(files[0]), Part::Train, config.train_examples)?,
        val: split(&dir.join(files[1]), Part::Val, config.val_examples)?,
        test: split(&dir.join(files[2]), Part::Test, config.test_examples)?,
        warnings: Vec::new(),
    };
    encode(&mut splits, config)?;
    Ok(splits)
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
        if holds == 0 {
            return Err(Error::data(
                path,
                format!("holds no {noun} examples: get it again"),
            ));
        }
        Err(Error::usage(format!(
            "{} holds {holds} {noun} examples, not {wanted}: give {flag} {holds} for a run on part \
             of the data",
            path.display()
        )))
    }
}
