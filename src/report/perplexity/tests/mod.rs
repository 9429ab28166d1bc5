//! Small results, and the first table that they must give.

mod choice;
mod forms;
mod missing;

use super::gap::Gap;
use super::*;
use crate::config::{Corpus, Precision, Rotary, Schedule, TaskConfig, Tokenizer};
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
    if let TaskConfig::Wikitext(text) = &mut config.task {
        (text.corpus, text.tokenizer) = (Corpus::Sample, Tokenizer::Bytes);
        (text.vocab_size, text.seq_len) = (256, 256);
    }
    config
}

/// As the presets are: the corpus and the precision of the row.
fn presets(row: &Record) -> Vec<(&'static str, Record)> {
    let named = [
        ("full", config(row.text("mixer"))),
        ("quick", small(row.text("mixer"))),
    ];
    let planned = |(name, config): (&'static str, RunConfig)| {
        let mut usual = Record::planned(&config);
        for kept in ["dataset", "precision"] {
            usual.set(kept, row.text(kept));
        }
        (name, usual)
    };
    named.map(planned).into()
}

/// What makes a run another one.
type Change = fn(&mut RunConfig);

fn changed(mixer: &str, ppl: f64, change: impl Fn(&mut RunConfig)) -> Record {
    let mut config = config(mixer);
    change(&mut config);
    Record::new(&config, &read(ppl))
}

/// A run of the preset `full`.
fn row(mixer: &str, ppl: f64) -> Record {
    changed(mixer, ppl, |_| {})
}

fn at(mixer: &str, lr: f64, result: &RunResult) -> Record {
    let mut config = config(mixer);
    config.train.lr = lr;
    Record::new(&config, result)
}

/// Runs that close half of the gap.
fn three() -> Vec<Record> {
    [("softmax", 13.0), ("linear", 17.0), ("normalized", 15.0)]
        .map(|(mixer, ppl)| row(mixer, ppl))
        .into()
}

fn asked(rows: &[Record], asked: &Asked) -> Perplexities {
    perplexities(rows, None, &presets, asked).unwrap()
}

fn by(rows: &[Record], metric: Metric) -> Perplexities {
    let metric = Some(metric);
    asked(
        rows,
        &Asked {
            metric,
            ..Asked::default()
        },
    )
}

fn first(rows: &[Record]) -> Perplexities {
    asked(rows, &Asked::default())
}

fn text(report: &Perplexities) -> String {
    report.render(Format::Text)
}

fn text_of(rows: &[Record]) -> String {
    text(&first(rows))
}

fn refusal(rows: &[Record], planned: Option<&[RunConfig]>, asked: &Asked) -> String {
    let refused = perplexities(rows, planned, &presets, asked);
    refused.err().unwrap().to_string()
}
