//! `dsf data`: the data of the tasks.

mod fetch;
mod generate;
mod list;
mod place;
mod stand_in;
mod tokens;

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
    /// Download data to where `dsf lra` and `dsf wikitext` look for it.
    Fetch(fetch::Arguments),
    /// Generate data in the format of the released files.
    Generate(generate::Arguments),
    /// List what is there, where, and how big.
    List(list::Arguments),
    /// Tokenize texts ahead of the runs that need them.
    Tokens(tokens::Arguments),
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    match arguments.what {
        What::Fetch(arguments) => fetch::main(arguments, global),
        What::Generate(arguments) => generate::main(arguments, global),
        What::List(arguments) => list::main(arguments, global),
        What::Tokens(arguments) => tokens::main(arguments, global),
    }
}
