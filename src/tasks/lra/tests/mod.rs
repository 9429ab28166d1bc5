//! Sizes from which no data can be made.

pub(super) mod testing;

use super::*;
use crate::error::testing::Fails;

fn of(dataset: LraDataset) -> LraConfig {
    LraConfig::of(dataset, Generator::Files, dataset.examples())
}

#[test]
fn the_official_sizes_pass() {
    for dataset in LraDataset::ALL {
        of(dataset).check().unwrap();
    }
}

#[test]
fn what_cannot_be_is_refused_by_its_flag() {
    let refused = |config: LraConfig, flag: &str| {
        config.check().refuses(flag);
    };
    let text = of(LraDataset::Text);
    refused(LraConfig { data: Generator::Native, ..text.clone() }, "--data");
    refused(LraConfig { data: Generator::Numpy, ..text.clone() }, "--data");
    refused(LraConfig { train_examples: 0, ..text.clone() }, "--train-examples");
    refused(LraConfig { vocab_size: 300, ..text.clone() }, "--vocab-size");
    refused(LraConfig { seq_len: 3, ..text }, "--seq-len");
    let image = LraConfig { seq_len: 1000, ..of(LraDataset::Image) };
    refused(image, "--seq-len");
}
