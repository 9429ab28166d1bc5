//! A measurement as a row of a CSV file: one schema for CPU and GPU, checks and times.

use super::timer::{Clock, Spread, Timing};
use crate::error::{Error, Position, Result};
use crate::files::write_atomic;
use crate::store::to_csv;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

/// What a row is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An op's results and gradients compared with those of the CPU in f64.
    Check,
    /// The losses of a model's first training steps compared with those on the CPU.
    Model,
    /// The time of an op.
    #[default]
    Op,
    /// The time of a training step.
    Step,
}

impl Kind {
    /// As it is spelled in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Model => "model",
            Self::Op => "op",
            Self::Step => "step",
        }
    }
}

/// One measurement, with at most one peer beside it. What does not apply is empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub kind: Kind,
    /// The op or mixer with its sizes B,L,d,n; or the flags of `dsf bench step` or `dsf bench op`.
    pub case: String,
    /// Type of the activations.
    pub dtype: String,
    /// The other program, or the other way to compute the same.
    pub peer: String,
    /// Device as chosen: `cpu`, `cuda:0`.
    pub device: String,
    /// Model of the processor or of the GPU.
    pub processor: String,
    /// The widest instruction set that the fused ops use on a CPU.
    pub instruction_set: String,
    /// Threads computed with.
    pub threads: usize,
    /// How the ops were computed: fused, or by their reference.
    pub route: String,
    /// Whether a check held, or a peer computed the same.
    pub passed: Option<bool>,
    /// Largest difference: of numbers, relative to the larger of 1 and the largest number; of losses, relative.
    pub distance: Option<f64>,
    /// The largest difference allowed.
    pub tolerance: Option<f64>,
    /// The clock of `seconds`, rates and ratios.
    pub clock: Clock,
    /// Seconds of a call or a step: the median.
    pub seconds: Option<f64>,
    /// The fewest.
    pub seconds_min: Option<f64>,
    /// The most.
    pub seconds_max: Option<f64>,
    /// Elapsed seconds: the median.
    pub wall_seconds: Option<f64>,
    /// The fewest.
    pub wall_seconds_min: Option<f64>,
    /// The most.
    pub wall_seconds_max: Option<f64>,
    /// Seconds that the machine of the floor needs at least.
    pub floor_seconds: Option<f64>,
    /// The floor over the median: 1 would be perfect.
    pub fraction_of_floor: Option<f64>,
    /// The fraction of its floor that the kernel was predicted to reach on an H200.
    pub predicted: Option<f64>,
    /// Tokens of a step.
    pub tokens: Option<f64>,
    /// Tokens over the median seconds.
    pub tokens_per_second: Option<f64>,
    /// State entries of all layers in a step, absent where the state grows with the sequence; of an op, what
    /// its description counts.
    pub elements: Option<f64>,
    /// Elements over the median seconds.
    pub elements_per_second: Option<f64>,
    /// The most memory that the process held.
    pub peak_memory_bytes: Option<u64>,
    /// Loss of the last step.
    pub loss: Option<f64>,
    /// The peer's seconds: the median of the rounds.
    pub peer_seconds: Option<f64>,
    /// The peer's seconds over ours: of the medians.
    pub ratio: Option<f64>,
    /// The smallest of a round.
    pub ratio_min: Option<f64>,
    /// The largest of a round.
    pub ratio_max: Option<f64>,
    /// The most memory that the peer held.
    pub peer_peak_memory_bytes: Option<u64>,
    /// The widest instruction set that the peer says it uses.
    pub peer_instruction_set: String,
    /// Rounds, each of them ours and then the peer's.
    pub rounds: usize,
    /// Runnable tasks of the machine over the last minute, where the system tells.
    pub load_average: Option<f64>,
    /// What floors on a CPU are computed from, of one core: multiplies and adds a second in products.
    pub peak_flops: Option<f64>,
    /// Lanes of vector instructions a second.
    pub peak_lanes: Option<f64>,
    /// Exponentials a second.
    pub peak_exps: Option<f64>,
    /// Bytes of memory a second.
    pub peak_bytes: Option<f64>,
    /// What keeps an op on a CPU from half of its floor, where it is below.
    pub below: String,
    /// Where a check was worst, what is absent, or why a number is missing.
    pub note: String,
    /// Commit of this program, with `-dirty` where it was changed.
    pub commit: String,
}

impl Row {
    /// A row about `case` with nothing measured.
    pub(super) fn new(kind: Kind, case: impl Into<String>, dtype: &str) -> Self {
        Self {
            kind,
            case: case.into(),
            dtype: dtype.to_owned(),
            // A check that ends before it has a distance has failed.
            passed: matches!(kind, Kind::Check | Kind::Model).then_some(false),
            ..Self::default()
        }
    }

    /// `check small tanh 3,37,21 f32`, `step s6 512,64,64,64 f32 beside plain tensor ops`.
    pub fn title(&self) -> String {
        let title = format!("{} {} {}", self.kind.name(), self.case, self.dtype);
        match self.peer.as_str() {
            "" => title,
            peer => format!("{title} beside {peer}"),
        }
    }

    /// Whether it is about correctness alone.
    pub fn is_check(&self) -> bool {
        matches!(self.kind, Kind::Check | Kind::Model)
    }

    /// Whether something that was checked did not hold, or could not be measured.
    pub fn failed(&self) -> bool {
        self.passed == Some(false)
    }

    /// Notes how far apart two sides are.
    pub(super) fn compared(&mut self, distance: f64, tolerance: f64) {
        self.distance = Some(distance);
        self.tolerance = Some(tolerance);
        // A NaN must not pass.
        self.passed = Some(distance <= tolerance);
    }

    /// Notes what a call or a step took.
    pub(super) fn timed(&mut self, timing: &Timing) {
        self.clock = timing.clock;
        self.wall_seconds = Some(timing.wall.median);
        self.wall_seconds_min = Some(timing.wall.min);
        self.wall_seconds_max = Some(timing.wall.max);
        self.took(timing.seconds);
    }

    /// Notes seconds, and the rates that follow from them.
    pub(super) fn took(&mut self, seconds: Spread) {
        self.seconds = Some(seconds.median);
        self.seconds_min = Some(seconds.min);
        self.seconds_max = Some(seconds.max);
        let rate = |count: Option<f64>| count.map(|count| count / seconds.median);
        self.fraction_of_floor = rate(self.floor_seconds);
        self.tokens_per_second = rate(self.tokens);
        self.elements_per_second = rate(self.elements);
    }

    /// Notes what ours and a peer took, round by round.
    pub(super) fn took_by_turns(&mut self, ours: &[f64], peer: &[f64]) {
        self.rounds = ours.len();
        let spread = |seconds: &[f64]| Spread::of(seconds.iter().copied());
        // The spread within a single round says more than its median alone.
        if ours.len() > 1 {
            self.took(spread(ours));
        }
        let Some(seconds) = self.seconds.filter(|_| !peer.is_empty()) else {
            return;
        };
        let median = spread(peer).median;
        let ratios = Spread::of(peer.iter().zip(ours).map(|(peer, ours)| peer / ours));
        self.peer_seconds = Some(median);
        self.ratio = Some(median / seconds);
        self.ratio_min = Some(ratios.min);
        self.ratio_max = Some(ratios.max);
    }
}

/// Sizes, hyperparameters, losses, checksums of a measurement, by name.
pub type Details = Map<String, Value>;

/// A measurement with its details: what `dsf bench step --json` and `dsf bench op --json` print.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The measurement.
    #[serde(flatten)]
    pub row: Row,
    /// What else is known of it.
    #[serde(flatten)]
    pub details: Details,
}

/// The rows of a file that [`write_csv`] has written; none where there is no file.
pub fn read_csv(path: &Path) -> Result<Vec<Row>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let file = std::fs::File::open(path).map_err(Error::io("read", path))?;
    let mut reader = csv::Reader::from_reader(file);
    let rows = reader.deserialize().enumerate().map(|(index, row)| {
        row.map_err(|e| {
            let reason = format!("no row of this version's measurements: {e}; move the file away, or give another --csv");
            Error::data_at(path, Position::Line(index as u64 + 2), reason).into_refusal()
        })
    });
    rows.collect()
}

/// Writes `rows` with a header, over what was there.
pub fn write_csv(path: &Path, rows: &[Row]) -> Result<()> {
    write_atomic(path, &to_csv(rows, path)?)
}
