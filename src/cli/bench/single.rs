//! `dsf bench step` and `dsf bench op`: one measurement on the CPU.

use super::text;
use crate::bench::{op_names, Machine, Number, OpRequest, OpTiming, Report, Step};
use crate::cli::device::use_threads;
use crate::cli::{exit, print, Global};
use crate::config::RunConfig;
use crate::error::Result;
use crate::recipes;
use crate::sweep::Flags;
use clap::Args;
use std::path::PathBuf;

/// The run whose steps are timed, as `dsf mqar` would make them.
#[derive(Args)]
pub(super) struct StepArguments {
    #[command(flatten)]
    flags: Flags,
    /// Timed steps, after two that are not.
    #[arg(long, default_value_t = 5, value_name = "K")]
    steps: usize,
    /// Write weights and batches to a safetensors file, for another program to make the same steps.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

impl StepArguments {
    pub fn main(&self, global: &Global) -> Result<u8> {
        let machine = this_cpu(global)?;
        let step = Step::new(self.config()?, self.steps)?;
        print(&step.report(&machine, self.export.as_deref())?, global)
    }

    fn config(&self) -> Result<RunConfig> {
        Ok(self.flags.single(recipes::task("mqar")?)?.config)
    }
}

#[derive(Args)]
#[command(after_help = list())]
pub(super) struct OpArguments {
    /// The op.
    #[arg(value_name = "NAME")]
    name: String,
    /// Batch B, sequence length L, width d and, for ops with states, states per channel n.
    #[arg(long, value_delimiter = ',', value_name = "B,L,d,n", default_values_t = [8, 512, 128, 64])]
    shape: Vec<usize>,
    /// Heads of attention, which share d and n evenly.
    #[arg(long, default_value_t = 1, value_name = "N")]
    heads: usize,
    /// Type of the numbers.
    #[arg(long, value_enum, default_value = "f32")]
    dtype: Number,
    /// Timed calls of each pass, after two that are not.
    #[arg(long, default_value_t = 9, value_name = "N")]
    repeats: usize,
    /// Write the inputs to a safetensors file, for another program to compute the same.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

fn list() -> String {
    let names: Vec<(&str, String)> = op_names().map(|(n, about)| (n, about.to_owned())).collect();
    format!("Ops:\n{}", text::lines(&names))
}

impl OpArguments {
    pub fn main(&self, global: &Global) -> Result<u8> {
        let machine = this_cpu(global)?;
        let timing = OpTiming::new(&OpRequest {
            name: self.name.clone(),
            shape: self.shape.clone(),
            heads: self.heads,
            number: self.dtype,
            repeats: self.repeats,
        })?;
        print(&timing.report(&machine, self.export.as_deref())?, global)
    }
}

fn this_cpu(global: &Global) -> Result<Machine> {
    let threads = global.threads()?;
    use_threads(threads);
    Ok(Machine::cpu(threads))
}

fn print(report: &Report, global: &Global) -> Result<u8> {
    print::line(&if global.json {
        text::json(report)
    } else {
        text::report(report)
    })?;
    Ok(exit::DONE)
}
