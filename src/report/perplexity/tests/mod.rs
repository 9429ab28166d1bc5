//! Small results, and the first table that they must give.

mod choice;
mod forms;
mod missing;

use super::gap::Gap;
use super::*;
use crate::config::{Precision, Rotary, Schedule};
use crate::report::Filter;
use crate::store::samples::{diverged, failed, read, text_config};
use crate::store::RunResult;

fn config(mixer: &str) -> RunConfig {
    let mut config = text_config();
    config.model.mixer = mixer.into();
    config
}

/// What `dsf wikitext` trains on the sample.
fn small(mixer: &str) -> RunConfig {
    let mut config = config(mixer);
    (config.model.d_model, config.model.d_state) = (128, 128);
    config.train.epochs = 2;
    config.task.set("corpus", "sample");
    config.task.set("tokenizer", "bytes");
    config.task.set("vocab_size", 256);
    config.task.set("seq_len", 256);
    config
}

/// As the presets are: the corpus and the precision of the row.
fn presets(row: &Row) -> Vec<(&'static str, Row)> {
    let named = [("full", config(&row.mixer)), ("quick", small(&row.mixer))];
    let planned = |(name, config): (&'static str, RunConfig)| {
        let usual = Row {
            dataset: row.dataset.clone(),
            precision: row.precision.clone(),
            ..Row::planned(&config)
        };
        (name, usual)
    };
    named.map(planned).into()
}

/// What makes a run another one.
type Change = fn(&mut RunConfig);

fn changed(mixer: &str, ppl: f64, change: impl Fn(&mut RunConfig)) -> Row {
    let mut config = config(mixer);
    change(&mut config);
    Row::new(&config, &read(ppl))
}

/// A run of the preset `full`.
fn row(mixer: &str, ppl: f64) -> Row {
    changed(mixer, ppl, |_| {})
}

fn at(mixer: &str, lr: f64, result: &RunResult) -> Row {
    let mut config = config(mixer);
    config.train.lr = lr;
    Row::new(&config, result)
}

/// Runs that close half of the gap.
fn three() -> Vec<Row> {
    [("softmax", 13.0), ("linear", 17.0), ("normalized", 15.0)]
        .map(|(mixer, ppl)| row(mixer, ppl))
        .into()
}

fn asked(rows: &[Row], asked: &Asked) -> Perplexities {
    perplexities(rows, None, &presets, asked).unwrap()
}

fn by(rows: &[Row], metric: Metric) -> Perplexities {
    let metric = Some(metric);
    asked(
        rows,
        &Asked {
            metric,
            ..Asked::default()
        },
    )
}

fn first(rows: &[Row]) -> Perplexities {
    asked(rows, &Asked::default())
}

fn text(report: &Perplexities) -> String {
    report.render(Format::Text)
}

fn text_of(rows: &[Row]) -> String {
    text(&first(rows))
}

fn refusal(rows: &[Row], planned: Option<&[RunConfig]>, asked: &Asked) -> String {
    let refused = perplexities(rows, planned, &presets, asked);
    refused.err().unwrap().to_string()
}
