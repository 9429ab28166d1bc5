//! Estimates of the time and memory of runs, from a few real steps on this machine.

mod cost;
mod dry_run;
mod format;
mod left;
mod room;
#[cfg(test)]
mod tests;
mod work;

pub use cost::{costs, sentence, Cost};
pub use dry_run::{announced, dry_run, headline, Forecast};
pub use format::{counted, duration, grouped};
pub use left::{left, work, EpochsLeft};
pub use room::{check_room, parallel_runs};
