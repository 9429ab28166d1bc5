//! Estimate of a sweep's remaining time, from the work that it has done so far.

use crate::config::RunConfig;
use crate::sweep::estimate;
use std::collections::HashMap;

/// Work done and left, in flops. A run that stops early counts as having done all of its work.
#[derive(Debug)]
pub(super) struct RemainingWork {
    work: Vec<f64>,
    /// Completed fraction of each run in progress.
    parts: HashMap<usize, f64>,
    made: f64,
    rest: f64,
}

impl RemainingWork {
    /// Returns the work of `runs`, none of them begun.
    pub fn new(runs: &[RunConfig]) -> Self {
        // A run whose work cannot be computed is refused when it begins.
        Self::of(estimate::work(runs).unwrap_or_else(|_| vec![1.0; runs.len()]))
    }

    fn of(work: Vec<f64>) -> Self {
        Self { parts: HashMap::new(), made: 0.0, rest: work.iter().sum(), work }
    }

    /// Sets the completed fraction of the run `index`, from 0 to 1. The fraction at the first call was not done by this
    /// sweep and is not counted.
    pub fn set_done(&mut self, index: usize, part: f64) {
        match self.parts.insert(index, part) {
            None => self.rest -= self.work[index] * part,
            Some(before) => self.make(index, part - before),
        }
    }

    /// Marks the run `index` as ended.
    pub fn finish(&mut self, index: usize) {
        let left = 1.0 - self.parts.remove(&index).unwrap_or(0.0);
        self.make(index, left);
    }

    /// Excludes the run `index`, which this sweep does not train.
    pub fn skip(&mut self, index: usize) {
        self.rest -= self.work[index];
    }

    fn make(&mut self, index: usize, part: f64) {
        self.made += self.work[index] * part;
        self.rest -= self.work[index] * part;
    }

    /// Returns the seconds left after `elapsed` seconds, if no other run stops early; `None` before any work was done.
    pub fn left(&self, elapsed: f64) -> Option<f64> {
        (self.made > 0.0).then(|| elapsed * self.rest.max(0.0) / self.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_its_work() {
        let mut work = RemainingWork::of(vec![10.0, 30.0]);
        assert_eq!(work.left(5.0), None);
        work.finish(0);
        assert_eq!(work.left(8.0), Some(24.0));
        work.set_done(1, 0.0);
        work.set_done(1, 0.5);
        assert_eq!(work.left(20.0), Some(12.0));
        work.finish(1);
        assert_eq!(work.left(32.0), Some(0.0));
    }

    #[test]
    fn what_was_done_before_is_neither_done_nor_left() {
        let mut work = RemainingWork::of(vec![10.0, 10.0, 10.0]);
        work.skip(0);
        work.set_done(1, 0.8);
        assert_eq!(work.left(1.0), None);
        work.set_done(1, 0.9);
        let left = work.left(3.0).unwrap();
        assert!((left - 33.0).abs() < 1e-9, "{left}");
    }

    #[test]
    fn a_run_that_stops_early_makes_the_others_look_quicker() {
        let mut work = RemainingWork::of(vec![10.0, 10.0]);
        work.set_done(0, 0.0);
        work.set_done(0, 0.1);
        assert_eq!(work.left(1.0), Some(19.0));
        work.finish(0);
        assert_eq!(work.left(1.0), Some(1.0));
    }
}
