//! What text and Markdown have in common: a panel laid out by its orientation.

use super::{Cell, Metric, Orient, Panel, Report};

/// A panel as rows and columns of labels.
pub(super) struct Table {
    /// Record axis, then column axis.
    pub corner: &'static str,
    pub columns: Vec<String>,
    pub rows: Vec<(String, Vec<Entry>)>,
}

/// One cell and how it is written.
pub(super) struct Entry {
    pub cell: Cell,
    pub label: String,
}

impl Table {
    pub(super) fn of(panel: &Panel, orient: Orient) -> Self {
        let (corner, down, across) = match orient {
            Orient::Brief => ("n \\ d", &panel.n, &panel.d),
            Orient::Paper => ("d \\ n", &panel.d, &panel.n),
        };
        let seeds = panel.seeds();
        let entry = |row: usize, column: usize| {
            let cell = match orient {
                Orient::Brief => panel.cell(column, row),
                Orient::Paper => panel.cell(row, column),
            };
            let label = cell.label(seeds);
            Entry { cell, label }
        };
        let line = |&row: &usize| {
            let entries = across.iter().map(|&column| entry(row, column));
            (row.to_string(), entries.collect())
        };
        Self {
            corner,
            columns: across.iter().map(usize::to_string).collect(),
            rows: down.iter().map(line).collect(),
        }
    }
}

/// What the numbers of a report are.
pub(super) fn heading(metric: Metric) -> &'static str {
    match metric {
        Metric::Accuracy => "MQAR: test accuracy (%) after the last epoch, at the best rate",
        Metric::BestAccuracy => "MQAR: best test accuracy (%) of any epoch, at the best rate",
        _ => unreachable!("`mqar` refuses perplexities, and metrics that need a validation split"),
    }
}

/// What the marks in the cells mean, as far as there are any.
pub(super) fn legend(report: &Report) -> Option<String> {
    marks(&report.cells().collect::<Vec<_>>())
}

/// What the marks among `cells` mean.
pub(super) fn marks(cells: &[Cell]) -> Option<String> {
    const MARKS: [(Cell, &str); 3] = [
        (Cell::NotRun, "· not run"),
        (Cell::Failed, "x failed"),
        (Cell::Diverged, "div diverged at every rate"),
    ];
    let used = MARKS.iter().filter(|(mark, _)| cells.contains(mark));
    let words: Vec<&str> = used.map(|(_, word)| *word).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// A learning rate in at most three digits: `1e-3`, `4.64e-4`.
pub(super) fn rate(lr: f64) -> String {
    let text = format!("{lr:.2e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text; // not finite
    };
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}e{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_short() {
        let grid = [1e-4, 4.641_588_833_612_772e-4, 2.15e-3, 0.01, 1.0];
        let short = ["1e-4", "4.64e-4", "2.15e-3", "1e-2", "1e0"];
        assert_eq!(grid.map(rate), short);
        assert_eq!(rate(f64::NAN), "NaN");
    }
}
