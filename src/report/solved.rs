//! Statistics of runs that either solve their task or do not, over all learning rates.
//!
//! On associative recall a run finds the lookup or misses it, so the mean accuracy over a few seeds at the best rate is
//! neither normal nor stable. These tests compare the share of runs that solve the task instead. A stratum is one cell
//! at one learning rate, within which mixers are compared: by the Cochran-Mantel-Haenszel test, by Mantel's (1963)
//! extension of it to scores for trends, and by the log-rank test for the time to a solution. See [`stats`] for means.
//!
//! [`stats`]: super::stats

use super::stats::{Estimate, Evidence, Within, ALPHA, MOST};
use crate::store::{Column, Outcome, Record};
use statrs::distribution::{Beta, Binomial, ContinuousCDF, DiscreteCDF, Normal};

/// A run of associative recall solves its task if it ends above 90 %. Runs that miss the lookup end at half of that.
pub(super) const SOLVED: f64 = 0.9;

/// A run in a stratum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trial {
    /// Score that is compared: 1 or 0 for two mixers, the logarithm of a size for a trend.
    pub score: f64,
    /// Whether the run solved its task.
    pub solved: bool,
    /// Time to the stopping accuracy, or to the end of training without it; `None` if not recorded.
    pub time: Option<Time>,
}

/// Duration of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Time {
    /// Training examples.
    pub examples: f64,
    /// Whether the run reached the accuracy at which training stops; otherwise the time is censored.
    pub reached: bool,
}

impl Time {
    /// Time at which `run` reached its stopping accuracy; `None` if it has none. A diverged run is censored at its full
    /// length, since it would not have reached it.
    pub fn of(run: &Record) -> Option<Self> {
        let stop = run.number(Column::STOP_ABOVE)?;
        let of_epochs = |epochs: usize| (epochs * run.count(Column::TRAIN_EXAMPLES)) as f64;
        let most = run.count(Column::EPOCHS_MAX);
        if run.outcome() == Some(Outcome::Diverged) {
            return Some(Self { examples: of_epochs(most), reached: false });
        }
        let accuracy = run.number(Column::ACCURACY)?;
        let epochs = run.count(Column::EPOCHS_RUN);
        Some(Self { examples: of_epochs(epochs), reached: epochs < most || accuracy > stop })
    }

    fn ends_at(&self, examples: f64) -> bool {
        self.reached && self.examples == examples
    }
}

/// Runs that are compared with each other only.
pub(super) type Stratum = Vec<Trial>;

/// The sums of Mantel's test over strata.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mantel {
    /// Σ (score - mean score) over solved runs; zero in expectation if scores have no effect.
    excess: f64,
    /// Variance of the excess under that hypothesis, by the hypergeometric distribution.
    variance: f64,
    /// Σ (score - mean score)², by which the excess is divided to give a difference or a slope.
    spread: f64,
}

impl Mantel {
    fn of(strata: &[Stratum]) -> Self {
        let mut sums = Self::default();
        for stratum in strata.iter().filter(|stratum| stratum.len() > 1) {
            let count = stratum.len() as f64;
            let solved = stratum.iter().filter(|trial| trial.solved);
            let among = solved.clone().count() as f64;
            let mean = stratum.iter().map(|trial| trial.score).sum::<f64>() / count;
            let square = |trial: &Trial| (trial.score - mean).powi(2);
            let spread: f64 = stratum.iter().map(square).sum();
            sums.excess += solved.map(|trial| trial.score - mean).sum::<f64>();
            sums.variance += among * (count - among) * spread / (count * (count - 1.0));
            sums.spread += spread;
        }
        sums
    }
}

impl Estimate {
    /// Difference between scores 1 and 0 in the share of runs that solve their task; `None` if no stratum has both.
    ///
    /// The mean is the Mantel-Haenszel estimate, where strata of sizes n and m have weight nm / (n + m). The error is
    /// Sato's (1989), but at least that of Agresti and Caffo (2000) without strata, since Sato's is zero if all runs of
    /// each mixer agree.
    pub fn between(strata: &[Stratum], seeds: usize) -> Option<Self> {
        let sums = Mantel::of(strata);
        let (mut p, mut q) = (0.0, 0.0);
        let mut all = [[0.0; 2]; 2];
        for stratum in strata {
            let sides = [1.0, 0.0].map(|score| {
                let side = || stratum.iter().filter(move |trial| trial.score == score);
                [side().filter(|trial| trial.solved).count() as f64, side().count() as f64]
            });
            let [[x, n], [y, m]] = sides;
            if n * m == 0.0 {
                continue;
            }
            let total = n + m;
            p += (n * n * y - m * m * x + n * m * (m - n) / 2.0) / (total * total);
            q += (x * (m - y) + y * (n - x)) / (2.0 * total);
            for (sum, side) in all.iter_mut().zip(sides) {
                sum[0] += side[0];
                sum[1] += side[1];
            }
        }
        if sums.spread == 0.0 {
            return None;
        }
        let mean = sums.excess / sums.spread;
        let sato = (mean * p + q).max(0.0) / sums.spread.powi(2);
        let least = all.map(|[solved, count]| {
            let share = (solved + 1.0) / (count + 2.0);
            share * (1.0 - share) / (count + 2.0)
        });
        let error = sato.max(least.iter().sum()).sqrt();
        Some(Self::of_share(mean, error, corrected(sums.excess, CONTINUITY, sums.variance), seeds))
    }

    /// Weighted sum of the slopes of several sets of strata, per unit of the score: the slope of one mixer, or the
    /// difference of two. The error is the one under the hypothesis of no slope, as in the test.
    pub fn of_slopes(parts: &[(f64, Vec<Stratum>)], seeds: usize) -> Option<Self> {
        let (mut mean, mut variance, mut correction) = (0.0, 0.0, 0.0f64);
        for (weight, strata) in parts {
            let sums = Mantel::of(strata);
            if sums.spread == 0.0 {
                return None;
            }
            let scale = weight / sums.spread;
            mean += scale * sums.excess;
            variance += scale * scale * sums.variance;
            correction = correction.max(CONTINUITY * scale.abs());
        }
        Some(Self::of_share(mean, variance.sqrt(), corrected(mean, correction, variance), seeds))
    }

    /// Difference of two estimates from runs that share nothing, in normal deviates of their errors.
    pub fn minus(&self, other: &Self) -> Self {
        let (mean, error) = (self.mean - other.mean, self.error.hypot(other.error));
        let seeds = self.seeds.min(other.seeds);
        Self { range: [-2.0, 2.0], ..Self::of_share(mean, error, mean / error, seeds) }
    }

    /// Estimate of a difference or a slope of a share, whose deviate `z` from zero has its own variance.
    fn of_share(mean: f64, error: f64, z: f64, seeds: usize) -> Self {
        Self { mean, error, z, freedom: f64::INFINITY, range: [-1.0, 1.0], seeds }
    }
}

/// Continuity correction: half of the step between two outcomes.
const CONTINUITY: f64 = 0.5;

/// Normal deviate of `excess` after the continuity `correction`; 0 if no stratum is informative.
fn corrected(excess: f64, correction: f64, variance: f64) -> f64 {
    if variance > 0.0 {
        (excess.abs() - correction).max(0.0) * excess.signum() / variance.sqrt()
    } else {
        0.0
    }
}

/// The share of runs or seeds that solve their task.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    pub solved: usize,
    pub of: usize,
}

impl Share {
    /// Adds a run or a seed.
    pub fn count(mut self, solved: bool) -> Self {
        self.solved += usize::from(solved);
        self.of += 1;
        self
    }
}

impl Evidence for Share {
    fn mean(&self) -> f64 {
        self.solved as f64 / self.of as f64
    }

    /// The exact interval of Clopper and Pearson (1934).
    fn interval(&self) -> [f64; 2] {
        let (k, n) = (self.solved as f64, self.of as f64);
        let quantile = |a: f64, b: f64, p: f64| Beta::new(a, b).expect("counts above zero").inverse_cdf(p);
        [
            if self.solved == 0 { 0.0 } else { quantile(k, n - k + 1.0, ALPHA / 2.0) },
            if self.solved == self.of { 1.0 } else { quantile(k + 1.0, n - k, 1.0 - ALPHA / 2.0) },
        ]
    }

    fn tails(&self, bound: f64) -> [f64; 2] {
        let certain = |outcome: bool| f64::from(u8::from(outcome));
        if bound <= 0.0 {
            return [certain(self.solved == 0), 1.0];
        }
        if bound >= 1.0 {
            return [1.0, certain(self.solved == self.of)];
        }
        let binomial = Binomial::new(bound, self.of as u64).expect("a probability");
        let fewer = self.solved.checked_sub(1).map_or(0.0, |fewer| binomial.cdf(fewer as u64));
        [1.0 - fewer, binomial.cdf(self.solved as u64)]
    }

    fn seeds_to_decide(&self, within: Within) -> Option<usize> {
        let decides = |of: &usize| {
            let solved = (self.mean() * *of as f64).round() as usize;
            let then = Self { solved, of: *of };
            then.levels(within).iter().any(|level| *level <= ALPHA)
        };
        (self.of + 1..=MOST).find(decides)
    }
}

/// The stratified log-rank test of two mixers, with scores 1 and 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogRank {
    /// Normal deviate, above zero if the first mixer is faster.
    pub z: f64,
    /// Two-sided p-value.
    pub p: f64,
}

impl LogRank {
    /// Tests `strata`; `None` if times were not recorded or no run reached the stopping accuracy.
    pub fn of(strata: &[Stratum]) -> Option<Self> {
        let (mut excess, mut variance) = (0.0, 0.0);
        for stratum in strata {
            let timed: Option<Vec<(bool, Time)>> =
                stratum.iter().map(|trial| Some((trial.score == 1.0, trial.time?))).collect();
            let timed = timed?;
            for end in ends(timed.iter().map(|(_, time)| time)) {
                // Numbers of runs, of both mixers and of the first.
                let count = |counts: fn(&Time, f64) -> bool| {
                    let runs = timed.iter().filter(|(_, time)| counts(time, end));
                    [runs.clone().count() as f64, runs.filter(|(first, _)| *first).count() as f64]
                };
                let [at_risk, first] = count(|time, end| time.examples >= end);
                let [ended, own] = count(Time::ends_at);
                let share = first / at_risk;
                excess += own - ended * share;
                if at_risk > 1.0 {
                    variance += ended * share * (1.0 - share) * (at_risk - ended) / (at_risk - 1.0);
                }
            }
        }
        if variance == 0.0 {
            return None;
        }
        let z = excess / variance.sqrt();
        Some(Self { z, p: 2.0 * Normal::standard().sf(z.abs()) })
    }
}

/// Times at which a run reaches the accuracy, ascending.
fn ends<'a>(times: impl Iterator<Item = &'a Time>) -> Vec<f64> {
    let mut ends: Vec<f64> = times.filter(|time| time.reached).map(|time| time.examples).collect();
    ends.sort_by(f64::total_cmp);
    ends.dedup();
    ends
}

/// Kaplan-Meier estimate (1958) of the share of runs that have not reached the accuracy yet, at each time at which a
/// run does.
pub(super) fn kaplan_meier(times: &[Time]) -> Vec<(f64, f64)> {
    let mut left = 1.0;
    let ends = ends(times.iter()).into_iter().map(|end| {
        let at_risk = times.iter().filter(|time| time.examples >= end).count();
        let ended = times.iter().filter(|time| time.ends_at(end)).count();
        left *= 1.0 - ended as f64 / at_risk as f64;
        (end, left)
    });
    ends.collect()
}

#[cfg(test)]
mod tests {
    use super::super::stats::SeedBlock;
    use super::*;
    use crate::ops::rng::Rng;

    /// A stratum of two mixers, each given as solved runs and all runs.
    fn counted(first: [usize; 2], second: [usize; 2]) -> Stratum {
        let side = |score: f64, [solved, of]: [usize; 2]| {
            (0..of).map(move |i| Trial { score, solved: i < solved, time: None })
        };
        side(1.0, first).chain(side(0.0, second)).collect()
    }

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-4 * wanted.abs().max(1.0), "{found} for {wanted}");
    }

    /// Admissions to Berkeley, 1973, men and women in six departments (Bickel et al. 1975): R's `mantelhaen.test` gives
    /// a chi-square of 1.4269 with the correction, p = 0.2323.
    #[test]
    fn the_test_is_that_of_cochran_mantel_and_haenszel() {
        let departments = [
            ([512, 825], [89, 108]),
            ([353, 560], [17, 25]),
            ([120, 325], [202, 593]),
            ([138, 417], [131, 375]),
            ([53, 191], [94, 393]),
            ([22, 373], [24, 341]),
        ];
        let strata = departments.map(|(men, women)| counted(men, women));
        let found = Estimate::between(&strata, 5).unwrap();
        assert!((found.z.powi(2) - 1.4269).abs() < 1e-3, "{}", found.z.powi(2));
        assert!(found.z < 0.0, "fewer men");
        let [high, low] = found.tails(0.0);
        assert!((2.0 * low - 0.2323).abs() < 1e-3, "{low}");
        close(high + low, 1.0);
    }

    /// Sato's variance in one stratum is the sum of p(1 - p)/n over both sides, and the estimate the plain difference.
    #[test]
    fn the_error_in_one_stratum_is_that_of_two_proportions() {
        let found = Estimate::between(&[counted([30, 50], [20, 50])], 5).unwrap();
        close(found.mean, 0.2);
        close(found.error, (0.6 * 0.4 / 50.0 + 0.4 * 0.6 / 50.0f64).sqrt());
        let [low, high] = found.interval();
        close(high - low, 2.0 * 1.959_964 * found.error);
    }

    #[test]
    fn equal_outcomes_leave_an_error_and_decide_nothing() {
        let found = Estimate::between(&[counted([5, 5], [5, 5])], 5).unwrap();
        assert_eq!((found.mean, found.z), (0.0, 0.0));
        assert!(found.error > 0.1, "{found:?}");
        assert_eq!(found.tails(0.0), [0.5, 0.5]);
        assert_eq!(Estimate::between(&[counted([5, 5], [0, 0])], 5), None);
    }

    /// Strata of the runs of `results/figure2-small.csv`, SSD and S6: statsmodels' `StratifiedTable` gives p = 0.000174
    /// with the correction, and 0.0000589 without.
    #[test]
    fn runs_at_several_rates_are_one_test() {
        let strata: Vec<Stratum> = [(5, 1), (5, 3)].map(|(a, b)| counted([a, 5], [b, 5])).into();
        let found = Estimate::between(&strata, 5).unwrap();
        // Stratum of 10 runs each: excess 3, variance (6·4·2.5/9 + 8·2·2.5/9)/10 = 1.1111.
        close(found.z, 2.5 / (10.0f64 / 9.0).sqrt());
        close(found.mean, 0.6);
    }

    /// Dose and response (Mantel 1963, computed by hand): scores 0, 1, 2 with 1, 3, 5 of 5.
    #[test]
    fn a_trend_is_tested_by_scores() {
        let dose = |score: f64, solved: usize| (0..5).map(move |i| Trial { score, solved: i < solved, time: None });
        let stratum: Stratum = dose(0.0, 1).chain(dose(1.0, 3)).chain(dose(2.0, 5)).collect();
        let found = Estimate::of_slopes(&[(1.0, vec![stratum.clone()])], 5).unwrap();
        close(found.mean, 0.4);
        // Excess 4, spread 10, variance 9·6·10/(15·14) = 2.5714.
        close(found.error, (18.0f64 / 7.0).sqrt() / 10.0);
        close(found.z, 3.5 / (18.0f64 / 7.0).sqrt());
        let against = [(1.0, vec![stratum.clone()]), (-1.0, vec![stratum])];
        let none = Estimate::of_slopes(&against, 5).unwrap();
        close(none.mean, 0.0);
        close(none.z, 0.0);
    }

    /// Values from scipy's `binomtest(k, n).proportion_ci(method="exact")`.
    #[test]
    fn intervals_of_a_share_are_exact() {
        for (solved, of, low, high) in [
            (5, 5, 0.478_176, 1.0),
            (0, 3, 0.0, 0.707_598),
            (20, 30, 0.471_881, 0.827_129),
            (5, 30, 0.056_422, 0.347_211),
        ] {
            let [found_low, found_high] = Share { solved, of }.interval();
            close(found_low, low);
            close(found_high, high);
        }
        let five = Share { solved: 5, of: 5 };
        close(five.tails(0.5)[0], 0.031_25);
        close(five.tails(0.5)[1], 1.0);
        // 0.8^17 is below 0.025, 0.8^16 is not.
        assert_eq!(five.seeds_to_decide(Within(0.8, f64::INFINITY)), Some(17));
    }

    /// Remission of leukaemia under 6-MP and placebo (Freireich et al. 1963): the log-rank chi-square is 16.79.
    #[test]
    fn the_log_rank_test_is_that_of_the_textbooks() {
        let drug = [
            (6.0, true),
            (6.0, true),
            (6.0, true),
            (6.0, false),
            (7.0, true),
            (9.0, false),
            (10.0, true),
            (10.0, false),
            (11.0, false),
            (13.0, true),
            (16.0, true),
            (17.0, false),
            (19.0, false),
            (20.0, false),
            (22.0, true),
            (23.0, true),
            (25.0, false),
            (32.0, false),
            (32.0, false),
            (34.0, false),
            (35.0, false),
        ];
        let placebo = [
            1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 5.0, 8.0, 8.0, 8.0, 8.0, 11.0, 11.0, 12.0, 12.0, 15.0, 17.0, 22.0,
            23.0,
        ];
        let trial = |score: f64, examples: f64, reached: bool| Trial {
            score,
            solved: reached,
            time: Some(Time { examples, reached }),
        };
        let treated = drug.map(|(weeks, back)| trial(0.0, weeks, back));
        let others = placebo.map(|weeks| trial(1.0, weeks, true));
        let stratum: Stratum = treated.into_iter().chain(others).collect();
        let found = LogRank::of(std::slice::from_ref(&stratum)).unwrap();
        assert!((found.z.powi(2) - 16.79).abs() < 0.01, "{found:?}");
        assert!(found.z > 0.0 && found.p < 1e-4);
        let treated: Vec<Time> = stratum[..21].iter().filter_map(|trial| trial.time).collect();
        let curve = kaplan_meier(&treated);
        // The textbook's product-limit estimates after 6, 7, 10, 13, 16, 22 and 23 weeks.
        let wanted = [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448];
        assert_eq!(curve.len(), wanted.len());
        for ((_, left), wanted) in curve.iter().zip(wanted) {
            assert!((left - wanted).abs() < 1e-3, "{curve:?}");
        }
    }

    /// Strata of two mixers at three rates with five seeds, each run solved with the probability of its mixer and rate.
    fn study(shares: [[f64; 3]; 2], stream: &mut Rng) -> Vec<Stratum> {
        let rates = (0..3).map(|rate| {
            let sides = [(1.0, shares[0][rate]), (0.0, shares[1][rate])];
            let trials = sides.into_iter().flat_map(|(score, share)| {
                let solved: Vec<bool> = (0..5).map(|_| stream.uniform() < share).collect();
                solved.into_iter().map(move |solved| Trial { score, solved, time: None })
            });
            trials.collect()
        });
        rates.collect()
    }

    /// p-value of the means at the best rate of each mixer, compared by Student's t over seeds.
    fn by_best_rate(strata: &[Stratum]) -> f64 {
        let of = |score: f64, weight: f64| {
            let rates = strata.iter().map(|stratum| {
                let own = stratum.iter().filter(|trial| trial.score == score);
                let accuracies = own.map(|trial| if trial.solved { 0.97 } else { 0.3 });
                accuracies.collect::<Vec<f64>>()
            });
            let sum = |values: &Vec<f64>| values.iter().sum::<f64>();
            let best = rates.max_by(|a, b| sum(a).total_cmp(&sum(b))).unwrap();
            SeedBlock { values: best.into_iter().map(|accuracy| weight * accuracy).collect(), least: 1e-3 }
        };
        let estimate = Estimate::of(&[of(1.0, 1.0), of(0.0, -1.0)]).unwrap();
        estimate.levels(ABOVE)[0]
    }

    const ABOVE: Within = Within(0.0, f64::INFINITY);

    /// Power over two thousand studies with a true difference, and false positives over as many without.
    #[test]
    fn the_test_over_all_runs_finds_what_the_best_rate_hides() {
        let found = |shares: [[f64; 3]; 2]| {
            let mut stream = Rng::new(1, "power", 0);
            let mut found = [0.0; 2];
            for _ in 0..2000 {
                let strata = study(shares, &mut stream);
                let all = Estimate::between(&strata, 5).unwrap();
                let levels = [all.levels(ABOVE)[0], by_best_rate(&strata)];
                for (count, level) in found.iter_mut().zip(levels) {
                    *count += f64::from(u8::from(level <= ALPHA)) / 2000.0;
                }
            }
            found
        };
        let [all, best] = found([[0.5, 0.7, 0.8], [0.1, 0.1, 0.4]]);
        println!("power: {all:.2} over all runs, {best:.2} at the best rate");
        assert!(all > 0.6 && best < 0.2, "{all} {best}");
        for shares in [[0.1, 0.1, 0.4], [0.5, 0.7, 0.8]] {
            let [all, _] = found([shares, shares]);
            assert!(all <= 0.05, "{all}");
        }
    }
}
