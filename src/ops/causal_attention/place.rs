//! Memory layout of heads: the rows of a head are consecutive, or interleaved with those of the other heads.

use crate::runtime::float::Float;
use crate::runtime::matrix::Matrix;
use candle_core::{Result, Tensor};
use std::ops::Range;

/// Layout of the heads in a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    /// (B, R, s m): the heads of a step side by side, in the layout of projections.
    Beside,
    /// (B, s, R, m).
    Apart,
}

/// Converts (B, R, s m) to (B, s, R, m).
pub fn heads_apart(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (batch, rows, width) = x.dims3()?;
    let x = x.reshape((batch, rows, heads, width / heads))?;
    x.transpose(1, 2)?.contiguous()
}

/// Converts (B, s, R, m) to (B, R, s m).
pub fn heads_beside(x: &Tensor) -> Result<Tensor> {
    let (batch, heads, rows, width) = x.dims4()?;
    x.transpose(1, 2)?.reshape((batch, rows, heads * width))
}

/// Some rows of one head of one sequence.
#[derive(Clone, Copy)]
pub(super) struct HeadRows<'a, F> {
    /// Elements, beginning with the first row.
    x: &'a [F],
    width: usize,
    /// Distance from one row to the next.
    stride: usize,
}

impl<'a, F: Float> HeadRows<'a, F> {
    pub(super) fn some(&self, rows: Range<usize>) -> Self {
        let end = match rows.is_empty() {
            true => rows.start * self.stride,
            false => (rows.end - 1) * self.stride + self.width,
        };
        Self { x: &self.x[rows.start * self.stride..end], ..*self }
    }

    /// Iterates over the rows.
    pub(super) fn each(&self) -> impl Iterator<Item = &'a [F]> {
        let width = self.width;
        self.x.chunks(self.stride).map(move |row| &row[..width])
    }

    /// Sets the first rows of `to`.
    #[inline(always)]
    pub(super) fn copy_to(&self, to: &mut Matrix<F>) {
        to.set_rows(self.x, self.stride, 0..self.width);
    }

    /// Sets the first columns of `to`.
    #[inline(always)]
    pub(super) fn transpose_to(&self, to: &mut Matrix<F>) {
        to.set_transpose(self.x, self.stride, self.width);
    }
}

/// Sizes of a tensor of `sequences` with `heads` heads and `rows` rows, and `width` numbers per row of a head.
#[derive(Clone, Copy)]
pub(super) struct HeadSizes {
    pub(super) sequences: usize,
    pub(super) heads: usize,
    pub(super) rows: usize,
    pub(super) width: usize,
}

impl Heads {
    /// The rows of `item` (sequence and head).
    pub(super) fn rows_of<F>(self, x: &[F], sizes: HeadSizes, item: usize) -> HeadRows<'_, F> {
        let HeadSizes { heads, rows, width, .. } = sizes;
        let (first, stride) = match self {
            Self::Apart => (item * rows * width, width),
            Self::Beside => {
                let (sequence, head) = (item / heads, item % heads);
                let stride = heads * width;
                (sequence * rows * stride + head * width, stride)
            }
        };
        HeadRows { x: &x[first..], width, stride }
    }

    /// The rows of every item.
    pub(super) fn rows_by_item<F>(self, x: &mut [F], sizes: HeadSizes) -> Vec<Vec<&mut [F]>> {
        let HeadSizes { sequences, heads, rows, width } = sizes;
        let empty = |_| Vec::with_capacity(rows);
        let mut items: Vec<Vec<_>> = (0..sequences * heads).map(empty).collect();
        for (i, row) in x.chunks_exact_mut(width).enumerate() {
            let item = match self {
                Self::Apart => i / rows,
                Self::Beside => i / heads / rows * heads + i % heads,
            };
            items[item].push(row);
        }
        items
    }
}
