//! Sweeps: flags and experiment files become a plan of many runs, which is validated and priced as a whole and then
//! trained by child processes, one per run; or, if runs share a GPU, by one process per GPU.
//!
//! ```text
//! flags, experiments/*.toml -> Plan -> run_all -> up to `jobs` children `dsf worker`, or one `dsf worker --host` a device
//! ```

mod attempt;
mod cancel;
pub mod estimate;
mod experiment;
mod grid;
mod halving;
mod hosts;
mod local;
mod process;
mod program;
mod request;
mod shard;
mod shipped;
pub mod slurm;
mod status;
mod worker;

pub use attempt::STOPPING;
pub use cancel::CancelWatcher;
pub use experiment::Experiment;
pub use grid::{Plan, PlanStatus};
pub use halving::Halving;
pub use hosts::Hosts;
pub use local::{run_all, Limits, Options, Skip, SweepEvent, Tally};
pub use process::Process;
pub use program::Program;
pub use request::{Ended, Request, TrainRequest};
pub use shard::Shard;
pub use shipped::{Shipped, SHIPPED};
pub use status::{failed, Overview, RunState, RunWithState};
pub use worker::{Ending, Job, Training, Worker, WorkerMessage};

#[cfg(test)]
mod tests;
