//! Fuzzy recall: keys and values of one to three tokens.

use crate::ops::rng::Rng;
use crate::tasks::splits::NO_ANSWER;
use std::collections::BTreeMap;

/// Largest number of tokens of a key or a value.
const LONGEST: usize = 3;

/// Smallest vocabulary with keys and values of [`LONGEST`] different tokens, and padding.
pub(super) const LEAST_TOKENS: usize = 2 * LONGEST + 1;

/// Shortest example that shows and asks for the longest pair, whatever the seed; its last token is an answer only.
pub(super) const LEAST_LENGTH: usize = 4 * LONGEST + 1;

/// Fills an example: pairs of a key and a value that it keeps, one of which is planted and asked for at the end, after
/// padding. Keys have one to three different tokens in training and three in tests, values one to three in both. The
/// answers of tests are the tokens of values whose key was shown before.
///
/// The released code may ask for a pair that it never showed, if its place is after the last pair that fits; here it is
/// shown in any case.
pub(super) fn draw(rng: &mut Rng, v: u32, tokens: &mut [u32], answers: &mut [u32], training: bool) {
    let (padding, ids) = (v - 1, v - 1);
    let half = ids / 2;
    let key_size = |rng: &mut Rng| if training { size(rng) } else { LONGEST };
    let probe_key = {
        let size = key_size(rng);
        motif(rng, 0..half, size)
    };
    let probe_value = {
        let size = size(rng);
        motif(rng, half..ids, size)
    };
    // The sequence has one token more than the model reads.
    let (length, probe) = (tokens.len() + 1, probe_key.len() + probe_value.len());
    let room = length - probe; // before the question
    let (mut sequence, mut known) = (Vec::with_capacity(length), Vec::with_capacity(length));
    let mut values: BTreeMap<Vec<u32>, Vec<u32>> = BTreeMap::new();
    let place = rng.below((room - probe + 1) as u32) as usize;
    loop {
        let planted = values.contains_key(&probe_key);
        let left = room - sequence.len();
        let last = left < probe + 2 * LONGEST; // another pair might leave no room for the planted one
        let key = if !planted && (sequence.len() >= place || last) {
            probe_key.clone()
        } else if left < 2 * LONGEST {
            break;
        } else {
            let size = key_size(rng);
            motif(rng, 0..half, size)
        };
        let repeated = values.get(&key).cloned();
        let value = match &repeated {
            Some(value) => value.clone(),
            None if key == probe_key => probe_value.clone(),
            None => {
                let size = size(rng);
                motif(rng, half..ids, size)
            }
        };
        known.extend(key.iter().map(|_| NO_ANSWER));
        known.extend(value.iter().map(|token| if repeated.is_some() { *token } else { NO_ANSWER }));
        sequence.extend(key.iter().chain(&value));
        values.insert(key, value);
    }
    known.extend(probe_key.iter().map(|_| NO_ANSWER).chain(probe_value.iter().copied()));
    sequence.extend(probe_key.iter().chain(&probe_value));
    let padded = length - sequence.len();
    let at = |filled: &[u32], i: usize, filling: u32| if i < padded { filling } else { filled[i - padded] };
    for (i, token) in tokens.iter_mut().enumerate() {
        *token = at(&sequence, i, padding);
    }
    for (i, answer) in answers.iter_mut().enumerate() {
        *answer = if training { at(&sequence, i + 1, padding) } else { at(&known, i + 1, NO_ANSWER) };
    }
}

/// Number of tokens of a key or a value.
fn size(rng: &mut Rng) -> usize {
    1 + rng.below(LONGEST as u32) as usize
}

/// `size` different tokens of `ids`, in random order.
fn motif(rng: &mut Rng, ids: std::ops::Range<u32>, size: usize) -> Vec<u32> {
    let mut drawn = Vec::with_capacity(size);
    while drawn.len() < size {
        let token = ids.start + rng.below(ids.len() as u32);
        if !drawn.contains(&token) {
            drawn.push(token);
        }
    }
    drawn
}
