//! Benchmarks: training steps and single ops are checked against the CPU, timed, and compared with the machine's least
//! time and with other programs.
//!
//! A [`BenchCase`] is one measurement; [`cases`] lists them; [`Bench`] measures a list and fills a [`Measurement`] for
//! each. A new op is a row of `ops`, a peer is a row of `peers`, a predicted speed is a row of `predicted`.

pub mod cases;
mod check;
mod decode;
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

pub use decode::Decoding;
pub use driver::{Bench, BenchCase};
pub use machine::Machine;
pub use op::{op_names, ComputeType, OpRequest, OpTiming};
pub use peers::{mixers_in_pytorch, Peer, Scripts};
pub use row::{read_csv, write_csv, Details, Measurement, MeasurementKind, MeasurementReport};
pub use step::{DataCache, TimedSteps};
pub use timer::Clock;

#[cfg(test)]
mod tests;
