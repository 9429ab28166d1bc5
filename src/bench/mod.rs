//! How fast it is: whole training steps and single ops, timed in CPU seconds and held against
//! what the processor could do at most.

mod cases;
mod clock;
mod device;
mod driver;
mod export;
mod floors;
mod machine;
mod op;
mod ops;
mod row;
mod step;

pub use cases::{all, of_length, Case};
pub use clock::{Spread, Timing};
pub use device::{DeviceBench, DeviceRow, Kind};
pub use driver::{measure, Beside, Measured, Peer, LOSS_TOLERANCE};
pub use machine::Machine;
pub use op::{op_names, Number, OpBench, OpReport, OpRequest, Pass};
pub use row::{write_csv, Row};
pub use step::{Step, StepReport};
