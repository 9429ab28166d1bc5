//! Multi-query associative recall (Arora et al. 2023): pairs of a key and its value stand at the
//! start; later each key is asked once, and the answer is its value.
//!
//! The network answers in the step in which it reads the key, so the label stands under the key.
//! The first of 64 examples that `numpy` draws with the released training seed, L = 64, k = 4,
//! V = 8192:
//!
//! ```text
//!            key  value   key  value   key  value   key  value
//! position     0     1     2     3     4     5     6     7     8     9    10 ..   16 ..   62    63
//! token     2352  7675  2695  6825  2205  7885  2918  6161  2205     0  2695 .. 2352 .. 2918     0
//! label        -     -     -     -     -     -     -     -  7885     -  6825 .. 7675 .. 6161     -
//! ```
//!
//! Keys are 1 .. V/2 - 1, values V/2 .. V - 1, and 0 fills the rest. The keys are asked at
//! distinct slots; slot g stands at position 2k + 2g.

mod native;
pub mod numpy;

use super::{limits, Dataset, Generator, Objective, Sizes, Splits, Task, TaskEntry};
use crate::config::TaskConfig;
use crate::error::{refuse, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "mqar",
    about: "multi-query associative recall",
    examples: [
        "dsf mqar --mixer ssd",
        "dsf mqar --mixer s6 --d 64 --n 16 --seed 1 --lr 1e-3",
        "dsf mqar --preset paper --mixer linear --d 64 --n 64 --lr 2.154e-3",
    ],
    recipe: include_str!("../../recipes/mqar.toml"),
    fields: &[
        "data",
        "data_seed",
        "vocab_size",
        "seq_len",
        "kv_pairs",
        "train_examples",
        "test_examples",
    ],
    objective: Objective::PerToken,
    headline: "accuracy",
    report: "",
    files: None,
    read: |config| Ok(Box::new(config.typed::<MqarConfig>()?)),
};

/// Multi-query associative recall (Arora et al. 2023; the paper's J.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MqarConfig {
    /// Which generator draws the examples.
    pub data: Generator,
    /// Seed of the data, apart from the model's seed: models vary over the same data.
    pub data_seed: u64,
    /// Vocabulary V; keys come from its lower half, values from its upper half, 0 is the filler.
    pub vocab_size: usize,
    /// Tokens an example, L.
    pub seq_len: usize,
    /// Key-value pairs an example, k.
    pub kv_pairs: usize,
    /// Training examples, generated once, used in the same order every epoch.
    pub train_examples: usize,
    /// Test examples.
    pub test_examples: usize,
}

impl From<MqarConfig> for TaskConfig {
    fn from(config: MqarConfig) -> Self {
        Self::new(ENTRY.name, &config)
    }
}

impl Task for MqarConfig {
    fn config(&self) -> TaskConfig {
        self.clone().into()
    }

    fn sizes(&self) -> Sizes {
        let examples = [self.train_examples, 0, self.test_examples];
        Sizes::of_tokens(self.vocab_size, [self.seq_len; 2], self.kv_pairs, examples)
    }

    /// That the keys suffice needs no rule: V > L >= 4k leaves at least 2k of them.
    fn check(&self) -> Result<()> {
        let (v, l, k) = (self.vocab_size, self.seq_len, self.kv_pairs);
        let rules = [
            (
                k > 0,
                format!("--kv-pairs {k} leaves nothing to recall. Give at least 1"),
            ),
            (
                l.is_multiple_of(2),
                format!("--seq-len {l} is odd, but slots are two positions wide. Give an even length"),
            ),
            (
                k <= l / 4,
                format!(
                    "--kv-pairs {k} with --seq-len {l}: each pair takes four positions, two to show it \
                     and two to ask for it. Give fewer pairs, or at least --seq-len {}",
                    k.saturating_mul(4)
                ),
            ),
            (
                v.is_multiple_of(2),
                format!("--vocab-size {v} is odd, but keys and values share it in halves. Give an even size"),
            ),
            (
                v > l,
                format!("--vocab-size {v} must exceed --seq-len {l}. Give a larger vocabulary"),
            ),
        ];
        let examples = [self.train_examples, self.test_examples];
        limits::check(
            ENTRY.name,
            &rules,
            v,
            limits::Lengths::new(l, None),
            examples,
        )?;
        match self.data {
            Generator::Native => Ok(()),
            Generator::Numpy => numpy::seed(self).map(drop),
            Generator::Files => {
                refuse!("--data files: MQAR is generated; take --data native or numpy")
            }
        }
    }

    fn load(&self, _data_dir: Option<&Path>) -> Result<Splits> {
        self.check()?;
        let [train, test] = match self.data {
            Generator::Native => native::load(self),
            Generator::Numpy => numpy::load(self)?,
            Generator::Files => unreachable!("refused by check"),
        };
        Ok(Splits::PerToken { train, test })
    }

    fn title(&self) -> String {
        format!("MQAR (L = {}, {} pairs)", self.seq_len, self.kv_pairs)
    }

    fn guess(&self) -> Option<(f64, String)> {
        let among = format!("the {} values of an example", self.kv_pairs);
        Some((1.0 / self.kv_pairs as f64, among))
    }

    fn label(&self) -> String {
        format!("L={}/{}", self.seq_len, self.kv_pairs)
    }

    fn next(&self, mixer: &str) -> String {
        format!("--mixer {mixer} --d 64,128 --n 32,64")
    }
}

/// The exponent a of the slots' distribution, P(g) ∝ a (g + 1)^(a - 1): near slots are likelier.
pub const POWER: f64 = 0.01;

impl MqarConfig {
    fn keys(&self) -> Range<u32> {
        1..self.vocab_size as u32 / 2
    }

    fn values(&self) -> Range<u32> {
        self.vocab_size as u32 / 2..self.vocab_size as u32
    }

    fn slots(&self) -> usize {
        (self.seq_len - 2 * self.kv_pairs) / 2
    }

    /// Slot weights, not normalised.
    fn slot_weights(&self, power: f64) -> Vec<f64> {
        let weight = |g: usize| power * ((g + 1) as f64).powf(power - 1.0);
        (0..self.slots()).map(weight).collect()
    }
}

/// A key, its value and the slot where it is asked.
#[derive(Clone, Copy, Default)]
struct Pair {
    key: u32,
    value: u32,
    slot: u32,
}

/// Lays out `examples` on all threads. `draw` fills the pairs of the example at an index; the
/// memory spares it allocations, and what it left there must not change the next example.
fn lay_out<M>(
    config: &MqarConfig,
    examples: usize,
    memory: impl Fn() -> M + Sync,
    draw: impl Fn(&mut M, usize, &mut [Pair]) + Sync,
) -> Dataset {
    let (seq_len, kv_pairs) = (config.seq_len, config.kv_pairs);
    let mut tokens = vec![0; examples * seq_len];
    let mut positions = vec![0; examples * kv_pairs];
    let mut answers = vec![0; examples * kv_pairs];
    let rows = tokens
        .par_chunks_mut(seq_len)
        .zip_eq(positions.par_chunks_mut(kv_pairs))
        .zip_eq(answers.par_chunks_mut(kv_pairs));
    rows.enumerate().for_each_init(
        || (memory(), vec![Pair::default(); kv_pairs]),
        |(memory, pairs), (index, ((tokens, positions), answers))| {
            draw(memory, index, pairs);
            write_tokens(pairs, tokens);
            pairs.sort_unstable_by_key(|pair| pair.slot);
            for (j, pair) in pairs.iter().enumerate() {
                positions[j] = 2 * (kv_pairs as u32 + pair.slot);
                answers[j] = pair.value;
            }
        },
    );
    Dataset {
        seq_len,
        labels_per_example: kv_pairs,
        tokens,
        positions,
        answers,
    }
}

/// Shows the pairs in the order they were drawn and asks each key at its slot.
fn write_tokens(pairs: &[Pair], tokens: &mut [u32]) {
    let (context, queries) = tokens.split_at_mut(2 * pairs.len());
    for (shown, pair) in context.chunks_exact_mut(2).zip(pairs) {
        shown.copy_from_slice(&[pair.key, pair.value]);
        queries[2 * pair.slot as usize] = pair.key;
    }
}

#[cfg(test)]
mod tests;
