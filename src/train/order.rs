//! Training examples in a new order every epoch.

use super::subject::Span;
use crate::rng::Stream;
use std::cell::RefCell;

/// A random order for each epoch, a function of seed and epoch.
pub(super) struct Order {
    seed: u64,
    purpose: &'static str,
    count: usize,
    /// That of one epoch.
    known: RefCell<Option<(usize, Vec<usize>)>>,
}

impl Order {
    /// Of `count` examples, drawn from the stream of `purpose` under `seed`.
    pub fn new(seed: u64, purpose: &'static str, count: usize) -> Self {
        Self {
            seed,
            purpose,
            count,
            known: RefCell::default(),
        }
    }

    /// The training examples of a step.
    pub fn drawn(&self, span: &Span) -> Vec<usize> {
        let mut order = self.known.borrow_mut();
        let known = order.take().filter(|(epoch, _)| *epoch == span.epoch);
        let (_, all) = order.insert(known.unwrap_or_else(|| {
            let mut drawn: Vec<usize> = (0..self.count).collect();
            Stream::new(self.seed, self.purpose, span.epoch as u64).shuffle(&mut drawn);
            (span.epoch, drawn)
        }));
        all[span.range.clone()].to_vec()
    }
}
