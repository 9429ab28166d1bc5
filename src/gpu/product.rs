//! Matrix products, which a library computes.

use super::{Buffer, View};
use candle_core::{bail, DType, Result};

/// A row-major matrix, or a batch of them one after another.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) values: View<'a>,
    /// Whether it enters the product transposed.
    pub(crate) transposed: bool,
}

impl<'a> Matrix<'a> {
    /// As it lies there.
    pub(crate) fn plain(values: View<'a>) -> Self {
        let transposed = false;
        Self { values, transposed }
    }

    /// Rows for columns.
    pub(crate) fn transposed(values: View<'a>) -> Self {
        let transposed = true;
        Self { values, transposed }
    }
}

/// to = left right (+ to), for each of a batch. Both factors hold f32, or both bf16; the result holds
/// either. Sums are f32.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    /// Products; a factor with a single matrix serves all of them.
    pub(crate) batch: usize,
    /// Rows of left and of the result.
    pub(crate) rows: usize,
    /// Columns of left, rows of right.
    pub(crate) inner: usize,
    /// Columns of right and of the result.
    pub(crate) columns: usize,
    pub(crate) left: Matrix<'a>,
    pub(crate) right: Matrix<'a>,
    /// Whether the result is added to what is there.
    pub(crate) add: bool,
}

impl<'a> Product<'a> {
    /// One product, of rows x inner and inner x columns.
    pub(crate) fn one(
        [rows, inner, columns]: [usize; 3],
        left: Matrix<'a>,
        right: Matrix<'a>,
    ) -> Self {
        Self {
            batch: 1,
            rows,
            inner,
            columns,
            left,
            right,
            add: false,
        }
    }

    /// The same, added to what is there if `add`.
    pub(crate) fn added(self, add: bool) -> Self {
        Self { add, ..self }
    }

    /// The same without a hold on the memory.
    #[cfg(test)]
    pub(super) fn kept(&self) -> Product<'static> {
        let kept = |m: &Matrix| Matrix {
            values: m.values.kept(),
            transposed: m.transposed,
        };
        Product {
            left: kept(&self.left),
            right: kept(&self.right),
            batch: self.batch,
            rows: self.rows,
            inner: self.inner,
            columns: self.columns,
            add: self.add,
        }
    }

    /// Elements from one left matrix of the batch to the next.
    pub(super) fn left_stride(&self) -> usize {
        stride(&self.left, self.rows * self.inner)
    }

    /// Elements from one right matrix of the batch to the next.
    pub(super) fn right_stride(&self) -> usize {
        stride(&self.right, self.inner * self.columns)
    }

    pub(super) fn check(&self, to: &Buffer) -> Result<()> {
        let fits =
            |m: &Matrix, one: usize| m.values.len() == one || m.values.len() == self.batch * one;
        let types = (
            self.left.values.dtype(),
            self.right.values.dtype(),
            to.dtype(),
        );
        let known = matches!(
            types,
            (DType::F32, DType::F32, DType::F32)
                | (DType::BF16, DType::BF16, DType::F32 | DType::BF16)
        );
        if !known
            || !fits(&self.left, self.rows * self.inner)
            || !fits(&self.right, self.inner * self.columns)
            || to.len() != self.batch * self.rows * self.columns
        {
            bail!("a matrix product does not fit its {types:?} factors and result");
        }
        Ok(())
    }
}

fn stride(matrix: &Matrix, one: usize) -> usize {
    match matrix.values.len() == one {
        true => 0,
        false => one,
    }
}
