//! What a sweep says of one run.

use crate::config::RunConfig;
use crate::store::{Outcome, Record};
use crate::sweep::estimate::{counted, duration};

/// A run by the settings in which runs of a sweep usually differ.
pub(super) fn describe(run: &RunConfig) -> String {
    let task = run.task.read().map_or(String::new(), |task| task.label());
    let model = &run.model;
    format!(
        "{}  d={} n={}  {task}  lr={:.3e}  seed={}",
        model.mixer, model.d_model, model.d_state, run.train.lr, run.seed
    )
}

pub(super) fn finished(row: &Record) -> String {
    let seconds = duration(row.number("seconds").unwrap_or(0.0));
    let epochs = counted(row.count("epochs_run"), "epoch");
    match row.outcome() {
        Some(Outcome::Diverged) => format!("diverged after {seconds}"),
        _ if row.number("train_tokens").is_some() => {
            let [train, test] = ["train_loss", "test_loss"].map(|loss| {
                let perplexity = row.number(loss).map_or(f64::NAN, f64::exp);
                format!("{perplexity:.2}")
            });
            format!("train ppl {train}, test ppl {test}  {epochs}, {seconds}")
        }
        outcome => {
            let accuracy = 100.0 * row.number("accuracy").unwrap_or(0.0);
            let early = outcome == Some(Outcome::Converged);
            let how = if early { "learnt, " } else { "" };
            format!("{accuracy:.1} %  {how}{epochs}, {seconds}")
        }
    }
}
