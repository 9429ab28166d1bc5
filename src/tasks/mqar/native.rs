//! The default generator: every example is a function of (seed, split, index), so threads may
//! draw in any order.

use super::{lay_out, MqarConfig, Pair, POWER};
use crate::ops::rng::Rng;
use crate::tasks::Dataset;
use std::ops::Range;

/// Generates the training and the test split of sizes that passed the check.
pub(super) fn load(config: &MqarConfig) -> [Dataset; 2] {
    let split = |purpose, examples| {
        let rng = Rng::new(config.data_seed, purpose, 0);
        segment(&rng, examples, config)
    };
    [
        split("mqar/train", config.train_examples),
        split("mqar/test", config.test_examples),
    ]
}

fn segment(rng: &Rng, examples: usize, config: &MqarConfig) -> Dataset {
    let mean_rings: Vec<f64> = config.slot_weights(POWER).iter().map(|w| 1.0 / w).collect();
    let memory = || {
        (
            Seen(vec![0; config.vocab_size]),
            Vec::with_capacity(mean_rings.len()),
        )
    };
    lay_out(config, examples, memory, |(seen, rings), index, pairs| {
        let mut rng = rng.at(index as u64);
        let mark = index as u32 + 1;
        for pair in pairs.iter_mut() {
            pair.key = seen.draw_new(config.keys(), mark, &mut rng);
            pair.value = seen.draw_new(config.values(), mark, &mut rng);
        }
        draw_slots(&mean_rings, rings, pairs, &mut rng);
    })
}

/// For each token the mark of the example that drew it last: nothing to clear between examples.
struct Seen(Vec<u32>);

impl Seen {
    /// Uniform over the tokens of `pool` that this example has not drawn.
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

/// Draws slots without replacement as a race: slot g rings after an exponential time of rate
/// w(g), and the first k to ring are, in order, what draw, remove, renormalise would give
/// (Efraimidis and Spirakis 2006).
fn draw_slots(mean_rings: &[f64], rings: &mut Vec<(f64, u32)>, pairs: &mut [Pair], rng: &mut Rng) {
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
