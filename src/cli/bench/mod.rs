//! `dsf bench`: how fast it is.

mod op;
mod step;
mod text;

use super::Global;
use crate::error::Result;
use clap::{Args, Subcommand};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A whole training step: forward, backward, optimiser.
    Step(Box<step::Arguments>),
    /// A single op, forward and backward, beside the floor of its arithmetic.
    Op(op::Arguments),
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    match arguments.what {
        What::Op(arguments) => op::main(arguments, global),
        What::Step(arguments) => step::main(&arguments, global),
    }
}

/// A report as one line of JSON.
fn json(report: &impl serde::Serialize) -> String {
    serde_json::to_string(report).expect("a report is plain data")
}
