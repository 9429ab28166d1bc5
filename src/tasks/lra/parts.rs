//! Selection of the examples of each split: the first lines of a file, or shares of the released code's permutation.

use super::vocab::encode;
use super::{Documents, LraConfig, LraSplits};
use crate::error::{Error, Result};
use crate::ops::rng::mt19937::Mt19937;
use crate::tasks::lines::{self, TextLine};
use std::path::Path;

/// Seed of every split in the released code.
const SEED: u32 = 42;

/// Split, by its name in messages and the flag that sets its number of examples.
#[derive(Clone, Copy)]
pub(super) struct LraSplit {
    noun: &'static str,
    flag: &'static str,
}

pub(super) const TRAIN: LraSplit = LraSplit { noun: "training", flag: "--train-examples" };
const VAL: LraSplit = LraSplit { noun: "validation", flag: "--val-examples" };
pub(super) const TEST: LraSplit = LraSplit { noun: "test", flag: "--test-examples" };

const PARTS: [LraSplit; 3] = [TRAIN, VAL, TEST];

impl LraSplit {
    /// Fails if a file `holds` fewer examples than `wanted`.
    pub(super) fn check_count(self, path: &Path, holds: usize, wanted: usize) -> Result<()> {
        let Self { noun, flag } = self;
        match holds {
            _ if holds >= wanted => Ok(()),
            0 => Err(Error::data(path, format!("has no {noun} examples: get a new copy"))),
            _ => {
                let reason =
                    format!("this file has {holds} {noun} examples; give {flag} {holds} for a run on part of the data");
                Err(Error::flag_value(flag, wanted, reason).in_file(path, None))
            }
        }
    }

    fn first(self, examples: &[usize], wanted: usize) -> Result<&[usize]> {
        let (found, flag) = (examples.len(), self.flag);
        examples.get(..wanted).ok_or_else(|| {
            let reason = match found {
                0 => "the files have none; give the folder of the complete data with --data-dir".to_owned(),
                _ => format!("the files have {found}; give {flag} {found} or less, or the folder of the complete data with --data-dir"),
            };
            Error::flag_value(flag, wanted, reason)
        })
    }
}

/// Reads the splits from `files` in `dir`, with one example per line, as ids: the first examples of each file. `parse`
/// returns the documents of a line, truncated and with their end token, and its label.
pub(super) fn of_lines<const N: usize>(
    dir: &Path,
    files: [&str; 3],
    header: Option<&str>,
    config: &LraConfig,
    parse: impl Fn(TextLine) -> Result<([Vec<u8>; N], u8), String> + Sync,
) -> Result<LraSplits> {
    let mut splits = [(); 3].map(|()| Documents::new(N));
    let wanted = PARTS.into_iter().zip(files).zip(config.examples());
    for (((part, file), wanted), split) in wanted.zip(&mut splits) {
        let path = dir.join(file);
        let holds = lines::read(&path, header, wanted, &parse, |(documents, label)| {
            split.push(&documents.each_ref().map(Vec::as_slice), label);
            Ok(())
        })?;
        part.check_count(&path, holds, wanted)?;
    }
    encode(splits.into(), config)
}

/// Returns the first examples of each of `parts`, as many as `config` sets.
pub(super) fn first<'a>(parts: [&'a [usize]; 3], config: &LraConfig) -> Result<[&'a [usize]; 3]> {
    let mut first = parts;
    let wanted = PARTS.into_iter().zip(config.examples());
    for ((part, wanted), examples) in wanted.zip(&mut first) {
        *examples = part.first(examples, wanted)?;
    }
    Ok(first)
}

/// Order in which PyTorch's `random_split(.., generator=Generator().manual_seed(42))` distributes `n` examples, which
/// is its `randperm(n)`. From 2^32 / 20 examples on, PyTorch uses another algorithm.
pub(super) fn permutation(n: usize) -> Vec<usize> {
    debug_assert!(n < u32::MAX as usize / 20);
    let mut generator = Mt19937::new(SEED);
    let mut order: Vec<usize> = (0..n).collect();
    for i in 0..n.saturating_sub(1) {
        let step = generator.next_u32() as usize % (n - i);
        order.swap(i, i + step);
    }
    order
}

/// A tenth of `n` examples, rounded.
pub(super) fn tenth(n: usize) -> usize {
    n / 10 + usize::from(n % 10 >= 5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;
    use crate::tasks::fingerprint;

    #[test]
    fn every_entry_is_that_of_pytorch() {
        // SHA-256 of torch.randperm(n, generator=torch.Generator().manual_seed(42)) as 32-bit
        // little-endian numbers, from PyTorch 2.15.
        let of_pytorch = [(10, "d1532c4d1e24"), (50_000, "15bd7ad5aed2"), (200_000, "4f06df2898b6")];
        for (n, digits) in of_pytorch {
            let order = permutation(n).into_iter();
            let bytes = order.map(|i| (i as u32).to_le_bytes().to_vec().into());
            assert_eq!(fingerprint(bytes), digits, "{n}");
        }
    }

    #[test]
    fn it_begins_and_ends_as_pytorch_does() {
        assert_eq!(permutation(10), [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]);
        let image = permutation(50_000);
        assert_eq!(image[..6], [37542, 44491, 216, 43688, 41558, 32245]);
        assert_eq!(image[49_997..], [40730, 25847, 33082]);
        let pathfinder = permutation(200_000);
        assert_eq!(pathfinder[..4], [37542, 143_173, 127_710, 58234]);
        assert_eq!(pathfinder[199_997..], [198_416, 132_078, 156_497]);
    }

    #[test]
    fn nothing_and_one_thing_have_one_order() {
        assert!(permutation(0).is_empty());
        assert_eq!(permutation(1), [0]);
    }

    #[test]
    fn more_than_there_are_is_refused_with_what_to_give() {
        assert_eq!(VAL.first(&[5, 3, 4], 2).unwrap(), [5, 3]);
        let refused = |examples: &[usize]| VAL.first(examples, 4).refuses("--val-examples");
        refused(&[5, 3, 4]).gives("4").names(&["--val-examples 3", "--data-dir"]);
        refused(&[]).gives("4").names(&["--data-dir"]);
    }

    #[test]
    fn the_tenth_of_the_whole_data_is_the_official_one() {
        assert_eq!(tenth(50_000), 5_000);
        assert_eq!(tenth(200_000), 20_000);
        assert_eq!([0, 4, 5, 14, 15].map(tenth), [0, 0, 1, 1, 2]);
    }
}
