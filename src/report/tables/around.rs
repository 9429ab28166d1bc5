//! What is said above and below all tables.

use super::super::table::marks;
use super::super::Metric;
use super::forms::{BEST_INSTEAD, GENERATED};
use super::place::Place;
use super::Tables;

impl Tables {
    /// What the numbers are.
    pub(super) fn heading(&self, all_three: bool) -> String {
        let what = match self.metric {
            None if all_three => {
                "(%) after the last epoch / after the one chosen on validation data / the best"
            }
            None | Some(Metric::SelectedAccuracy | Metric::ValAccuracy) => {
                "(%) after the epoch chosen on validation data"
            }
            Some(Metric::Accuracy) => "(%) after the last epoch",
            Some(Metric::BestAccuracy) => "(%), the best of any epoch",
            Some(_) => unreachable!("`accuracies` refuses perplexities"),
        };
        let beside = if self.tables.iter().any(|table| table.whole) {
            ";\nthe paper's below ours"
        } else {
            ""
        };
        let paper = self.paper;
        format!(
            "Table {}, {}: test accuracy {what}{beside}",
            paper.number, paper.about
        )
    }

    /// What the marks mean, as far as there are any, and what the report rests on.
    pub(super) fn closing(&self, all_three: bool) -> Vec<String> {
        let lines = self.tables.iter().flat_map(|table| &table.lines);
        let places: Vec<&Place> = lines
            .flat_map(|line| line.places.iter().flatten())
            .collect();
        let mut closing = Vec::new();
        let scored = |p: &&&Place| p.score(Some(Metric::Accuracy)).is_some();
        if places.iter().filter(scored).any(|place| place.generated) {
            closing.push(format!("{GENERATED} examples of our own generator"));
        }
        let instead = |place: &&Place| place.best_instead(self.metric);
        if !all_three && places.iter().any(instead) {
            closing.push(format!(
                "{BEST_INSTEAD} the best test accuracy of any epoch: no validation split to choose by"
            ));
        }
        closing.extend(marks(&self.cells().collect::<Vec<_>>()));
        let asks = all_three || self.metric == Some(Metric::SelectedAccuracy);
        if asks && places.iter().filter(scored).any(|place| !place.selects) {
            closing.push("· also where no validation split could choose an epoch".into());
        }
        closing.extend(self.coverage.notes(self.cells()));
        closing
    }
}
