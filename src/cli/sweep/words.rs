//! What a sweep says of one run.

use crate::config::RunConfig;
use crate::store::{Outcome, Row};
use crate::sweep::estimate::{counted, duration};
use crate::tasks;

/// A run by what usually tells it from its neighbours.
pub(super) fn describe(run: &RunConfig) -> String {
    let task = run.task.read().map_or(String::new(), |task| task.label());
    let model = &run.model;
    format!(
        "{}  d={} n={}  {task}  lr={:.3e}  seed={}",
        model.mixer, model.d_model, model.d_state, run.train.lr, run.seed
    )
}

pub(super) fn finished(row: &Row) -> String {
    let seconds = duration(row.seconds);
    let epochs = counted(row.epochs_run, "epoch");
    let language = tasks::find(&row.task).is_ok_and(|task| task.objective.is_language_model());
    match row.outcome {
        Some(Outcome::Diverged) => format!("diverged after {seconds}"),
        _ if language => {
            let [train, test] = [row.train_loss, row.test_loss].map(|loss| {
                let perplexity = loss.map_or(f64::NAN, f64::exp);
                format!("{perplexity:.2}")
            });
            format!("train ppl {train}, test ppl {test}  {epochs}, {seconds}")
        }
        outcome => {
            let accuracy = 100.0 * row.accuracy.unwrap_or(0.0);
            let early = outcome == Some(Outcome::Converged);
            let how = if early { "learnt, " } else { "" };
            format!("{accuracy:.1} %  {how}{epochs}, {seconds}")
        }
    }
}
