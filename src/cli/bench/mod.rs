//! `dsf bench`: how fast it is.

mod all;
mod compare;
mod device;
mod lengths;
mod op;
mod rows;
mod step;
mod text;

use super::Global;
use crate::error::{Error, Result};
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(subcommand_negates_reqs = true, arg_required_else_help = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    whole: device::Arguments,
}

#[derive(Subcommand)]
enum What {
    /// A whole training step: forward, backward, optimiser.
    Step(Box<step::Arguments>),
    /// A single op, forward and backward, beside the floor of its arithmetic.
    Op(op::Arguments),
    /// The standard steps and ops in one table, each in a process of its own.
    All(all::Arguments),
    /// Steps of as many tokens in ever longer sequences.
    Lengths(lengths::Arguments),
    /// A step or an op beside another program that does the same, by turns.
    Compare(compare::Arguments),
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    let Some(what) = arguments.what else {
        return device::main(&arguments.whole, global);
    };
    if arguments.whole.given() {
        return Err(Error::usage(
            "--device stands for itself: a step or an op alone is timed on the CPU",
        ));
    }
    match what {
        What::All(arguments) => all::main(&arguments, global),
        What::Lengths(arguments) => lengths::main(&arguments, global),
        What::Compare(arguments) => compare::main(&arguments, global),
        What::Op(arguments) => op::main(arguments, global),
        What::Step(arguments) => step::main(&arguments, global),
    }
}

/// A report as one line of JSON.
fn json(report: &impl serde::Serialize) -> String {
    serde_json::to_string(report).expect("a report is plain data")
}
