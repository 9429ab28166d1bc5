//! What the tests of the loaders share.

use crate::config::{Generator, LraConfig, LraDataset};
use std::path::PathBuf;

/// The official sizes but for the examples.
pub(super) fn config(dataset: LraDataset, examples: [usize; 3]) -> LraConfig {
    LraConfig::of(dataset, Generator::Files, examples)
}

/// The folder `name` of real data; `None`, and a line that says so, where there is none.
pub(super) fn real(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("DSF_TEST_DATA");
    if dir.is_none() {
        eprintln!("skipped: DSF_TEST_DATA is not set");
    }
    dir.map(|dir| PathBuf::from(dir).join(name))
}
