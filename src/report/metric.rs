//! Which number of a run counts.

use crate::error::{Error, Result};
use crate::store::Record;
use clap::ValueEnum;
use std::cmp::Ordering;

/// A number of a run, called as its column of a summary is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Metric {
    /// Test accuracy after the last epoch.
    #[default]
    Accuracy,
    /// The highest after any epoch.
    #[value(alias = "best-accuracy")]
    BestAccuracy,
    /// After the epoch with the highest validation accuracy (tables 2 and 3).
    #[value(alias = "selected-accuracy")]
    SelectedAccuracy,
    /// The highest validation accuracy: what rates are chosen by, never what is shown.
    #[value(skip)]
    ValAccuracy,
    /// Training perplexity as logged in the last epoch (table 1, as all that follow).
    #[value(alias = "train-ppl")]
    TrainPpl,
    /// Of a hundredth of the training windows, under the final weights.
    #[value(alias = "train-ppl-eval")]
    TrainPplEval,
    /// Validation perplexity, under the final weights.
    #[value(alias = "val-ppl")]
    ValPpl,
    /// The lowest after any epoch.
    #[value(alias = "best-val-ppl")]
    BestValPpl,
    /// Test perplexity, under the final weights.
    #[value(alias = "test-ppl")]
    TestPpl,
    /// After the epoch with the lowest validation perplexity.
    #[value(skip)]
    SelectedTestPpl,
    /// Validation perplexity a word.
    #[value(skip)]
    ValWordPpl,
    /// Test perplexity a word.
    #[value(alias = "test-word-ppl")]
    TestWordPpl,
    /// Bits a byte of the validation split.
    #[value(skip)]
    ValBitsPerByte,
    /// Bits a byte of the test split.
    #[value(skip)]
    TestBitsPerByte,
}

impl Metric {
    /// As typed, and as the column of a summary is called.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::BestAccuracy => "best_accuracy",
            Self::SelectedAccuracy => "selected_accuracy",
            Self::ValAccuracy => "val_accuracy",
            Self::TrainPpl => "train_ppl",
            Self::TrainPplEval => "train_ppl_eval",
            Self::ValPpl => "val_ppl",
            Self::BestValPpl => "best_val_ppl",
            Self::TestPpl => "test_ppl",
            Self::SelectedTestPpl => "selected_test_ppl",
            Self::ValWordPpl => "val_word_ppl",
            Self::TestWordPpl => "test_word_ppl",
            Self::ValBitsPerByte => "val_bits_per_byte",
            Self::TestBitsPerByte => "test_bits_per_byte",
        }
    }

    pub(super) fn of(self, row: &Record) -> Option<f64> {
        row.number(self.as_str())
    }

    /// Whether it is a share of right answers, 0 to 1.
    pub(super) fn is_accuracy(self) -> bool {
        use Metric::{Accuracy, BestAccuracy, SelectedAccuracy, ValAccuracy};
        matches!(
            self,
            Accuracy | BestAccuracy | SelectedAccuracy | ValAccuracy
        )
    }

    /// The better of two is the greater: of accuracies the higher, of all others the lower.
    pub(super) fn compare(self, a: f64, b: f64) -> Ordering {
        if self.is_accuracy() {
            a.total_cmp(&b)
        } else {
            b.total_cmp(&a)
        }
    }

    /// For reports of accuracies.
    pub(super) fn require_accuracy(self) -> Result<()> {
        if self.is_accuracy() {
            return Ok(());
        }
        Err(Error::usage(format!(
            "--metric {} is a perplexity, which only Table 1 has: give it with --table 1, or take \
             accuracy or best_accuracy",
            self.as_str()
        )))
    }

    /// For reports of perplexities.
    pub(super) fn require_perplexity(self) -> Result<()> {
        if !self.is_accuracy() {
            return Ok(());
        }
        Err(Error::usage(format!(
            "--metric {} is an accuracy, and Table 1 has perplexities: take train_ppl, \
             train_ppl_eval, val_ppl, best_val_ppl, test_ppl or test_word_ppl",
            self.as_str()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_typed_as_its_column_is_called() {
        for metric in Metric::value_variants() {
            let typed = metric.to_possible_value().unwrap();
            assert_eq!(typed.get_name(), metric.as_str());
            assert!(crate::store::COLUMNS
                .iter()
                .any(|c| c.name == metric.as_str()));
        }
    }

    #[test]
    fn the_higher_accuracy_and_the_lower_perplexity_are_better() {
        assert_eq!(Metric::Accuracy.compare(0.9, 0.8), Ordering::Greater);
        assert_eq!(Metric::TrainPpl.compare(13.0, 17.0), Ordering::Greater);
    }
}
