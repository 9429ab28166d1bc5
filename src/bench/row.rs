//! A measurement as a row of a CSV file.

use super::driver::{Measured, LOSS_TOLERANCE};
use crate::error::{Error, Result};
use serde::Serialize;
use std::path::Path;

/// One case, with at most one peer beside it. What does not apply is empty.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Command line behind `dsf bench`.
    pub case: String,
    /// Threads computed with.
    pub threads: Option<u64>,
    /// Our CPU seconds of a step, or of an op both ways: median of the rounds.
    pub cpu_seconds: f64,
    /// Fewest of a round.
    pub cpu_seconds_min: f64,
    /// Most of a round.
    pub cpu_seconds_max: f64,
    /// Wall seconds in the last round.
    pub wall_seconds: Option<f64>,
    /// CPU seconds below which nothing gets.
    pub floor_seconds: Option<f64>,
    /// The floor over the CPU seconds.
    pub fraction_of_floor: Option<f64>,
    /// Of a step.
    pub tokens_per_cpu_second: Option<f64>,
    /// State elements of a step, or what the op counts.
    pub elements_per_cpu_second: Option<f64>,
    /// The most memory our process held.
    pub peak_memory_bytes: Option<u64>,
    /// Loss of the last step.
    pub loss: Option<f64>,
    /// How the ops were computed.
    pub route: String,
    /// The peer's command line.
    pub peer: String,
    /// The peer's CPU seconds, median of the rounds.
    pub peer_cpu_seconds: Option<f64>,
    /// The peer's median over ours.
    pub ratio: Option<f64>,
    /// The smallest ratio of a round.
    pub ratio_min: Option<f64>,
    /// The largest ratio of a round.
    pub ratio_max: Option<f64>,
    /// The most memory the peer held.
    pub peer_peak_memory_bytes: Option<u64>,
    /// Largest relative difference of a loss before anything was timed.
    pub loss_difference: Option<f64>,
    /// Rounds, ours and the peer's by turns.
    pub rounds: usize,
    /// Load of the machine in the last round.
    pub load_average: Option<f64>,
    /// Model of the processor.
    pub cpu: String,
    /// Instruction set in use.
    pub instruction_set: String,
    /// Commit of this program.
    pub commit: String,
}

impl Row {
    /// The row of `measured`, which came from `case` and a peer's command line.
    pub fn new(case: &str, peer: &str, measured: &Measured) -> Self {
        let report = &measured.report;
        let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| report[key].as_f64();
        let (ours, ratio) = (measured.cpu_seconds(), measured.ratio());
        let beside = measured.beside.as_ref();
        let floor = number("floor_seconds");
        // Rates follow the median of the rounds, not the last one.
        let over = |count: Option<f64>| count.map(|count| count / ours.median);
        let counted = |key: &str| Some(number(key)? * number("cpu_seconds")?);
        let states = counted("state_elements_per_cpu_second");
        Self {
            case: case.to_owned(),
            threads: report["threads"].as_u64(),
            cpu_seconds: ours.median,
            cpu_seconds_min: ours.min,
            cpu_seconds_max: ours.max,
            wall_seconds: number("wall_seconds"),
            floor_seconds: floor,
            fraction_of_floor: over(floor),
            tokens_per_cpu_second: over(counted("tokens_per_cpu_second")),
            elements_per_cpu_second: over(states.or_else(|| number("elements"))),
            peak_memory_bytes: report["peak_memory_bytes"].as_u64(),
            loss: number("loss"),
            route: text("route"),
            peer: peer.to_owned(),
            peer_cpu_seconds: measured.peer_cpu_seconds().map(|s| s.median),
            ratio: ratio.map(|r| r.median),
            ratio_min: ratio.map(|r| r.min),
            ratio_max: ratio.map(|r| r.max),
            peer_peak_memory_bytes: beside.and_then(|b| b.report["peak_bytes"].as_u64()),
            loss_difference: beside.and_then(|b| b.loss_difference),
            rounds: measured.ours.len(),
            load_average: number("load_average"),
            cpu: text("cpu"),
            instruction_set: text("instruction_set"),
            commit: text("commit"),
        }
    }

    /// Whether both sides computed the same, as far as that can be known.
    pub fn agrees(&self) -> bool {
        let difference = self.loss_difference;
        difference.is_none_or(|difference| difference <= LOSS_TOLERANCE)
    }
}

/// Writes `rows` with a header, over what was there.
pub fn write_csv(path: &Path, rows: &[impl Serialize]) -> Result<()> {
    let broken = |e: csv::Error| Error::io("write", path)(std::io::Error::other(e));
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(broken)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|e| broken(e.into_error().into()))?;
    crate::files::write_atomic(path, &bytes)
}
