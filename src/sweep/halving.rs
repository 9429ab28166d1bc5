//! Successive halving of learning rates (Jamieson & Talwalkar 2016): in each cell of a grid, the worse rates are
//! dropped after a fraction of the epochs, so that complete runs are only spent on the best rate.
//!
//! The short runs are ordinary runs with fewer epochs and seeds. They belong in a results folder of their own, where no
//! report can take them for complete ones.

use super::grid::Plan;
use crate::config::RunConfig;
use crate::error::Result;
use crate::store::{Column, Direction, Metric, Record, RunResult, RunStatus, Store};
use std::collections::{BTreeMap, BTreeSet};

/// Metrics by which rates are compared: the first that a run has.
const CRITERIA: [Column; 3] = [Column::VAL_ACCURACY, Column::BEST_VAL_PPL, Column::ACCURACY];

/// A grid under successive halving.
#[derive(Clone, Debug)]
pub struct Halving {
    /// One of `factor` rates is kept in each round.
    factor: usize,
    /// Number of rounds of short runs: the smallest after which each cell has one rate.
    pub rounds: usize,
    /// Complete runs whose rates have not been dropped yet.
    pub left: Plan,
}

impl Halving {
    /// Begins with all runs of `plan`; each round keeps one of `factor` rates, with `factor` at least 2.
    pub fn of(plan: Plan, factor: usize) -> Self {
        let most = cells(&plan.runs).values().map(BTreeMap::len).max();
        let mut halving = Self { factor, rounds: 0, left: plan };
        while halving.power(halving.rounds) < most.unwrap_or(0) {
            halving.rounds += 1;
        }
        halving
    }

    /// Returns the short runs of `round`, counted from 0. Each round has `factor` times as many epochs and seeds as the
    /// previous one. A cell with a single rate has none.
    pub fn round(&self, round: usize) -> Plan {
        let seeds = self.power(round);
        let cells = cells(&self.left.runs);
        let open = cells.values().filter(|rates| rates.len() > 1);
        let runs = open.flat_map(BTreeMap::values).flat_map(|seeded| seeded.iter().take(seeds));
        let mut known = BTreeSet::new();
        let short = runs.map(|run| self.short(run, round));
        Plan { runs: short.filter(|run| known.insert(run.id())).collect(), ..Plan::default() }
    }

    /// Drops the worse rates of each cell by the results of `round` in `store`. A run that failed or has no metric
    /// ranks last; of equal rates the lower one is kept.
    pub fn give_up(&mut self, round: usize, store: &Store) -> Result<()> {
        self.give_up_by(round, |run| Ok(store.result(&run.id())?.as_ref().and_then(score)))
    }

    /// Returns the number of runs and of epochs of each round, which do not depend on the results.
    pub fn outline(&self) -> Vec<(usize, usize)> {
        let mut halving = self.clone();
        let rounds = (0..self.rounds).map(|round| {
            let runs = halving.round(round).runs;
            let epochs = runs.iter().map(|run| run.train.epochs).max();
            halving.give_up_by(round, |_| Ok(None)).map(|()| (runs.len(), epochs.unwrap_or(0)))
        });
        rounds.filter_map(Result::ok).collect()
    }

    fn give_up_by(&mut self, round: usize, score: impl Fn(&RunConfig) -> Result<Option<f64>>) -> Result<()> {
        let seeds = self.power(round);
        let mut kept = BTreeSet::new();
        for rates in cells(&self.left.runs).values() {
            let mut scored = Vec::new();
            for (rate, seeded) in rates {
                let mut sum = 0.0;
                for run in seeded.iter().take(seeds) {
                    sum += score(&self.short(run, round))?.unwrap_or(f64::NEG_INFINITY);
                }
                scored.push((sum / seeded.len().min(seeds) as f64, *rate));
            }
            scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            scored.truncate(rates.len().div_ceil(self.factor));
            for (_, rate) in scored {
                kept.extend(rates[&rate].iter().map(|run| run.id()));
            }
        }
        self.left.runs.retain(|run| kept.contains(&run.id()));
        Ok(())
    }

    fn short(&self, run: &RunConfig, round: usize) -> RunConfig {
        let mut short = run.clone();
        let epochs = run.train.epochs / self.power(self.rounds - round);
        short.train.epochs = epochs.max(1);
        short.train.warmup_epochs = run.train.warmup_epochs.min(short.train.epochs - 1);
        short
    }

    fn power(&self, exponent: usize) -> usize {
        let exponent = u32::try_from(exponent).unwrap_or(u32::MAX);
        self.factor.saturating_pow(exponent)
    }
}

/// Groups runs by cell, then by the bits of the learning rate, whose order is that of positive numbers; runs stay in
/// the order of the plan. Seeds that generate their own data share a cell.
fn cells(runs: &[RunConfig]) -> BTreeMap<String, BTreeMap<u64, Vec<&RunConfig>>> {
    let mut cells: BTreeMap<String, BTreeMap<u64, Vec<&RunConfig>>> = BTreeMap::new();
    for run in runs {
        let mut cell = run.clone();
        if Record::planned(run).may_draw_own_data() {
            cell.task.remove("data_seed");
        }
        (cell.seed, cell.train.lr) = (0, 0.0);
        cells.entry(cell.canonical()).or_default().entry(run.train.lr.to_bits()).or_default().push(run);
    }
    cells
}

/// Score of a result; higher is better.
fn score(result: &RunResult) -> Option<f64> {
    if result.status != RunStatus::Done {
        return None;
    }
    let (column, value) = CRITERIA.iter().find_map(|column| Some((*column, result.metrics.get(*column)?)))?;
    let value = match Metric::find(column.name())?.better {
        Direction::Lower => -value,
        Direction::Higher | Direction::Neither => value,
    };
    value.is_finite().then_some(value)
}
