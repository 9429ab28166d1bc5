//! Arithmetic of a mixer, the basis of lower bounds and estimates of its cost.

use super::{Entry, MixerSpec};

/// Arithmetic of one layer of a mixer per token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixerWork {
    /// Algorithm along the sequence.
    pub core: Core,
    /// Channels of the core: d, or the inner width E.
    pub channels: usize,
    /// States per channel, n; 1 in a gated scan. The query/key width in softmax attention.
    pub states: usize,
    /// Weights of the projections around the core, one multiply-add each per token. Projections to one number per head
    /// and short convolutions are not counted.
    pub projections: usize,
    /// Features per token of a feature map that expands queries and keys; 0 where none does.
    pub features: usize,
    /// Elements per pair of tokens in matrices over pairs: those alive at once in a forward pass, and those kept for
    /// the backward pass.
    pub pairs: [f64; 2],
}

/// Algorithm along the sequence, by the arithmetic that bounds its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// All pairs of queries and keys: L² (n + d) multiply-adds per sequence.
    SoftmaxAttention,
    /// At most this many keys per query.
    SparseAttention(usize),
    /// Matrix products within chunks and a state between chunks, where the states of a channel share one decay or have
    /// none (linear attention, SSD).
    ChunkedScan,
    /// A rank-one update and a product with the query per token, for a matrix-valued state with a decay per row or per
    /// head (gated linear attention).
    MatrixScan,
    /// A scan with a decay per state: one exponential per token, channel and state (S6).
    SelectiveScan,
    /// A convolution as long as the sequence per channel, by FFT; its states are those that the kernel is computed
    /// from.
    LongConvolution,
    /// A scan h_i = a_i h_{i-1} + b_i with one state per channel, bounded by memory traffic (gated RNNs).
    GatedScan,
}

impl MixerWork {
    pub(super) fn new(core: Core, [channels, states]: [usize; 2], projections: usize) -> Self {
        Self { core, channels, states, projections, features: 0, pairs: [0.0; 2] }
    }

    /// The same with `states` features per channel, from a feature map that is applied `maps` times per token.
    pub(super) fn over_features(self, states: usize, maps: usize) -> Self {
        Self { states, features: states.saturating_mul(maps), ..self }
    }

    /// The arithmetic of two such cores side by side.
    fn twice(self) -> Self {
        let Self { core, channels, states, projections, features, pairs } = self;
        let pairs = pairs.map(|elements| 2.0 * elements);
        Self { core, channels: 2 * channels, states, projections: 2 * projections, features: 2 * features, pairs }
    }
}

impl Entry {
    /// Arithmetic of one layer, in both of its passes if there are two; `None` where no bound is known.
    pub fn work<'a>(&self, spec: impl Into<MixerSpec<'a>>) -> Option<MixerWork> {
        let spec = spec.into();
        let of_pass = (self.work)(&spec)?;
        Some(if self.has_two_passes(&spec) { of_pass.twice() } else { of_pass })
    }
}
