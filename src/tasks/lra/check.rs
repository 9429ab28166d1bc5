//! Sizes from which no data can be made.

use super::config::{LraConfig, LraDataset};
use crate::error::{Error, Result};
use crate::tasks::Generator;
use std::ops::RangeInclusive;

/// Paddles of long paths that 32 x 32 pixels have room for, and of which a third is a path too.
const CONTOURS: RangeInclusive<usize> = 3..=14;

/// Refuses them, in a sentence that names the flag.
pub fn check(config: &LraConfig) -> Result<()> {
    match config.data {
        Generator::Files => {}
        Generator::Native => super::generate::check(config)?,
        Generator::Numpy => {
            return Err(Error::usage(
                "--data numpy is a generator of MQAR; the Long Range Arena has native and files",
            ))
        }
    }
    check_sizes(config)
}

fn check_sizes(config: &LraConfig) -> Result<()> {
    let most = config.dataset.seq_len();
    let sizes = [
        ("--train-examples", config.train_examples, 1, 10_000_000),
        ("--val-examples", config.val_examples, 0, 10_000_000),
        ("--test-examples", config.test_examples, 1, 10_000_000),
        ("--vocab-size", config.vocab_size, 4, 256),
    ];
    for (flag, size, least, most) in sizes {
        if !(least..=most).contains(&size) {
            return Err(Error::usage(format!(
                "{flag} must be {least} to {most}, not {size}"
            )));
        }
    }
    check_contour(config)?;
    if config.dataset.is_picture() {
        if config.seq_len != most || config.vocab_size != 256 {
            return Err(Error::usage(format!(
                "{} has 32 x 32 pixels of 256 grays: leave out --seq-len and --vocab-size",
                config.dataset.name()
            )));
        }
    } else if !(16..=65_536).contains(&config.seq_len) {
        return Err(Error::usage(format!(
            "--seq-len must be 16 to 65536, not {}",
            config.seq_len
        )));
    }
    Ok(())
}

fn check_contour(config: &LraConfig) -> Result<()> {
    let Some(contour_length) = config.contour_length else {
        return Ok(());
    };
    if config.dataset != LraDataset::Pathfinder {
        let name = config.dataset.name();
        return Err(Error::usage(format!(
            "--contour-length is of Pathfinder; leave it out with --dataset {name}"
        )));
    }
    if CONTOURS.contains(&contour_length) {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--contour-length must be {} to {} paddles, not {contour_length}; the released levels have 6, 9 and 14",
        CONTOURS.start(),
        CONTOURS.end()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dataset: LraDataset) -> LraConfig {
        LraConfig::of(dataset, Generator::Files, dataset.examples())
    }

    #[test]
    fn the_official_sizes_pass() {
        for dataset in LraDataset::ALL {
            check(&of(dataset)).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_flag() {
        let refused = |config: LraConfig, flag: &str| {
            let message = check(&config).unwrap_err().to_string();
            assert!(message.starts_with(flag), "{message}");
        };
        let text = of(LraDataset::Text);
        refused(
            LraConfig {
                data: Generator::Native,
                ..text.clone()
            },
            "--data native",
        );
        refused(
            LraConfig {
                data: Generator::Numpy,
                ..text.clone()
            },
            "--data numpy",
        );
        refused(
            LraConfig {
                train_examples: 0,
                ..text.clone()
            },
            "--train-examples",
        );
        refused(
            LraConfig {
                vocab_size: 300,
                ..text.clone()
            },
            "--vocab-size",
        );
        refused(LraConfig { seq_len: 3, ..text }, "--seq-len");
        let image = LraConfig {
            seq_len: 1000,
            ..of(LraDataset::Image)
        };
        refused(image, "image has 32 x 32 pixels");
    }
}
