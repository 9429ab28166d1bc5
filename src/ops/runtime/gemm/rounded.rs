//! Copies rounded to bf16, for products by the crate where the processor has no unit for them.

use super::view::View;
use crate::runtime::float::Float;
use dsf_simd::simd;

/// Rows of the left operand that are rounded at a time.
const ROWS: usize = 128;

/// A copy of an operand.
pub(super) enum Copied<F> {
    /// Contiguous rows.
    Rows(Vec<F>),
    /// Contiguous columns.
    Columns(Vec<F>),
}

impl<F: Float> Copied<F> {
    /// Returns a rounded copy with the order of the original.
    pub(super) fn rounded(x: View<F>) -> Self {
        match x.column_stride {
            1 => Self::Rows(lines(x)),
            _ => Self::Columns(lines(x.t())),
        }
    }

    pub(super) fn view(&self, rows: usize, columns: usize) -> View<'_, F> {
        match self {
            Self::Rows(x) => View::new(x, columns),
            Self::Columns(x) => View::new(x, rows).t(),
        }
    }
}

/// Calls `work` for blocks of rows, each with its first row and a rounded copy.
pub(super) fn by_rows<F: Float>(a: View<F>, mut work: impl FnMut(usize, View<F>)) {
    for first in (0..a.rows).step_by(ROWS) {
        let block = a.part(first..(first + ROWS).min(a.rows), 0..a.columns);
        work(first, Copied::rounded(block).view(block.rows, block.columns));
    }
}

/// Contiguous rows, rounded.
fn lines<F: Float>(x: View<F>) -> Vec<F> {
    let mut to = Vec::with_capacity(x.rows * x.columns);
    for row in 0..x.rows {
        to.extend_from_slice(&x.data[row * x.row_stride..][..x.columns]);
    }
    round_all(&mut to);
    to
}

/// Rounds every number to bf16.
#[simd]
pub(crate) fn round_all<F: Float>(x: &mut [F]) {
    for x in x {
        *x = x.to_bf16();
    }
}
