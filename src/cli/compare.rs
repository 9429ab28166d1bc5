//! `dsf compare A B`: compares two sets of results.

use super::results::{self, ReportOutput};
use super::{exit, Global};
use crate::error::{unknown_value, Result};
use crate::report;
use crate::store::{Metric, METRICS};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    after_help = "A cell is one setting, learning rate included, and its seeds are the sample. It is identical where \
    the same seeds have the same number, bit for bit; better or worse where the interval of the difference of means does \
    not hold 0 (Student's t, paired where the seeds are the same, Holm's correction over all cells), or where seeds \
    diverged on one side only. With fewer than three seeds a side the noise is not known, and nothing is called worse."
)]
pub(super) struct CompareArguments {
    /// Baseline results: a folder or a summary CSV file.
    a: PathBuf,
    /// Results to compare with the baseline: a folder or a summary CSV file.
    b: PathBuf,
    /// Metric to compare; see `dsf report --columns` [default: accuracy, train_ppl on text].
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Exit with code 4 if any cell of B is worse beyond noise.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    form: ReportOutput,
}

pub(super) fn main(arguments: CompareArguments, global: &Global) -> Result<u8> {
    let metric = arguments.metric.as_deref().map(named).transpose()?;
    let sources = [&arguments.a, &arguments.b];
    let [a, b] = [results::read(sources[0])?, results::read(sources[1])?];
    results::reconcile(&a)?;
    results::reconcile(&b)?;
    let names = sources.map(|source| source.display().to_string());
    let compared = report::compare([&a, &b], [&names[0], &names[1]], metric)?;
    arguments.form.write(&compared.report, global)?;
    Ok(if arguments.check && compared.worse > 0 { exit::CHECK_FAILED } else { exit::DONE })
}

/// Finds a metric, spelt with underscores or with hyphens.
fn named(typed: &str) -> Result<&'static Metric> {
    let found = Metric::find(&typed.replace('-', "_"));
    found.ok_or_else(|| unknown_value("--metric", "metric", typed, METRICS.iter().map(|metric| metric.name)))
}
