//! Best accuracy without recall, from the position of a question alone.

use super::{MqarConfig, POWER};
use std::collections::BTreeMap;
use std::f64::consts::LN_2;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Distance between two nodes of the integral over the logarithm of time.
const STEP: f64 = 0.1;

/// Largest number of multiplications, some seconds of work, for which the ceiling is computed.
const MOST_WORK: f64 = 4e9;

/// Results of [`pairs_of_slots`] by slots and pairs, cached for the process.
static KNOWN: Mutex<BTreeMap<[usize; 2], Arc<Vec<f64>>>> = Mutex::new(BTreeMap::new());

/// Accuracy of the best predictor that sees the position of a question and the positions of all values, but compares no
/// keys. `None` if there are too many slots and pairs to compute it.
///
/// Pairs draw their slots one after the other without replacement, slot g with weight (g + 1)^(a - 1), so that pairs
/// shown early tend to be asked for early. At slot g the predictor answers with the value of the likeliest pair.
pub(super) fn without_recall(config: &MqarConfig) -> Option<f64> {
    let (k, overwritten) = (config.kv_pairs, config.overwrites);
    let of_slot = |pairs: &[f64]| {
        let asked: f64 = pairs.iter().sum();
        let likeliest = pairs.iter().copied().fold(0.0, f64::max);
        let kept = 1.0 - overwritten as f64 / k as f64;
        // Each replacing value belongs to the asked pair with probability 1/k.
        let renewed = if overwritten > 0 { asked / k as f64 } else { 0.0 };
        (kept * likeliest).max(renewed)
    };
    Some(known(config)?.chunks(k).map(of_slot).sum::<f64>() / k as f64)
}

/// Accuracy of the predictor of [`without_recall`] among the questions for which `in_slice` holds, given their slot and
/// pair. `None` where it is unknown, if no question is in the slice, and if pairs are overwritten.
pub(super) fn without_recall_in(config: &MqarConfig, in_slice: impl Fn(usize, usize) -> bool) -> Option<f64> {
    if config.overwrites > 0 {
        return None;
    }
    let (mut right, mut asked) = (0.0, 0.0);
    for (slot, pairs) in known(config)?.chunks(config.kv_pairs).enumerate() {
        let likeliest = (0..pairs.len()).rev().max_by(|a, b| pairs[*a].total_cmp(&pairs[*b]))?;
        let inside = |pair: usize| if in_slice(slot, pair) { pairs[pair] } else { 0.0 };
        right += inside(likeliest);
        asked += (0..pairs.len()).map(inside).sum::<f64>();
    }
    (asked > 0.0).then(|| right / asked)
}

/// [`pairs_of_slots`] of the examples of `config`; `None` if that takes too long.
fn known(config: &MqarConfig) -> Option<Arc<Vec<f64>>> {
    let (slots, k) = (config.slots(), config.kv_pairs);
    let work = nodes(slots) as f64 * slots as f64 * (slots as f64).log2().max(1.0) * k as f64;
    if work > MOST_WORK {
        return None;
    }
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    let pairs = known.entry([slots, k]).or_insert_with(|| Arc::new(pairs_of_slots(&config.slot_weights(POWER), k)));
    Some(pairs.clone())
}

/// P(pair j is asked for at slot g) for each slot and pair, (G, k): the probability that slot g is the j-th of those
/// drawn without replacement with `weights`.
///
/// The draw is equivalent to a race of exponential times with rates w(g) (Efraimidis and Spirakis 2006). If slot g
/// rings at time t, the number of slots before it is a sum of Bernoulli variables with probabilities 1 - e^(-w(h) t), h
/// != g. The integral over t is a trapezoidal sum over ln t, whose error decreases exponentially in 1 / [`STEP`].
fn pairs_of_slots(weights: &[f64], k: usize) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    let rates: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
    let mut pairs = vec![0.0; rates.len() * k];
    for node in 0..nodes(rates.len()) {
        let time = (FIRST + STEP * node as f64).exp();
        let rung: Vec<f64> = rates.iter().map(|rate| -(-rate * time).exp_m1()).collect();
        let mut none = vec![0.0; k];
        none[0] = 1.0;
        others(&rung, 0..rates.len(), &none, &mut |slot, counts| {
            let density = rates[slot] * (-rates[slot] * time).exp() * time * STEP;
            for (sum, count) in pairs[slot * k..][..k].iter_mut().zip(counts) {
                *sum += density * count;
            }
        });
    }
    pairs
}

/// Logarithm of the first time of the integral, by which e^-20 slots have rung on average.
const FIRST: f64 = -20.0;

/// Number of nodes up to a time by which the slowest of `slots` slots has rung with probability 1 - e^-40.
fn nodes(slots: usize) -> usize {
    // Bound: the rate of the slowest slot is at least 1 / (G (1 + ln G)).
    let slowest = slots as f64 * (1.0 + (slots as f64).ln().max(LN_2));
    (((40.0 * slowest).ln() - FIRST) / STEP).ceil() as usize
}

/// Passes each slot of `range` to `out`, with the distribution of the number of all other slots that have rung,
/// truncated to the first k counts. `counts` is the distribution over the slots outside `range`, and `rung` the
/// probability of each slot.
fn others(rung: &[f64], range: Range<usize>, counts: &[f64], out: &mut impl FnMut(usize, &[f64])) {
    if range.len() == 1 {
        return out(range.start, counts);
    }
    let middle = range.start + range.len() / 2;
    for (inside, outside) in [(range.start..middle, middle..range.end), (middle..range.end, range.start..middle)] {
        let mut counts = counts.to_vec();
        for rung in &rung[outside] {
            for i in (1..counts.len()).rev() {
                counts[i] += rung * (counts[i - 1] - counts[i]);
            }
            counts[0] -= rung * counts[0];
        }
        others(rung, inside, &counts, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests;
    use super::*;
    use crate::tasks::{Generator, Task};

    fn config(seq_len: usize, kv_pairs: usize) -> MqarConfig {
        MqarConfig { train_examples: 20_000, ..tests::config(Generator::Native, seq_len, kv_pairs, 8192) }
    }

    /// Accuracies of the best predictor in 100,000 draws, computed independently.
    #[test]
    fn position_alone_answers_as_many_questions_as_in_a_simulation() {
        for (seq_len, k, percent) in
            [(32, 4, 30.8), (32, 8, 21.8), (64, 4, 28.8), (128, 8, 15.5), (256, 16, 8.7), (512, 64, 2.7)]
        {
            let ceiling = 100.0 * without_recall(&config(seq_len, k)).unwrap();
            assert!((ceiling - percent).abs() < 0.5, "{seq_len}:{k}: {ceiling}");
        }
    }

    #[test]
    fn every_pair_is_asked_once() {
        let config = config(64, 4);
        let pairs = pairs_of_slots(&config.slot_weights(POWER), 4);
        for pair in 0..4 {
            let sum: f64 = pairs.iter().skip(pair).step_by(4).sum();
            assert!((sum - 1.0).abs() < 1e-8, "pair {pair}: {sum}");
        }
    }

    /// Accuracies in slices against those of the predictor on examples of the generator.
    #[test]
    fn slices_of_the_predictor_are_those_of_drawn_examples() {
        let config = config(32, 4);
        let [train, ..] = super::super::native::load(&config);
        let pairs = pairs_of_slots(&config.slot_weights(POWER), 4);
        let likeliest: Vec<usize> =
            pairs.chunks(4).map(|pairs| (0..4).max_by(|a, b| pairs[*a].total_cmp(&pairs[*b])).unwrap()).collect();
        let batch = train.batch(0..train.len());
        let correct: Vec<f32> = batch
            .positions
            .iter()
            .zip(batch.answers)
            .enumerate()
            .map(|(i, (position, answer))| {
                let shown = &batch.tokens[i / 4 * 32..][..8];
                let value = shown[2 * likeliest[(*position as usize - 8) / 2] + 1];
                f32::from(u8::from(value == *answer))
            })
            .collect();
        let slices = config.slices(&train).unwrap();
        for (slice, right) in slices.all().iter().zip(slices.right(&correct)) {
            let (drawn, all) = (right as f64, slice.answers as f64);
            match config.without_skill_in(slice.by, slice.from, slice.to) {
                Some(found) => assert!((drawn / all - found).abs() < 0.02 + 2.0 / all.sqrt(), "{slice:?}: {found}"),
                None => assert_eq!(slice.answers, 0, "{slice:?}"),
            }
        }
        let overwritten = MqarConfig { overwrites: 1, ..config };
        assert_eq!(overwritten.without_skill_in("pair", 0, 0), None);
    }

    /// Accuracy of the predictor itself on examples of the generator.
    #[test]
    fn the_predictor_reaches_its_ceiling_on_drawn_examples() {
        let config = config(32, 4);
        let [train, ..] = super::super::native::load(&config);
        let batch = train.batch(0..train.len());
        let mut counts = vec![[0_usize; 4]; config.slots()];
        for (i, (position, answer)) in batch.positions.iter().zip(batch.answers).enumerate() {
            let tokens = &batch.tokens[i / 4 * 32..][..8];
            let pair = tokens.chunks(2).position(|pair| pair[1] == *answer).unwrap();
            counts[(*position as usize - 8) / 2][pair] += 1;
        }
        let right: usize = counts.iter().map(|pairs| *pairs.iter().max().unwrap()).sum();
        let accuracy = right as f64 / batch.answers.len() as f64;
        let ceiling = without_recall(&config).unwrap();
        assert!((accuracy - ceiling).abs() < 0.01, "{accuracy} and {ceiling}");
    }

    #[test]
    fn an_overwritten_value_is_known_by_its_place_in_one_of_k() {
        let all = MqarConfig { overwrites: 4, ..config(64, 4) };
        assert!((without_recall(&all).unwrap() - 0.25).abs() < 1e-9);
        let some = without_recall(&MqarConfig { overwrites: 1, ..config(64, 4) }).unwrap();
        assert!(some < without_recall(&config(64, 4)).unwrap());
    }
}
