//! `dsf bench step` and `dsf bench op`: one measurement on the CPU.

use super::text;
use crate::bench::{op_names, Machine, OpRequest, OpTiming, Report, Step};
use crate::cli::device::use_threads;
use crate::cli::{exit, print, Global};
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
        let run = self.flags.single(recipes::task("mqar")?)?;
        let step = Step::new(run.config, self.steps)?;
        print(&step.report(&machine, self.export.as_deref())?, global)
    }
}

#[derive(Args)]
#[command(after_help = list())]
pub(super) struct OpArguments {
    #[command(flatten)]
    request: OpRequest,
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
        let timing = OpTiming::new(&self.request)?;
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
