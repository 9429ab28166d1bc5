//! Scores runs that differ only in learning rate and seed: the mean over seeds at the best rate.

use crate::store::{Column, Metric, MetricFormat, Outcome, Record, RunStatus};
use crate::tasks::{self, Objective};
use clap::ValueEnum;
use std::collections::BTreeSet;

/// Accuracy above which `>99` is shown, as in the paper's figure 7.
pub(super) const SATURATED: f64 = 0.99;

/// The result of runs that differ only in learning rate and seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GroupStatus {
    /// No result yet: some rate has not been run.
    NotRun,
    /// No result, because of errors.
    Failed,
    /// Training diverged at every rate.
    Diverged,
    /// The runs are done but lack this metric.
    NoNumber,
    /// A number.
    Done(Score),
}

/// The number of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Mean over seeds at the best rate; accuracies from 0 to 1.
    pub mean: f64,
    /// Sample standard deviation over seeds; `None` for a single seed.
    pub std: Option<f64>,
    /// Seeds in the mean.
    pub seeds: usize,
    /// The best rate; NaN if the halves of the seeds have different ones, see [`RateChoice::HeldOut`].
    pub lr: f64,
    /// End of the tried rates at which the best rate lies, if any.
    pub edge: Option<Edge>,
    /// Whether a rate with fewer seeds has a better mean, and was left out for lack of seeds.
    pub passed_over: bool,
}

/// An end of the tried rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The lowest rate.
    Lowest,
    /// The highest rate.
    Highest,
}

/// Data on which learning rates are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RateChoice {
    /// The reported metric: the best mean over seeds.
    #[default]
    Best,
    /// Numbers that are not reported: the validation split, or else the other half of the seeds.
    HeldOut,
}

/// Held-out metrics by which rates can be chosen.
const VALIDATION: [Column; 2] = [Column::VAL_ACCURACY, Column::BEST_VAL_PPL];

impl GroupStatus {
    /// Scores `runs` by `shown` at the learning rate that is best by `by`, or by a held-out metric, according to
    /// `choice`. Runs that finished without one of the two metrics have not failed: they have no number.
    pub fn of(runs: &[&Record], by: &Metric, shown: &Metric, choice: RateChoice) -> Self {
        let status = match Reported::of(runs, by, shown, choice) {
            Ok(reported) => return Self::Done(reported.score(shown)),
            Err(status) => status,
        };
        let broke = runs.iter().any(|run| run.status() == Some(RunStatus::Failed));
        let lacks = |run: &&Record| {
            let ended = run.status() == Some(RunStatus::Done);
            let missing = [by, shown].iter().any(|m| run.number(m.column).is_none());
            ended && run.outcome() != Some(Outcome::Diverged) && missing
        };
        match status {
            Self::Failed if !broke && runs.iter().any(lacks) => Self::NoNumber,
            status => status,
        }
    }

    /// Reason why none of `rates` can be chosen.
    fn of_none(rates: &[Rate]) -> Self {
        if rates.iter().any(|rate| rate.failed) {
            Self::Failed
        } else if rates.iter().any(|rate| rate.not_run) || rates.is_empty() {
            Self::NotRun
        } else {
            Self::Diverged
        }
    }

    /// Name for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotRun => "not_run",
            Self::Failed => "failed",
            Self::Diverged => "diverged",
            Self::NoNumber => "no_number",
            Self::Done(_) => "done",
        }
    }

    /// The number, if there is one.
    pub fn score(&self) -> Option<&Score> {
        match self {
            Self::Done(score) => Some(score),
            _ => None,
        }
    }
}

impl Score {
    /// Score of one number per seed at a learning rate whose position among the tried rates is unknown.
    pub(super) fn of(values: &[f64], lr: f64) -> Self {
        let mean = mean(values.iter().copied());
        Self { mean, std: sample_std(values, mean), seeds: values.len(), lr, edge: None, passed_over: false }
    }
}

/// Distinct learning rates of `runs`, ascending.
pub(super) fn distinct_rates<'a>(runs: impl IntoIterator<Item = &'a Record>) -> Vec<f64> {
    let mut rates: Vec<f64> = runs.into_iter().map(lr).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    rates
}

/// The validation metric that all `runs` with a number have, unless the shown metric is a validation metric itself.
fn validation(runs: &[&Record], shown: &Metric) -> Option<&'static Metric> {
    let of_split = shown.name.starts_with("val_") || VALIDATION.contains(&shown.column);
    let mut known = VALIDATION.iter().filter_map(|column| Metric::find(column.name()));
    let by = known.find(|by| (by.shown == MetricFormat::Percent) == (shown.shown == MetricFormat::Percent))?;
    let numbered = runs.iter().filter(|run| run.number(shown.column).is_some());
    let mut all = numbered.map(|run| run.number(by.column).is_some());
    (!of_split && all.all(|has| has)).then_some(by)
}

/// Whether the rate of a run can be chosen on a validation split.
pub(super) fn has_validation(run: &Record) -> bool {
    VALIDATION.iter().any(|column| run.number(*column).is_some())
}

/// Whether a run of a generated task has a validation set (`--val-examples`). Its rate is then chosen on that set by
/// default, so that the test examples choose nothing.
pub(super) fn has_validation_set(run: &Record) -> bool {
    let task = tasks::find(run.text(Column::TASK));
    let labels = task.is_ok_and(|task| task.objective == Objective::PerToken);
    labels && run.count(Column::VAL_EXAMPLES) > 0
}

/// Splits `runs` by the rank of their seed, even or odd, among the seeds with a number.
fn halves<'a>(runs: &[&'a Record], by: &Metric) -> [Vec<&'a Record>; 2] {
    let numbered = runs.iter().filter(|run| run.number(by.column).is_some());
    let seeds: BTreeSet<usize> = numbered.map(|run| run.count(Column::SEED)).collect();
    let seeds: Vec<usize> = seeds.into_iter().collect();
    let rank = |run: &Record| seeds.iter().position(|seed| *seed == run.count(Column::SEED));
    [0, 1].map(|half| {
        let own = runs.iter().copied();
        own.filter(|run| rank(run).is_some_and(|rank| rank % 2 == half)).collect()
    })
}

/// The numbers of runs that differ only in learning rate and seed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reported {
    /// Shown metric, by seed.
    pub seeds: Vec<(usize, f64)>,
    /// Number of seeds that diverged at the chosen rate. Each other rate has at least one too, so the remaining seeds
    /// overstate the mixer's performance.
    pub diverged: usize,
    /// The chosen rate, and the end of the tried rates at which it lies; one element per half of the seeds if
    /// cross-fitted.
    rates: Vec<(f64, Option<Edge>)>,
    /// Whether a rate with fewer seeds has a better mean.
    passed_over: bool,
}

impl Reported {
    /// Reports `shown` at the learning rate that is best by `by`, or by a held-out metric.
    ///
    /// # Errors
    ///
    /// Returns the status of the cell if no number can be reported.
    pub fn of(runs: &[&Record], by: &Metric, shown: &Metric, choice: RateChoice) -> Result<Self, GroupStatus> {
        let whole = |by: &Metric| {
            let rates = rates(runs, by, shown);
            Self::at(&rates, &rates, by, GroupStatus::Failed)
        };
        let held_out = choice == RateChoice::HeldOut || runs.iter().all(|run| has_validation_set(run));
        if !held_out || distinct_rates(runs.iter().copied()).len() < 2 {
            return whole(by);
        }
        match (validation(runs, shown), choice) {
            (Some(split), _) => whole(split),
            (None, RateChoice::Best) => whole(by),
            (None, RateChoice::HeldOut) => Self::crossed(runs, by, shown),
        }
    }

    /// Reports each half of the seeds at the rate that is best on the other half.
    fn crossed(runs: &[&Record], by: &Metric, shown: &Metric) -> Result<Self, GroupStatus> {
        let halves = halves(runs, by).map(|half| rates(&half, by, shown));
        if halves.iter().any(Vec::is_empty) {
            let whole = rates(runs, by, shown);
            let any = best(&whole, by).map(|_| GroupStatus::NoNumber);
            return Err(any.unwrap_or(GroupStatus::of_none(&whole)));
        }
        let [first, second] = &halves;
        let mut reported = Self::at(first, second, by, GroupStatus::NoNumber)?;
        let second = Self::at(second, first, by, GroupStatus::NoNumber)?;
        reported.seeds.extend(second.seeds);
        reported.rates.extend(second.rates);
        reported.passed_over |= second.passed_over;
        match reported.diverged + second.diverged {
            0 => Ok(reported),
            _ => Err(GroupStatus::Diverged),
        }
    }

    /// Reports `own` at the rate that is best among `others`; fails with `without` if `own` has no number at that rate.
    fn at(own: &[Rate], others: &[Rate], by: &Metric, without: GroupStatus) -> Result<Self, GroupStatus> {
        let best = best(others, by).ok_or_else(|| GroupStatus::of_none(others))?;
        let rate = own.iter().find(|rate| rate.lr == best.lr);
        let rate = rate.ok_or(without)?;
        let shown = rate.seeds.iter();
        let seeds: Vec<(usize, f64)> = shown.filter_map(|seed| Some((seed.seed, seed.shown?))).collect();
        if seeds.is_empty() {
            return Err(without);
        }
        let rates = vec![(best.lr, best.edge(others))];
        Ok(Self { seeds, diverged: rate.diverged, rates, passed_over: best.passes_over(others, by) })
    }

    fn score(&self, shown: &Metric) -> Score {
        let values: Vec<f64> = self.seeds.iter().map(|(_, value)| *value).collect();
        let (lr, _) = self.rates[0];
        let lr = match self.rates.iter().all(|(other, _)| *other == lr) {
            true => lr,
            false => f64::NAN,
        };
        let score = Score::of(&values, lr);
        let saturated = shown.shown == MetricFormat::Percent && score.mean > SATURATED;
        let edge = self.rates.iter().find_map(|(_, edge)| *edge);
        Score { edge: edge.filter(|_| !saturated), passed_over: self.passed_over, ..score }
    }
}

/// The seeds of one learning rate.
#[derive(Default)]
struct Rate {
    lr: f64,
    /// Seeds with a number.
    seeds: Vec<Seed>,
    diverged: usize,
    failed: bool,
    not_run: bool,
}

/// One run.
struct Seed {
    seed: usize,
    /// Metric by which rates are compared.
    score: f64,
    shown: Option<f64>,
}

fn lr(run: &Record) -> f64 {
    run.number(Column::LR).unwrap_or(f64::NAN)
}

fn rates(runs: &[&Record], by: &Metric, shown: &Metric) -> Vec<Rate> {
    let mut runs = runs.to_vec();
    runs.sort_by(|a, b| lr(a).total_cmp(&lr(b)));
    let rates = runs.chunk_by(|a, b| lr(a) == lr(b));
    rates.map(|seeds| Rate::of(seeds, by, shown)).collect()
}

/// The best rate. A rate at which no seed diverged precedes all others, since the surviving seeds of an unstable rate
/// overstate it; and a rate with more seeds one with fewer, whose mean can be high by chance. Among equals the lowest rate
/// wins.
fn best<'a>(rates: &'a [Rate], by: &Metric) -> Option<&'a Rate> {
    let scored = rates.iter().rev().filter(|rate| !rate.seeds.is_empty());
    let trust = |rate: &Rate| (rate.diverged == 0, rate.ended());
    scored.max_by(|a, b| trust(a).cmp(&trust(b)).then_with(|| by.compare(a.mean(), b.mean())))
}

impl Rate {
    fn of(runs: &[&Record], by: &Metric, shown: &Metric) -> Self {
        let mut rate = Self { lr: lr(runs[0]), ..Self::default() };
        for run in runs {
            match (run.status(), run.outcome(), run.number(by.column)) {
                (None, ..) => rate.not_run = true,
                (Some(RunStatus::Failed), ..) => rate.failed = true,
                (_, Some(Outcome::Diverged), _) => rate.diverged += 1,
                (_, _, Some(score)) if score.is_finite() => rate.seeds.push(Seed {
                    seed: run.count(Column::SEED),
                    score,
                    shown: run.number(shown.column).filter(|shown| shown.is_finite()),
                }),
                _ => rate.failed = true,
            }
        }
        rate
    }

    fn tried(&self) -> bool {
        self.ended() > 0
    }

    /// Number of seeds that ended, diverged ones included.
    fn ended(&self) -> usize {
        self.seeds.len() + self.diverged
    }

    /// Mean of the metric by which rates are compared.
    fn mean(&self) -> f64 {
        mean(self.seeds.iter().map(|seed| seed.score))
    }

    /// Whether one of `rates` is stable and has a better mean, over fewer seeds.
    fn passes_over(&self, rates: &[Rate], by: &Metric) -> bool {
        let fewer = rates.iter().filter(|rate| rate.diverged == 0 && (1..self.ended()).contains(&rate.ended()));
        fewer.map(Rate::mean).any(|mean| by.compare(mean, self.mean()).is_gt())
    }

    fn edge(&self, rates: &[Rate]) -> Option<Edge> {
        let tried: Vec<f64> = rates.iter().filter(|r| r.tried()).map(|r| r.lr).collect();
        match tried[..] {
            [lowest, _, ..] if lowest == self.lr => Some(Edge::Lowest),
            [_, .., highest] if highest == self.lr => Some(Edge::Highest),
            _ => None,
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), v| (sum + v, count + 1));
    sum / count as f64
}

fn sample_std(values: &[f64], mean: f64) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}
