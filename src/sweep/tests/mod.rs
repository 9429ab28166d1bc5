//! Tests of this module, one claim each.

mod crowd;
mod experiment;
mod grid;
mod halving;
#[cfg(unix)]
mod hosts;
mod local;
mod pretender;
#[cfg(unix)]
mod process;
mod setting;
mod slurm;

pub(super) use crate::recipes::testing::flags;
