//! The ops that can be timed and checked: adding one is a row of [`table`].

mod op;
mod sizes;
mod table;

pub(super) use op::{Drawn, Op, Pass};
pub(super) use sizes::{Shape, MAMBA, PAIRS, TASKS, VOCABULARY};

use crate::error::{self, Result};

/// Every op, in the order of the listing.
pub(super) fn all() -> impl Iterator<Item = &'static Op> {
    table::OPS.iter()
}

/// The op called `name`, or an error that lists them.
pub(super) fn find(name: &str) -> Result<&'static Op> {
    let found = all().find(|op| op.name == name);
    found.ok_or_else(|| error::unknown("op", name, all().map(|op| op.name)))
}
