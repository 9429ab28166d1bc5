//! Where the rows of a head are: one after another, or between those of the other heads.

use super::CausalAttention;
use crate::float::Float;
use crate::matrix::Matrix;
use std::ops::Range;

/// How tensors hold their heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    /// (B, R, s m): the heads of a step side by side, as projections leave them.
    Beside,
    /// (B, s, R, m).
    Apart,
}

/// Some rows of one head of one sequence.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, F> {
    /// From the first row on.
    x: &'a [F],
    width: usize,
    /// From one row to the next.
    stride: usize,
}

impl<'a, F: Float> Rows<'a, F> {
    pub(super) fn some(&self, rows: Range<usize>) -> Self {
        let end = match rows.is_empty() {
            true => rows.start * self.stride,
            false => (rows.end - 1) * self.stride + self.width,
        };
        Self {
            x: &self.x[rows.start * self.stride..end],
            ..*self
        }
    }

    /// Row by row.
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

impl CausalAttention {
    /// The rows of `item` (batch and head) in a tensor with so many of them for each, `width` numbers a head.
    pub(super) fn rows_of<'a, F>(
        &self,
        x: &'a [F],
        item: usize,
        rows: usize,
        width: usize,
    ) -> Rows<'a, F> {
        let (first, stride) = match self.layout {
            Heads::Apart => (item * rows * width, width),
            Heads::Beside => {
                let (sequence, head) = (item / self.heads, item % self.heads);
                let stride = self.heads * width;
                (sequence * rows * stride + head * width, stride)
            }
        };
        Rows {
            x: &x[first..],
            width,
            stride,
        }
    }

    /// The rows of each item in such a tensor.
    pub(super) fn rows_by_item<'a, F>(
        &self,
        x: &'a mut [F],
        rows: usize,
        width: usize,
    ) -> Vec<Vec<&'a mut [F]>> {
        let empty = |_| Vec::with_capacity(rows);
        let mut items: Vec<Vec<_>> = (0..self.batch * self.heads).map(empty).collect();
        for (i, row) in x.chunks_exact_mut(width).enumerate() {
            let item = match self.layout {
                Heads::Apart => i / rows,
                Heads::Beside => i / self.heads / rows * self.heads + i % self.heads,
            };
            items[item].push(row);
        }
        items
    }
}
