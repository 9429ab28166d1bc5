//! From symbols to the ids that a vocabulary counted on the training split gives them.

use super::tree::ALPHABET;
use crate::tasks::lra::{Examples, Splits};

const UNKNOWN: u8 = 1;
const END: u8 = 2;
const FIRST: u8 = 3;

/// Ids by falling count in the training split, ties by code point; the end token behind each tree.
pub(super) fn by_frequency(symbols: &Splits) -> Splits {
    let ids = ids(&symbols.train);
    Splits {
        train: encoded(&symbols.train, &ids),
        val: encoded(&symbols.val, &ids),
        test: encoded(&symbols.test, &ids),
        ..Splits::default()
    }
}

fn ids(train: &Examples) -> [u8; ALPHABET.len()] {
    let mut counts = [0_usize; ALPHABET.len()];
    for example in 0..train.len() {
        for &symbol in train.document(example, 0) {
            counts[usize::from(symbol)] += 1;
        }
    }
    let mut present: Vec<usize> = (0..ALPHABET.len()).filter(|&s| counts[s] > 0).collect();
    present.sort_by_key(|&s| (std::cmp::Reverse(counts[s]), ALPHABET[s]));
    let mut ids = [UNKNOWN; ALPHABET.len()];
    for (id, symbol) in (FIRST..).zip(present) {
        ids[symbol] = id;
    }
    ids
}

fn encoded(symbols: &Examples, ids: &[u8; ALPHABET.len()]) -> Examples {
    let mut encoded = Examples::new(1);
    let mut document = Vec::new();
    for example in 0..symbols.len() {
        document.clear();
        let tree = symbols.document(example, 0).iter();
        document.extend(tree.map(|&symbol| ids[usize::from(symbol)]));
        document.push(END);
        encoded.push(&[&document], symbols.label(example));
    }
    encoded
}
