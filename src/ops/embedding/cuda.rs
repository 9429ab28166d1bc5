//! Launches of the kernels of embeddings and of their gradients.

use super::Embedding;
use crate::dropout::cuda::masked_on;
use crate::gpu::sizes::embedding::{CHUNK, MERGED, WARPS};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View, WARP};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::mask::Mask;
use crate::runtime::sums::sum_rows;
use candle_core::{bail, DType, Result};

/// The maximum of rows of a table: a sort key holds a token's row above the ten bits of its index
/// in the chunk.
const MAX_ROWS: usize = 1 << 22;

impl CudaOp for Embedding {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        let (gpu, table) = (call.gpu, call.ins[0]);
        let positions = call.ins.get(1).copied();
        let count = self.ids.elem_count() * self.width;
        let mut out = gpu.alloc(self.dtype, count)?;
        let (storage, layout) = self.ids.storage_and_layout();
        let tokens = gpu.view(&storage, layout)?;
        let views = [Some(table), positions, Some(out.view())];
        let vector = self.width.is_multiple_of(4) && views.iter().flatten().all(|v| v.aligned(4));
        let mut args: Vec<Arg> = vec![tokens.into(), table.into(), positions.into()];
        args.extend(Mask::args(self.mask.as_ref(), gpu)?);
        args.extend([(&mut out).into(), count.into(), self.len.into()]);
        args.extend([self.width.into(), vector.into()]);
        let kernel = Kernel::of("embedding", "embed", self.dtype);
        gpu.launch(kernel, Grid::for_each(count.div_ceil(4)), &args)?;
        Ok(vec![out])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, grad) = (call.gpu, call.only().grad);
        let masked = self.mask.map(|mask| masked_on(gpu, &mask, grad));
        let masked = masked.transpose()?;
        let grad = masked.as_ref().map_or(grad, Buffer::view);
        let wants = |input: usize| call.needs_grad.get(input) == Some(&true);
        let of_table = wants(0).then(|| self.launch_table(gpu, grad));
        let of_positions = wants(1).then(|| self.launch_positions(gpu, grad));
        let mut grads = vec![of_table.transpose()?];
        if self.max_positions > 0 {
            grads.push(of_positions.transpose()?);
        }
        Ok(grads)
    }
}

impl Embedding {
    /// The tokens' rows in ascending order, and the index of each of these tokens.
    fn sorted(&self, gpu: &Gpu) -> Result<[Buffer; 2]> {
        if self.rows >= MAX_ROWS {
            let rows = self.rows;
            bail!("embedding: a table of {rows} rows, but kernels sort fewer than {MAX_ROWS}");
        }
        let (storage, layout) = self.ids.storage_and_layout();
        let tokens = gpu.view(&storage, layout)?;
        let (count, chunks) = (tokens.len(), tokens.len().div_ceil(CHUNK));
        let mut keys = gpu.alloc(DType::U32, chunks * CHUNK)?;
        let args = [tokens.into(), (&mut keys).into(), count.into()];
        gpu.launch(module("sort_chunks"), Grid::of(chunks, CHUNK / 2), &args)?;
        let mut rows = gpu.alloc(DType::U32, count)?;
        let mut indices = gpu.alloc(DType::U32, count)?;
        let sorted = [(&mut rows).into(), (&mut indices).into()];
        let sizes = [count.into(), chunks.into()];
        let args = [&[(&keys).into()], &sorted[..], &sizes[..]].concat();
        let grid = Grid::of(chunks * CHUNK / MERGED, MERGED);
        gpu.launch(module("merge_chunks"), grid, &args)?;
        Ok([rows, indices])
    }

    /// The gradient of the table: for each row, the sum over its tokens.
    fn launch_table(&self, gpu: &Gpu, grad: View) -> Result<Buffer> {
        let (count, width) = (grad.len() / self.width, self.width);
        let [rows, indices] = self.sorted(gpu)?;
        let pieces = count.div_ceil(WARP);
        let mut parts = gpu.alloc(DType::F32, 2 * pieces * width)?;
        let mut table = gpu.alloc(DType::F32, self.rows * width)?;
        let columns = match width {
            ..=64 => 2,
            65..=128 => 4,
            _ => 8,
        };
        let run = |name: &str, warps: usize, args: &[Arg]| {
            let name = format!("{name}_{columns}");
            let grid = Grid {
                blocks: [warps.div_ceil(WARPS), width.div_ceil(columns * WARP), 1],
                threads: WARPS * WARP,
                shared: 0,
            };
            gpu.launch(Kernel::of("embedding", &name, grad.dtype()), grid, args)
        };
        let ins: [Arg; 3] = [grad.into(), (&rows).into(), (&indices).into()];
        let rest = [(&mut parts).into(), count.into(), width.into()];
        run("add_pieces", pieces, &[&ins[..], &rest[..]].concat())?;
        let rest = [(&parts).into(), (&mut table).into()];
        let sizes = [count.into(), self.rows.into(), width.into()];
        let args = [&ins[..], &rest[..], &sizes[..]].concat();
        run("add_rows", self.rows, &args)?;
        Ok(table)
    }

    /// The gradient of the position embeddings: sums over sequences, zero beyond the longest one.
    fn launch_positions(&self, gpu: &Gpu, grad: View) -> Result<Buffer> {
        let sums = sum_rows(gpu, grad, self.len * self.width)?;
        if self.max_positions == self.len {
            return Ok(sums);
        }
        let total = self.max_positions * self.width;
        let mut extended = gpu.alloc(DType::F32, total)?;
        let sizes = [sums.len().into(), total.into()];
        let args = [&[(&sums).into(), (&mut extended).into()], &sizes[..]].concat();
        gpu.launch(module("extend"), Grid::for_each(total), &args)?;
        Ok(extended)
    }
}

fn module(name: &str) -> Kernel {
    Kernel::new("embedding", name)
}
