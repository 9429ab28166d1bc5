//! One cell of a panel or a table: the best over learning rates of the mean over seeds.

use super::Metric;
use crate::store::{Outcome, Record, RunStatus};

/// Above this an accuracy is shown as `>99`: the rule of the paper's figure 7.
const SATURATED: f64 = 0.99;

/// What is known of runs that differ in learning rate and seed only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// No result, and some rate may still give one.
    NotRun,
    /// No result, and an error is to blame.
    Failed,
    /// Training diverged at every rate.
    Diverged,
    /// A number.
    Scored(Score),
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

/// The seeds of one learning rate.
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

impl Cell {
    /// The best rate by what it shows.
    pub(super) fn of(runs: &[&Record], metric: Metric) -> Self {
        Self::chosen(runs, metric, metric)
    }

    /// `shown` at the rate that is best by `by`.
    pub(super) fn chosen(runs: &[&Record], by: Metric, shown: Metric) -> Self {
        let mut runs = runs.to_vec();
        runs.sort_by(|a, b| {
            a.number("lr")
                .unwrap_or(f64::NAN)
                .total_cmp(&b.number("lr").unwrap_or(f64::NAN))
        });
        let rates: Vec<Rate> = runs
            .chunk_by(|a, b| {
                a.number("lr").unwrap_or(f64::NAN) == b.number("lr").unwrap_or(f64::NAN)
            })
            .map(|seeds| Rate::of(seeds, by, shown))
            .collect();
        if let Some(best) = best(&rates, by) {
            return match best.shown[..] {
                [] => Self::Failed,
                _ => Self::Scored(best.score(&rates, shown)),
            };
        }
        let any = |count: fn(&Rate) -> usize| rates.iter().any(|rate| count(rate) > 0);
        if any(|rate| rate.failed) {
            Self::Failed
        } else if any(|rate| rate.not_run) {
            Self::NotRun
        } else {
            Self::Diverged
        }
    }

    /// As shown in a panel whose fullest cell has `seeds` seeds.
    pub(super) fn label(&self, seeds: usize) -> String {
        match self {
            Self::NotRun => "·".into(),
            Self::Failed => "x".into(),
            Self::Diverged => "div".into(),
            Self::Scored(score) => score.label(seeds),
        }
    }

    /// For programs.
    pub(super) fn status(&self) -> &'static str {
        match self {
            Self::NotRun => "not_run",
            Self::Failed => "failed",
            Self::Diverged => "diverged",
            Self::Scored(_) => "done",
        }
    }

    /// The number, if there is one.
    pub fn score(&self) -> Option<&Score> {
        match self {
            Self::Scored(score) => Some(score),
            _ => None,
        }
    }
}

impl Score {
    fn label(&self, seeds: usize) -> String {
        let mean = if self.mean > SATURATED {
            ">99".into()
        } else {
            format!("{:.1}", 100.0 * self.mean)
        };
        mean + &self.spread(seeds)
    }

    /// What follows the mean: the deviation, and the seeds if others have more.
    pub(super) fn spread(&self, seeds: usize) -> String {
        self.spread_as(seeds, |std| format!("{:.1}", 100.0 * std))
    }

    /// The same with a deviation that `write` writes.
    pub(super) fn spread_as(&self, seeds: usize, write: impl Fn(f64) -> String) -> String {
        let std = self
            .std
            .map_or(String::new(), |std| "±".to_owned() + &write(std));
        let fewer = if self.seeds < seeds {
            format!(" ({})", self.seeds)
        } else {
            String::new()
        };
        format!("{std}{fewer}")
    }
}

/// A rate at which no seed diverged comes before any other: the survivors of an unstable rate
/// would look better than it is. Of equals the lowest rate wins.
fn best(rates: &[Rate], by: Metric) -> Option<&Rate> {
    let scored = rates.iter().rev().filter(|rate| !rate.scores.is_empty());
    scored.max_by(|a, b| {
        let stable = (a.diverged == 0).cmp(&(b.diverged == 0));
        stable.then(by.compare(mean(&a.scores), mean(&b.scores)))
    })
}

impl Rate {
    fn of(seeds: &[&Record], by: Metric, shown: Metric) -> Self {
        let mut rate = Self {
            lr: seeds[0].number("lr").unwrap_or(f64::NAN),
            scores: Vec::new(),
            shown: Vec::new(),
            diverged: 0,
            failed: 0,
            not_run: 0,
        };
        for row in seeds {
            match (row.status(), row.outcome(), by.of(row)) {
                (None, ..) => rate.not_run += 1,
                (Some(RunStatus::Failed), ..) => rate.failed += 1,
                (_, Some(Outcome::Diverged), _) => rate.diverged += 1,
                (_, _, Some(score)) if score.is_finite() => {
                    rate.scores.push(score);
                    rate.shown.extend(shown.of(row).filter(|s| s.is_finite()));
                }
                _ => rate.failed += 1,
            }
        }
        rate
    }

    fn tried(&self) -> bool {
        self.diverged > 0 || !self.scores.is_empty()
    }

    fn score(&self, rates: &[Rate], shown: Metric) -> Score {
        let mean = mean(&self.shown);
        let saturated = shown.is_accuracy() && mean > SATURATED;
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

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn sample_std(values: &[f64], mean: f64) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}
