//! Metrics of finished runs: meaning, direction and format of each.

use super::column::Column;
use super::column::{ColumnKind, Field};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Definition of one metric.
#[derive(Debug)]
pub struct Metric {
    /// Column of summaries.
    pub column: Column,
    /// Name in the header of a summary, in `result.json` and after `--metric`.
    pub name: &'static str,
    /// Unit; empty for counts and ratios.
    pub unit: &'static str,
    /// Direction of improvement.
    pub better: Direction,
    /// Format in reports, which also determines the type of the values.
    pub shown: MetricFormat,
    /// Description, one line.
    pub meaning: &'static str,
}

/// Direction of improvement of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Higher is better.
    Higher,
    /// Lower is better.
    Lower,
    /// Descriptive only.
    Neither,
}

/// Format of a metric in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricFormat {
    /// A fraction from 0 to 1, printed in percent with one decimal.
    Percent,
    /// The exponential of a mean cross-entropy.
    Perplexity,
    /// A mean loss in nats, or bits per byte.
    Loss,
    /// A non-negative integer.
    Count,
    /// A duration.
    Seconds,
    /// Tokens per second.
    Rate,
    /// A number of bytes.
    Bytes,
}

use Direction::{Higher, Lower, Neither};
use MetricFormat::{Bytes, Count, Loss, Percent, Perplexity, Rate, Seconds};

const fn metric(
    column: Column,
    unit: &'static str,
    better: Direction,
    shown: MetricFormat,
    meaning: &'static str,
) -> Metric {
    Metric { column, name: column.name(), unit, better, shown, meaning }
}

/// Every metric, in the order of a summary.
#[rustfmt::skip]
pub static METRICS: &[Metric] = &[
    metric(Column::ACCURACY, "0 to 1", Higher, Percent, "test accuracy after the last epoch"),
    metric(Column::BEST_ACCURACY, "0 to 1", Higher, Percent, "best test accuracy of any epoch"),
    metric(Column::BEST_EPOCH, "", Neither, Count, "epoch of the highest accuracy, from 1"),
    metric(Column::EPOCHS_RUN, "", Neither, Count, "epochs trained"),
    metric(Column::TRAIN_LOSS, "nats", Lower, Loss, "training loss of the last epoch"),
    metric(Column::TEST_LOSS, "nats", Lower, Loss, "test loss after the last epoch"),
    metric(Column::PARAMS, "", Neither, Count, "trained parameters of the model"),
    metric(Column::STATE_SIZE, "", Neither, Count, "numbers carried from token to token, all layers"),
    metric(Column::STEPS, "", Neither, Count, "optimizer steps"),
    metric(Column::SECONDS, "s", Lower, Seconds, "training and testing, summed over interruptions"),
    metric(Column::TOKENS_PER_S, "1/s", Higher, Rate, "training tokens per second"),
    metric(Column::PEAK_MEMORY_BYTES, "bytes", Lower, Bytes, "peak resident memory of the process, if it trained nothing else"),
    metric(Column::VAL_ACCURACY, "0 to 1", Higher, Percent, "highest validation accuracy after any epoch"),
    metric(Column::SELECTED_EPOCH, "", Neither, Count, "epoch selected on validation data, from 1: the one with the highest accuracy, or on text with the lowest loss"),
    metric(Column::SELECTED_ACCURACY, "0 to 1", Higher, Percent, "test accuracy after the epoch chosen on validation data"),
    metric(Column::MAJORITY, "0 to 1", Neither, Percent, "majority-class baseline: test accuracy of always giving the most frequent class"),
    metric(Column::TRAIN_PPL, "", Lower, Perplexity, "training perplexity as logged in the last epoch: the paper's number"),
    metric(Column::TRAIN_PPL_EVAL, "", Lower, Perplexity, "perplexity of a hundredth of the training windows, final weights"),
    metric(Column::VAL_PPL, "", Lower, Perplexity, "validation perplexity, final weights, windows that do not overlap"),
    metric(Column::BEST_VAL_PPL, "", Lower, Perplexity, "lowest validation perplexity after any epoch"),
    metric(Column::TEST_PPL, "", Lower, Perplexity, "test perplexity, final weights"),
    metric(Column::SELECTED_TEST_PPL, "", Lower, Perplexity, "test perplexity after the epoch of best_val_ppl"),
    metric(Column::VAL_WORD_PPL, "", Lower, Perplexity, "validation perplexity per word; in WikiText, line ends count as words"),
    metric(Column::TEST_WORD_PPL, "", Lower, Perplexity, "test perplexity per word; in WikiText, line ends count as words"),
    metric(Column::VAL_BITS_PER_BYTE, "bits", Lower, Loss, "bits per byte of the validation split, final weights"),
    metric(Column::TEST_BITS_PER_BYTE, "bits", Lower, Loss, "bits per byte of the test split, final weights"),
    metric(Column::UNIGRAM_PPL, "", Neither, Perplexity, "test perplexity of a unigram model: token frequencies of the training windows, add-one smoothed"),
    metric(Column::TRAIN_TOKENS, "", Neither, Count, "training tokens per epoch"),
    metric(Column::MACRO_ACCURACY, "0 to 1", Higher, Percent, "test accuracy, averaged over the classes, after the last epoch"),
];

impl Metric {
    /// Finds the metric called `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// Compares two values; the better one is the greater.
    pub fn compare(&self, a: f64, b: f64) -> Ordering {
        match self.better {
            Lower => b.total_cmp(&a),
            Higher | Neither => a.total_cmp(&b),
        }
    }

    /// Whether two runs of one config must agree on this metric: losses and accuracies must, times and sizes need not.
    pub(super) fn is_reproducible(&self) -> bool {
        matches!(self.shown, Percent | Perplexity | Loss)
    }

    pub(super) const fn kind(&self) -> ColumnKind {
        match self.shown {
            Percent => ColumnKind::Share,
            Perplexity => ColumnKind::AtLeastZero,
            Loss | Rate | Seconds => ColumnKind::Real,
            Count | Bytes => ColumnKind::Count,
        }
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.column == other.column
    }
}

/// Metrics of one run with their values, in the order of [`METRICS`].
///
/// In JSON each metric is a field of its own. Deserialisation also accepts the object `language`, in which results up
/// to version 0.1.0 hold the perplexities. A number that is not finite is written as null, and null is read as absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<(&'static Metric, Field)>);

impl Metrics {
    /// Sets the metric of `column`; an absent `value` removes it.
    ///
    /// # Panics
    ///
    /// If `column` is not that of a metric.
    pub fn set(&mut self, column: Column, value: impl Into<Field>) {
        let metric = METRICS.iter().find(|metric| metric.column == column);
        let metric = metric.unwrap_or_else(|| panic!("`{}` is no metric", column.name()));
        self.0.retain(|(held, _)| *held != metric);
        let value = value.into();
        if value != Field::Absent {
            self.0.push((metric, value));
            self.0.sort_by_key(|(held, _)| held.column);
        }
    }

    /// Returns the metrics with that of `column` set to `value`, see [`Self::set`].
    pub fn with(mut self, column: Column, value: impl Into<Field>) -> Self {
        self.set(column, value);
        self
    }

    /// Copies every metric of `other`.
    pub fn extend(&mut self, other: &Self) {
        for (metric, value) in &other.0 {
            self.set(metric.column, value.clone());
        }
    }

    /// Returns the value of the metric of `column`, if the run has it.
    pub fn get(&self, column: Column) -> Option<f64> {
        let held = self.0.iter().find(|(metric, _)| metric.column == column);
        held.and_then(|(_, value)| value.number())
    }

    /// Returns a metric that is a count, such as `best_epoch`.
    pub fn count(&self, column: Column) -> Option<usize> {
        self.get(column).map(|count| count as usize)
    }

    /// Iterates over the metrics and their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = &(&'static Metric, Field)> {
        self.0.iter()
    }

    fn read(&mut self, fields: &Map<String, Value>) -> Result<(), String> {
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("language", Value::Object(nested)) => self.read(nested)?,
                _ => {
                    if let Some(metric) = Metric::find(name) {
                        let value = metric.kind().of_json(value);
                        self.set(metric.column, value.map_err(|why| format!("`{name}`: {why}"))?);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(m, value)| (m.name, value.json())))
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut metrics = Self::default();
        let fields = Map::deserialize(deserializer)?;
        metrics.read(&fields).map_err(serde::de::Error::custom)?;
        Ok(metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_higher_accuracy_and_the_lower_perplexity_are_better() {
        let compare = |name, a, b| Metric::find(name).unwrap().compare(a, b);
        assert_eq!(compare("accuracy", 0.9, 0.8), Ordering::Greater);
        assert_eq!(compare("train_ppl", 13.0, 17.0), Ordering::Greater);
    }

    #[test]
    fn metrics_are_in_order_whichever_is_set_first_and_an_absent_one_is_removed() {
        let metrics = Metrics::default().with(Column::TEST_PPL, 3.0).with(Column::STEPS, 5usize);
        assert_eq!(serde_json::to_string(&metrics).unwrap(), r#"{"steps":5,"test_ppl":3.0}"#);
        assert_eq!(metrics.with(Column::TEST_PPL, None::<f64>), Metrics::default().with(Column::STEPS, 5usize));
    }

    #[test]
    fn names_are_said_once_and_are_told_from_what_else_a_result_holds() {
        for (i, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..i].iter().all(|other| other != metric), "{}", metric.name);
            assert_ne!(metric.name, "language");
        }
    }
}
