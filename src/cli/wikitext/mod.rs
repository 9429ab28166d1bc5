//! `dsf wikitext`: trains one language model; its subcommands use trained models.

mod chosen;
mod convert;
mod eval;
mod generate;
mod stream;

use super::{single, Global};
use crate::error::Result;
use crate::recipes;
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    train: single::Arguments,
}

/// Commands on a trained model.
#[derive(Subcommand)]
enum Action {
    /// Perplexity of trained weights.
    ///
    /// Per token, per word, and in bits per byte.
    Eval(eval::Arguments),
    /// Generate text from a prompt.
    ///
    /// With a state of constant size where the mixer has one.
    Generate(generate::Arguments),
    /// Make weights of a GPT-NeoX model of Hugging Face.
    ///
    /// Such as Pythia.
    Import(convert::Import),
    /// Write weights as a GPT-NeoX model that `transformers` loads.
    Export(convert::Export),
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    match arguments.action {
        Some(Action::Eval(arguments)) => eval::main(&arguments, global),
        Some(Action::Generate(arguments)) => generate::main(&arguments, global),
        Some(Action::Import(arguments)) => convert::import(&arguments, global),
        Some(Action::Export(arguments)) => convert::export(&arguments, global),
        None => single::main(arguments.train, recipes::task("wikitext")?, global),
    }
}
