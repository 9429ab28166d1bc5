//! How fast it is: whole training steps and single ops, timed in CPU seconds and held against
//! what the processor could do at most.

mod clock;
mod export;
mod floors;
mod machine;
mod op;
mod ops;
mod step;

pub use clock::{Spread, Timing};
pub use machine::Machine;
pub use op::{op_names, Number, OpBench, OpReport, OpRequest, Pass};
pub use step::{Step, StepReport};

/// How the ops were computed.
fn route() -> &'static str {
    "fused"
}
