//! Default generator: every example is a function of (seed, split, index), so that threads may draw in any order.

use super::{lay_out, KeyValues, MqarConfig, RecallExample, POWER};
use crate::ops::rng::Rng;
use crate::tasks::Dataset;
use std::collections::HashSet;
use std::ops::Range;

/// Generates the training, the validation and the test split. The sizes must have passed the check.
pub(super) fn load(config: &MqarConfig) -> [Dataset; 3] {
    let split = |purpose, examples, config: &MqarConfig| {
        let rng = Rng::new(config.data_seed, purpose, 0);
        segment(&rng, 0..examples, config)
    };
    [
        training(config, 0),
        split("mqar/val", config.val_examples, &config.tested()),
        split("mqar/test", config.test_examples, &config.tested()),
    ]
}

/// Generates the training examples of an epoch that has its own, which follow those of the epoch before. Epoch 0 has
/// those of every epoch if they are fixed.
pub(super) fn training(config: &MqarConfig, epoch: usize) -> Dataset {
    let first = epoch * config.train_examples;
    segment(&Rng::new(config.data_seed, "mqar/train", 0), first..first + config.train_examples, config)
}

/// Generates the examples with these indices.
fn segment(rng: &Rng, examples: Range<usize>, config: &MqarConfig) -> Dataset {
    let mean_rings: Vec<f64> = config.slot_weights(POWER).iter().map(|w| 1.0 / w).collect();
    let memory =
        || (LastDrawn(vec![0; config.vocab_size]), CompoundKeys::new(config), Vec::with_capacity(mean_rings.len()));
    lay_out(config, examples.len(), memory, |(seen, compound, rings), index, example| {
        let mut rng = rng.at((examples.start + index) as u64);
        let mark = index as u32 + 1;
        if config.key_tokens > 1 {
            compound.draw(
                config,
                &mut example.pairs,
                |part, rng| seen.draw_new(config.keys(part), mark, rng),
                &mut rng,
            );
        }
        for pair in &mut example.pairs {
            if config.key_tokens == 1 {
                pair.key[0] = seen.draw_new(config.keys(0), mark, &mut rng);
            }
            pair.value = seen.draw_new(config.values(), mark, &mut rng);
            pair.last = pair.value;
        }
        draw_slots(&mean_rings, rings, &mut example.pairs, &mut rng);
        draw_shown(config, example, &mut rng);
        for &again in &example.shown[config.passes * config.kv_pairs..] {
            let value = seen.draw_new(config.values(), mark, &mut rng);
            example.pairs[again as usize].last = value;
        }
    })
}

/// Draws the showings after the first pass: all pairs in a new order in each further pass, then the pairs that get
/// another value.
fn draw_shown(config: &MqarConfig, example: &mut RecallExample, rng: &mut Rng) {
    let (k, passes, overwrites) = (config.kv_pairs, config.passes, config.overwrites);
    let orders = passes + usize::from(overwrites > 0);
    example.shown.truncate(k);
    for _ in 1..orders {
        let start = example.shown.len();
        example.shown.extend(0..k as u32);
        rng.shuffle(&mut example.shown[start..]);
    }
    example.shown.truncate(k * passes + overwrites);
}

/// Tokens from which keys of several tokens are combined: m tokens for each place.
struct CompoundKeys {
    /// Number of tokens per place, m.
    tokens: usize,
    /// m tokens for each place, one place after the other.
    parts: Vec<u32>,
    /// Combinations that are keys already, as numbers to the base m.
    taken: HashSet<u32>,
}

impl CompoundKeys {
    fn new(config: &MqarConfig) -> Self {
        Self { tokens: config.tokens_of_a_part(), parts: Vec::new(), taken: HashSet::new() }
    }

    /// Draws distinct keys. `draw_new` draws a token for a place that the example does not have yet.
    fn draw(
        &mut self,
        config: &MqarConfig,
        pairs: &mut [KeyValues],
        mut draw_new: impl FnMut(usize, &mut Rng) -> u32,
        rng: &mut Rng,
    ) {
        let (n, m) = (config.key_tokens, self.tokens);
        self.parts.clear();
        for place in (0..n * m).map(|i| i / m) {
            self.parts.push(draw_new(place, rng));
        }
        self.taken.clear();
        let combinations = (m as u32).pow(n as u32);
        for pair in pairs {
            let mut digits = loop {
                let combination = rng.below(combinations);
                if self.taken.insert(combination) {
                    break combination as usize;
                }
            };
            for (token, part) in pair.key.iter_mut().zip(self.parts.chunks_exact(m)) {
                *token = part[digits % m];
                digits /= m;
            }
        }
    }
}

/// Index of the example that drew each token last, so that nothing needs to be cleared between examples.
struct LastDrawn(Vec<u32>);

impl LastDrawn {
    /// Draws uniformly from the tokens of `pool` that this example has not drawn.
    fn draw_new(&mut self, pool: Range<u32>, mark: u32, rng: &mut Rng) -> u32 {
        loop {
            let token = pool.start + rng.below(pool.end - pool.start);
            let last = &mut self.0[token as usize];
            if *last != mark {
                *last = mark;
                return token;
            }
        }
    }
}

/// Draws slots without replacement as a race: slot g rings after an exponential time of rate w(g). The first k to ring,
/// in order, have the distribution of sequential draws with removal and renormalisation (Efraimidis and Spirakis 2006).
fn draw_slots(mean_rings: &[f64], rings: &mut Vec<(f64, u32)>, pairs: &mut [KeyValues], rng: &mut Rng) {
    rings.clear();
    rings.extend((0..).zip(mean_rings).map(|(slot, mean)| {
        let exponential = -(1.0 - rng.uniform()).ln();
        (mean * exponential, slot)
    }));
    let by_time = |a: &(f64, u32), b: &(f64, u32)| a.0.total_cmp(&b.0);
    let (earlier, last, _) = rings.select_nth_unstable_by(pairs.len() - 1, by_time);
    earlier.sort_unstable_by(by_time);
    let in_order = earlier.iter().chain([&*last]);
    for (pair, &(_, slot)) in pairs.iter_mut().zip(in_order) {
        pair.slot = slot;
    }
}
