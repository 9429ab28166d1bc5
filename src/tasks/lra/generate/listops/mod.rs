//! ListOps (Nangia and Bowman 2018) as the Long Range Arena draws it: trees of four operations on
//! digits, ten levels deep at most, of two to ten arguments each.
//!
//! A tree is kept if its length lies between 500 and 2000 tokens, both excluded, and if no tree
//! before it was the same. For a `seq_len` other than 2048 both bounds are scaled by `seq_len` /
//! 2048, rounded down.

#[cfg(test)]
mod tests;
mod text;
mod tree;

pub use text::write;

use super::Progress;
use crate::error::{Error, Result};
use crate::ops::rng::Stream;
use crate::tasks::lra::vocab::{encode, RAW_END};
use crate::tasks::lra::LraConfig;
use crate::tasks::lra::{Documents, Splits};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::ops::Range;
use tree::Tree;

/// Where the files lie under a data folder.
pub const FOLDER: &str = "listops";

/// Candidates drawn at once: some 1,400 kept ones at the official length.
const BLOCK: u64 = 1 << 14;

/// One candidate in 12 is kept at 2048 tokens, one in 20 at 4096, one in 90 at 8192; at 16,384 it would
/// be one in 2,700.
const LONGEST: usize = 8192;

/// Refuses lengths at which hardly any tree would be kept.
pub(super) fn check(config: &LraConfig) -> Result<()> {
    if config.seq_len > LONGEST {
        return Err(Error::usage(format!(
            "--seq-len of a generated listops must be 16 to {LONGEST}, not {}: trees of ten levels \
             are hardly ever longer",
            config.seq_len
        )));
    }
    Ok(())
}

/// The lengths that are kept.
fn lengths(seq_len: usize) -> Range<usize> {
    500 * seq_len / 2048 + 1..2000 * seq_len / 2048
}

/// The splits that a loader of the written files would give.
pub(super) fn splits(config: &LraConfig) -> Result<Splits> {
    let mut splits = [(); 3].map(|()| Documents::new(1));
    let mut document = Vec::new();
    each(config, &mut |split, tree| {
        document.clone_from(&tree.symbols);
        document.push(RAW_END);
        splits[split].push(&[&document], tree.value);
        Ok(())
    })?;
    let [train, val, test] = splits;
    let mut splits = Splits {
        train,
        val,
        test,
        warnings: Vec::new(),
    };
    encode(&mut splits, config)?;
    Ok(splits)
}

/// Gives every tree to `keep` with its split (0, 1, 2: training, validation, test), in order.
fn each(config: &LraConfig, keep: &mut dyn FnMut(usize, &Tree) -> Result<()>) -> Result<()> {
    let sizes = [
        config.train_examples,
        config.val_examples,
        config.test_examples,
    ];
    let mut splits = (0..3).flat_map(|split| std::iter::repeat_n(split, sizes[split]));
    let stream = Stream::new(config.data_seed, "lra/listops", 0);
    let mut seen = HashSet::new();
    for block in 0.. {
        let numbers = block * BLOCK..(block + 1) * BLOCK;
        for (hash, tree) in candidates(&stream, numbers, lengths(config.seq_len)) {
            if !seen.insert(hash) {
                continue;
            }
            let Some(split) = splits.next() else {
                return Ok(());
            };
            keep(split, &tree)?;
        }
    }
    Ok(())
}

/// The candidates of fitting length among `numbers`, in order, each beside 128 bits that tell it
/// from all others.
fn candidates(stream: &Stream, numbers: Range<u64>, lengths: Range<usize>) -> Vec<(u128, Tree)> {
    let fitting = numbers.into_par_iter().filter_map(|number| {
        let tree = Tree::draw(stream.at(number), lengths.end)?;
        lengths.contains(&tree.symbols.len()).then(|| {
            let digest = Sha256::digest(&tree.symbols);
            let head = digest.iter().take(16);
            (head.fold(0, |hash, &b| hash << 8 | u128::from(b)), tree)
        })
    });
    fitting.collect()
}
