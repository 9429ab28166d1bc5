//! How fast it is: whole training steps and single ops, timed in CPU seconds and held against
//! what the processor could do at most.

mod clock;
mod machine;
mod step;

pub use machine::Machine;
pub use step::{Step, StepReport};
