//! `dsf bench`: how fast it is, and whether a device computes the right numbers.

mod many;
mod single;
mod text;

use super::Global;
use crate::error::{refuse, Result};
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(subcommand_negates_reqs = true, arg_required_else_help = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    device: many::Device,
}

#[derive(Subcommand)]
enum What {
    /// Time a whole training step on the CPU: forward, backward, optimizer.
    Step(Box<single::StepArguments>),
    /// Time a single op on the CPU, forward and backward, and compare with the least time its arithmetic takes.
    Op(single::OpArguments),
    /// Time a step of every mixer and every op on the CPU, each in a process of its own, in one table.
    All(many::All),
    /// Time steps of the same number of tokens in ever longer sequences.
    Lengths(many::Lengths),
    /// Time a step or an op by turns with another program that does the same.
    Compare(many::Compare),
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    let Some(what) = arguments.what else {
        return arguments.device.main(global);
    };
    if arguments.device.given() {
        refuse!("--device stands for itself: a step or an op alone is timed on the CPU");
    }
    match what {
        What::Step(arguments) => arguments.main(global),
        What::Op(arguments) => arguments.main(global),
        What::All(arguments) => arguments.main(global),
        What::Lengths(arguments) => arguments.main(global),
        What::Compare(arguments) => arguments.main(global),
    }
}
