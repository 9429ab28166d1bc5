//! Generator of the released code, which draws from numpy's legacy `RandomState`, reproduced bit for bit.
//!
//! A segment seeds a fresh generator and draws the keys of all examples, then all values, then all slots. The training,
//! test and validation segments have seeds drawn from the data seed; the released code has no validation segment.

use super::{lay_out, MqarConfig, POWER};
use crate::error::{Error, Result};
use crate::ops::rng::mt19937::Mt19937;
use crate::tasks::Dataset;
use std::ops::Range;

/// Generates the training, the validation and the test split. The sizes must have passed the check.
pub(super) fn load(config: &MqarConfig) -> Result<[Dataset; 3]> {
    let [train, test, val] = segment_seeds(seed(config)?);
    let tested = &config.tested();
    let (train, (val, test)) = rayon::join(
        || draw_segment(train, config.train_examples, config, POWER),
        || {
            rayon::join(
                || draw_segment(val, config.val_examples, tested, POWER),
                || draw_segment(test, config.test_examples, tested, POWER),
            )
        },
    );
    Ok([train, val, test])
}

/// Returns the data seed, or an error if it exceeds numpy's largest.
pub(super) fn seed(config: &MqarConfig) -> Result<u32> {
    u32::try_from(config.data_seed).map_err(|_| {
        Error::flag_value(
            "--data-seed",
            config.data_seed,
            format!(
                "exceeds numpy's largest seed, {}. Give a smaller one, or a smaller --seed if the data seed follows it",
                u32::MAX
            ),
        )
    })
}

/// Seeds of the training, the test and the validation segment.
fn segment_seeds(data_seed: u32) -> [u32; 3] {
    let mut generator = Mt19937::new(data_seed);
    let [train, test] = [0, 1 << 31].map(|low| generator.randint_31_bits(low));
    let val = loop {
        let val = generator.randint_31_bits(1 << 31);
        if val != test {
            break val;
        }
    };
    [train, test, val]
}

/// Generates one segment of the released data: the training split of `config` under the segment seed `seed`. The sizes
/// must pass the check.
pub fn segment(seed: u32, config: &MqarConfig, power: f64) -> Dataset {
    draw_segment(seed, config.train_examples, config, power)
}

fn draw_segment(seed: u32, examples: usize, config: &MqarConfig, power: f64) -> Dataset {
    let k = config.kv_pairs;
    let mut generator = Mt19937::new(seed);
    let keys = choose_uniform(&mut generator, examples, k, config.keys(0));
    let values = choose_uniform(&mut generator, examples, k, config.values());
    let slots = slot_probabilities(config, power);
    let slots = choose_slots(&mut generator, examples, k, &slots);
    let memory = || ();
    lay_out(config, examples, memory, |(), index, example| {
        let row = index * k..(index + 1) * k;
        for (pair, i) in example.pairs.iter_mut().zip(row) {
            pair.key[0] = keys[i];
            (pair.value, pair.last) = (values[i], values[i]);
            pair.slot = slots[i];
        }
    })
}

/// `choice(pool, k, replace=False)` for each example, (N, k): the first k of a permutation of the pool.
fn choose_uniform(generator: &mut Mt19937, examples: usize, k: usize, pool: Range<u32>) -> Vec<u32> {
    let pool: Vec<u32> = pool.collect();
    let mut shuffled = pool.clone();
    let mut chosen = Vec::with_capacity(examples * k);
    for _ in 0..examples {
        shuffled.copy_from_slice(&pool);
        generator.shuffle(&mut shuffled);
        chosen.extend_from_slice(&shuffled[..k]);
    }
    chosen
}

/// `choice(S, k, replace=False, p)` for each example, (N, k).
fn choose_slots(generator: &mut Mt19937, examples: usize, k: usize, p: &[f64]) -> Vec<u32> {
    let mut chosen = Vec::with_capacity(examples * k);
    let mut rest = p.to_vec();
    let mut cdf = Vec::with_capacity(p.len());
    for _ in 0..examples {
        rest.copy_from_slice(p);
        let start = chosen.len();
        while chosen.len() < start + k {
            cumulate(&rest, &mut cdf);
            let missing = start + k - chosen.len();
            for _ in 0..missing {
                let x = generator.random_sample();
                let slot = cdf.partition_point(|&c| c <= x);
                // A slot drawn twice in a round counts once; a weight of zero marks a drawn slot.
                if rest[slot] > 0.0 {
                    rest[slot] = 0.0;
                    chosen.push(slot as u32);
                }
            }
        }
    }
    chosen
}

/// `cdf = cumsum(p); cdf /= cdf[-1]`.
fn cumulate(p: &[f64], cdf: &mut Vec<f64>) {
    let mut sum = 0.0;
    cdf.clear();
    cdf.extend(p.iter().map(|p| {
        sum += p;
        sum
    }));
    cdf.iter_mut().for_each(|c| *c /= sum);
}

/// `p = a * arange(1, S + 1) ** (a - 1); p / p.sum()`. The power depends on the machine, in numpy as well: its last bit
/// may differ, which moves about one slot in 10^13.
fn slot_probabilities(config: &MqarConfig, power: f64) -> Vec<f64> {
    let weights = config.slot_weights(power);
    let sum = pairwise_sum(&weights);
    weights.iter().map(|w| w / sum).collect()
}

/// `ndarray.sum()`: recursive halving down to 128 elements, which are summed by eight accumulators.
fn pairwise_sum(terms: &[f64]) -> f64 {
    if terms.len() < 8 {
        return terms.iter().sum();
    }
    if terms.len() > 128 {
        let half = terms.len() / 2;
        let (left, right) = terms.split_at(half - half % 8);
        return pairwise_sum(left) + pairwise_sum(right);
    }
    let eights = terms.chunks_exact(8);
    let rest = eights.remainder();
    let mut s = [0.0; 8];
    for eight in eights {
        for (sum, term) in s.iter_mut().zip(eight) {
            *sum += term;
        }
    }
    let sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    rest.iter().fold(sum, |sum, term| sum + term)
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;
    use serde_json::Value;
    use sha2::{Digest, Sha256};

    const GOLDEN: &[u8] = include_bytes!("../../tests/golden/mqar_numpy.safetensors");

    fn le_bytes(values: impl IntoIterator<Item = i64>) -> Vec<u8> {
        values.into_iter().flat_map(i64::to_le_bytes).collect()
    }

    /// Inputs and labels as numpy stores them.
    fn as_numpy(dataset: &Dataset) -> (Vec<u8>, Vec<u8>) {
        let inputs = dataset.tokens().iter().map(|&t| i64::from(t));
        (le_bytes(inputs), le_bytes(dataset.dense_labels()))
    }

    fn sha256(bytes: &[u8]) -> String {
        hex::encode(Sha256::digest(bytes))
    }

    /// Segment of `examples` examples of length `seq_len` with `kv_pairs` pairs and a vocabulary of `vocab_size`.
    fn of(seed: u32, [train_examples, seq_len, kv_pairs, vocab_size]: [usize; 4], power: f64) -> Dataset {
        let config = MqarConfig {
            data: crate::tasks::Generator::Numpy,
            data_seed: 0,
            vocab_size,
            seq_len,
            test_seq_len: None,
            kv_pairs,
            key_tokens: 1,
            overwrites: 0,
            passes: 1,
            fresh_examples: false,
            val_examples: 0,
            train_examples,
            test_examples: 1,
        };
        segment(seed, &config, power)
    }

    fn golden_segment(case: &Value) -> Dataset {
        let size = |name: &str| case[name].as_u64().unwrap() as usize;
        let sizes = ["examples", "seq_len", "kv_pairs", "vocab"].map(size);
        of(size("seed") as u32, sizes, case["power"].as_f64().unwrap())
    }

    #[test]
    fn segments_are_what_numpy_drew_for_the_released_code() {
        let (_, header) = SafeTensors::read_metadata(GOLDEN).unwrap();
        let tensors = SafeTensors::deserialize(GOLDEN).unwrap();
        let cases = header.metadata().as_ref().unwrap();
        for name in ["a", "b"] {
            let case: Value = serde_json::from_str(&cases[name]).unwrap();
            let (inputs, labels) = as_numpy(&golden_segment(&case));
            let stored = |part: &str| tensors.tensor(&format!("{name}.{part}")).unwrap();
            assert_eq!(inputs, stored("inputs").data(), "{name}");
            assert_eq!(labels, stored("labels").data(), "{name}");
            assert_eq!(sha256(&inputs), case["sha256_inputs"], "{name}");
            assert_eq!(sha256(&labels), case["sha256_labels"], "{name}");
        }
    }

    /// Computed by numpy 2.4.6: the whole released training split of the shortest task, then pools that are not a power
    /// of two, a full draw of the slots, and sums just below and above 128 terms.
    #[test]
    fn segments_of_other_sizes_hash_as_numpy_hashes_them() {
        let cases = [
            (
                (209_652_396, 100_000, 64, 4, 8192, 0.01),
                "b981c50b0fa3678fe5713ed2b9363ca4ca5187fa86693f72fe7f69dcc33fa6d4",
                "0781ef4ee8e54ddeee64c110ef7e3902d362e764a5b4549e3782115864d5a6f8",
            ),
            (
                (7, 300, 10, 2, 12, 0.01),
                "acb1f12fd895eb24d7e50c277aef9fe197c44d5de4f4bf26e73e3a79aa9c8b94",
                "7dece76605a7672bc2fc6f09cbc458c205663a95fd5f97dbb4729620b6d7a810",
            ),
            (
                (1, 100, 300, 3, 1000, 0.5),
                "8f68599584c4e218e19b0fe2bc81e9299f88b905b6808200b0d7c8dc38ac7f93",
                "0633d36857dd41403f8fa3fad52bdcf82b323692d05c7deca6d7dfd8d2bf0532",
            ),
            (
                (0, 50, 40, 10, 42, 0.01),
                "3b3fd1896da77d74f81d70f736de458533c5587376190994f5cec3560c561c20",
                "92131f090ff1cb5ba2596910ff2fa054cb53a1bf80cc16e5974b28fd841adbb6",
            ),
            (
                (99, 20, 1100, 17, 2050, 0.01),
                "7795e350066cd0ed81103b1a9d0d3a971109042db4b8f501c2d46a51e430d2a4",
                "200d4c94512b595bbd302cba78657e572956f368b2c726989f566f62443fa7ec",
            ),
            (
                (u32::MAX, 200, 22, 5, 30, 0.01),
                "3a0ac0ab087623a149e117c7630165d70fab36ee2c48779ba4b404f870deb6e1",
                "f147185b68f6e93935aae760ba568edf1d81e8d698c68f9c67512794a1ed4c78",
            ),
        ];
        for ((seed, examples, l, k, v, power), inputs, labels) in cases {
            let drawn = as_numpy(&of(seed, [examples, l, k, v], power));
            assert_eq!(sha256(&drawn.0), inputs, "L = {l}, k = {k}, V = {v}");
            assert_eq!(sha256(&drawn.1), labels, "L = {l}, k = {k}, V = {v}");
        }
    }

    #[test]
    fn the_worked_example_is_the_first_of_64() {
        let dataset = of(209_652_396, [64, 64, 4, 8192], POWER);
        let first = dataset.batch(0..1);
        let shown = [2352, 7675, 2695, 6825, 2205, 7885, 2918, 6161];
        assert_eq!(first.tokens[..8], shown);
        assert_eq!(first.positions, [8, 10, 16, 62]);
        assert_eq!([8, 10, 16, 62].map(|i| first.tokens[i]), [2205, 2695, 2352, 2918]);
        assert_eq!(first.answers, [7885, 6825, 7675, 6161]);
    }

    #[test]
    fn segment_seeds_are_the_released_ones() {
        assert_eq!(segment_seeds(0)[..2], [209_652_396, 2_546_248_239]);
    }
}
