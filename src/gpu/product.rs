//! Matrix products, which cuBLAS computes (plain loops in the emulation).

use super::View;
use candle_core::{bail, DType, Result};

/// A row-major matrix, or a contiguous batch of them.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    /// Its elements, row by row.
    pub values: View<'a>,
    /// True if the product reads the matrix transposed.
    pub transposed: bool,
}

impl<'a> Matrix<'a> {
    /// The matrix as stored.
    pub fn plain(values: View<'a>) -> Self {
        let transposed = false;
        Self { values, transposed }
    }

    /// The transpose of the stored matrix.
    pub fn transposed(values: View<'a>) -> Self {
        let transposed = true;
        Self { values, transposed }
    }
}

/// to = left right, or to += left right, for each product of a batch. Both factors are f32, or both
/// bf16; the result of bf16 factors is f32 or bf16. Sums are accumulated in f32.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// The number of products; a factor with a single matrix is used in all of them.
    pub batch: usize,
    /// Rows of `left` and of the result.
    pub rows: usize,
    /// Columns of `left`, rows of `right`.
    pub inner: usize,
    /// Columns of `right` and of the result.
    pub columns: usize,
    /// rows by inner.
    pub left: Matrix<'a>,
    /// inner by columns.
    pub right: Matrix<'a>,
    /// True if the products are added to what the result already holds.
    pub add: bool,
}

impl<'a> Product<'a> {
    /// One product, of (rows, inner) and (inner, columns).
    pub fn one([rows, inner, columns]: [usize; 3], left: Matrix<'a>, right: Matrix<'a>) -> Self {
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

    /// Adds the products to what the result already holds if `add`.
    pub fn added(self, add: bool) -> Self {
        Self { add, ..self }
    }

    /// The product without its lifetime, for the emulation, which keeps the memory itself.
    pub fn kept(&self) -> Product<'static> {
        let kept = |m: &Matrix| Matrix {
            values: m.values.kept(),
            transposed: m.transposed,
        };
        let (left, right) = (kept(&self.left), kept(&self.right));
        Product {
            left,
            right,
            ..*self
        }
    }

    /// Elements from one left matrix of the batch to the next.
    pub fn left_stride(&self) -> usize {
        stride(&self.left, self.rows * self.inner)
    }

    /// Elements from one right matrix of the batch to the next.
    pub fn right_stride(&self) -> usize {
        stride(&self.right, self.inner * self.columns)
    }

    /// An error unless the sizes and types of the factors and of `to` agree.
    pub(super) fn check(&self, to: View) -> Result<()> {
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
            bail!("a matrix product does not match the sizes or types {types:?} of its factors and result");
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
