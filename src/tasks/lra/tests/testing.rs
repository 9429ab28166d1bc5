//! Helpers shared by the tests of the loaders.

use crate::tasks::lra::{LraConfig, LraDataset};
pub(in crate::tasks::lra) use crate::tasks::testing::real;
use crate::tasks::Generator;

/// Config of official sizes with other numbers of examples.
pub(in crate::tasks::lra) fn config(dataset: LraDataset, examples: [usize; 3]) -> LraConfig {
    LraConfig::of(dataset, Generator::Files, examples)
}
