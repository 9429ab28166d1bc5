//! The arithmetic of a mixer, from which floors and estimates of its cost are computed.

use super::{Entry, MixerSpec};

/// What one layer of a mixer computes for a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixerWork {
    /// The algorithm that moves information along the sequence.
    pub core: Core,
    /// Channels of the core: d, or the inner width E of mixers that widen.
    pub channels: usize,
    /// States per channel, n; 1 in a gated scan. The query/key width in softmax attention.
    pub states: usize,
    /// Weights of the linear maps around the core; each multiplies and adds once per token. Gates that
    /// make one number per head from a token, and short convolutions, are not counted.
    pub projections: usize,
    /// Numbers a token that a feature map makes of queries and keys, where they are more than these.
    pub features: usize,
    /// Numbers for each pair of tokens of a sequence, of matrices over pairs: those that exist at one time in a pass, and
    /// those that its backward pass keeps.
    pub pairs: [f64; 2],
}

/// Algorithms along the sequence, by the arithmetic that bounds their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// Every query meets every key before it: L² (n + d) multiply-adds a sequence.
    SoftmaxAttention,
    /// Every query meets this many keys at most.
    SparseAttention(usize),
    /// The states of a channel share one decay, or have none: matrix products within chunks, and a state
    /// between chunks (linear attention, SSD).
    ChunkedScan,
    /// Every row of a matrix of state has a decay of its own, or all of a head share one: a rank-one update and a product with
    /// the query a token (gated linear attention).
    MatrixScan,
    /// Every state has a decay of its own, one exponential per token, channel and state (S6).
    SelectiveScan,
    /// One kernel as long as the sequence for every channel, by Fourier transforms; the states are those that it is made from.
    LongConvolution,
    /// One state per channel, h_i = a_i h_{i-1} + b_i: bounded by memory traffic (gated RNNs).
    GatedScan,
}

impl MixerWork {
    pub(super) fn new(core: Core, [channels, states]: [usize; 2], projections: usize) -> Self {
        Self {
            core,
            channels,
            states,
            projections,
            features: 0,
            pairs: [0.0; 2],
        }
    }

    /// The same with `states` features a channel, which a feature map makes `maps` times for every token.
    pub(super) fn over_features(self, states: usize, maps: usize) -> Self {
        Self {
            states,
            features: states.saturating_mul(maps),
            ..self
        }
    }
}

impl Entry {
    /// The arithmetic of one layer; `None` where no bound is known.
    pub fn work<'a>(&self, spec: impl Into<MixerSpec<'a>>) -> Option<MixerWork> {
        (self.work)(&spec.into())
    }
}
