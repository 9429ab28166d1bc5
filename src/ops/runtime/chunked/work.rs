//! The matrices of a chunk, allocated once and reused for many chunks.

use super::chunk::{Chunk, LEAF};
use super::{Chunked, CHUNK};
use crate::runtime::float::Float;
use crate::runtime::lanes::{splat, Lanes, LANES};
use crate::runtime::matrix::Matrix;

/// Scratch memory of one task. Steps, rows, states and channels are those of a chunk.
pub(super) struct ChunkWork<F> {
    /// (steps, n).
    pub(super) b: Matrix<F>,
    /// (rows, n).
    pub(super) c: Matrix<F>,
    /// (n, steps).
    b_t: Matrix<F>,
    /// c_t · b_s, (rows, steps); zero for later steps.
    pub(super) scores: Matrix<F>,
    /// v, (steps, channels).
    pub(super) value: Matrix<F>,
    /// (steps, channels).
    pub(super) decay: Matrix<F>,
    /// Values decayed to a boundary, (steps, channels), and their transpose.
    pub(super) left: Matrix<F>,
    pub(super) left_t: Matrix<F>,
    /// Gradients of rows decayed back to a boundary, (rows, channels).
    pub(super) right: Matrix<F>,
    /// (rows or steps, channels).
    pub(super) product: Matrix<F>,
    /// y or its gradient, (rows, channels).
    pub(super) y: Matrix<F>,
    /// A transposed state, (channels, n).
    pub(super) state_t: Matrix<F>,
    /// Gradients of the matrices above.
    pub(super) g_b: Matrix<F>,
    pub(super) g_c: Matrix<F>,
    pub(super) g_scores: Matrix<F>,
    pub(super) g_value: Matrix<F>,
    /// The gradient of the exponent of each decay, (steps, channels).
    pub(super) g_exponent: Matrix<F>,
    /// For one row and each step of a leaf: the row's gradient decayed to that step, and lanes
    /// whose sum is the gradient of the score.
    pub(super) reached: Vec<Lanes<F>>,
    pub(super) dots: Vec<Lanes<F>>,
}

impl<F: Float> ChunkWork<F> {
    /// Scratch memory for chunks of at most `rows` rows.
    pub(super) fn new(op: &Chunked, rows: usize) -> Self {
        let (width, states) = (op.width(), op.states);
        let steps = CHUNK.min(op.len);
        let of_steps = |columns| Matrix::zeros(steps, columns);
        let of_rows = |columns| Matrix::zeros(rows, columns);
        Self {
            b: of_steps(states),
            c: of_rows(states),
            b_t: Matrix::zeros(states.next_multiple_of(LANES), steps),
            scores: of_rows(steps),
            value: of_steps(width),
            decay: of_steps(width),
            left: of_steps(width),
            left_t: Matrix::zeros(width, steps),
            right: of_rows(width),
            product: Matrix::zeros(rows.max(steps), width),
            y: of_rows(width),
            state_t: Matrix::zeros(width, states),
            g_b: of_steps(states),
            g_c: of_rows(states),
            g_scores: of_rows(steps),
            g_value: of_steps(width),
            g_exponent: of_steps(width),
            reached: vec![splat(F::zero()); LEAF],
            dots: vec![splat(F::zero()); LEAF],
        }
    }

    /// Loads b and c and computes the scores.
    #[inline(always)]
    pub(super) fn load(&mut self, chunk: &Chunk<F>) {
        let (n, rows) = (chunk.op.states, chunk.rows());
        self.b.set_rows(chunk.b, n, 0..n);
        self.c.set_rows(chunk.c, n, 0..n);
        if rows == 0 {
            return;
        }
        let b = &self.b;
        self.b_t.set_transposed(0..chunk.steps(), b.groups(), |r, g| *b.at(r, g));
        self.scores.set_product(0..rows, &self.c, &self.b_t, |top| (0..n, 0..chunk.reach(top)));
        hide(chunk, &mut self.scores);
    }
}

/// Applies the causal mask: sets the scores of later steps to zero.
#[inline(always)]
pub(super) fn hide<F: Float>(chunk: &Chunk<F>, scores: &mut Matrix<F>) {
    for r in 0..chunk.rows() {
        scores.row_mut(r)[chunk.time(r) + 1..].fill(F::zero());
    }
}

/// Sets the first `rows` to zero.
#[inline(always)]
pub(super) fn clear<F: Float>(matrix: &mut Matrix<F>, rows: usize) {
    matrix.rows_mut(0..rows).fill(splat(F::zero()));
}
