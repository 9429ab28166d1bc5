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

mod check;
mod native;
pub mod numpy;
#[cfg(test)]
mod tests;

pub use check::check;

use super::{Dataset, Generator, Objective, Sizes, Splits, Task, TaskEntry};
use crate::config::TaskConfig;
use crate::error::Result;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "mqar",
    about: "multi-query associative recall",
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
        Sizes {
            vocab_size: self.vocab_size,
            seq_len: self.seq_len,
            documents: 1,
            labels_per_example: self.kv_pairs,
            classes: self.vocab_size,
            scalar: (1.0, 0.0),
            examples: [self.train_examples, 0, self.test_examples],
        }
    }

    fn check(&self) -> Result<()> {
        check(self)
    }

    fn load(&self, _data_dir: Option<&Path>) -> Result<Splits> {
        let (train, test) = load(self)?;
        Ok(Splits::PerToken { train, test })
    }

    fn title(&self) -> String {
        format!("MQAR (L = {}, {} pairs)", self.seq_len, self.kv_pairs)
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

/// Generates the training and the test split.
pub fn load(config: &MqarConfig) -> Result<(Dataset, Dataset)> {
    check(config)?;
    match config.data {
        Generator::Native => Ok(native::load(config)),
        Generator::Numpy => numpy::load(config),
        Generator::Files => unreachable!("refused by check"),
    }
}

/// What one example consists of.
#[derive(Clone, Copy)]
struct Layout {
    seq_len: usize,
    kv_pairs: usize,
    vocab_size: usize,
}

impl Layout {
    fn of(config: &MqarConfig) -> Self {
        Self {
            seq_len: config.seq_len,
            kv_pairs: config.kv_pairs,
            vocab_size: config.vocab_size,
        }
    }

    fn keys(self) -> Range<u32> {
        1..self.vocab_size as u32 / 2
    }

    fn values(self) -> Range<u32> {
        self.vocab_size as u32 / 2..self.vocab_size as u32
    }

    fn slots(self) -> usize {
        (self.seq_len - 2 * self.kv_pairs) / 2
    }

    /// Slot weights, not normalised.
    fn slot_weights(self, power: f64) -> Vec<f64> {
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
    sizes: Layout,
    examples: usize,
    memory: impl Fn() -> M + Sync,
    draw: impl Fn(&mut M, usize, &mut [Pair]) + Sync,
) -> Dataset {
    let Layout {
        seq_len, kv_pairs, ..
    } = sizes;
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
