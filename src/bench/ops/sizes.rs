//! The shapes that ops are timed at on a GPU.

use super::Shape;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::bench) enum Sizes {
    /// With states: short sequences and long ones, few states and many.
    States,
    /// Along sequences, without states.
    Sequences,
    /// On rows.
    Rows,
    /// From d features to d.
    Square,
    /// From d features to 4 d and back.
    Wide,
    /// Functions of one number.
    Numbers,
    /// Every token of a task, from a vocabulary.
    Tokens,
    /// Labelled rows, to a vocabulary.
    Labels,
}

/// The paper's tasks: batch, length, width, states.
pub(in crate::bench) const TASKS: [[usize; 4]; 4] = [
    [512, 64, 64, 64],
    [256, 128, 128, 128],
    [128, 256, 256, 256],
    [64, 512, 512, 256],
];

/// The pairs, which are the labels of a sequence, of those tasks.
pub(in crate::bench) const PAIRS: [usize; 4] = [4, 8, 16, 64];

/// Their vocabulary.
pub(in crate::bench) const VOCABULARY: usize = 8192;

/// Many states, long sequences in a batch, one very long sequence, a usual layer of Mamba.
const MANY: [usize; 4] = [64, 512, 512, 1024];
const LISTOPS: [usize; 4] = [32, 2048, 192, 64];
const LONG: [usize; 4] = [1, 16384, 512, 64];
const MAMBA: [usize; 4] = [8, 2048, 1536, 16];

impl Sizes {
    /// Each of them, with one head.
    pub fn shapes(self) -> Vec<Shape> {
        let shape = |[batch, len, width, states]: [usize; 4]| Shape {
            batch,
            len,
            width,
            states,
            heads: 1,
        };
        self.numbers().into_iter().map(shape).collect()
    }

    /// B, L, d, n of each; ops without states do not read n.
    fn numbers(self) -> Vec<[usize; 4]> {
        let rows = || TASKS.iter().copied().chain([MAMBA]);
        match self {
            Self::States => TASKS
                .into_iter()
                .chain([MANY, LISTOPS, LONG, MAMBA])
                .collect(),
            Self::Sequences => TASKS.into_iter().chain([LISTOPS, LONG, MAMBA]).collect(),
            Self::Rows => rows().collect(),
            Self::Square => rows().map(|[b, l, d, _]| [b, l, d, d]).collect(),
            Self::Wide => rows().map(|[b, l, d, _]| [b, l, d, 4 * d]).collect(),
            Self::Numbers => vec![TASKS[0], TASKS[3]],
            Self::Tokens => TASKS.map(|[b, l, d, _]| [b, l, d, VOCABULARY]).to_vec(),
            Self::Labels => {
                let labelled = TASKS.iter().zip(PAIRS);
                let shape = |(&[b, _, d, _], k): (&[usize; 4], usize)| [b, k, d, VOCABULARY];
                labelled.map(shape).collect()
            }
        }
    }
}
