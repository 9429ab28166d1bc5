//! `dsf completions`: shell completions of commands, flags and names.

use super::{exit, print};
use crate::error::Result;
use crate::mixers::MIXERS;
use crate::recipes::TASKS;
use crate::sweep::SHIPPED;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command};

#[derive(Args)]
#[command(after_help = "Examples:\n  source <(dsf completions bash)\n  dsf completions zsh > ~/.zfunc/_dsf\n  \
    dsf completions fish > ~/.config/fish/completions/dsf.fish")]
pub(super) struct CompletionsArguments {
    /// Shell to print completions for.
    shell: clap_complete::Shell,
}

pub(super) fn main(arguments: &CompletionsArguments, tree: Command) -> Result<u8> {
    let mut script = Vec::new();
    let mut tree = suggesting(tree, "");
    clap_complete::generate(arguments.shell, &mut tree, "dsf", &mut script);
    print::bytes(&script)?;
    Ok(exit::DONE)
}

/// Names to suggest for an argument that also accepts other values, so that its parser does not list them.
struct Suggestion {
    /// Command of the argument; empty for every command.
    of: &'static str,
    /// Long flag; empty for a positional argument.
    flag: &'static str,
    names: fn() -> Vec<&'static str>,
}

const fn row(of: &'static str, flag: &'static str, names: fn() -> Vec<&'static str>) -> Suggestion {
    Suggestion { of, flag, names }
}

const SUGGESTED: [Suggestion; 6] = [
    row("", "mixer", mixers),
    row("", "task", || TASKS.iter().map(|task| task.name).collect()),
    row("", "experiment", experiments),
    row("sweep", "", experiments),
    row("experiments", "", experiments),
    row("mixers", "", || MIXERS.iter().map(|entry| entry.name).collect()),
];

fn mixers() -> Vec<&'static str> {
    MIXERS.iter().map(|entry| entry.name).chain(["all"]).collect()
}

fn experiments() -> Vec<&'static str> {
    SHIPPED.iter().map(|shipped| shipped.name).collect()
}

/// Returns `command` with suggestions for its arguments; `words` is the command line that calls it.
fn suggesting(command: Command, words: &str) -> Command {
    let of = |arg: &Arg| {
        let long = arg.get_long().unwrap_or_default();
        SUGGESTED.iter().find(|row| {
            let here = row.of.is_empty() || words.split(' ').any(|word| word == row.of);
            row.flag == long && here
        })
    };
    let command = command.mut_args(|arg| match of(&arg) {
        Some(row) => arg.value_parser(PossibleValuesParser::new((row.names)())),
        None => arg,
    });
    let inner: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    inner.into_iter().fold(command, |command, name| {
        let words = format!("{words} {name}");
        command.mut_subcommand(&name, |inner| suggesting(inner, &words))
    })
}
