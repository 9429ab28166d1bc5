//! What the tests of the loaders share.

use crate::config::{Generator, LraConfig, LraDataset};
pub(super) use crate::tasks::testing::real;

/// The official sizes but for the examples.
pub(super) fn config(dataset: LraDataset, examples: [usize; 3]) -> LraConfig {
    LraConfig::of(dataset, Generator::Files, examples)
}
