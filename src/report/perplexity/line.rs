//! One mixer: the perplexities of its runs, all of them at one learning rate.

use super::super::cell::{Cell, Score};
use super::super::difference::{listed, Difference};
use super::super::Metric;
use super::setting::sizes;
use super::{ALL, PAPER};
use crate::store::{Outcome, Record, RunStatus};

/// What is known of one mixer in one setting.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub mixer: String,
    /// What it has otherwise than its preset.
    pub differences: Vec<Difference>,
    /// In the order of [`ALL`]; `None` where there are runs and they have no such number.
    cells: [Option<Cell>; ALL.len()],
    /// Learning rates that there are results of.
    pub rates: usize,
}

impl Line {
    /// Of runs that differ in learning rate and seed only; the rate is the best one by `by`.
    pub fn of(mixer: &str, differences: &[Difference], rows: &[&Record], by: Metric) -> Self {
        let ended = rows.iter().filter(|row| row.status().is_some());
        let mut rates: Vec<f64> = ended
            .map(|row| row.number("lr").unwrap_or(f64::NAN))
            .collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        Self {
            mixer: mixer.to_owned(),
            differences: differences.to_vec(),
            cells: ALL.map(|shown| cell(rows, by, shown)),
            rates: rates.len(),
        }
    }

    /// What `metric` shows.
    pub fn cell(&self, metric: Metric) -> Option<Cell> {
        let index = ALL.iter().position(|shown| *shown == metric);
        index.and_then(|index| self.cells[index])
    }

    /// The number of `metric`, if there is one.
    pub fn score(&self, metric: Metric) -> Option<Score> {
        self.cell(metric)?.score().copied()
    }

    /// The mixer, and what tells it from further lines of it.
    pub fn label(&self) -> String {
        match &self.differences[..] {
            [] => self.mixer.clone(),
            differences => format!("{}, {}", self.mixer, listed(differences)),
        }
    }

    /// What the paper prints, were its table beside ours.
    pub fn paper(&self) -> Option<f64> {
        let (_, printed) = PAPER.iter().find(|(mixer, _)| *mixer == self.mixer)?;
        let same = sizes(&self.differences).next().is_none();
        same.then_some(*printed)
    }
}

fn cell(rows: &[&Record], by: Metric, shown: Metric) -> Option<Cell> {
    if rows.is_empty() {
        return Some(Cell::NotRun);
    }
    let cell = Cell::chosen(rows, by, shown);
    let broke = rows
        .iter()
        .any(|row| row.status() == Some(RunStatus::Failed));
    let lacks = rows.iter().any(|row| {
        let ended =
            row.status() == Some(RunStatus::Done) && row.outcome() != Some(Outcome::Diverged);
        ended && (by.of(row).is_none() || shown.of(row).is_none())
    });
    (cell != Cell::Failed || broke || !lacks).then_some(cell)
}
