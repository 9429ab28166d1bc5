//! Helpers shared by the tests of the loaders.

use crate::tasks::lra::{LraConfig, LraDataset};
pub(super) use crate::tasks::testing::real;
use crate::tasks::Generator;

/// Config of official sizes with other numbers of examples.
pub(super) fn config(dataset: LraDataset, examples: [usize; 3]) -> LraConfig {
    LraConfig::of(dataset, Generator::Files, examples)
}
