//! Random trees with the distribution of the Long Range Arena: four operations on digits, at most ten levels deep, of
//! two to ten arguments each. A tree is a function of (seed, number), so that threads may draw in any order.
//!
//! A tree is kept if its length lies strictly between 500 and 2000 tokens and no earlier tree is equal to it. For a
//! `seq_len` other than 2048 both bounds are scaled by `seq_len` / 2048, rounded down.

use super::{END, MAX, MED, MIN};
use crate::error::{refuse, Result};
use crate::ops::rng::Rng;
use crate::tasks::lra::vocab::{encode, RAW_END};
use crate::tasks::lra::{Documents, LraConfig, LraSplits};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::ops::Range;

const DEEPEST: usize = 10;
const MOST_ARGUMENTS: usize = 10;

/// Number of candidates drawn at once, of which some 1,400 are kept at the official length.
const BLOCK: u64 = 1 << 14;

/// Largest length. One candidate in 12 is kept at 2048 tokens, one in 20 at 4096 and one in 90 at 8192; at 16,384 it
/// would be one in 2,700.
const LONGEST: usize = 8192;

/// Expression and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// Codes: an operator, its arguments and the end; or a digit.
    pub symbols: Vec<u8>,
    /// Value, 0 to 9.
    pub value: u8,
}

impl Tree {
    /// Draws the tree of `rng`; `None` if it has `limit` symbols or more.
    fn draw(mut rng: Rng, limit: usize) -> Option<Self> {
        let mut symbols = Vec::new();
        let value = grow(&mut rng, &mut symbols, 1, limit)?;
        (symbols.len() < limit).then_some(Self { symbols, value })
    }
}

/// Appends a node at `depth` with its subtree and returns its value; `None` beyond `limit` symbols.
fn grow(rng: &mut Rng, symbols: &mut Vec<u8>, depth: usize, limit: usize) -> Option<u8> {
    if symbols.len() >= limit {
        return None;
    }
    if depth == DEEPEST || rng.below(4) > 0 {
        let digit = rng.below(10) as u8;
        symbols.push(digit);
        return Some(digit);
    }
    let mut arguments = [0; MOST_ARGUMENTS];
    let count = 2 + rng.below(MOST_ARGUMENTS as u32 - 1) as usize;
    let operator = MAX + rng.below(4) as u8;
    symbols.push(operator);
    for argument in &mut arguments[..count] {
        *argument = grow(rng, symbols, depth + 1, limit)?;
    }
    symbols.push(END);
    Some(apply(operator, &mut arguments[..count]))
}

/// Result of an operator: MIN, MAX, the median (for even counts the mean of the middle two, rounded down) or the sum
/// modulo 10.
fn apply(operator: u8, arguments: &mut [u8]) -> u8 {
    arguments.sort_unstable();
    let (count, middle) = (arguments.len(), arguments.len() / 2);
    match operator {
        MIN => arguments[0],
        MAX => arguments[count - 1],
        MED if count % 2 == 1 => arguments[middle],
        MED => (arguments[middle - 1] + arguments[middle]) / 2,
        _ => arguments.iter().sum::<u8>() % 10,
    }
}

/// Fails for lengths at which hardly any tree would be kept.
pub(in crate::tasks::lra) fn check_generated(config: &LraConfig) -> Result<()> {
    if config.seq_len > LONGEST {
        refuse!(flag "--seq-len" = config.seq_len, "must be 16 to {LONGEST} for generated listops, since longer trees of ten levels are rare");
    }
    Ok(())
}

/// Range of tree lengths that are kept.
fn lengths(seq_len: usize) -> Range<usize> {
    500 * seq_len / 2048 + 1..2000 * seq_len / 2048
}

/// Generates the splits that a loader of the written files would return.
pub(in crate::tasks::lra) fn generated(config: &LraConfig) -> Result<LraSplits> {
    let mut splits = [(); 3].map(|()| Documents::new(1));
    let mut document = Vec::new();
    each(config, &mut |split, tree| {
        document.clone_from(&tree.symbols);
        document.push(RAW_END);
        splits[split].push(&[&document], tree.value);
        Ok(())
    })?;
    encode(splits.into(), config)
}

/// Passes every tree to `keep`, in order, with its split (0, 1, 2: training, validation, test).
pub(super) fn each(config: &LraConfig, keep: &mut dyn FnMut(usize, &Tree) -> Result<()>) -> Result<()> {
    let mut splits = (0..).zip(config.examples()).flat_map(|(split, size)| std::iter::repeat_n(split, size));
    let rng = Rng::new(config.data_seed, "lra/listops", 0);
    let mut seen = HashSet::new();
    for block in 0.. {
        let numbers = block * BLOCK..(block + 1) * BLOCK;
        for (hash, tree) in candidates(&rng, numbers, lengths(config.seq_len)) {
            if !seen.insert(hash) {
                continue;
            }
            let Some(split) = splits.next() else { return Ok(()) };
            keep(split, &tree)?;
        }
    }
    Ok(())
}

/// Candidates of suitable length among `numbers`, in order, each with a 128-bit hash that identifies it.
fn candidates(rng: &Rng, numbers: Range<u64>, lengths: Range<usize>) -> Vec<(u128, Tree)> {
    let fitting = numbers.into_par_iter().filter_map(|number| {
        let tree = Tree::draw(rng.at(number), lengths.end)?;
        lengths.contains(&tree.symbols.len()).then(|| {
            let digest = Sha256::digest(&tree.symbols);
            let head = digest.iter().take(16);
            (head.fold(0, |hash, &b| hash << 8 | u128::from(b)), tree)
        })
    });
    fitting.collect()
}

#[cfg(test)]
mod tests;
