//! Where the rows of a head are: one after another, or between those of the other heads.

use super::CausalAttention;
use crate::float::Float;
use crate::matrix::Matrix;
use candle_core::{Result, Tensor};
use std::ops::Range;

/// How tensors hold their heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    /// (B, R, s m): the heads of a step side by side, as projections leave them.
    Beside,
    /// (B, s, R, m).
    Apart,
}

/// (B, R, s m) to (B, s, R, m).
pub(super) fn apart(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (batch, rows, width) = x.dims3()?;
    let x = x.reshape((batch, rows, heads, width / heads))?;
    x.transpose(1, 2)?.contiguous()
}

/// (B, s, R, m) to (B, R, s m).
pub(super) fn beside(x: &Tensor) -> Result<Tensor> {
    let (batch, heads, rows, width) = x.dims4()?;
    x.transpose(1, 2)?.reshape((batch, rows, heads * width))
}

/// What `attend` makes of the inputs where their heads are held the other way, as the inputs hold them.
pub(super) fn moved(
    op: CausalAttention,
    ins: [&Tensor; 3],
    attend: impl FnOnce(CausalAttention, [&Tensor; 3]) -> Result<Tensor>,
) -> Result<Tensor> {
    let heads = op.heads;
    let with = |layout| CausalAttention { layout, ..op };
    match op.layout {
        Heads::Beside => {
            let [q, k, v] = ins.map(|x| apart(x, heads));
            beside(&attend(with(Heads::Apart), [&q?, &k?, &v?])?)
        }
        Heads::Apart => {
            let [q, k, v] = ins.map(beside);
            apart(&attend(with(Heads::Beside), [&q?, &k?, &v?])?, heads)
        }
    }
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
