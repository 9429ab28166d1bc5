//! Intervals of Student's t for differences of means over a few seeds, and Holm's correction for multiple comparisons.
//!
//! With three to five seeds a percentile bootstrap resamples so few values that its interval is far too narrow: it
//! covers about 75 % instead of 95 %. Student's t accounts for the uncertainty of a spread estimated from few seeds,
//! and its main assumption, symmetry, holds for the difference of two mixers under one procedure if there is no effect.
//! A verdict needs at least [`FEWEST`] seeds. Runs that either solve their task or do not are tested in
//! [`solved`](super::solved).

use crate::store::{Column, Record};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Fewest seeds that a verdict may rest on.
pub(super) const FEWEST: usize = 3;
/// Probability of an error that a verdict allows for.
pub(super) const ALPHA: f64 = 0.05;
/// Largest number of seeds considered worth running to decide an open question.
pub(super) const MOST: usize = 100;
/// Probability with which the estimated number of seeds should decide a question.
pub(super) const POWER: f64 = 0.8;

/// Values that were drawn together, one per seed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeedBlock {
    pub values: Vec<f64>,
    /// Smallest plausible standard deviation: the resolution of the measurement.
    pub least: f64,
}

/// Estimate of a quantity by its mean and standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub mean: f64,
    /// Standard error.
    pub error: f64,
    /// Deviate of the test against zero, in standard errors; NaN if there is neither difference nor error.
    pub z: f64,
    /// Degrees of freedom, by Welch and Satterthwaite for several independent blocks; infinite for a normal deviate.
    pub freedom: f64,
    /// Smallest and largest possible value.
    pub range: [f64; 2],
    /// Seeds of the sample with the fewest.
    pub seeds: usize,
}

/// Open interval in which a claim puts a quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Within(pub f64, pub f64);

/// A quantity that was estimated from runs.
pub(super) trait Evidence: std::fmt::Debug {
    fn mean(&self) -> f64;

    /// Confidence interval with coverage 1 - [`ALPHA`].
    fn interval(&self) -> [f64; 2];

    /// Probabilities of an estimate at least as high, and at least as low, if the true quantity were `bound`.
    fn tails(&self, bound: f64) -> [f64; 2];

    /// Number of seeds that should decide whether the quantity is inside `within` if the estimate stays the same;
    /// `None` if [`MOST`] are not enough.
    fn seeds_to_decide(&self, within: Within) -> Option<usize>;

    /// Two-sided p-values for the quantity lying inside `within`, and for it lying outside.
    fn levels(&self, Within(low, high): Within) -> [f64; 2] {
        let of = |bound: f64, infinite: [f64; 2]| if bound.is_infinite() { infinite } else { self.tails(bound) };
        let (low, high) = (of(low, [0.0, 1.0]), of(high, [1.0, 0.0]));
        [low[0].max(high[1]), low[1].min(high[0])].map(|level| (2.0 * level).min(1.0))
    }
}

/// Resolution of a measure of `run`: one example of the test set for shares, 0 otherwise.
pub(super) fn resolution(run: &Record, is_share: bool) -> f64 {
    match run.count(Column::TEST_EXAMPLES) {
        examples if is_share && examples > 0 => 1.0 / examples as f64,
        _ => 0.0,
    }
}

impl Estimate {
    /// Estimate of the sum of the means of `blocks`; `None` if a block has fewer than two seeds, whose spread is
    /// unknown.
    pub fn of(blocks: &[SeedBlock]) -> Option<Self> {
        let seeds = blocks.iter().map(|block| block.values.len()).min()?;
        if seeds < 2 {
            return None;
        }
        let (mut mean, mut square, mut slack) = (0.0, 0.0, 0.0);
        for SeedBlock { values, least } in blocks {
            let count = values.len() as f64;
            let middle = values.iter().sum::<f64>() / count;
            let squares: f64 = values.iter().map(|v| (v - middle).powi(2)).sum();
            let of_mean = (squares / (count - 1.0)).max(least.powi(2)) / count;
            mean += middle;
            square += of_mean;
            slack += of_mean.powi(2) / (count - 1.0);
        }
        let (error, fewest) = (square.sqrt(), seeds as f64 - 1.0);
        let freedom = if slack > 0.0 { (square.powi(2) / slack).max(fewest) } else { fewest };
        let range = [f64::NEG_INFINITY, f64::INFINITY];
        Some(Self { mean, error, z: deviate(mean, error), freedom, range, seeds })
    }

    /// The estimate, if each block has at least [`FEWEST`] seeds.
    pub fn of_enough(blocks: &[SeedBlock]) -> Option<Self> {
        Self::of(blocks).filter(|estimate| estimate.seeds >= FEWEST)
    }

    /// Distance from `bound` in standard errors.
    fn deviate(&self, bound: f64) -> f64 {
        match bound {
            0.0 => self.z,
            bound => deviate(self.mean - bound, self.error),
        }
    }
}

impl Evidence for Estimate {
    fn mean(&self) -> f64 {
        self.mean
    }

    fn interval(&self) -> [f64; 2] {
        let half = quantile(1.0 - ALPHA / 2.0, self.freedom) * self.error;
        [(self.mean - half).max(self.range[0]), (self.mean + half).min(self.range[1])]
    }

    fn tails(&self, bound: f64) -> [f64; 2] {
        let z = self.deviate(bound);
        let below = if z.is_nan() { 0.5 } else { student(self.freedom).cdf(z) };
        [1.0 - below, below]
    }

    /// The estimate decides with probability [`POWER`] once its deviate exceeds the threshold by the quantile of the
    /// power.
    fn seeds_to_decide(&self, Within(low, high): Within) -> Option<usize> {
        let bounds = [low, high].into_iter().filter(|bound| bound.is_finite());
        let least = bounds.map(|bound| self.deviate(bound).abs()).fold(f64::INFINITY, f64::min);
        let enough = |seeds: usize| {
            let freedom = if self.freedom.is_infinite() { self.freedom } else { seeds as f64 - 1.0 };
            let needed = quantile(1.0 - ALPHA / 2.0, freedom) + quantile(POWER, freedom);
            least * (seeds as f64 / self.seeds as f64).sqrt() >= needed
        };
        // A sufficient number of seeds stays sufficient with one more, as a binary search requires.
        let more: Vec<usize> = (self.seeds + 1..=MOST).collect();
        more.get(more.partition_point(|seeds| !enough(*seeds))).copied()
    }
}

/// `apart` in standard errors.
fn deviate(apart: f64, error: f64) -> f64 {
    if error > 0.0 {
        apart / error
    } else {
        f64::INFINITY * apart
    }
}

fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("at least one degree of freedom")
}

fn quantile(probability: f64, freedom: f64) -> f64 {
    if freedom.is_infinite() {
        Normal::standard().inverse_cdf(probability)
    } else {
        student(freedom).inverse_cdf(probability)
    }
}

/// Corrects p-values by Holm's method: the smallest is multiplied by their number, the next by one less, and so on, and
/// none ends up below a smaller one. The probability that any p-value at most [`ALPHA`] is a false positive is then at
/// most [`ALPHA`].
pub(super) fn holm<'a>(levels: impl IntoIterator<Item = &'a mut f64>) {
    let mut levels: Vec<&mut f64> = levels.into_iter().collect();
    levels.sort_by(|a, b| a.total_cmp(b));
    let (count, mut before) = (levels.len(), 0.0f64);
    for (rank, level) in levels.into_iter().enumerate() {
        before = before.max((count - rank) as f64 * *level).min(1.0);
        *level = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOVE_ZERO: Within = Within(0.0, f64::INFINITY);

    fn block(values: &[f64]) -> SeedBlock {
        SeedBlock { values: values.to_vec(), least: 0.0 }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3
    }

    /// Values from tables of t.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, wanted) in [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (30.0, 2.042)] {
            let found = quantile(0.975, freedom);
            assert!(close(found, wanted), "{freedom}: {found}");
        }
    }

    #[test]
    fn the_interval_of_three_seeds_is_wide() {
        let estimate = Estimate::of(&[block(&[1.0, 2.0, 3.0])]).unwrap();
        let [low, high] = estimate.interval();
        let half = 4.302_65 / 3f64.sqrt();
        assert!(close(low, 2.0 - half) && close(high, 2.0 + half), "{low} {high}");
    }

    /// Sleep of ten patients under two drugs (Student 1908): Welch's t is 1.8608 with 17.776 degrees of freedom.
    #[test]
    fn independent_blocks_are_judged_as_by_welch() {
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0].map(|v: f64| -v);
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let estimate = Estimate::of(&[block(&first), block(&second)]).unwrap();
        assert!(close(estimate.mean / estimate.error, 1.8608));
        assert!(close(estimate.freedom, 17.776));
        assert!(close(estimate.levels(ABOVE_ZERO)[0], 0.0794));
    }

    #[test]
    fn levels_agree_with_the_interval() {
        for shift in [-3.0, -1.0, 0.0, 0.4, 1.3, 2.0, 4.0] {
            let values = [0.1, -0.3, 0.25, 0.05].map(|v| v + shift);
            let estimate = Estimate::of(&[block(&values)]).unwrap();
            let [low, high] = estimate.interval();
            for within in [ABOVE_ZERO, Within(-1.0, 1.0), Within(f64::NEG_INFINITY, 0.5)] {
                let inside = within.0 < low && high < within.1;
                let outside = high < within.0 || low > within.1;
                assert_eq!(estimate.levels(within)[0] <= ALPHA, inside, "{shift}");
                assert_eq!(estimate.levels(within)[1] <= ALPHA, outside, "{shift}");
            }
        }
    }

    #[test]
    fn a_spread_is_never_below_what_can_be_measured_and_no_spread_decides_nothing_at_a_bound() {
        let equal = |least| Estimate::of(&[SeedBlock { values: vec![0.0; 5], least }]).unwrap();
        assert_eq!(equal(0.0).levels(ABOVE_ZERO)[0], 1.0);
        assert_eq!(equal(0.0).levels(ABOVE_ZERO)[1], 1.0);
        let [low, high] = equal(0.01).interval();
        assert!(low < 0.0 && high > 0.0);
        assert_eq!(Estimate::of(&[block(&[1.0])]), None);
    }

    #[test]
    fn the_seeds_asked_for_grow_as_the_effect_shrinks_and_have_an_end() {
        let asked = |shift: f64| {
            let values = [-1.0, 0.0, 1.0].map(|v| v + shift);
            let estimate = Estimate::of(&[block(&values)]).unwrap();
            estimate.seeds_to_decide(ABOVE_ZERO)
        };
        // For an effect of one standard deviation, tables give ten seeds at power 0.8 and two-sided 0.05.
        assert_eq!(asked(1.0), Some(10));
        assert!(asked(0.5) > asked(1.0));
        assert_eq!(asked(0.01), None);
    }

    #[test]
    fn holm_counts_the_least_level_most_often() {
        let mut levels = [0.04, 0.01, 0.03, 0.5];
        holm(&mut levels);
        for (found, wanted) in levels.iter().zip([0.09, 0.04, 0.09, 0.5]) {
            assert!((found - wanted).abs() < 1e-12, "{levels:?}");
        }
    }
}
