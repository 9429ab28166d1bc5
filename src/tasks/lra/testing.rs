//! What the tests of the loaders share.

use crate::tasks::lra::{LraConfig, LraDataset};
pub(super) use crate::tasks::testing::real;
use crate::tasks::Generator;

/// The official sizes but for the examples.
pub(super) fn config(dataset: LraDataset, examples: [usize; 3]) -> LraConfig {
    LraConfig::of(dataset, Generator::Files, examples)
}
