//! Passes on the CPU.

use super::Embedding;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::sum_parts;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::{copied, zeros};
use dsf_simd::simd;

/// Sequences per task, and per partial sum of the gradient of the position embeddings.
const SEQUENCES: usize = 32;
/// Tasks among which the rows of the table are divided.
const TASKS: usize = 16;

impl CpuOp for Embedding {
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
}

impl Embedding {
    fn masked<F: Float>(&self, task: usize, x: &mut [F]) {
        if let Some(mask) = &self.mask {
            crate::dropout::cpu::mask_chunk(mask, (task * self.chunk()) as u64, x);
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

    /// Numbers in the sequences of one task.
    fn chunk(&self) -> usize {
        SEQUENCES * self.len * self.width
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
