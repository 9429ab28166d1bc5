//! One model on one task: the numbers of its runs.

use super::super::cell::{Cell, Score};
use super::super::difference::Difference;
use super::super::Metric;
use super::setting::Setting;
use crate::store::Record;

/// What is known of one model on one task in one setting.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// After the last epoch, of the epoch chosen on validation data, and the best: at one rate.
    cells: [Cell; 3],
    /// Whether there is a validation split, which chooses epoch and rate.
    pub selects: bool,
    /// Whether the examples are of our own making.
    pub generated: bool,
    /// What differs from the preset.
    pub differences: Vec<Difference>,
    /// Learning rates, ascending.
    pub rates: Vec<f64>,
    /// The preset's rate.
    pub usual_rate: Option<f64>,
}

/// In the order of [`Place::cells`].
pub(super) const SHOWN: [Metric; 3] = [
    Metric::Accuracy,
    Metric::SelectedAccuracy,
    Metric::BestAccuracy,
];

impl Place {
    /// Of runs that differ in learning rate and seed only.
    pub fn of(runs: &[&Setting], differences: Vec<Difference>) -> Self {
        let rows: Vec<&Record> = runs.iter().map(|run| run.row).collect();
        let selects = rows[0].count("val_examples") > 0;
        let by = if selects {
            Metric::ValAccuracy
        } else {
            Metric::BestAccuracy
        };
        let mut rates: Vec<f64> = rows
            .iter()
            .map(|row| row.number("lr").unwrap_or(f64::NAN))
            .collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        Self {
            cells: SHOWN.map(|metric| match metric {
                Metric::SelectedAccuracy if !selects => Cell::NotRun,
                _ => Cell::chosen(&rows, by, metric),
            }),
            selects,
            generated: runs[0].column.generated(rows[0]),
            differences,
            rates,
            usual_rate: runs[0].lr,
        }
    }

    /// What `metric` shows; by default the epoch chosen on validation data, else the best.
    pub fn cell(&self, metric: Option<Metric>) -> Cell {
        let usual = if self.selects {
            Metric::SelectedAccuracy
        } else {
            Metric::BestAccuracy
        };
        let metric = metric.unwrap_or(usual);
        let index = SHOWN.iter().position(|shown| *shown == metric);
        index.map_or(Cell::NotRun, |index| self.cells[index])
    }

    /// The number of `metric`, if there is one.
    pub fn score(&self, metric: Option<Metric>) -> Option<Score> {
        self.cell(metric).score().copied()
    }

    /// Whether the number was read off the test split's best epoch for want of a validation split.
    pub fn best_instead(&self, metric: Option<Metric>) -> bool {
        metric.is_none() && !self.selects && self.score(metric).is_some()
    }

    /// By what the rate was chosen.
    pub fn chosen_by(&self) -> &'static str {
        if self.selects {
            "val_accuracy"
        } else {
            "best_accuracy"
        }
    }

    /// A word on the rate, where there was a choice or it is not the preset's.
    pub fn rate_note(&self) -> Option<String> {
        let lr = self.score(Some(Metric::Accuracy))?.lr;
        let rate = super::super::table::rate(lr);
        let choice = if self.selects {
            "by validation accuracy"
        } else {
            "by best test accuracy, for want of a validation split"
        };
        match self.rates.len() {
            1 if self.usual_rate == Some(lr) => None,
            1 => Some(format!("rate {rate}{}", self.usual())),
            many => Some(format!(
                "rate {rate}, the best of {many} {choice}{}",
                self.usual()
            )),
        }
    }

    fn usual(&self) -> String {
        let usual = self.usual_rate.map(super::super::table::rate);
        usual.map_or(String::new(), |usual| format!(" (preset: {usual})"))
    }
}
