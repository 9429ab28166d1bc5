//! Token embeddings with learned position embeddings and dropout, in one pass. The gradient of the
//! table is summed by class on all threads; candle sums it token by token on one thread.

use crate::gpu::{self, Buffer};
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::lanes::sum_parts;
use crate::runtime::mask::{Dropout, Mask};
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::{copied, zeros};
use candle_core::{bail, DType, Result, Shape, Tensor};
use dsf_simd::simd;

mod launch;

/// Sequences per task, and per partial sum of the gradient of the position embeddings.
const SEQUENCES: usize = 32;
/// Tasks among which the rows of the table are divided.
const TASKS: usize = 16;

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
        match positions {
            Some(positions) => apply_one(op, &[table, positions]),
            None => apply_one(op, &[table]),
        }
    } else {
        op.reference(table, positions)
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
        let mask = match dropout {
            Some(dropout) => Mask::new(Self::NAME, dropout)?,
            None => None,
        };
        Ok(Self { ids, tokens, dtype, len, width, rows, max_positions, mask })
    }

    fn reference(&self, table: &Tensor, positions: Option<&Tensor>) -> Result<Tensor> {
        let (batch, len) = self.ids.dims2()?;
        let embedded = table.index_select(&self.ids.flatten_all()?, 0)?;
        let mut x = embedded.reshape((batch, len, self.width))?;
        if let Some(positions) = positions {
            x = x.broadcast_add(&positions.narrow(0, 0, len)?)?;
        }
        if let Some(mask) = self.mask {
            x = crate::dropout::reference(&x, mask)?;
        }
        x.to_dtype(self.dtype)
    }

    /// Numbers in the sequences of one task.
    fn chunk(&self) -> usize {
        SEQUENCES * self.len * self.width
    }

    fn masked<F: Float>(&self, task: usize, x: &mut [F]) {
        if let Some(mask) = &self.mask {
            crate::dropout::mask_chunk(mask, (task * self.chunk()) as u64, x);
        }
    }

    /// The gradient of the table: each task sums the tokens of its own range of rows, in order.
    fn grad_table<F: Float>(&self, gx: &[F]) -> Vec<F> {
        let mut grad = zeros(self.rows * self.width);
        let part = self.rows.div_ceil(TASKS);
        grad.chunks_mut(part * self.width).enumerate().in_parallel(|(i, grad)| {
            let first = i * part;
            let rows = first..first + grad.len() / self.width;
            let mine = |(_, token): &(usize, &u32)| rows.contains(&(**token as usize));
            for (at, &token) in self.tokens.iter().enumerate().filter(mine) {
                let row = (token as usize - first) * self.width;
                let to = &mut grad[row..row + self.width];
                for (to, &from) in to.iter_mut().zip(&gx[at * self.width..]) {
                    *to += from;
                }
            }
        });
        grad
    }

    /// The gradient of the position embeddings: sums over sequences.
    fn grad_positions<F: Float>(&self, gx: &[F]) -> Vec<F> {
        let size = self.len * self.width;
        let mut parts = zeros(gx.len().div_ceil(self.chunk()) * size);
        parts
            .chunks_mut(size)
            .zip(gx.chunks(self.chunk()))
            .in_parallel(|(part, gx)| crate::runtime::lanes::sum_rows(gx, part));
        let mut grad = sum_parts(&parts, size);
        grad.resize(self.max_positions * self.width, F::zero());
        grad
    }
}

impl FusedOp for Embedding {
    const NAME: &'static str = "embedding";

    fn out_shapes(&self) -> Vec<Shape> {
        let batch = self.ids.elem_count() / self.len;
        vec![(batch, self.len, self.width).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut x = zeros(self.tokens.len() * self.width);
        x.chunks_mut(self.chunk()).zip(self.tokens.chunks(SEQUENCES * self.len)).enumerate().in_parallel(
            |(task, (x, tokens))| {
                look_up(tokens, self.len, self.width, ins, x);
                self.masked(task, x);
            },
        );
        vec![x]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let mut gx = copied(call.only().grad);
        gx.chunks_mut(self.chunk()).enumerate().in_parallel(|(task, gx)| self.masked(task, gx));
        let mut grads = vec![self.grad_table(&gx)];
        if self.max_positions > 0 {
            grads.push(self.grad_positions(&gx));
        }
        grads
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        self.launch_rows(call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.launch_gradients(call)
    }
}

/// Fills `x` with the embeddings of `tokens`; `ins` are the table and, optionally, the position
/// embeddings.
#[simd]
fn look_up<F: Float>(tokens: &[u32], len: usize, width: usize, ins: &[&[F]], x: &mut [F]) {
    let rows = x.chunks_exact_mut(width);
    for (i, (x, &token)) in rows.zip(tokens).enumerate() {
        x.copy_from_slice(&ins[0][token as usize * width..][..width]);
        if let Some(positions) = ins.get(1) {
            for (x, &place) in x.iter_mut().zip(&positions[i % len * width..]) {
                *x += place;
            }
        }
    }
}

#[cfg(test)]
mod tests;
