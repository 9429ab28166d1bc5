//! `dsf bench step`.

use super::text::{lines, machine, si, spread};
use crate::bench::{Step, StepReport};
use crate::cli::device::use_threads;
use crate::cli::{exit, print, Global};
use crate::config::RunConfig;
use crate::error::Result;
use crate::recipes;
use crate::sweep::Flags;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    model: Model,
    /// Timed steps, after two that are not.
    #[arg(long, default_value_t = 5, value_name = "K")]
    steps: usize,
    /// Write weights and batches to a safetensors file, for another program to do the same.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

/// The run whose steps are made, as `dsf mqar` would make them.
#[derive(Args)]
pub(super) struct Model {
    #[command(flatten)]
    flags: Flags,
}

impl Model {
    pub fn config(&self) -> Result<RunConfig> {
        Ok(self.flags.single(recipes::task("mqar")?)?.config)
    }
}

pub(super) fn main(arguments: &Arguments, global: &Global) -> Result<u8> {
    let threads = global.threads()?;
    use_threads(threads);
    let step = Step::new(arguments.model.config()?, arguments.steps)?;
    let report = step.measure(threads, arguments.export.as_deref())?;
    print::line(&if global.json {
        super::json(&report)
    } else {
        table(&report)
    })?;
    Ok(exit::DONE)
}

fn table(r: &StepReport) -> String {
    let dash = || "-".to_owned();
    let elements = r.state_elements_per_cpu_second;
    let memory = r.peak_memory_bytes;
    lines(&[
        (
            "step",
            format!(
                "{} ({}, {}): d = {}, n = {}, L = {}, k = {}, V = {}, batch {}",
                r.mixer,
                r.variant,
                r.protocol,
                r.d,
                r.n,
                r.seq_len,
                r.kv_pairs,
                r.vocab_size,
                r.batch_size
            ),
        ),
        (
            "CPU",
            spread(
                r.time.cpu_seconds,
                r.time.cpu_seconds_min,
                r.time.cpu_seconds_max,
            ),
        ),
        (
            "wall",
            spread(
                r.time.wall_seconds,
                r.time.wall_seconds_min,
                r.time.wall_seconds_max,
            ),
        ),
        (
            "tokens",
            format!("{} a CPU second", si(r.tokens_per_cpu_second)),
        ),
        (
            "states",
            elements.map_or_else(dash, |e| format!("{} elements a CPU second", si(e))),
        ),
        (
            "memory",
            memory.map_or_else(dash, |m| format!("{:.0} MB at most", m as f64 / 1e6)),
        ),
        (
            "loss",
            format!(
                "{:.6} in the first step, {:.6} in the last",
                r.first_loss, r.loss
            ),
        ),
        ("route", r.route.to_owned()),
        ("machine", machine(&r.machine)),
    ])
}
