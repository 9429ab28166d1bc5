//! What runs that differ only in learning rate and seed come to: the mean over seeds at the best rate.

use crate::store::{Metric, Outcome, Record, RunStatus, Shown};

/// Above this an accuracy is shown as `>99`: the rule of the paper's figure 7.
pub(super) const SATURATED: f64 = 0.99;

/// The result of runs that differ only in learning rate and seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Status {
    /// No result, and some rate may still give one.
    NotRun,
    /// No result, and an error is to blame.
    Failed,
    /// Training diverged at every rate.
    Diverged,
    /// The runs were made and have no such number.
    NoNumber,
    /// A number.
    Done(Score),
}

/// The number of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Mean over seeds at the best rate; of accuracies 0 to 1.
    pub mean: f64,
    /// Sample standard deviation over seeds; `None` for a single seed.
    pub std: Option<f64>,
    /// Seeds in the mean.
    pub seeds: usize,
    /// The best rate.
    pub lr: f64,
    /// Whether it is the first or the last of the rates tried.
    pub edge: Option<Edge>,
}

/// An end of the rates tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The lowest.
    Lowest,
    /// The highest.
    Highest,
}

impl Status {
    /// `shown` of `runs` at the learning rate that is best by `by`.
    pub fn of(runs: &[&Record], by: &Metric, shown: &Metric) -> Self {
        let rates = rates(runs, by, shown);
        if let Some(best) = best(&rates, by) {
            return match best.shown[..] {
                [] => Self::Failed,
                _ => Self::Done(best.score(&rates, shown)),
            };
        }
        let any = |count: fn(&Rate) -> usize| rates.iter().any(|rate| count(rate) > 0);
        if any(|rate| rate.failed) {
            Self::Failed
        } else if any(|rate| rate.not_run) || runs.is_empty() {
            Self::NotRun
        } else {
            Self::Diverged
        }
    }

    /// The same, with [`Status::NoNumber`] where runs ended well without one of the two metrics.
    pub fn known(runs: &[&Record], by: &Metric, shown: &Metric) -> Self {
        let status = Self::of(runs, by, shown);
        let broke = runs.iter().any(|r| r.status() == Some(RunStatus::Failed));
        let lacks = |run: &&&Record| {
            let ended = run.status() == Some(RunStatus::Done);
            let missing = [by, shown].iter().any(|m| run.number(m.name).is_none());
            ended && run.outcome() != Some(Outcome::Diverged) && missing
        };
        if status == Self::Failed && !broke && runs.iter().any(|run| lacks(&run)) {
            return Self::NoNumber;
        }
        status
    }

    /// For programs.
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

/// Distinct learning rates of `runs`, ascending.
pub(super) fn distinct_rates<'a>(runs: impl IntoIterator<Item = &'a Record>) -> Vec<f64> {
    let mut rates: Vec<f64> = runs.into_iter().map(lr).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    rates
}

/// The seeds of one learning rate.
#[derive(Default)]
struct Rate {
    lr: f64,
    /// By which rates are compared.
    scores: Vec<f64>,
    /// What is shown of each of them.
    shown: Vec<f64>,
    diverged: usize,
    failed: usize,
    not_run: usize,
}

fn lr(run: &Record) -> f64 {
    run.number("lr").unwrap_or(f64::NAN)
}

fn rates(runs: &[&Record], by: &Metric, shown: &Metric) -> Vec<Rate> {
    let mut runs = runs.to_vec();
    runs.sort_by(|a, b| lr(a).total_cmp(&lr(b)));
    let rates = runs.chunk_by(|a, b| lr(a) == lr(b));
    rates.map(|seeds| Rate::of(seeds, by, shown)).collect()
}

/// A rate at which no seed diverged comes before any other: the survivors of an unstable rate
/// would look better than it is. Of equals the lowest rate wins.
fn best<'a>(rates: &'a [Rate], by: &Metric) -> Option<&'a Rate> {
    let scored = rates.iter().rev().filter(|rate| !rate.scores.is_empty());
    scored.max_by(|a, b| {
        let stable = (a.diverged == 0).cmp(&(b.diverged == 0));
        stable.then(by.compare(mean(&a.scores), mean(&b.scores)))
    })
}

impl Rate {
    fn of(seeds: &[&Record], by: &Metric, shown: &Metric) -> Self {
        let mut rate = Self {
            lr: lr(seeds[0]),
            ..Self::default()
        };
        for run in seeds {
            match (run.status(), run.outcome(), run.number(by.name)) {
                (None, ..) => rate.not_run += 1,
                (Some(RunStatus::Failed), ..) => rate.failed += 1,
                (_, Some(Outcome::Diverged), _) => rate.diverged += 1,
                (_, _, Some(score)) if score.is_finite() => {
                    rate.scores.push(score);
                    let shown = run.number(shown.name);
                    rate.shown.extend(shown.filter(|s| s.is_finite()));
                }
                _ => rate.failed += 1,
            }
        }
        rate
    }

    fn tried(&self) -> bool {
        self.diverged > 0 || !self.scores.is_empty()
    }

    fn score(&self, rates: &[Rate], shown: &Metric) -> Score {
        let mean = mean(&self.shown);
        let saturated = shown.shown == Shown::Percent && mean > SATURATED;
        Score {
            mean,
            std: sample_std(&self.shown, mean),
            seeds: self.shown.len(),
            lr: self.lr,
            edge: self.edge(rates).filter(|_| !saturated),
        }
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

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(super) fn sample_std(values: &[f64], mean: f64) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}
