//! Gradients of attention over all pairs: by one kernel where it applies, else by one kernel for each gradient.

use super::{KernelInputs, KernelOutput, WholeRows, FEW, FULL, MANY};
use crate::gpu::sizes::causal_attention::{KEYS, THREADS};
use crate::gpu::{Arg, Buffer, Grid};
use crate::runtime::sums::{add_parts, sum_parts};
use candle_core::{DType, Result};

/// Most blocks that share a sequence in one pass: each keeps sums of its own for all queries.
const MOST_PARTS: usize = 8;
/// Elements between the rows of a tile of pairs in shared memory.
const PAIR_PAD: usize = 8;

impl KernelInputs<'_> {
    /// Gradients of queries, keys and values, if needed. If one is, all are computed, so that its bits do not depend on the
    /// others.
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
        if let Some((tiles, parts)) = self.one_pass()? {
            let mut gq = self.gpu.alloc(DType::F32, parts * query)?;
            let kernel = self.kernel("causal_attention_gradients", &format!("_{}", tiles.width));
            let grid = Grid { shared: tiles.bytes, ..Grid::of(self.op.batch * self.op.heads * parts, THREADS) };
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

    /// The launch that passes over the pairs once: its shared memory, and the number of blocks that share a sequence.
    /// `None` if heads are too wide for it, or if long sequences are so few that blocks of the other kernels, one for each
    /// tile, occupy more of a GPU.
    fn one_pass(&self) -> Result<Option<(WholeRows, usize)>> {
        let op = self.op;
        let parts = FULL.get().div_ceil(op.batch * op.heads).min(op.len.div_ceil(KEYS));
        if parts > MOST_PARTS {
            return Ok(None);
        }
        let pairs = MANY * (KEYS + PAIR_PAD) * self.ins[0].dtype().size_in_bytes();
        let tiles = self.whole_rows(2 * (MANY + KEYS), pairs)?;
        Ok(tiles.map(|tiles| (tiles, parts)))
    }
}
