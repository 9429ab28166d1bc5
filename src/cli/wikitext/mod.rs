//! `dsf wikitext`: trains one language model; its subcommands use trained models.

mod chosen;
mod convert;
mod eval;
mod generate;
mod needle;
mod stream;

use super::{single, Global};
use crate::error::Result;
use crate::recipes;
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct WikitextArguments {
    #[command(subcommand)]
    action: Option<WikitextAction>,
    #[command(flatten)]
    train: single::SingleArguments,
}

/// Commands on a trained model.
#[derive(Subcommand)]
enum WikitextAction {
    /// Measure the perplexity of trained weights.
    ///
    /// Prints it per token, per word, and in bits per byte. The tokenizer adds no special tokens to the text.
    Eval(eval::EvalArguments),
    /// Generate text from a prompt.
    ///
    /// Decodes token by token, with a state of constant size if the mixer has one.
    Generate(generate::GenerateArguments),
    /// Hide a key in a long context and ask for it.
    ///
    /// A needle in a haystack: a random key in a text of the corpus, by length of the context and depth of the key. Prints how
    /// many keys are found, and the cross-entropy of a key with and without the needle.
    Needle(needle::NeedleArguments),
    /// Convert a model of Hugging Face to weights.
    ///
    /// Reads a model such as Pythia-70M and writes the weights as one safetensors file with their config.
    Import(convert::Import),
    /// Convert weights to a model for `transformers`.
    Export(convert::Export),
}

pub(super) fn main(arguments: WikitextArguments, global: &Global) -> Result<u8> {
    match arguments.action {
        Some(WikitextAction::Eval(arguments)) => eval::main(&arguments, global),
        Some(WikitextAction::Generate(arguments)) => generate::main(&arguments, global),
        Some(WikitextAction::Needle(arguments)) => needle::main(&arguments, global),
        Some(WikitextAction::Import(arguments)) => convert::import(&arguments, global),
        Some(WikitextAction::Export(arguments)) => convert::export(&arguments, global),
        None => single::main(arguments.train, recipes::task("wikitext")?, global),
    }
}
