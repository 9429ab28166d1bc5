//! Tests of this module, one claim each.

mod crowd;
mod experiment;
mod flags;
mod grid;
mod halving;
#[cfg(unix)]
mod hosts;
mod local;
mod pretender;
mod setting;
mod slurm;

use super::Flags;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

/// Parses the arguments of `dsf sweep`.
fn parse(line: &str) -> Result<Flags, clap::Error> {
    let words = ["dsf"].into_iter().chain(line.split_whitespace());
    Line::try_parse_from(words).map(|line| line.flags)
}

pub(super) fn flags(line: &str) -> Flags {
    parse(line).unwrap_or_else(|e| panic!("{line}: {e}"))
}
