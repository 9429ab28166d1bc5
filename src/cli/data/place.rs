//! Flags of every command that makes data.

use crate::cache;
use crate::error::Result;
use clap::Args;
use std::path::PathBuf;

/// Where generated files go, and which they are.
#[derive(Args)]
pub(super) struct Place {
    /// The data root [default: dsf/lra below HF_HOME].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Seed of the examples.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub data_seed: u64,
    /// Replace what is there.
    #[arg(long)]
    pub force: bool,
}

impl Place {
    pub fn root(&self) -> Result<PathBuf> {
        self.data_dir.clone().map_or_else(cache::lra, Ok)
    }

    /// The flag as it must be typed again.
    pub fn flag(&self) -> String {
        let dir = self.data_dir.as_ref();
        dir.map_or(String::new(), |dir| {
            format!(" --data-dir {}", dir.display())
        })
    }
}
