//! Gradients of attention over all pairs: by one kernel where it applies, else by one kernel for each gradient.

use super::{KernelInputs, KernelOutput, FEW, FULL, MANY};
use crate::gpu::sizes::causal_attention::{KEYS, THREADS};
use crate::gpu::{Arg, Buffer, Grid, Kernel};
use crate::runtime::sums::{add_parts, sum_parts};
use candle_core::{DType, Result};

/// Widths of heads, of queries and of values, up to which there is a kernel that passes over the pairs once.
const DEPTHS: [usize; 2] = [64, 128];
/// Most blocks that share a sequence in one pass: each keeps sums of its own for all queries.
const MOST_PARTS: usize = 8;
/// Padding of rows in shared memory: elements of a row of pairs, bytes of others.
const PAIR_PAD: usize = 8;
const ROW_PAD: usize = 16;
/// Bytes of shared memory that a kernel declares beside what a launch asks for, at most.
const DECLARED: usize = 1024;

/// Launch of a kernel that passes over the pairs once.
struct OnePass {
    depth: usize,
    /// Number of blocks that share a sequence.
    parts: usize,
    /// Bytes of shared memory of a block.
    shared: usize,
}

impl KernelInputs<'_> {
    /// Those of the gradients of queries, keys and values that are needed. If one is, all are computed, so that its bits
    /// do not depend on the others.
    pub(super) fn gradients(&self, needed: &[bool]) -> Result<Vec<Option<Buffer>>> {
        if !needed.contains(&true) {
            return Ok(vec![None, None, None]);
        }
        let all = self.all_gradients()?.into_iter();
        Ok(all.zip(needed).map(|(gradient, needed)| needed.then_some(gradient)).collect())
    }

    fn all_gradients(&self) -> Result<[Buffer; 3]> {
        let io = self.ins[0].dtype();
        let [query, key, value] = self.ins.map(|x| x.len());
        let [mut gk, mut gv] = [self.gpu.alloc(io, key)?, self.gpu.alloc(io, value)?];
        if self.is_short() {
            let mut gq = self.gpu.alloc(io, query)?;
            let kernel = self.kernel("causal_attention_short", "");
            let grid = Grid::of(self.op.batch * self.op.heads, THREADS);
            self.run(kernel, grid, &[&mut gq, &mut gk, &mut gv].map(Arg::from))?;
            return Ok([gq, gk, gv]);
        }
        if let Some(OnePass { depth, parts, shared }) = self.one_pass()? {
            let mut gq = self.gpu.alloc(DType::F32, parts * query)?;
            let kernel = self.kernel("causal_attention_gradients", &format!("_{depth}"));
            let grid = Grid { shared, ..Grid::of(self.op.batch * self.op.heads * parts, THREADS) };
            self.run(kernel, grid, &[(&mut gq).into(), (&mut gk).into(), (&mut gv).into(), parts.into()])?;
            return Ok([add_parts(self.gpu, gq, parts, io)?, gk, gv]);
        }
        let mut gq = self.gpu.alloc(io, query)?;
        self.launch(KernelOutput::Gq, &mut gq, None)?;
        self.launch(KernelOutput::Gk, &mut gk, None)?;
        self.launch(KernelOutput::Gv, &mut gv, None)?;
        Ok([gq, gk, gv])
    }

    /// The gradient of the bias: one number for each head and distance.
    pub(super) fn bias_gradient(&self) -> Result<Buffer> {
        let op = self.op;
        let queries = if op.rows <= FEW { FEW } else { MANY };
        let blocks = op.batch * op.heads * op.rows.div_ceil(queries);
        let mut parts = self.gpu.alloc(DType::F32, blocks * op.distances())?;
        let kernel = self.kernel("causal_attention_gb", &format!("_{queries}"));
        self.run(kernel, Grid::of(blocks, THREADS), &[(&mut parts).into()])?;
        sum_parts(self.gpu, &parts, op.heads * op.distances())
    }

    /// Whether a block holds all pairs of a sequence, and there are enough sequences to occupy a GPU.
    fn is_short(&self) -> bool {
        let op = self.op;
        op.rows <= MANY && op.len <= KEYS && op.batch * op.heads >= FULL.get()
    }

    /// The launch that passes over the pairs once; `None` if heads are too wide for a GPU's shared memory, or if long
    /// sequences are so few that blocks of the other kernels, one for each tile, occupy more of a GPU.
    fn one_pass(&self) -> Result<Option<OnePass>> {
        let op = self.op;
        let width = op.key_width.max(op.value_width);
        let Some(depth) = DEPTHS.into_iter().find(|&depth| width <= depth) else {
            return Ok(None);
        };
        let size = self.ins[0].dtype().size_in_bytes();
        let shared = 2 * (MANY + KEYS) * (depth * size + ROW_PAD) + MANY * (KEYS + PAIR_PAD) * size;
        let parts = FULL.get().div_ceil(op.batch * op.heads).min(op.len.div_ceil(KEYS));
        let applies = parts <= MOST_PARTS && shared + DECLARED <= self.gpu.most_shared()?;
        Ok(applies.then_some(OnePass { depth, parts, shared }))
    }

    /// A kernel whose name begins with that of its file.
    fn kernel(&self, file: &'static str, rest: &str) -> Kernel {
        Kernel::of_products(file, &format!("{file}{rest}"), self.ins[0].dtype())
    }
}
