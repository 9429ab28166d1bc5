//! Estimate of the remaining time from completed runs and their work, without timing anything.

use super::work::SizeCache;
use crate::config::RunConfig;
use crate::error::Result;
use std::collections::BTreeMap;

/// A number of epochs of a run.
#[derive(Clone, Copy, Debug)]
pub struct EpochsLeft<'a> {
    /// The run.
    pub run: &'a RunConfig,
    /// Number of epochs.
    pub epochs: f64,
}

/// Work of `runs` in flops, in their order, if none stops early. It is the same on every machine.
pub fn work(runs: &[RunConfig]) -> Result<Vec<f64>> {
    let mut sizes = SizeCache::default();
    runs.iter().map(|run| Ok(run.train.epochs as f64 * sizes.work(run)?.epoch)).collect()
}

/// Estimates the seconds that one worker needs for `rest`, from the seconds that the parts in `made` took: parts with
/// the same mixer if there are any, otherwise all. `None` if nothing was measured.
pub fn left(made: &[(EpochsLeft, f64)], rest: &[EpochsLeft]) -> Result<Option<f64>> {
    let mut sizes = SizeCache::default();
    // Flops and seconds per mixer, and in total under `None`.
    let mut rates: BTreeMap<Option<&str>, (f64, f64)> = BTreeMap::new();
    for (part, seconds) in made {
        let flops = part.epochs * sizes.work(part.run)?.epoch;
        for kind in [Some(part.run.model.mixer.as_str()), None] {
            let sum = rates.entry(kind).or_default();
            *sum = (sum.0 + flops, sum.1 + seconds);
        }
    }
    rates.retain(|_, (flops, _)| *flops > 0.0);
    let mut total = 0.0;
    for part in rest {
        let own = rates.get(&Some(part.run.model.mixer.as_str()));
        let Some((flops, seconds)) = own.or_else(|| rates.get(&None)) else { return Ok(None) };
        total += part.epochs * sizes.work(part.run)?.epoch * seconds / flops;
    }
    Ok(Some(total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes;

    fn run(settings: &[(&str, &str)]) -> RunConfig {
        recipes::run("mqar", &[&[("preset", "smoke")], settings].concat()).unwrap()
    }

    #[test]
    fn the_same_run_takes_as_long_as_before_and_a_larger_one_longer() {
        let (small, large) = (run(&[("d", "16")]), run(&[("d", "64")]));
        let part = |run, epochs| EpochsLeft { run, epochs };
        let made = [(part(&small, 4.0), 8.0)];
        let again = left(&made, &[part(&small, 10.0)]).unwrap().unwrap();
        assert!((again - 20.0).abs() < 1e-9, "{again}");
        assert!(left(&made, &[part(&large, 10.0)]).unwrap().unwrap() > 40.0);
    }

    #[test]
    fn a_mixer_is_judged_by_its_own_runs_first() {
        let (slow, quick) = (run(&[("mixer", "s6")]), run(&[("mixer", "softmax")]));
        let part = |run| EpochsLeft { run, epochs: 1.0 };
        let made = [(part(&slow), 100.0), (part(&quick), 1.0)];
        let seconds = left(&made, &[part(&quick)]).unwrap().unwrap();
        assert!((seconds - 1.0).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn nothing_made_tells_nothing() {
        let run = run(&[]);
        let rest = [EpochsLeft { run: &run, epochs: 1.0 }];
        assert_eq!(left(&[], &rest).unwrap(), None);
        assert_eq!(left(&[], &[]).unwrap(), Some(0.0));
    }
}
