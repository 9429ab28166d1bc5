//! How fast it is, and whether a device computes the right numbers: training steps and single ops, checked
//! against the CPU, timed, and compared with the least time that the machine needs and with other programs.
//!
//! A [`Case`] is one measurement; [`cases`] lists them, [`Bench`] works a list off and fills a [`Row`] for each.
//! Adding an op is a row of `ops`, a peer is a row of `peers`, a predicted speed is a row of `predicted`.

pub mod cases;
mod check;
mod driver;
mod export;
mod floors;
mod machine;
mod op;
mod ops;
mod peers;
mod predicted;
mod row;
mod step;
mod timer;

pub use driver::{Bench, Case};
pub use machine::Machine;
pub use op::{op_names, Number, OpRequest, OpTiming};
pub use peers::{mixers_in_pytorch, Peer, Scripts};
pub use row::{read_csv, write_csv, Details, Kind, Report, Row};
pub use step::{DataCache, Step};
pub use timer::Clock;

#[cfg(test)]
mod tests;
