//! Estimates the memory and the time of an inspection from its sizes, before anything is allocated.

use crate::config::ModelConfig;
use crate::error::Result;
use crate::mixers::{self, Entry, Family, MixerWork};
use candle_core::{DType, Device, Tensor};
use std::time::Instant;

/// Largest number of rows of Φ that are computed.
pub const ROWS: usize = 64;
/// Largest number of copies of the factors of a system in memory at a time.
const COPIES: f64 = 7.0;
/// Copies of a map of values or outputs in f64 besides the weights: as stored, transposed, and as rows.
const MAPS: f64 = 3.0;
/// Numbers that a pass over a sequence allocates per token: for each of the d channels, and for each feature of the
/// maps and each channel of the core.
const OF_CHANNEL: f64 = 7.0;
const OF_FEATURE: f64 = 2.0;
/// Rows of softmax's attention, as scores and as weights, and rows of norms.
const OF_ROW: f64 = 4.0;
/// Bytes of the records of one row and token in both panels, including names.
const RECORD: f64 = 1500.0;
/// Operations of a product that take as long as all else that is done for one state and one token: it is sorted, its
/// logarithm is taken, and up to [`ROWS`] rows are carried through it. Measured with a Mamba of 24,576 states a layer.
const OF_STATE: f64 = 4000.0;
/// Bytes of an f64, the type of all measures.
pub const NUMBER: f64 = 8.0;

/// The requested part of an inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Outputs only.
    Pass,
    /// Outputs and the system.
    System,
    /// Outputs, the system, and records of every number.
    Records,
}

/// The sizes of a layer's mixer.
pub struct LayerSizes<'a> {
    /// Row of the registry.
    pub entry: &'a Entry,
    /// The model as if all its layers had this mixer.
    pub model: &'a ModelConfig,
    /// Number of weights.
    pub parameters: usize,
    /// Tokens.
    pub seq_len: usize,
}

impl LayerSizes<'_> {
    fn bytes(&self, need: Need) -> f64 {
        match need {
            Need::Pass => self.pass(),
            Need::System | Need::Records => self.pass() + self.system() + self.measures(),
        }
    }

    /// Bytes of the factors of the system.
    pub fn system(&self) -> f64 {
        let (states, _) = self.factors();
        COPIES * NUMBER * states * self.seq_len as f64
    }

    fn work(&self) -> Option<MixerWork> {
        self.entry.work(self.model)
    }

    /// Numbers of a factor per token, and channels.
    fn factors(&self) -> (f64, f64) {
        let d = self.model.d_model as f64;
        let Some(work) = self.work() else { return (2.0 * d, d) };
        // The channels of one head share their factors.
        let shared = self.entry.family == Family::LinearAttention && self.model.n_heads == 1;
        let (channels, states) = (work.channels as f64, work.states as f64);
        let states = if shared { states } else { channels * states };
        (states.max(d), channels)
    }

    /// Bytes of a pass over the sequence.
    pub fn pass(&self) -> f64 {
        let d = self.model.d_model as f64;
        let (mapped, channels, pairs) =
            self.work().map_or((0.0, d, 0.0), |work| (work.features as f64, work.channels as f64, work.pairs[0]));
        let features = self.parameters as f64 / d + mapped + channels;
        let of_token = OF_CHANNEL * d + OF_FEATURE * features + pairs * self.seq_len as f64;
        NUMBER * self.seq_len as f64 * of_token
    }

    /// Bytes of the products of maps, whose width is the number of channels, and of rows of attention.
    fn measures(&self) -> f64 {
        let (d, (_, channels)) = (self.model.d_model as f64, self.factors());
        let maps = MAPS * (2.0 * d * channels + channels * channels);
        let rows = OF_ROW * (ROWS.min(self.seq_len) * self.seq_len) as f64;
        NUMBER * (maps + rows)
    }
}

/// Seconds that this machine takes for `layers` layers of `model`, which has this many weights in all: a pass over the
/// sequence, and where a system is measured the products that give the norms of Φ, at the rate of one that is timed, and
/// its states at every token.
pub fn seconds(model: &ModelConfig, weights: usize, [layers, seq_len]: [usize; 2], need: Need) -> Result<f64> {
    let (mut measured, mut states) = (0.0, 0.0);
    for (entry, model, count) in mixers::of_model(model)? {
        let measures = need != Need::Pass && entry.family != Family::Attention;
        let work = entry.work(&*model).filter(|_| measures);
        let [channels, of_channel] = work.map_or([0.0; 2], |work| [work.channels as f64, work.states as f64]);
        let share = count as f64 / model.n_layers as f64;
        measured += channels * channels * share;
        states += channels * of_channel * share;
    }
    // On average half of the rows have begun.
    let of_layer = (ROWS.min(seq_len) * seq_len) as f64 * measured + OF_STATE * states * seq_len as f64;
    let flops = 2.0 * weights as f64 * seq_len as f64 + layers as f64 * of_layer;
    Ok(if flops < 1e9 { 0.0 } else { flops / rate()? })
}

/// Floating-point operations per second of a product in f64.
fn rate() -> Result<f64> {
    const WIDTH: usize = 512;
    let of = |rows| Tensor::ones((rows, WIDTH), DType::F64, &Device::Cpu);
    let (rows, square) = (of(ROWS)?, of(WIDTH)?);
    rows.matmul(&square)?;
    let begun = Instant::now();
    rows.matmul(&square)?;
    Ok(2.0 * (ROWS * WIDTH * WIDTH) as f64 / begun.elapsed().as_secs_f64().max(1e-9))
}

/// Bytes of an inspection of the layers of `model`, one after the other.
pub fn of_model(model: &ModelConfig, parameters: usize, seq_len: usize, need: Need) -> Result<f64> {
    let mut most = 0.0f64;
    for (entry, model, _) in mixers::of_model(model)? {
        let layer = LayerSizes { entry, model: &model, parameters: parameters / model.n_layers, seq_len };
        most = most.max(layer.bytes(need));
    }
    let records = RECORD * (ROWS.min(seq_len) * seq_len) as f64;
    Ok(match need {
        Need::Records => most + records * model.n_layers as f64,
        _ => most,
    })
}
