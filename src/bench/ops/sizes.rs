//! The shapes at which ops are timed: those of the paper's tasks on a GPU, smaller ones on a CPU.

use crate::bench::floors::Extent;

/// Sizes of an op: (B, L, d), with n states per channel and s heads where the op has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::bench) struct Shape {
    pub batch: usize,
    pub len: usize,
    pub width: usize,
    pub states: usize,
    pub heads: usize,
}

impl Shape {
    /// (B, L, `last`).
    pub fn sequence(&self, last: usize) -> Vec<usize> {
        vec![self.batch, self.len, last]
    }

    /// (B, s, L, `last` / s).
    pub fn split(&self, last: usize) -> Vec<usize> {
        vec![self.batch, self.heads, self.len, last / self.heads]
    }

    pub fn extent(&self) -> Extent {
        Extent {
            batch: self.batch as f64,
            len: self.len as f64,
            width: self.width as f64,
            states: self.states as f64,
        }
    }
}

impl From<[usize; 4]> for Shape {
    /// B, L, d, n with one head.
    fn from([batch, len, width, states]: [usize; 4]) -> Self {
        Self {
            batch,
            len,
            width,
            states,
            heads: 1,
        }
    }
}

/// A list of shapes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::bench) enum Sizes {
    /// Sequence ops with states: short and long sequences, few and many states.
    States,
    /// The same and, on a CPU, shapes of few and of very many states: a decay for every state costs most.
    DecayedStates,
    /// Sequence ops without states.
    Sequences,
    /// Ops on rows of d.
    Rows,
    /// Linear maps from d features to d.
    Square,
    /// Linear maps from d features to 4 d and back.
    Wide,
    /// Elementwise functions.
    Numbers,
    /// Every token of a task, from a vocabulary.
    Tokens,
    /// The labelled rows of a task, to a vocabulary.
    Labels,
}

/// The paper's tasks: batch, length, width, states.
pub(in crate::bench) const TASKS: [[usize; 4]; 4] = [
    [512, 64, 64, 64],
    [256, 128, 128, 128],
    [128, 256, 256, 256],
    [64, 512, 512, 256],
];

/// The key-value pairs of those tasks, as many as a sequence has labels.
pub(in crate::bench) const PAIRS: [usize; 4] = [4, 8, 16, 64];

/// Their vocabulary.
pub(in crate::bench) const VOCABULARY: usize = 8192;

/// A typical layer of Mamba.
pub(in crate::bench) const MAMBA: [usize; 4] = [8, 2048, 1536, 16];

/// Many states.
const MANY: [usize; 4] = [64, 512, 512, 1024];
/// Long sequences in a batch.
const LISTOPS: [usize; 4] = [32, 2048, 192, 64];
/// One very long sequence.
const LONG: [usize; 4] = [1, 16384, 512, 64];

impl Sizes {
    pub fn on_gpu(self) -> Vec<Shape> {
        let tasks = |more: &[[usize; 4]]| [TASKS.as_slice(), more].concat();
        let rows = || tasks(&[MAMBA]).into_iter();
        let sizes = match self {
            Self::States | Self::DecayedStates => tasks(&[MANY, LISTOPS, LONG, MAMBA]),
            Self::Sequences => tasks(&[LISTOPS, LONG, MAMBA]),
            Self::Rows => tasks(&[MAMBA]),
            Self::Square => rows().map(|[b, l, d, _]| [b, l, d, d]).collect(),
            Self::Wide => rows().map(|[b, l, d, _]| [b, l, d, 4 * d]).collect(),
            Self::Numbers => vec![TASKS[0], TASKS[3]],
            Self::Tokens => TASKS.map(|[b, l, d, _]| [b, l, d, VOCABULARY]).to_vec(),
            Self::Labels => {
                let labelled = TASKS.into_iter().zip(PAIRS);
                let sizes = labelled.map(|([b, _, d, _], k)| [b, k, d, VOCABULARY]);
                sizes.collect()
            }
        };
        sizes.into_iter().map(Shape::from).collect()
    }

    pub fn on_cpu(self) -> Vec<Shape> {
        let rows = |states| [64, 512, 128, states];
        let sizes = match self {
            Self::States => vec![[8, 512, 128, 64]],
            Self::DecayedStates => vec![[8, 512, 128, 64], [32, 64, 64, 64], [2, 512, 128, 1024]],
            Self::Sequences | Self::Rows | Self::Numbers => vec![rows(1)],
            Self::Square => vec![rows(128)],
            Self::Wide => vec![rows(512)],
            Self::Tokens => vec![rows(VOCABULARY)],
            Self::Labels => vec![[512, 4, 64, VOCABULARY]],
        };
        sizes.into_iter().map(Shape::from).collect()
    }
}
