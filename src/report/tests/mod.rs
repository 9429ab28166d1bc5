//! Small results and the exact reports they must give.

mod choice;
mod forms;

use super::*;
use crate::store::samples::{config, diverged, done, failed};
use crate::store::{Outcome, RunResult};

fn at(d: usize, n: usize, lr: f64, seed: u64) -> RunConfig {
    let mut config = config();
    (config.model.d_model, config.model.d_state) = (d, n);
    (config.train.lr, config.seed) = (lr, seed);
    config
}

fn row(d: usize, n: usize, lr: f64, accuracy: f64) -> Record {
    Record::new(&at(d, n, lr, 0), &done(accuracy))
}

fn seeds(d: usize, lr: f64, accuracies: &[f64]) -> Vec<Record> {
    let numbered = (0..).zip(accuracies);
    let rows = numbered.map(|(seed, a)| Record::new(&at(d, 32, lr, seed), &done(*a)));
    rows.collect()
}

fn ended(d: usize, n: usize, lr: f64, result: &RunResult) -> Record {
    Record::new(&at(d, n, lr, 0), result)
}

fn changed(change: fn(&mut RunConfig)) -> Record {
    let mut config = config();
    change(&mut config);
    Record::new(&config, &done(0.5))
}

fn report(rows: &[Record]) -> Report {
    mqar(rows, None, &Filter::default(), Metric::Accuracy).unwrap()
}

fn text(report: &Report) -> String {
    report.render(Format::Text, Orient::Brief, false)
}

fn titles(rows: &[Record]) -> Vec<String> {
    let panels = report(rows).panels;
    panels.into_iter().map(|panel| panel.title).collect()
}

fn only_cell(rows: &[Record]) -> Cell {
    report(rows).panels[0].cell(64, 32)
}

fn small() -> Vec<Record> {
    vec![
        row(64, 32, 1e-4, 0.5),
        row(64, 32, 1e-3, 0.7123),
        row(64, 32, 1e-2, 0.3),
        row(128, 32, 1e-3, 0.9901),
        row(64, 64, 1e-3, 0.99),
        ended(128, 64, 1e-3, &diverged()),
        ended(256, 32, 1e-3, &failed("out of memory\nat step 3")),
    ]
}
