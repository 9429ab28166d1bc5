//! Operands of products in memory.

#![allow(unsafe_code)]

use crate::runtime::float::Float;
use crate::runtime::simd::Simd;
use candle_core::{DType, WithDType};
use std::ops::Range;

/// A matrix with a stride between rows and one between columns.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, F> {
    pub(super) data: &'a [F],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
}

impl<'a, F: Float> View<'a, F> {
    /// Contiguous rows of `columns` numbers.
    pub(crate) fn new(data: &'a [F], columns: usize) -> Self {
        Self::strided(data, columns, columns)
    }

    /// The first `columns` numbers of rows of `width`.
    pub(crate) fn strided(data: &'a [F], columns: usize, width: usize) -> Self {
        assert!(columns <= width);
        Self { data, rows: data.len().div_ceil(width), columns, row_stride: width, column_stride: 1 }
    }

    /// The transpose.
    pub(crate) fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Some of the rows and columns.
    pub(super) fn part(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        let first = rows.start * self.row_stride + columns.start * self.column_stride;
        Self { data: &self.data[first.min(self.data.len())..], rows: rows.len(), columns: columns.len(), ..self }
    }

    /// The index of the last entry.
    pub(super) fn last(&self) -> usize {
        (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride
    }

    /// Whether the current kernel gathers the columns of a transpose more slowly than copying them takes; a product by
    /// the copy is 1.1 to 1.5 times as fast. The AVX-512 kernel reads 64 rows at a time, which for long rows fall into
    /// few cache sets.
    pub(super) fn gathers_slowly(&self) -> bool {
        let whole = self.row_stride == 1 && self.column_stride == self.rows;
        whole && F::Stored::DTYPE == DType::F32 && Simd::current() >= Simd::Avx512 && self.rows >= 256
    }

    /// The same numbers as f32, which they must be.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn single(self) -> View<'a, f32> {
        assert_eq!(F::Stored::DTYPE, DType::F32);
        // SAFETY: a type whose stored numbers are f32 is f32 or a transparent struct of it.
        let data = unsafe { std::slice::from_raw_parts(self.data.as_ptr().cast(), self.data.len()) };
        let View { rows, columns, row_stride, column_stride, .. } = self;
        View { data, rows, columns, row_stride, column_stride }
    }
}

/// Numbers as f32, which they must be.
#[cfg(target_arch = "x86_64")]
pub(super) fn single_mut<F: Float>(x: &mut [F]) -> &mut [f32] {
    assert_eq!(F::Stored::DTYPE, DType::F32);
    // SAFETY: as in `View::single`.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), x.len()) }
}
