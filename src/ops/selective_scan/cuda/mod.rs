//! Launches of the kernels of `cuda/selective_scan.cu` and `cuda/selective_scan_backward.cu`.

mod backward;
mod blocks;

use super::{SelectiveScan, StepRule};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::sums::add_parts;
use blocks::Blocks;
use candle_core::{DType, Result};

const MODULE: &str = "selective_scan";

impl CudaOp for SelectiveScan {
    /// The output y; then, if tracked, the saved states and the rows of times.
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        let Launch { gpu, ins, tracked } = call;
        let [u, delta, a, b, c] = *ins else { unreachable!("five inputs") };
        let (io, blocks) = (u.dtype(), Blocks::forward(self));
        let rows = rows_of_times(self, gpu)?;
        let driven = [u.into(), delta.into(), a.into(), b.into()];
        let starts = starts((self, gpu, &blocks), io, a, Way::Forward, &driven)?;
        let kept = tracked.then(|| gpu.alloc(DType::F32, self.kept()));
        let mut kept = kept.transpose()?;
        let whole = blocks.along_states == 1;
        let dtype = if whole { io } else { DType::F32 };
        let count = self.batch * self.rows * self.channels;
        let mut y = gpu.alloc(dtype, blocks.along_states * count)?;
        let to = match whole {
            true => [(&mut y).into(), Arg::Null],
            false => [Arg::Null, (&mut y).into()],
        };
        let read = [c.into(), optional(&rows), optional(&starts), kept.as_mut().into()];
        let args = [&driven[..], &read, &to, &blocks.sizes(self)].concat();
        gpu.launch(Kernel::of(MODULE, &named("walk", self.rule), io), blocks.grid(self), &args)?;
        let y = add_parts(gpu, y, blocks.along_states, io)?;
        Ok([Some(y), kept, rows].into_iter().flatten().collect())
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        backward::backward(self, call)
    }
}

/// Direction of time.
enum Way {
    Forward,
    Back,
}

/// The kernel `name` of a rule.
fn named(name: &str, rule: StepRule) -> String {
    match rule {
        StepRule::Euler => name.to_owned(),
        StepRule::Hold => format!("{name}_hold"),
        StepRule::Bilinear => format!("{name}_bilinear"),
    }
}

/// If time is cut, the state at which each chunk starts: (B, chunks, n, d). `ins` are the inputs of
/// the kernel that computes each chunk's final state from zero.
fn starts(
    (scan, gpu, blocks): (&SelectiveScan, &Gpu, &Blocks),
    io: DType,
    a: View,
    way: Way,
    ins: &[Arg],
) -> Result<Option<Buffer>> {
    if blocks.chunks == 1 {
        return Ok(None);
    }
    let (chunks, count) = (scan.batch * blocks.chunks, scan.states * scan.channels);
    let mut states = gpu.alloc(DType::F32, chunks * count)?;
    let mut sums = gpu.alloc(DType::F32, chunks * scan.channels)?;
    let to = [(&mut states).into(), (&mut sums).into()];
    let args = [ins, &to, &blocks.sizes(scan)].concat();
    let (ends, join) = match way {
        Way::Forward => (named("ends", scan.rule), "join"),
        Way::Back => ("ends_back".to_owned(), "join_back"),
    };
    gpu.launch(Kernel::of(MODULE, &ends, io), blocks.grid(scan), &args)?;
    let count = scan.batch * count;
    let args = [a.into(), (&sums).into(), (&mut states).into(), blocks.chunks.into()];
    let sizes = [scan.channels, scan.states, count].map(Arg::from);
    gpu.launch(Kernel::new(MODULE, join), Grid::for_each(count), &[&args[..], &sizes].concat())?;
    Ok(Some(states))
}

/// (B, L): 1 + the row at each time, 0 for times without a row; `None` if all times have rows.
fn rows_of_times(scan: &SelectiveScan, gpu: &Gpu) -> Result<Option<Buffer>> {
    let Some(positions) = &scan.positions else {
        return Ok(None);
    };
    let (storage, layout) = positions.storage_and_layout();
    let times = gpu.view(&storage, layout)?;
    let count = scan.batch * scan.len;
    let mut rows = gpu.alloc(DType::U32, count)?;
    let [len, row_count, all] = [scan.len, scan.rows, count].map(Arg::from);
    let args = [times.into(), (&mut rows).into(), len, row_count, all];
    let kernel = Kernel::new(MODULE, "rows_of_times");
    gpu.launch(kernel, Grid::for_each(count), &args)?;
    Ok(Some(rows))
}

fn optional(buffer: &Option<Buffer>) -> Arg<'_> {
    buffer.as_ref().map(Buffer::view).into()
}
