//! Token ids: padding, unknown and end, then the tokens of the training examples.

use super::{LraConfig, LraSplits};
use crate::error::{refuse, Result};
use std::collections::HashMap;
use std::hash::Hash;

/// Id of a token that does not occur in the training examples. Padding has the id 0.
const UNKNOWN: u8 = 1;

/// Id at the end of every document.
pub(super) const END: u8 = 2;

/// Number of special ids.
const SPECIAL: usize = 3;

/// Placeholder for [`END`] at the end of documents whose bytes are not ids yet.
pub(super) const RAW_END: u8 = u8::MAX;

/// Ids by descending count; ties are in the order of the tokens.
pub(super) struct CountedVocabulary<T> {
    ids: HashMap<T, u8>,
}

impl<T: Copy + Ord + Hash> CountedVocabulary<T> {
    /// Creates the vocabulary of the tokens that occur at least `least` times. Fails if there are more tokens than
    /// `config` has rows for.
    pub(super) fn new(counts: impl IntoIterator<Item = (T, u64)>, least: u64, config: &LraConfig) -> Result<Self> {
        let mut tokens: Vec<(T, u64)> = counts.into_iter().collect();
        tokens.retain(|(_, count)| *count >= least);
        let (entries, most) = (SPECIAL + tokens.len(), config.vocab_size.min(256));
        if entries > most {
            refuse!(flag "--vocab-size" = most, "too small: the training examples have {entries} tokens with padding, unknown and end{}", if entries > 256 { ", and 256 is the most; the files are another task's or damaged" } else { "" });
        }
        tokens.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let ids = (SPECIAL as u8..=u8::MAX).zip(tokens);
        Ok(Self { ids: ids.map(|(id, (token, _))| (token, id)).collect() })
    }

    pub(super) fn id(&self, token: T) -> u8 {
        self.ids.get(&token).copied().unwrap_or(UNKNOWN)
    }
}

/// Converts bytes to ids. The vocabulary is the set of bytes in the training examples. Each document must end with
/// [`RAW_END`].
pub(super) fn encode(mut splits: LraSplits, config: &LraConfig) -> Result<LraSplits> {
    let mut counts = [0_u64; RAW_END as usize + 1];
    for byte in splits.train.all() {
        counts[usize::from(*byte)] += 1;
    }
    let tokens = (0..RAW_END).map(|byte| (byte, counts[usize::from(byte)]));
    let vocabulary = CountedVocabulary::new(tokens, 1, config)?;
    let mut table = [END; RAW_END as usize + 1];
    for byte in 0..RAW_END {
        table[usize::from(byte)] = vocabulary.id(byte);
    }
    for split in [&mut splits.train, &mut splits.val, &mut splits.test] {
        split.replace(&table);
    }
    Ok(splits)
}

#[cfg(test)]
mod tests {
    use super::super::testing::config;
    use super::super::Documents;
    use super::*;
    use crate::error::testing::Fails;
    use crate::tasks::lra::LraDataset;

    #[test]
    fn ids_go_by_falling_count_and_then_by_token() {
        let config = config(LraDataset::Text, [1, 0, 1]);
        let counts = [('z', 20), ('b', 15), ('a', 15), ('q', 14)];
        let vocabulary = CountedVocabulary::new(counts, 15, &config).unwrap();
        assert_eq!(['z', 'a', 'b', 'q'].map(|c| vocabulary.id(c)), [3, 4, 5, UNKNOWN]);
    }

    #[test]
    fn what_only_the_test_split_holds_is_unknown() {
        let config = config(LraDataset::Listops, [1, 0, 1]);
        let of = |documents: &[&[u8]]| {
            let mut examples = Documents::new(1);
            documents.iter().for_each(|d| examples.push(&[d], 0));
            examples
        };
        let splits = [of(&[&[7, 7, RAW_END], &[9, RAW_END]]), of(&[]), of(&[&[9, 8, RAW_END]])];
        let splits = encode(splits.into(), &config).unwrap();
        assert_eq!(splits.train, of(&[&[3, 3, END], &[4, END]]));
        assert_eq!(splits.test, of(&[&[4, UNKNOWN, END]]));
    }

    #[test]
    fn a_table_that_is_too_small_is_refused_with_both_numbers() {
        let config = config(LraDataset::Listops, [1, 0, 1]);
        let refused = |n: u32| {
            let counts = (0..n).map(|i| (i, 1));
            CountedVocabulary::new(counts, 1, &config).refuses("--vocab-size")
        };
        assert!(CountedVocabulary::new((0..15).map(|i| (i, 1)), 1, &config).is_ok());
        refused(16).gives("18").names(&["19"]);
        refused(400).names(&["256"]);
    }
}
