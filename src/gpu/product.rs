//! Matrix products, computed by cuBLAS (by plain loops in the emulation).

use super::View;
use candle_core::{bail, DType, Result};
use std::cell::Cell;

/// Rounding of the factors of f32 products; sums are f32 in every case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Factors {
    /// No rounding.
    #[default]
    F32,
    /// Rounding to the 11 bits of TF32, or to more.
    Tf32,
    /// Rounding to bf16, on a CPU. On a GPU, tensors of bf16 say that products are of bf16, and those of f32 are f32.
    Bf16,
}

thread_local! {
    static FACTORS: Cell<Factors> = const { Cell::new(Factors::F32) };
}

/// Runs `work` with `factors` for the products that this thread computes, launches or records meanwhile: those of ops on
/// a CPU, of [`Product`], and inside kernels ([`Kernel::of_products`](super::Kernel::of_products)). Other threads are not
/// affected, even on the same GPU, except by the tasks of this thread's ops.
pub fn with_factors<T>(factors: Factors, work: impl FnOnce() -> T) -> T {
    struct RestoreFactors(Factors);
    impl Drop for RestoreFactors {
        fn drop(&mut self) {
            FACTORS.set(self.0);
        }
    }
    let _restore = RestoreFactors(FACTORS.replace(factors));
    work()
}

/// Rounding of this thread's products.
pub fn factors() -> Factors {
    FACTORS.get()
}

/// A row-major matrix, or a contiguous batch of matrices.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    /// Elements, row by row.
    pub values: View<'a>,
    /// Whether the product reads the matrix transposed.
    pub transposed: bool,
}

impl<'a> Matrix<'a> {
    /// Returns the matrix as stored.
    pub fn plain(values: View<'a>) -> Self {
        let transposed = false;
        Self { values, transposed }
    }

    /// Returns the transpose of the stored matrix.
    pub fn transposed(values: View<'a>) -> Self {
        let transposed = true;
        Self { values, transposed }
    }
}

/// to = left right, or to += left right, for each product of a batch. Both factors are f32, or both bf16; the result of
/// bf16 factors is f32 or bf16. Sums are accumulated in f32.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// Number of products; a factor with a single matrix is used in all of them.
    pub batch: usize,
    /// Rows of `left` and of the result.
    pub rows: usize,
    /// Columns of `left`, rows of `right`.
    pub inner: usize,
    /// Columns of `right` and of the result.
    pub columns: usize,
    /// Left factor, (rows, inner).
    pub left: Matrix<'a>,
    /// Right factor, (inner, columns).
    pub right: Matrix<'a>,
    /// Whether the products are added to the contents of the result.
    pub add: bool,
    /// Rounding of f32 factors, by default this thread's, see [`with_factors`].
    pub factors: Factors,
}

impl<'a> Product<'a> {
    /// Returns one product, of (rows, inner) and (inner, columns).
    pub fn one([rows, inner, columns]: [usize; 3], left: Matrix<'a>, right: Matrix<'a>) -> Self {
        Self { batch: 1, rows, inner, columns, left, right, add: false, factors: factors() }
    }

    /// Returns the product, added to the contents of the result if `add`.
    pub fn added(self, add: bool) -> Self {
        Self { add, ..self }
    }

    /// Returns the product without its lifetime, for the emulation, which keeps the memory alive.
    pub fn kept(&self) -> Product<'static> {
        let kept = |m: &Matrix| Matrix { values: m.values.kept(), transposed: m.transposed };
        let (left, right) = (kept(&self.left), kept(&self.right));
        Product { left, right, ..*self }
    }

    /// Distance from one left matrix of the batch to the next, in elements.
    pub fn left_stride(&self) -> usize {
        stride(&self.left, self.rows * self.inner)
    }

    /// Distance from one right matrix of the batch to the next, in elements.
    pub fn right_stride(&self) -> usize {
        stride(&self.right, self.inner * self.columns)
    }

    /// Returns an error unless the sizes and types of the factors and of `to` agree.
    pub(super) fn check(&self, to: View) -> Result<()> {
        let fits = |m: &Matrix, one: usize| m.values.len() == one || m.values.len() == self.batch * one;
        let types = (self.left.values.dtype(), self.right.values.dtype(), to.dtype());
        let known = matches!(
            types,
            (DType::F32, DType::F32, DType::F32) | (DType::BF16, DType::BF16, DType::F32 | DType::BF16)
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
