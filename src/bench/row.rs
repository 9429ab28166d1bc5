//! Rows of measurements in a CSV file: one schema for CPU and GPU, checks and times.

use super::timer::{Clock, Spread, Timing};
use crate::error::{Error, Position, Result};
use crate::files::write_atomic;
use crate::store::to_csv;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

/// Kind of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasurementKind {
    /// Check of an op: its results and gradients against those of the CPU in f64.
    Check,
    /// Check of a model: the losses of its first training steps against those on the CPU.
    Model,
    /// Time of an op.
    #[default]
    Op,
    /// Time of a training step.
    Step,
    /// Time of the next token after a context.
    Decode,
}

impl MeasurementKind {
    /// Name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Model => "model",
            Self::Op => "op",
            Self::Step => "step",
            Self::Decode => "decode",
        }
    }
}

/// One measurement, with at most one peer. Fields that do not apply are empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measurement {
    /// Kind of the measurement.
    pub kind: MeasurementKind,
    /// The op or mixer with its sizes B,L,d,n; or the flags of `dsf bench step` or `dsf bench op`.
    pub case: String,
    /// Type of the activations.
    pub dtype: String,
    /// Other program or implementation that is compared.
    pub peer: String,
    /// Device as chosen: `cpu`, `cuda:0`.
    pub device: String,
    /// Model of the processor or of the GPU.
    pub processor: String,
    /// Widest instruction set that the fused ops use on a CPU.
    pub instruction_set: String,
    /// Number of threads.
    pub threads: usize,
    /// Implementation of the ops: fused, or reference.
    pub route: String,
    /// Whether a check passed, or a peer computed the same.
    pub passed: Option<bool>,
    /// Largest difference. Tensors: relative to the larger of 1 and the largest number; losses: relative.
    pub distance: Option<f64>,
    /// Largest difference allowed.
    pub tolerance: Option<f64>,
    /// Clock of `seconds`, rates and ratios.
    pub clock: Clock,
    /// Median seconds per call or step.
    pub seconds: Option<f64>,
    /// Minimum seconds.
    pub seconds_min: Option<f64>,
    /// Maximum seconds.
    pub seconds_max: Option<f64>,
    /// Median elapsed seconds.
    pub wall_seconds: Option<f64>,
    /// Minimum elapsed seconds.
    pub wall_seconds_min: Option<f64>,
    /// Maximum elapsed seconds.
    pub wall_seconds_max: Option<f64>,
    /// Least time in seconds on the machine of the floor.
    pub floor_seconds: Option<f64>,
    /// Floor divided by the median; 1 is the optimum.
    pub fraction_of_floor: Option<f64>,
    /// Predicted fraction of the floor for the kernel on an H200.
    pub predicted: Option<f64>,
    /// Tokens per step.
    pub tokens: Option<f64>,
    /// Tokens divided by the median seconds.
    pub tokens_per_second: Option<f64>,
    /// State entries of all layers in a step, absent if the state grows with the sequence; for an op, the elements in
    /// its description.
    pub elements: Option<f64>,
    /// Elements divided by the median seconds.
    pub elements_per_second: Option<f64>,
    /// Peak memory of the process.
    pub peak_memory_bytes: Option<u64>,
    /// Launches, copies and clears in a recorded step.
    #[serde(default)]
    pub graph_nodes: Option<usize>,
    /// Loss of the last step.
    pub loss: Option<f64>,
    /// Median seconds of the peer over the rounds.
    pub peer_seconds: Option<f64>,
    /// Ratio of the peer's median seconds to ours.
    pub ratio: Option<f64>,
    /// Smallest ratio of a round.
    pub ratio_min: Option<f64>,
    /// Largest ratio of a round.
    pub ratio_max: Option<f64>,
    /// Peak memory of the peer.
    pub peer_peak_memory_bytes: Option<u64>,
    /// Widest instruction set that the peer reports.
    pub peer_instruction_set: String,
    /// Number of rounds; a round measures this program, then the peer.
    pub rounds: usize,
    /// Load average of the last minute, if the system reports it.
    pub load_average: Option<f64>,
    /// Peak rate of one core, for floors on a CPU: multiplications and additions in products per second.
    pub peak_flops: Option<f64>,
    /// Peak rate of one core: lanes of vector instructions per second.
    pub peak_lanes: Option<f64>,
    /// Peak rate of one core: exponentials per second.
    pub peak_exps: Option<f64>,
    /// Peak rate of one core: bytes of memory per second.
    pub peak_bytes: Option<f64>,
    /// Reason why an op on a CPU takes more than twice its floor, if it does.
    pub below: String,
    /// Location of a check's largest difference, missing requirement, or reason for a missing number.
    pub note: String,
    /// Commit of this program, with `-dirty` if it had uncommitted changes.
    pub commit: String,
}

impl Measurement {
    /// Returns a row about `case` without measurements.
    pub(super) fn new(kind: MeasurementKind, case: impl Into<String>, dtype: &str) -> Self {
        Self {
            kind,
            case: case.into(),
            dtype: dtype.to_owned(),
            // A check that ends without a distance has failed.
            passed: matches!(kind, MeasurementKind::Check | MeasurementKind::Model).then_some(false),
            ..Self::default()
        }
    }

    /// Title: `check small tanh 3,37,21 f32`, `step s6 512,64,64,64 f32 beside plain tensor ops`.
    pub fn title(&self) -> String {
        let title = format!("{} {} {}", self.kind.name(), self.case, self.dtype);
        match self.peer.as_str() {
            "" => title,
            peer => format!("{title} beside {peer}"),
        }
    }

    /// Whether it is a check of correctness.
    pub fn is_check(&self) -> bool {
        matches!(self.kind, MeasurementKind::Check | MeasurementKind::Model)
    }

    /// Whether a check failed, or could not be made.
    pub fn failed(&self) -> bool {
        self.passed == Some(false)
    }

    /// Records the difference between two results.
    pub(super) fn compared(&mut self, distance: f64, tolerance: f64) {
        self.distance = Some(distance);
        self.tolerance = Some(tolerance);
        // A NaN must not pass.
        self.passed = Some(distance <= tolerance);
    }

    /// Records the time of a call or a step.
    pub(super) fn timed(&mut self, timing: &Timing) {
        self.clock = timing.clock;
        self.wall_seconds = Some(timing.wall.median);
        self.wall_seconds_min = Some(timing.wall.min);
        self.wall_seconds_max = Some(timing.wall.max);
        self.took(timing.seconds);
    }

    /// Records seconds, and the rates that follow from them.
    pub(super) fn took(&mut self, seconds: Spread) {
        self.seconds = Some(seconds.median);
        self.seconds_min = Some(seconds.min);
        self.seconds_max = Some(seconds.max);
        let rate = |count: Option<f64>| count.map(|count| count / seconds.median);
        self.fraction_of_floor = rate(self.floor_seconds);
        self.tokens_per_second = rate(self.tokens);
        self.elements_per_second = rate(self.elements);
    }

    /// Records the times of this program and of a peer, by round.
    pub(super) fn took_by_turns(&mut self, ours: &[f64], peer: &[f64]) {
        self.rounds = ours.len();
        // The spread over several rounds is more informative than that within one.
        if ours.len() > 1 {
            self.took(Spread::of(ours.iter().copied()));
        }
        let Some(seconds) = self.seconds.filter(|_| !peer.is_empty()) else { return };
        let median = Spread::of(peer.iter().copied()).median;
        let ratios = Spread::of(peer.iter().zip(ours).map(|(peer, ours)| peer / ours));
        (self.peer_seconds, self.ratio) = (Some(median), Some(median / seconds));
        (self.ratio_min, self.ratio_max) = (Some(ratios.min), Some(ratios.max));
    }
}

/// Sizes, hyperparameters, losses and checksums of a measurement, by name.
pub type Details = Map<String, Value>;

/// A measurement with its details, as printed by `dsf bench step --json` and `dsf bench op --json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasurementReport {
    /// The measurement.
    #[serde(flatten)]
    pub row: Measurement,
    /// Further details.
    #[serde(flatten)]
    pub details: Details,
}

/// Reads the rows of a file written by [`write_csv`]; empty if there is no file.
pub fn read_csv(path: &Path) -> Result<Vec<Measurement>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let file = std::fs::File::open(path).map_err(Error::io("read", path))?;
    let mut reader = csv::Reader::from_reader(file);
    let rows = reader.deserialize().enumerate().map(|(index, row)| {
        row.map_err(|e| {
            let reason =
                format!("no row of this version's measurements: {e}; move the file away, or give another --csv");
            Error::data_at(path, Position::Line(index as u64 + 2), reason).into_refusal()
        })
    });
    rows.collect()
}

/// Writes `rows` with a header, replacing the file.
pub fn write_csv(path: &Path, rows: &[Measurement]) -> Result<()> {
    write_atomic(path, &to_csv(rows, path)?)
}
