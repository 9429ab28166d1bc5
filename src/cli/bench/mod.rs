//! `dsf bench`: measures speed, and checks the numbers that a device computes.

mod decode;
mod many;
mod text;

use super::device::use_threads;
use super::print::{self, columns, Align};
use super::{exit, Global};
use crate::bench::{op_names, Machine, MeasurementReport, OpRequest, OpTiming, TimedSteps};
use crate::error::{refuse, Error, Result};
use crate::recipes::{self, Flags};
use crate::sweep::estimate;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(subcommand_negates_reqs = true, arg_required_else_help = true)]
pub(super) struct BenchArguments {
    #[command(subcommand)]
    what: Option<BenchAction>,
    #[command(flatten)]
    device: many::Device,
}

#[derive(Subcommand)]
enum BenchAction {
    /// Time a training step on the CPU: forward, backward and optimizer.
    Step(Box<StepArguments>),
    /// Time an op on the CPU, forward and backward, and compare it with its floor.
    Op(OpArguments),
    /// Time every mixer's step and every op on the CPU, each in its own process.
    All(many::All),
    /// Time steps of equally many tokens in longer and longer sequences.
    Lengths(many::LengthsFlags),
    /// Time the next token after longer and longer contexts, and measure the state.
    Decode(Box<decode::DecodeArguments>),
    /// Time a step or an op alternately with another program.
    Compare(many::CompareFlags),
}

pub(super) fn main(arguments: BenchArguments, global: &Global) -> Result<u8> {
    let Some(what) = arguments.what else { return arguments.device.main(global) };
    if arguments.device.given() {
        refuse!(flag "--device", "a step or an op alone is timed on the CPU; `dsf bench --device cuda` times a GPU");
    }
    match what {
        BenchAction::Step(arguments) => arguments.main(global),
        BenchAction::Op(arguments) => arguments.main(global),
        BenchAction::All(arguments) => arguments.main(global),
        BenchAction::Lengths(arguments) => arguments.main(global),
        BenchAction::Decode(arguments) => arguments.main(global),
        BenchAction::Compare(arguments) => arguments.main(global),
    }
}

/// Run whose steps are timed. They are those of `dsf mqar`, or those of `dsf lra` and `dsf wikitext` on placeholder
/// tokens.
#[derive(Args)]
struct StepArguments {
    /// Task; its data files are not needed.
    #[arg(long, value_name = "TASK", default_value = "mqar")]
    task: String,
    #[command(flatten)]
    flags: Flags,
    /// Number of timed steps, after two warm-up steps.
    #[arg(long, default_value_t = 5, value_name = "K")]
    steps: usize,
    /// Write config, weights and batches to a safetensors file, for the same steps in another program.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

impl StepArguments {
    fn main(&self, global: &Global) -> Result<u8> {
        let machine = this_cpu(global)?;
        let run = self.flags.single(recipes::task(&self.task)?)?;
        let step = TimedSteps::new(run.config, self.steps)?;
        estimate::check_room(std::slice::from_ref(&step.config), None)?;
        print(&step.report(&machine, self.export.as_deref())?, global)
    }
}

#[derive(Args)]
#[command(after_long_help = list())]
struct OpArguments {
    #[command(flatten)]
    request: OpRequest,
    /// Write the inputs to a safetensors file, for the same computation in another program.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

fn list() -> String {
    let names: Vec<_> = op_names().map(|(name, about)| vec![name.to_owned(), about.to_owned()]).collect();
    format!("Ops:\n{}", columns(&names, Align::Left).trim_end())
}

impl OpArguments {
    fn main(&self, global: &Global) -> Result<u8> {
        let machine = this_cpu(global)?;
        let timing = OpTiming::new(&self.request)?;
        print(&timing.report(&machine, self.export.as_deref())?, global)
    }
}

/// Creates the folder of a table before anything is measured.
fn make_folder_of(csv: Option<&Path>) -> Result<()> {
    match csv.and_then(Path::parent) {
        Some(folder) => std::fs::create_dir_all(folder).map_err(Error::io("create", folder)),
        None => Ok(()),
    }
}

fn this_cpu(global: &Global) -> Result<Machine> {
    let threads = global.threads()?;
    use_threads(threads)?;
    Ok(Machine::cpu(threads))
}

fn print(report: &MeasurementReport, global: &Global) -> Result<u8> {
    if global.json {
        print::line(text::json(report))?
    } else {
        print::result(&text::report(report))?
    }
    Ok(exit::DONE)
}
