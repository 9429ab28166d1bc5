//! Multi-query associative recall (Arora et al. 2023): pairs of a key and its value stand at the start; later each key
//! is asked for once, and the answer is its value.
//!
//! The network answers at the step in which it reads the key, so the label stands at the key's position. The first of
//! 64 examples that `numpy` draws with the released training seed, L = 64, k = 4, V = 8192:
//!
//! ```text
//!            key  value   key  value   key  value   key  value
//! position     0     1     2     3     4     5     6     7     8     9    10 ..   16 ..   62    63
//! token     2352  7675  2695  6825  2205  7885  2918  6161  2205     0  2695 .. 2352 .. 2918     0
//! label        -     -     -     -     -     -     -     -  7885     -  6825 .. 7675 .. 6161     -
//! ```
//!
//! Keys are 1 .. V/2 - 1, values V/2 .. V - 1, and 0 fills the rest. The keys are asked for at distinct slots; slot g
//! stands at position 2k + 2g.
//!
//! The native generator has three variants, all off by default. Below, letters are tokens of keys, numbers are values,
//! and a dot is the filler:
//!
//! ```text
//! --key-tokens 2    a x 1 b y 2 b x 3 a y 4   b x . a x . a y . b y .
//!                   - - - - - - - - - - - -   - 3 - - 1 - - 4 - - 2 -
//! --overwrites 2    a 1 b 2 c 3  c 4 a 5      b . a . c .
//!                   - - - - - -  - - - -      2 - 5 - 4 -
//! --passes 2        a 1 b 2 c 3  b 2 c 3 a 1  c . b . a .
//!                   - - - - - -  - - - - - -  3 - 2 - 1 -
//! ```
//!
//! - Keys of N tokens, with the answer at the last token of a question. Keys, values and the filler share the
//!   vocabulary in N + 1 equal parts: token i of a key comes from part i, values come from the last part (with the
//!   remainder of the division), and 0 is left out of the first. An example has m tokens for each place, the fewest
//!   with m^N >= k, and its keys are k of their m^N combinations. If k = m^N, all combinations are keys, so that all
//!   tokens of a key are needed to determine its value. For N = 2 this is the compositional MQAR of the released
//!   Zoology (`zoology/data/compositional_ar.py`), which requires k = m^2. A slot is N + 1 tokens wide.
//! - K of the keys are shown once more after all pairs, in random order and each with another value, which is the
//!   answer: the forgetting MQAR of Zoology (`zoology/data/forgetting_mqar.py`). Here all values of an example are
//!   distinct; there a new value merely differs from the one that it replaces.
//! - The pairs are shown P times, as Arora et al. 2024, "Just read twice", repeat the context, but each time in a new
//!   order, so that no fixed distance leads from one showing to the next. Pairs that are overwritten follow the last
//!   pass.

mod ceiling;
mod native;
pub mod numpy;

use super::limits::{self, Length, Rule, SequenceLengths};
use super::synthetic::is_zero;
use super::{
    Dataset, ExampleSizes, ExamplesMade, Generator, NoSkill, Objective, Slices, Splits, Task, TaskEntry, NO_RECALL,
};
use crate::config::TaskConfig;
use crate::error::{refuse, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "mqar",
    about: "multi-query associative recall",
    examples: &[
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
        "test_seq_len",
        "kv_pairs",
        "key_tokens",
        "overwrites",
        "passes",
        "train_examples",
        "fresh_examples",
        "val_examples",
        "test_examples",
    ],
    objective: Objective::PerToken,
    headline: "accuracy",
    files: None,
    read: |config| Ok(Box::new(config.typed::<MqarConfig>()?)),
};

/// Multi-query associative recall (Arora et al. 2023; the paper's J.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MqarConfig {
    /// Generator of the examples.
    pub data: Generator,
    /// Seed of the data. Recipes set it to the run's seed, or fix it.
    pub data_seed: u64,
    /// Vocabulary size V. Keys come from the lower half, values from the upper half, and 0 is the filler.
    pub vocab_size: usize,
    /// Number of tokens per example, L.
    pub seq_len: usize,
    /// Number of tokens per test example; `None` for that of training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_seq_len: Option<usize>,
    /// Number of key-value pairs per example, k.
    pub kv_pairs: usize,
    /// Number of tokens of a key, N.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub key_tokens: usize,
    /// Number of pairs that are shown again with another value, K.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overwrites: usize,
    /// Number of times that all pairs are shown, P.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub passes: usize,
    /// Number of training examples of an epoch.
    pub train_examples: usize,
    /// Whether every epoch has new training examples; otherwise all have the same, in the same order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh_examples: bool,
    /// Number of validation examples, which end the training and select the epoch; if 0, the test examples do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub val_examples: usize,
    /// Number of test examples.
    pub test_examples: usize,
}

/// Default number of tokens of a key, and of passes.
fn once() -> usize {
    1
}

fn is_once(count: &usize) -> bool {
    *count == once()
}

impl Task for MqarConfig {
    fn config(&self) -> TaskConfig {
        TaskConfig::new(ENTRY.name, &Self { test_seq_len: self.lengths().test, ..self.clone() })
    }

    fn sizes(&self) -> ExampleSizes {
        let examples = [self.train_examples, self.val_examples, self.test_examples];
        let lengths = self.lengths().tokens();
        ExampleSizes::of_tokens(self.vocab_size, lengths, [self.kv_pairs; 2], examples)
    }

    /// No rule is needed for enough keys and values: since V > L >= (N + 1)(P k + K + k), a part of the vocabulary has
    /// at least 2k + K tokens, the first one fewer.
    fn check(&self) -> Result<()> {
        let (v, l, k) = (self.vocab_size, self.seq_len, self.kv_pairs);
        let mut rules = vec![
            Rule::new(k > 0, ("--kv-pairs", k), "leaves nothing to recall. Give at least 1"),
            Rule::new(
                (1..=MOST_KEY_TOKENS).contains(&self.key_tokens),
                ("--key-tokens", self.key_tokens),
                format!("is no length of a key. Give 1 to {MOST_KEY_TOKENS}"),
            ),
            Rule::new(self.passes > 0, ("--passes", self.passes), "shows no pair. Give at least 1"),
            Rule::new(
                self.overwrites <= k,
                ("--overwrites", self.overwrites),
                format!("exceeds --kv-pairs {k}, and a pair is overwritten at most once. Give at most {k}"),
            ),
        ];
        let [train, test] = self.lengths().each().map(|length| self.room(length));
        rules.extend(train);
        rules.extend(test);
        rules.extend([
            Rule::new(
                v.is_multiple_of(2) || self.key_tokens > 1,
                ("--vocab-size", v),
                "odd, but keys and values share the vocabulary in halves. Give an even size",
            ),
            Rule::new(v > l, ("--vocab-size", v), format!("must exceed --seq-len {l}")),
        ]);
        let examples = self.sizes().examples;
        limits::check(ENTRY.name, &rules, v, self.lengths(), examples)?;
        match self.data {
            Generator::Native => Ok(()),
            Generator::Numpy if self.fresh_examples => {
                refuse!(flag "--fresh-examples" = true, "needs the generator of dsf: give --data native, or leave it out")
            }
            Generator::Numpy => match self.variants().first() {
                Some((typed, _)) => {
                    let (flag, value) = typed.split_once(' ').unwrap_or((typed, ""));
                    refuse!(flag(flag) = value, "needs the generator of dsf: give --data native, or leave it out")
                }
                None => numpy::seed(self).map(drop),
            },
            Generator::Files => {
                refuse!(flag "--data" = "files", "MQAR is generated; take --data native or numpy")
            }
        }
    }

    fn load(&self, _data_dir: Option<&Path>, _made: ExamplesMade) -> Result<Splits> {
        self.check()?;
        let [train, val, test] = match self.data {
            Generator::Native => native::load(self),
            Generator::Numpy => numpy::load(self)?,
            Generator::Files => unreachable!("refused by check"),
        };
        Ok(Splits::PerToken { train, val, test })
    }

    fn fresh(&self, epoch: usize) -> Option<Dataset> {
        self.fresh_examples.then(|| native::training(self, epoch))
    }

    fn title(&self) -> String {
        let variants: String = self.variants().iter().map(|(_, said)| format!(", {said}")).collect();
        let (lengths, k) = (self.lengths().title(), self.kv_pairs);
        format!("MQAR ({lengths}, {k} pairs{variants})")
    }

    fn without_skill(&self) -> Option<NoSkill> {
        self.check().ok()?;
        let accuracy = ceiling::without_recall(&self.tested())?;
        let predictor = "position alone".to_owned();
        Some(NoSkill { accuracy, predictor, label: NO_RECALL })
    }

    fn without_skill_in(&self, by: &str, from: usize, to: usize) -> Option<f64> {
        self.check().ok()?;
        let tested = self.tested();
        let (width, context) = (self.width(), self.context());
        let distance = |slot: usize, pair: usize| context + width * slot - width * pair - 1;
        match by {
            "pair" => ceiling::without_recall_in(&tested, |_, pair| (from..=to).contains(&pair)),
            // Repeated pairs are shuffled, so that pair and slot do not determine the distance.
            "distance" if self.passes == 1 => {
                ceiling::without_recall_in(&tested, |slot, pair| (from..=to).contains(&distance(slot, pair)))
            }
            _ => None,
        }
    }

    /// Slices by the pair that a question asks for, numbered in the order in which pairs are first shown, and by the
    /// distance in tokens from the last showing of its value to the question.
    fn slices(&self, test: &Dataset) -> Option<Slices> {
        let (mut pairs, mut distances) = (Vec::new(), Vec::new());
        for example in 0..test.len() {
            let example = test.batch(example..example + 1);
            for position in example.positions {
                let asked = *position as usize;
                let key = &example.tokens[asked + 1 - self.key_tokens..=asked];
                let mut shown = example.tokens[..self.context()].chunks_exact(self.width());
                let shows = |pair: &[u32]| &pair[..self.key_tokens] == key;
                pairs.push(shown.clone().position(shows)?);
                let value = self.width() * shown.rposition(shows)? + self.key_tokens;
                distances.push(asked - value);
            }
        }
        Some(Slices::default().each("pair", &pairs).octaves("distance", &distances))
    }

    fn label(&self) -> String {
        let variants: String = self.variants().iter().map(|(flag, _)| format!(" {flag}")).collect();
        format!("{}/{}{variants}", self.lengths().label(), self.kv_pairs)
    }
}

/// Largest number of tokens of a key.
const MOST_KEY_TOKENS: usize = 8;

/// Exponent a of the slots' distribution, P(g) ∝ a (g + 1)^(a - 1): near slots are likelier.
pub const POWER: f64 = 0.01;

impl MqarConfig {
    fn lengths(&self) -> SequenceLengths {
        SequenceLengths::new(self.seq_len, self.test_seq_len)
    }

    /// Same config with the test length as length of training.
    fn tested(&self) -> Self {
        let [_, seq_len] = self.lengths().tokens();
        Self { seq_len, ..self.clone() }
    }

    /// Differences from the released data: each as typed, and in a sentence.
    fn variants(&self) -> Vec<(String, String)> {
        let (n, overwrites, passes) = (self.key_tokens, self.overwrites, self.passes);
        let each = [
            (n != 1, "key-tokens", n, format!("keys of {n} tokens")),
            (overwrites != 0, "overwrites", overwrites, format!("{overwrites} overwritten")),
            (passes != 1, "passes", passes, format!("{passes} passes")),
        ];
        let chosen = each.into_iter().filter(|(chosen, ..)| *chosen);
        chosen.map(|(_, flag, count, said)| (format!("--{flag} {count}"), said)).collect()
    }

    /// Rules by which examples of `length` hold all pairs and questions.
    fn room(&self, length: Length) -> [Rule; 2] {
        let (l, k, width) = (length.tokens, self.kv_pairs, self.width());
        let shown = k.saturating_mul(self.passes).saturating_add(self.overwrites).saturating_add(k);
        let needed = shown.saturating_mul(width);
        let variants: String = self.variants().iter().map(|(flag, _)| format!(" {flag}")).collect();
        let (least, flag) = (needed, length.flag);
        let why = match variants.as_str() {
            "" => "each pair takes four positions, two to be shown and two to be asked for".to_owned(),
            _ => format!("a pair takes {width} positions each time that it is shown, and {width} to be asked for"),
        };
        [
            Rule::new(
                l.is_multiple_of(2) || self.key_tokens > 1,
                length.typed(),
                "odd, but slots are two positions wide. Give an even length",
            ),
            Rule::new(
                needed <= l,
                ("--kv-pairs", k),
                format!("too many{variants} with {length}: {why}. Give fewer pairs, or at least {flag} {least}"),
            ),
        ]
    }

    /// Number of tokens of a pair, and of a slot.
    fn width(&self) -> usize {
        self.key_tokens.saturating_add(1)
    }

    /// Number of showings of pairs, repetitions included.
    fn shown(&self) -> usize {
        self.passes * self.kv_pairs + self.overwrites
    }

    /// Number of tokens before the first slot.
    fn context(&self) -> usize {
        self.width() * self.shown()
    }

    /// Part of the vocabulary for one place of a key.
    fn keys(&self, place: usize) -> Range<u32> {
        let part = self.vocab_size / self.width();
        (part * place).max(1) as u32..(part * (place + 1)) as u32
    }

    fn values(&self) -> Range<u32> {
        let part = self.vocab_size / self.width();
        (part * self.key_tokens) as u32..self.vocab_size as u32
    }

    /// Number of tokens of an example for one place of its keys: the fewest with enough combinations.
    fn tokens_of_a_part(&self) -> usize {
        let enough = |m: &usize| m.saturating_pow(self.key_tokens as u32) >= self.kv_pairs;
        (1..=self.kv_pairs).find(enough).unwrap_or(self.kv_pairs)
    }

    fn slots(&self) -> usize {
        (self.seq_len - self.context()) / self.width()
    }

    /// Slot weights, not normalised.
    fn slot_weights(&self, power: f64) -> Vec<f64> {
        (0..self.slots()).map(|g| power * ((g + 1) as f64).powf(power - 1.0)).collect()
    }
}

/// Key, its values and the slot of its question.
#[derive(Clone, Copy, Default)]
struct KeyValues {
    /// Tokens of the key, padded with zeros.
    key: [u32; MOST_KEY_TOKENS],
    value: u32,
    /// Value that is the answer; it differs from `value` if the pair is overwritten.
    last: u32,
    slot: u32,
}

/// Example before it is laid out.
struct RecallExample {
    pairs: Vec<KeyValues>,
    /// Indices of the pairs in the order of their showings: those of all passes, the first in order, then the
    /// overwritten ones.
    shown: Vec<u32>,
}

/// Lays out `examples` on all threads. `draw` fills the pairs of the example at an index. The memory is reused to avoid
/// allocations; its contents must not affect the next example.
fn lay_out<M>(
    config: &MqarConfig,
    examples: usize,
    memory: impl Fn() -> M + Sync,
    draw: impl Fn(&mut M, usize, &mut RecallExample) + Sync,
) -> Dataset {
    let (seq_len, kv_pairs) = (config.seq_len, config.kv_pairs);
    let first_answer = config.context() + config.key_tokens - 1;
    let mut tokens = vec![0; examples * seq_len];
    let mut positions = vec![0; examples * kv_pairs];
    let mut answers = vec![0; examples * kv_pairs];
    let rows = tokens
        .par_chunks_mut(seq_len)
        .zip_eq(positions.par_chunks_mut(kv_pairs))
        .zip_eq(answers.par_chunks_mut(kv_pairs));
    let empty = || RecallExample { pairs: vec![KeyValues::default(); kv_pairs], shown: (0..kv_pairs as u32).collect() };
    rows.enumerate().for_each_init(
        || (memory(), empty()),
        |(memory, example), (index, ((tokens, positions), answers))| {
            draw(memory, index, example);
            write_tokens(config, example, tokens);
            example.pairs.sort_unstable_by_key(|pair| pair.slot);
            for (j, pair) in example.pairs.iter().enumerate() {
                positions[j] = (first_answer + config.width() * pair.slot as usize) as u32;
                answers[j] = pair.last;
            }
        },
    );
    Dataset { seq_len, labels_per_example: kv_pairs, tokens, positions, answers }
}

/// Writes the pairs in the order of their showings, and each key at its slot.
fn write_tokens(config: &MqarConfig, example: &RecallExample, tokens: &mut [u32]) {
    let (n, width) = (config.key_tokens, config.width());
    let (context, queries) = tokens.split_at_mut(config.context());
    for (i, (place, &pair)) in context.chunks_exact_mut(width).zip(&example.shown).enumerate() {
        let pair = &example.pairs[pair as usize];
        let overwritten = i >= config.passes * config.kv_pairs;
        place[..n].copy_from_slice(&pair.key[..n]);
        place[n] = if overwritten { pair.last } else { pair.value };
    }
    for pair in &example.pairs {
        queries[width * pair.slot as usize..][..n].copy_from_slice(&pair.key[..n]);
    }
}

#[cfg(test)]
mod tests;
