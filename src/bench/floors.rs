//! Floors: the least time in which a machine can do some work, computed from shapes and [`PeakRates`].
//!
//! An op takes at least as long as its slowest kind of work (matrix products, vector instructions, exponentials,
//! memory). A training step takes at least the sum over its parts, with the projection to the vocabulary at the
//! labelled rows and everything else at every row. Memory traffic is counted without caches, so ops on tensors that fit
//! into a cache may be faster than their floor.

use crate::config::RunConfig;
use crate::error::Result;
use crate::gpu::{Chip, Factors};
use crate::mixers::{self, Core, MixerWork};
use crate::model;
use crate::ops::Peaks;

/// Length of a chunk that is computed as one matrix product.
const CHUNK: usize = 64;

/// Work of one op, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpWork {
    /// Multiplications and additions in matrix products.
    pub flops: f64,
    /// Vector instructions times their active lanes.
    pub lanes: f64,
    /// Exponentials.
    pub exps: f64,
    /// Numbers read from and written to memory.
    pub words: f64,
    /// Numbers read and written by matrix products. They count only on a GPU: a CPU core takes longer to multiply them
    /// than to read them.
    pub operands: f64,
}

impl OpWork {
    /// Returns work that only moves `words` numbers.
    pub fn words(words: f64) -> Self {
        Self { words, ..Self::default() }
    }
}

/// Work of the forward pass, and of forward and backward together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passes {
    pub forward: OpWork,
    pub both: OpWork,
}

impl Passes {
    /// Returns an elementwise op on `count` elements, with `forward` and `both` words of memory per element.
    pub fn moves(count: f64, forward: f64, both: f64) -> Self {
        Self { forward: OpWork::words(count * forward), both: OpWork::words(count * both) }
    }

    /// Returns a linear map with `flops`, whose backward pass has two products. `operands` numbers are read and
    /// written.
    pub fn dense(flops: f64, operands: f64) -> Self {
        Self::multiply(flops, operands, 3.0)
    }

    /// Returns the two products of attention, scores and values. The backward pass has two products for each, and
    /// recomputes the scores. `operands` numbers are read and written.
    pub fn products(flops: f64, operands: f64) -> Self {
        Self::multiply(flops, operands, 3.5)
    }

    /// The backward pass reads the operands again, and reads or writes their gradients.
    fn multiply(flops: f64, operands: f64, times: f64) -> Self {
        let work =
            |times: f64, passes: f64| OpWork { flops: times * flops, operands: passes * operands, ..OpWork::default() };
        Self { forward: work(1.0, 1.0), both: work(times, 3.0) }
    }
}

/// Sizes of an op: (B, L, d), with n states per channel and s heads if the op has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OpShape {
    pub batch: usize,
    pub len: usize,
    pub width: usize,
    pub states: usize,
    pub heads: usize,
}

impl OpShape {
    /// Returns (B, L, `last`).
    pub fn sequence(&self, last: usize) -> Vec<usize> {
        vec![self.batch, self.len, last]
    }

    /// Returns (B, s, L, `last` / s).
    pub fn split(&self, last: usize) -> Vec<usize> {
        vec![self.batch, self.heads, self.len, last / self.heads]
    }

    /// Returns B L.
    pub fn tokens(self) -> f64 {
        (self.batch * self.len) as f64
    }

    /// Returns B L d.
    pub fn channels(self) -> f64 {
        self.tokens() * self.width as f64
    }

    /// Returns B L d n.
    pub fn elements(self) -> f64 {
        self.channels() * self.states as f64
    }

    /// Number of elements in queries, keys, values and outputs.
    fn attention_operands(self) -> f64 {
        2.0 * self.tokens() * (self.states + self.width) as f64
    }
}

impl From<[usize; 4]> for OpShape {
    /// Converts B, L, d, n, with one head.
    fn from([batch, len, width, states]: [usize; 4]) -> Self {
        Self { batch, len, width, states, heads: 1 }
    }
}

/// Work of a scan with a decay per state: one exponential and 4 instructions of the recurrence. The backward pass
/// recomputes the states, and scans in reverse with as much work again for the gradients.
pub(super) fn selective_scan(e: OpShape) -> Passes {
    let work = |walks: f64, of_width: usize, of_states: usize| OpWork {
        lanes: 4.0 * walks * e.elements(),
        exps: walks * e.elements(),
        words: e.tokens() * (of_width * e.width + of_states * e.states) as f64,
        ..OpWork::default()
    };
    Passes { forward: work(1.0, 3, 2), both: work(3.0, 3 + 5, 2 + 4) }
}

/// Work of a matrix state of n/s by d/s per head, with a decay per row. Each entry takes a product for the decay and
/// two multiply-adds, to write and to read. The backward pass scans the states twice (4, and 1 for the queries) and
/// their gradients once (2, and 3 for keys, values and decays).
pub(super) fn gla(e: OpShape) -> Passes {
    matrix_state(e, 3.0, [3.0, 13.0])
}

/// Work of [`gla`] with a rank-one term in the transition: a multiply-add to project the state on one vector, and one
/// to add the other. Backward, the first scan needs the projections (4), the second does not (3, and 1 for the
/// queries); gradients take 3, and 6 for keys, values, decays, the vectors and projections.
pub(super) fn delta_rule(e: OpShape) -> Passes {
    matrix_state(e, 5.0, [5.0, 22.0])
}

/// Work of a matrix state with `inputs` vectors of n numbers per token, with `lanes` instructions per entry, forward
/// and in both passes, and three scans. Kernels on a GPU multiply spans of steps on tensor cores instead, which can take
/// less time than this.
fn matrix_state(e: OpShape, inputs: f64, lanes: [f64; 2]) -> Passes {
    let numbers = e.elements() / e.heads as f64;
    let (keys, values) = (e.tokens() * e.states as f64, e.channels());
    let work = |lanes: f64, walks: f64, words: f64| OpWork {
        lanes: lanes * numbers,
        exps: walks * keys,
        words,
        ..OpWork::default()
    };
    let forward = inputs * keys + 2.0 * values;
    let backward = 2.0 * inputs * keys + 3.0 * values;
    Passes { forward: work(lanes[0], 1.0, forward), both: work(lanes[1], 3.0, forward + backward) }
}

/// Work of ops whose states share a decay per channel, or have none: matrix products inside chunks of Q tokens, and a
/// state between chunks. With a single chunk, the causal mask removes half of the scores.
pub(super) fn chunked(e: OpShape) -> Passes {
    let q = CHUNK.min(e.len);
    let inside = 2 * q * (e.states + e.width);
    let flops = if e.len > q { inside + 4 * e.states * e.width } else { inside / 2 };
    Passes::products(e.tokens() * flops as f64, e.attention_operands())
}

/// Work of the scores between each query and every earlier key; their exponentials are not counted.
pub(super) fn softmax(e: OpShape) -> Passes {
    sparse_softmax(e, e.len)
}

/// Work of the scores between each query and `keys` earlier ones, or half of a short sequence.
fn sparse_softmax(e: OpShape, keys: usize) -> Passes {
    let pairs = e.len.min(2 * keys);
    Passes::products(e.tokens() * (pairs * (e.states + e.width)) as f64, e.attention_operands())
}

/// Work of one state per channel: reads decay and input, and writes the state; backward reads three, writes two.
pub(super) fn linear_scan(e: OpShape) -> Passes {
    Passes::moves(e.channels(), 3.0, 8.0)
}

/// Work of a recurrent network with `gates` gates: one product with the last output, an exponential per gate and one for
/// the output. It reads and keeps the gates' inputs; backward, two products, the functions again, and two gradients.
pub(super) fn recurrent(e: OpShape, gates: usize) -> Passes {
    let gates = gates as f64;
    let work = |products: f64, walks: f64, words: f64| OpWork {
        flops: 2.0 * products * gates * e.channels() * e.width as f64,
        exps: walks * (gates + 1.0) * e.channels(),
        words: words * e.channels(),
        ..OpWork::default()
    };
    Passes { forward: work(1.0, 1.0, 2.0 * gates + 1.0), both: work(3.0, 2.0, 5.0 * gates + 4.0) }
}

/// Work of the powers of n complex numbers per channel: a complex product and a sum each; backward the powers again,
/// and four sums.
pub(super) fn vandermonde(e: OpShape) -> Passes {
    per_state(e, 7.0, 7.0 + 14.0)
}

/// Work of some 36 instructions per state and root of unity, of which there is one for two steps: a complex reciprocal
/// and four sums; backward the same again, and 40 for the gradients.
pub(super) fn dplr_kernel(e: OpShape) -> Passes {
    per_state(e, 18.0, 18.0 + 18.0 + 20.0)
}

/// Work of seven operations per section of a channel and step; backward five of them again, and twelve.
pub(super) fn cascade(e: OpShape) -> Passes {
    per_state(e, 7.0, 7.0 + 5.0 + 12.0)
}

/// Work of an op on parameters: lanes per state of a channel and step, forward and in both passes.
fn per_state(e: OpShape, forward: f64, both: f64) -> Passes {
    let work = |lanes: f64| OpWork { lanes: lanes * e.elements() / e.batch as f64, ..OpWork::default() };
    Passes { forward: work(forward), both: work(both) }
}

/// Work of a convolution with a kernel as long as the sequence, by transforms of N = 2 L real numbers with 2 N log₂ N
/// instructions each: of u and of the output; backward of u, of the output's gradient and of u's gradient. Transforms
/// of the kernel, one per channel, are not counted.
pub(super) fn long_conv(e: OpShape) -> Passes {
    let transform = 4.0 * (2.0 * e.len as f64).log2();
    let work = |transforms: f64, words: f64| OpWork {
        lanes: transforms * transform * e.channels(),
        words: words * e.channels(),
        ..OpWork::default()
    };
    Passes { forward: work(2.0, 2.0), both: work(5.0, 5.0) }
}

/// Bytes of an f32.
const F32: f64 = 4.0;

/// Peak rates of a machine, per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeakRates {
    /// Multiplications and additions in f32 matrix products.
    flops: f64,
    /// Lanes of f32 vector instructions.
    lanes: f64,
    exps: Exps,
    /// Bytes of memory.
    bytes: f64,
    /// Whether the memory traffic of matrix products counts.
    operands: bool,
    /// Whether the time of a vector instruction is proportional to the width of its numbers.
    scaled: bool,
}

/// Hardware that computes exponentials.
#[derive(Clone, Copy, Debug)]
enum Exps {
    /// Vector instructions, this many per exponential.
    Instructions(f64),
    /// A separate unit, this many exponentials per second.
    Unit(f64),
}

/// Rates of an H200: 132 multiprocessors at 1.755 GHz.
///
/// | work | rate | why |
/// |---|---|---|
/// | multiply-add in a matrix product | 790 TFLOP/s in bf16, half in f32 | large products, tf32 for f32 |
/// | vector instruction | 29.6 T lanes/s | 128 lanes a cycle and multiprocessor |
/// | exponential | 3.7 T/s | 16 a cycle and multiprocessor |
/// | memory | 4.3 TB/s | a copy |
///
/// Products of full f32 accuracy cannot simply use tf32; with fp32 lanes (67 TFLOP/s) they reach at most 17 % of their
/// floor.
pub(super) static H200: PeakRates = PeakRates {
    flops: 395e12,
    lanes: 128.0 * 132.0 * 1.755e9,
    exps: Exps::Unit(16.0 * 132.0 * 1.755e9),
    bytes: 4.3e12,
    operands: true,
    scaled: false,
};

impl From<Chip> for PeakRates {
    /// Converts the driver's data about a GPU. The fractions available to large products and copies are those of an
    /// H200, whose driver reports 132 multiprocessors at 1.98 GHz and 4.9 TB/s.
    fn from(chip: Chip) -> Self {
        let cycles = chip.multiprocessors as f64 * chip.clock;
        let share = cycles / (132.0 * 1.98e9);
        Self {
            flops: share * H200.flops,
            lanes: chip.lanes as f64 * cycles,
            exps: Exps::Unit(16.0 * cycles),
            bytes: chip.bytes / 4.9e12 * H200.bytes,
            ..H200
        }
    }
}

impl PeakRates {
    /// Converts measurements of one core, for products of such factors. An exponential counts as many instructions as
    /// its loop takes time.
    pub fn of_core(peaks: Peaks, factors: Factors) -> Self {
        Self {
            flops: peaks.products(factors),
            lanes: peaks.lanes,
            exps: Exps::Instructions(peaks.lanes / peaks.exps),
            bytes: peaks.bytes,
            operands: false,
            scaled: true,
        }
    }
}

impl PeakRates {
    /// Least time in seconds for `work` with numbers of `bytes` bytes.
    pub fn seconds(&self, work: OpWork, bytes: f64) -> f64 {
        let wider = bytes / F32;
        let (lanes, exps) = match self.exps {
            Exps::Instructions(each) => (work.lanes + each * work.exps, 0.0),
            Exps::Unit(rate) => (work.lanes, work.exps / rate),
        };
        let operands = if self.operands { work.operands } else { 0.0 };
        let vectors = (lanes / self.lanes).max(exps);
        let vectors = if self.scaled { wider * vectors } else { vectors };
        let products = wider * work.flops / self.flops;
        let memory = bytes * (work.words + operands) / self.bytes;
        products.max(vectors).max(memory)
    }
}

/// Least time in seconds of one training step with activations of `bytes` bytes; `None` if the mixer's row states no
/// arithmetic.
pub(super) fn step(config: &RunConfig, rates: &PeakRates, bytes: f64) -> Result<Option<f64>> {
    let (model, task) = (&config.model, config.task.sizes()?);
    let kinds = mixers::of_model(model)?;
    let works = kinds.iter().map(|(mixer, model, count)| Some((mixer.work(&**model)?, *count as f64)));
    let Some(works) = works.collect::<Option<Vec<(MixerWork, f64)>>>() else { return Ok(None) };
    let batch = config.train.batch_size;
    let [batch, width, layers] = [batch, model.d_model, model.n_layers].map(|size| size as f64);
    let tokens = batch * task.tokens_per_example() as f64;
    let projections: f64 = works.iter().map(|(work, count)| work.projections as f64 * count).sum();
    // Residual stream, norms and projections are read and written in both passes.
    let beside = model::weights_beside_mixer(model) as f64;
    let crossings = if beside > 0.0 { 26.0 } else { 14.0 };
    let vocabulary = task.vocab_size as f64 * width;
    // A weight takes a multiplication and an addition forward, and twice that backward.
    let blocks = OpWork {
        flops: 6.0 * tokens * (projections + layers * beside),
        operands: crossings * layers * tokens * width,
        ..OpWork::default()
    };
    // The head of a classifier reads one vector per document, which is negligible.
    let head = match model.classifier {
        Some(_) => OpWork::default(),
        None => OpWork { flops: 6.0 * batch * task.labels_per_example as f64 * vocabulary, ..OpWork::default() },
    };
    let tables = if model.language.is_some() { 2.0 } else { 1.0 };
    // AdamW reads weight, gradient and two moments in f32, and writes all but the gradient.
    let update = OpWork::words(7.0 * (tables * vocabulary + layers * 6.0 * width * width));
    let dense = rates.seconds(blocks, bytes) + rates.seconds(head, bytes);
    let mixing = works.iter().map(|(work, count)| {
        let core = OpShape::from([config.train.batch_size * task.documents, task.seq_len, work.channels, work.states]);
        count * rates.seconds(along_sequence(work.core, core).both, bytes)
    });
    Ok(Some(dense + mixing.sum::<f64>() + rates.seconds(update, F32)))
}

/// Work of an algorithm along the sequence.
fn along_sequence(core: Core, e: OpShape) -> Passes {
    match core {
        Core::SoftmaxAttention => softmax(e),
        Core::SparseAttention(keys) => sparse_softmax(e, keys),
        Core::ChunkedScan | Core::MatrixScan => chunked(e),
        Core::LongConvolution => long_conv(e),
        Core::SelectiveScan => selective_scan(e),
        Core::GatedScan => linear_scan(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    /// A Zen-4-class core at 3.3 GHz that runs AVX-512 on two 256-bit pipes.
    static CORE: LazyLock<PeakRates> = LazyLock::new(|| {
        let cycles = 3.3e9;
        let lanes = 16.0 * cycles;
        PeakRates::of_core(
            Peaks { flops: 32.0 * cycles, bf16: None, lanes, exps: lanes / 8.0, bytes: 20e9 },
            Factors::F32,
        )
    });

    const CELL: OpShape = OpShape { batch: 512, len: 64, width: 64, states: 64, heads: 1 };

    #[test]
    fn one_chunk_has_no_state_and_half_the_scores() {
        let flops = |len: usize| {
            let e = OpShape { len, ..CELL };
            chunked(e).forward.flops / e.tokens()
        };
        assert_eq!(flops(64), 64.0 * 128.0);
        assert_eq!(flops(128), 2.0 * 64.0 * 128.0 + 4.0 * 64.0 * 64.0);
        assert_eq!(softmax(CELL).forward.flops, chunked(CELL).forward.flops);
    }

    #[test]
    fn a_scan_takes_twelve_instructions_an_element_and_thirty_six_both_ways() {
        let Passes { forward, both } = selective_scan(CELL);
        let rate = |work: OpWork| CELL.elements() / CORE.seconds(work, 4.0) / 1e9;
        assert!((rate(forward) - 4.4).abs() < 1e-9);
        assert!((rate(both) - 4.4 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn on_a_gpu_a_scan_waits_for_exponentials_whatever_it_reads() {
        let Passes { forward, both } = selective_scan(CELL);
        for bytes in [2.0, 4.0] {
            assert!((1e6 * H200.seconds(forward, bytes) - 36.2).abs() < 0.1);
            assert!((1e6 * H200.seconds(both, bytes) - 108.6).abs() < 0.2);
        }
    }

    #[test]
    fn wider_numbers_take_longer() {
        let work = linear_scan(CELL).forward;
        for rates in [&*CORE, &H200] {
            assert_eq!(rates.seconds(work, 8.0), 2.0 * rates.seconds(work, 4.0));
        }
    }

    #[test]
    fn operands_of_products_count_on_a_gpu_alone() {
        let work = Passes::dense(1.0, 1e9).forward;
        assert!(CORE.seconds(work, 4.0) < 1e-9);
        assert_eq!(H200.seconds(work, 2.0), 2e9 / 4.3e12);
    }

    #[test]
    fn the_papers_smallest_step_takes_a_tenth_to_a_third_of_a_second_at_least() {
        let floor = |mixer: &str| {
            let settings = [("preset", "paper"), ("mixer", mixer), ("batch-size", "512")];
            let run = crate::recipes::run("mqar", &settings).unwrap();
            let floor = step(&run, &CORE, 4.0).unwrap();
            floor.map(|seconds| (1e4 * seconds).round() / 1e4)
        };
        for (mixer, expected) in [
            ("softmax", 0.1406),
            ("linear", 0.1406),
            ("normalized", 0.2626),
            ("s6", 0.2925),
            ("ssd", 0.1256),
            ("qlstm", 0.3498),
        ] {
            assert_eq!(floor(mixer), Some(expected), "{mixer}");
        }
        assert_eq!(floor("lstm"), None);
    }

    #[test]
    fn on_an_h200_the_same_step_takes_some_hundred_microseconds() {
        let floor = |mixer: &str| {
            let settings = [("preset", "paper"), ("mixer", mixer), ("batch-size", "512")];
            let run = crate::recipes::run("mqar", &settings).unwrap();
            let floor = step(&run, &H200, 2.0).unwrap();
            floor.map(|seconds| (1e6 * seconds).round())
        };
        for (mixer, expected) in [("softmax", 63.0), ("ssd", 63.0), ("s6", 256.0)] {
            assert_eq!(floor(mixer), Some(expected), "{mixer}");
        }
    }
}
