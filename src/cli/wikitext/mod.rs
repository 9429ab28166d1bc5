//! `dsf wikitext`: trains one language model, and its subcommands do what is done with one.

use super::{single, Global};
use crate::error::Result;
use crate::sweep::Task;
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    train: single::Arguments,
}

/// What is done with a trained model.
#[derive(Subcommand)]
enum Action {}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    match arguments.action {
        Some(action) => match action {},
        None => single::main(arguments.train, Task::Wikitext, global),
    }
}
