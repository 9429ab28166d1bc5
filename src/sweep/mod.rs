//! From flags and experiment files to many runs: a grid is planned, refused or priced as a whole,
//! then worked off by child processes, one run each.
//!
//! ```text
//! flags, experiments/*.toml -> Plan -> run_all -> up to `jobs` children `dsf worker`
//! ```

pub mod estimate;
mod experiment;
mod flags;
mod grid;
mod local;
mod process;
mod shipped;
mod worker;

pub use experiment::Experiment;
pub use flags::Flags;
pub use grid::Plan;
pub use local::{run_all, Event, Options, Skip, Tally};
pub use process::Process;
pub use shipped::{Shipped, SHIPPED};
pub use worker::{Ending, Message, Training, Worker};

#[cfg(test)]
mod tests;
