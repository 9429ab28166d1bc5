//! Our own ListOps and Pathfinder: every tree and every picture is a function of (seed, number), so
//! that threads may draw in any order.

pub mod listops;
pub mod pathfinder;

use super::Splits;
use crate::error::{Error, Result};
use crate::tasks::lra::{LraConfig, LraDataset};
use std::path::PathBuf;

/// Hears of examples as they are finished: how many more.
pub type Progress<'a> = &'a mut dyn FnMut(usize) -> Result<()>;

/// Where the files of a generated task lie under a data folder.
pub fn folder(config: &LraConfig) -> PathBuf {
    match config.dataset {
        LraDataset::Pathfinder => pathfinder::folder(config.contour_length()),
        _ => listops::FOLDER.into(),
    }
}

/// Refuses sizes that no generator can serve.
pub(super) fn check(config: &LraConfig) -> Result<()> {
    match config.dataset {
        LraDataset::Listops => listops::check(config),
        LraDataset::Pathfinder => Ok(()),
        other => Err(Error::usage(format!(
            "--data native: {} cannot be generated; take --data files",
            other.name()
        ))),
    }
}

/// The splits of sizes that passed [`super::check()`].
pub(in crate::tasks::lra) fn splits(config: &LraConfig) -> Result<Splits> {
    match config.dataset {
        LraDataset::Pathfinder => pathfinder::splits(config),
        _ => listops::splits(config),
    }
}
