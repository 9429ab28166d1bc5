//! From flags and experiment files to many runs: a grid is planned, refused or priced as a whole,
//! then worked off by child processes, one run each.
//!
//! ```text
//! flags, experiments/*.toml -> Plan -> run_all -> up to `jobs` children `dsf worker`
//! ```

mod axes;
pub mod estimate;
mod experiment;
mod flags;
mod grid;
mod local;
mod process;
mod values;
mod worker;

pub use experiment::Experiment;
pub use flags::{Flags, CLASSIFIERS, LANGUAGE};
pub use grid::Plan;
pub use local::{run_all, Event, Options, Skip, Tally};
pub use process::Process;
pub use values::{MixerOption, Rate, Size, TokenizerName};
pub use worker::{Ending, Message, Worker};

pub use crate::model::protocol::{Preset, Task, PAPER_RATES};

#[cfg(test)]
mod tests;
