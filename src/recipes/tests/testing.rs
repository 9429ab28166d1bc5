//! Flags of a line, for tests.

use crate::recipes::Flags;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

/// Parses the arguments of `dsf sweep`.
pub fn parse(line: &str) -> Result<Flags, clap::Error> {
    let words = ["dsf"].into_iter().chain(line.split_whitespace());
    Line::try_parse_from(words).map(|line| line.flags)
}

/// [`parse`] of a line without errors.
pub fn flags(line: &str) -> Flags {
    parse(line).unwrap_or_else(|e| panic!("{line}: {e}"))
}
