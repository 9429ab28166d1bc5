//! The table of ops that can be timed and checked: adding one is a row of [`sequences`] or [`rows`].

mod op;
mod rows;
mod sequences;
mod sizes;

pub(super) use op::{Drawn, Op, Pass};
pub(super) use sizes::{Shape, MAMBA, PAIRS, TASKS, VOCABULARY};

use crate::error::{self, Result};

/// Every op, in the order of the listing.
pub(super) fn all() -> impl Iterator<Item = &'static Op> {
    sequences::OPS.iter().chain(rows::OPS)
}

/// The op called `name`, or an error that lists them.
pub(super) fn find(name: &str) -> Result<&'static Op> {
    let found = all().find(|op| op.name == name);
    found.ok_or_else(|| error::unknown("op", name, all().map(|op| op.name)))
}
