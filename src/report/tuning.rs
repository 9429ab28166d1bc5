//! Expected best result after trying some of the learning rates, with its bootstrap interval.

use super::stats::ALPHA;
use crate::ops::rng::Rng;

/// Bootstrap samples behind an interval.
pub(super) const DRAWS: usize = 2000;

/// Expected maximum of k of these values, drawn without replacement, for k from 1 to their number (Dodge et al. 2019,
/// with the correction of Tang et al. 2020).
pub(super) fn best_of(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    (1..=count)
        .map(|k| {
            // P(the i-th smallest is the best of k) = C(i, k - 1) / C(n, k), i counted from 0.
            let mut chance = k as f64 / count as f64;
            let mut mean = 0.0;
            for i in (k - 1..count).rev() {
                mean += chance * sorted[i];
                // C(i - 1, k - 1) / C(i, k - 1)
                chance *= (i + 1 - k) as f64 / i.max(1) as f64;
            }
            mean
        })
        .collect()
}

/// Percentile intervals (Efron & Tibshirani 1993) with coverage 1 - [`ALPHA`] of [`best_of`] over the means of `rates`,
/// each given by its seeds: a bootstrap sample draws the seeds of every rate with replacement, and keeps the rates.
/// Empty if a rate has a single seed, whose spread is unknown.
pub(super) fn bands(rates: &[Vec<f64>]) -> Vec<[f64; 2]> {
    if rates.iter().any(|seeds| seeds.len() < 2) {
        return Vec::new();
    }
    // The same stream for every curve, so that no curve depends on the others of its report.
    let mut stream = Rng::new(0, "bootstrap", 0);
    let mut resampled = |seeds: &Vec<f64>| {
        let drawn = seeds.iter().map(|_| seeds[stream.below(seeds.len() as u32) as usize]);
        drawn.sum::<f64>() / seeds.len() as f64
    };
    let curves: Vec<Vec<f64>> =
        (0..DRAWS).map(|_| best_of(&rates.iter().map(&mut resampled).collect::<Vec<_>>())).collect();
    let outside = (ALPHA / 2.0 * DRAWS as f64) as usize;
    let band = |k: usize| {
        let mut drawn: Vec<f64> = curves.iter().map(|curve| curve[k]).collect();
        drawn.sort_by(f64::total_cmp);
        [drawn[outside], drawn[DRAWS - 1 - outside]]
    };
    (0..rates.len()).map(band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-12, "{found} for {wanted}");
    }

    #[test]
    fn the_best_of_more_draws_is_expected_to_be_better() {
        let curve = best_of(&[3.0, 1.0, 2.0]);
        for (found, wanted) in curve.iter().zip([2.0, 8.0 / 3.0, 3.0]) {
            close(*found, wanted);
        }
        assert_eq!(best_of(&[]), Vec::<f64>::new());
        assert_eq!(best_of(&[0.5]), [0.5]);
    }

    /// The first rate has the means 0, 0.5 and 1 in one, two and one of its four samples, the second always 0.5.
    #[test]
    fn two_seeds_have_four_samples() {
        let found = bands(&[vec![0.0, 1.0], vec![0.5, 0.5]]);
        assert_eq!(found, [[0.25, 0.75], [0.5, 1.0]]);
    }

    /// Two rates with three seeds each have 27 · 27 samples, all equally likely.
    #[test]
    fn the_ends_are_the_quantiles_of_all_samples() {
        let rates = [[0.0, 0.3, 0.9], [0.2, 0.6, 1.0]];
        let [first, second] =
            rates.map(|seeds| (0..27).map(move |i| (seeds[i % 3] + seeds[i / 3 % 3] + seeds[i / 9]) / 3.0));
        let all: Vec<Vec<f64>> = first.flat_map(|a| second.clone().map(move |b| best_of(&[a, b]))).collect();
        // Three standard errors of a share of 0.025 among the draws.
        let slack = 0.0105;
        for (k, ends) in bands(&rates.map(Vec::from)).into_iter().enumerate() {
            for (end, share) in ends.into_iter().zip([ALPHA / 2.0, 1.0 - ALPHA / 2.0]) {
                let at_most = |bound: f64| all.iter().filter(|curve| curve[k] <= bound).count() as f64 / 729.0;
                let [below, at] = [end - 1e-9, end + 1e-9].map(at_most);
                assert!(below - slack <= share && share <= at + slack, "best of {}: {below} {share} {at}", k + 1);
            }
        }
    }

    #[test]
    fn equal_seeds_have_no_spread_and_a_single_seed_has_no_band() {
        for [low, high] in bands(&[vec![0.5; 3], vec![0.25; 2]]) {
            close(low, high);
        }
        assert_eq!(bands(&[vec![0.5; 3], vec![0.25]]), Vec::<[f64; 2]>::new());
    }
}
