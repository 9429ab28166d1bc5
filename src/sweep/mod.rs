//! From flags and experiment files to many runs: a grid is planned, refused or priced as a whole,
//! then worked off by child processes, one run each.
//!
//! ```text
//! flags, experiments/*.toml -> Plan -> run_all -> up to `jobs` children `dsf worker`
//! ```

mod axes;
mod experiment;
mod flags;
mod grid;
mod preset;
mod values;

pub use experiment::Experiment;
pub use flags::Flags;
pub use grid::{check_task, Plan};
pub use preset::Preset;
pub use values::{MixerOption, Rate, Size, PAPER_RATES};

#[cfg(test)]
mod tests;
