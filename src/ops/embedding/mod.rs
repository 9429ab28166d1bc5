//! Token embeddings with learned position embeddings and dropout, in one pass. The gradient of the
//! table is summed by class on all threads; candle sums it token by token on one thread.

mod cpu;
mod cuda;
mod reference;

use crate::gpu;
use crate::runtime::autograd::{apply_one, runs_on, Op};
use crate::runtime::mask::{Dropout, Mask};
use crate::runtime::shape;
use candle_core::{bail, DType, Result, Shape, Tensor};

/// dropout(table\[token_i\] + positions\[i\]).
///
/// `tokens`: (B, L) of u32 below V; `table`: (V, d); `positions`: (at least L, d); result (B, L, d)
/// of type `dtype`, which may be narrower than that of the parameters. The mask is that of
/// [`dropout`](crate::dropout()).
pub fn embedding(
    tokens: &Tensor,
    table: &Tensor,
    positions: Option<&Tensor>,
    dropout: Option<Dropout>,
    dtype: DType,
) -> Result<Tensor> {
    let op = Embedding::check(tokens, table, positions, dropout, dtype)?;
    // on the CPU, the fused implementation returns the type of its inputs
    let given = gpu::of(table).is_some() || dtype == table.dtype();
    if given && runs_on(table) {
        let ins: Vec<&Tensor> = std::iter::once(table).chain(positions).collect();
        apply_one(op, &ins)
    } else {
        reference::embedding(&op, table, positions)
    }
}

struct Embedding {
    ids: Tensor,
    /// The tokens on the CPU; empty for tokens on a GPU.
    tokens: Vec<u32>,
    dtype: DType,
    len: usize,
    width: usize,
    rows: usize,
    /// Rows of the position embeddings; 0 without them.
    max_positions: usize,
    mask: Option<Mask>,
}

impl Embedding {
    fn check(
        tokens: &Tensor,
        table: &Tensor,
        positions: Option<&Tensor>,
        dropout: Option<Dropout>,
        dtype: DType,
    ) -> Result<Self> {
        let [_, len] = shape::dims(Self::NAME, ("tokens", tokens))?;
        let [rows, width] = shape::dims(Self::NAME, ("table", table))?;
        let max_positions = match positions {
            Some(positions) => {
                let [max_positions, _] = shape::dims(Self::NAME, ("positions", positions))?;
                let needed = [max_positions.max(len), width];
                shape::expect(Self::NAME, ("positions", positions), ("table", table), &needed)?;
                max_positions
            }
            None => 0,
        };
        let ids = tokens.contiguous()?;
        let tokens = shape::on_the_cpu(&ids)?;
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= rows) {
            bail!("embedding: token {token}, but the table has {rows} rows");
        }
        let mask = Mask::new(Self::NAME, dropout)?;
        Ok(Self { ids, tokens, dtype, len, width, rows, max_positions, mask })
    }
}

impl Op for Embedding {
    const NAME: &'static str = "embedding";

    fn out_shapes(&self) -> Vec<Shape> {
        let batch = self.ids.elem_count() / self.len;
        vec![(batch, self.len, self.width).into()]
    }
}

#[cfg(test)]
mod tests;
