//! A measurement as a row of a CSV file.

use super::time::Seconds;
use candle_core::DType;
use serde::Serialize;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An op's results and gradients beside those of the CPU in f64.
    Check,
    /// The losses of a few training steps beside those on the CPU.
    Model,
    /// The time of an op.
    Op,
    /// The time of a training step.
    Step,
}

/// One measurement. What does not apply is empty.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceRow {
    /// What was measured.
    pub kind: Kind,
    /// Of what, with the sizes B,L,d,n.
    pub case: String,
    /// Type of the activations.
    pub dtype: &'static str,
    /// The other side of a comparison.
    pub peer: String,
    /// Device as chosen.
    pub device: String,
    /// What it is.
    pub model: String,
    /// Whether a check held.
    pub passed: Option<bool>,
    /// Largest difference: of numbers, over the larger of 1 and the largest number; of losses, relative.
    pub distance: Option<f64>,
    /// What it may be.
    pub tolerance: Option<f64>,
    /// Seconds of a call or a step: median of the rounds.
    pub seconds: Option<f64>,
    /// The fewest of a round.
    pub seconds_min: Option<f64>,
    /// The most of a round.
    pub seconds_max: Option<f64>,
    /// Seconds below which an H200 does not get.
    pub floor_seconds: Option<f64>,
    /// The floor over the median.
    pub fraction_of_floor: Option<f64>,
    /// What its authors expected of that fraction before any GPU had run it.
    pub predicted: Option<f64>,
    /// What an op counts, over the median.
    pub elements_per_second: Option<f64>,
    /// Tokens of a step over the median.
    pub tokens_per_second: Option<f64>,
    /// Seconds of the other side.
    pub peer_seconds: Option<f64>,
    /// The other side's seconds over ours.
    pub ratio: Option<f64>,
    /// Loss of the last step.
    pub loss: Option<f64>,
    /// Where a check was worst, what is absent, or why there is no number.
    pub note: String,
    /// Commit of this program.
    pub commit: String,
}

impl DeviceRow {
    /// A row about `case` with nothing measured.
    pub(super) fn new(kind: Kind, case: impl Into<String>, dtype: DType) -> Self {
        Self {
            kind,
            case: case.into(),
            dtype: dtype.as_str(),
            peer: String::new(),
            device: String::new(),
            model: String::new(),
            // A check that fails before it has a distance has failed.
            passed: matches!(kind, Kind::Check | Kind::Model).then_some(false),
            distance: None,
            tolerance: None,
            seconds: None,
            seconds_min: None,
            seconds_max: None,
            floor_seconds: None,
            fraction_of_floor: None,
            predicted: None,
            elements_per_second: None,
            tokens_per_second: None,
            peer_seconds: None,
            ratio: None,
            loss: None,
            note: String::new(),
            commit: String::new(),
        }
    }

    /// What it is about: `check small tanh 3,37,21 f32`, `step s6 512,64,64,64 f32 beside candle ops`.
    pub fn title(&self) -> String {
        let kind = match self.kind {
            Kind::Check => "check",
            Kind::Model => "model",
            Kind::Op => "op",
            Kind::Step => "step",
        };
        let title = format!("{kind} {} {}", self.case, self.dtype);
        match self.peer.as_str() {
            "" => title,
            peer => format!("{title} beside {peer}"),
        }
    }

    /// Whether something that was checked did not hold.
    pub fn failed(&self) -> bool {
        self.passed == Some(false)
    }

    /// Notes how far apart two sides were.
    pub(super) fn apart(&mut self, distance: f64, tolerance: f64) {
        self.distance = Some(distance);
        self.tolerance = Some(tolerance);
        // A NaN must not pass.
        self.passed = Some(distance <= tolerance);
    }

    /// Notes what something took.
    pub(super) fn took(&mut self, seconds: Seconds, floor: Option<f64>) {
        self.seconds = Some(seconds.median);
        self.seconds_min = Some(seconds.min);
        self.seconds_max = Some(seconds.max);
        self.floor_seconds = floor;
        self.fraction_of_floor = floor.map(|floor| floor / seconds.median);
    }

    /// Notes what the other side took.
    pub(super) fn beside(&mut self, peer_seconds: f64) {
        self.peer_seconds = Some(peer_seconds);
        self.ratio = self.seconds.map(|ours| peer_seconds / ours);
    }
}
