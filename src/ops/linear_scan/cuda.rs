//! Launches of scans on a GPU, parallel over sequences, channels and pieces of time, and the
//! kernels of the linear scans.

use super::LinearScan;
use crate::gpu::sizes::scan::THREADS;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Used};
use candle_core::{DType, Result};

/// The number of threads that saturates the memory bandwidth of a large GPU.
const ENOUGH: usize = 1 << 15;
/// The fewest steps that justify a piece of time of its own.
const SHORTEST: usize = 32;

/// The sizes of a scan, and the number of pieces that its time is divided into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) batch: usize,
    pub(crate) len: usize,
    pub(crate) width: usize,
    pieces: usize,
    steps: usize,
}

impl CudaOp for LinearScan {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        forward(call, REAL, self.0)
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        backward(call, REAL, self.0)
    }
}

/// A number type: the prefix of its kernels' names, and its floats per number.
pub(crate) type Number = (&'static str, usize);

/// Real numbers.
pub(crate) const REAL: Number = ("linear_scan", 1);

/// The direction of a scan.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

impl Extent {
    /// Chooses the number of pieces that yields enough threads. It is one if the channels alone
    /// suffice, as several pieces read all inputs twice.
    pub(crate) fn of(batch: usize, len: usize, width: usize) -> Self {
        let channels = batch * width;
        let pieces = match 2 * channels > ENOUGH {
            true => 1,
            false => (2 * ENOUGH / channels).min(len / SHORTEST),
        };
        Self { batch, len, width, pieces: 1, steps: len }.cut(pieces)
    }

    /// The extent with at most `pieces` pieces, none of them empty.
    pub(crate) fn cut(self, pieces: usize) -> Self {
        let steps = self.len.div_ceil(pieces.max(1));
        let pieces = self.len.div_ceil(steps);
        Self { pieces, steps, ..self }
    }

    /// The size of a buffer with one number for each piece and channel.
    pub(crate) fn slots(&self) -> usize {
        self.batch * self.pieces * self.width
    }

    /// One thread for each channel of each piece.
    pub(crate) fn grid(&self) -> Grid {
        Grid::of(self.slots().div_ceil(THREADS), THREADS)
    }

    /// The trailing arguments of every kernel that scans pieces.
    pub(crate) fn args(&self) -> [Arg<'static>; 5] {
        [self.batch, self.len, self.width, self.pieces, self.steps].map(Arg::from)
    }

    /// The state at which each piece starts, in the direction `direction`; `None` for a single piece.
    /// `find` launches the kernel that computes each piece's affine map h ↦ a h + x.
    pub(crate) fn starts(
        &self,
        gpu: &Gpu,
        (scan, parts): Number,
        direction: Direction,
        find: impl FnOnce(&mut Buffer) -> Result<()>,
    ) -> Result<Option<Buffer>> {
        if self.pieces == 1 {
            return Ok(None);
        }
        let mut lines = gpu.alloc(DType::F32, 2 * parts * self.slots())?;
        find(&mut lines)?;
        let mut starts = gpu.alloc(DType::F32, parts * self.slots())?;
        let args = [
            (&lines).into(),
            (&mut starts).into(),
            self.batch.into(),
            self.width.into(),
            self.pieces.into(),
            matches!(direction, Direction::Backward).into(),
        ];
        let grid = Grid::of((self.batch * self.width).div_ceil(THREADS), THREADS);
        gpu.launch(Kernel::new("linear_scan", format!("{scan}_join")), grid, &args)?;
        Ok(Some(starts))
    }
}

/// Launches the forward scan of one number type.
pub(crate) fn forward(call: Launch, number: Number, extent: Extent) -> Result<Vec<Buffer>> {
    let (gpu, [a, x]) = (call.gpu, [call.ins[0], call.ins[1]]);
    let run = |part: &str, args: &[Arg]| run(gpu, number, part, a.dtype(), extent, args);
    let starts = extent
        .starts(gpu, number, Direction::Forward, |lines| run("forward_lines", &[a.into(), x.into(), lines.into()]))?;
    let mut h = gpu.alloc(x.dtype(), x.len())?;
    let starts = starts.as_ref().map(Buffer::view);
    run("forward", &[a.into(), x.into(), starts.into(), (&mut h).into()])?;
    Ok(vec![h])
}

/// Launches the adjoint of [`forward`].
pub(crate) fn backward(call: LaunchBackward, number: Number, extent: Extent) -> Result<Vec<Option<Buffer>>> {
    let (gpu, a): (_, View) = (call.gpu, call.ins[0]);
    let Used { value: h, grad: gh } = call.only();
    let run = |part: &str, args: &[Arg]| run(gpu, number, part, a.dtype(), extent, args);
    let starts = extent.starts(gpu, number, Direction::Backward, |lines| {
        run("backward_lines", &[a.into(), gh.into(), lines.into()])
    })?;
    let mut ga = gpu.alloc(a.dtype(), a.len())?;
    let mut gx = gpu.alloc(a.dtype(), a.len())?;
    let starts = starts.as_ref().map(Buffer::view);
    let ins = [a.into(), h.into(), gh.into(), starts.into()];
    run("backward", &[&ins[..], &[(&mut ga).into(), (&mut gx).into()]].concat())?;
    Ok(vec![Some(ga), Some(gx)])
}

fn run(gpu: &Gpu, (name, _): Number, part: &str, io: DType, extent: Extent, args: &[Arg]) -> Result<()> {
    let kernel = Kernel::of("linear_scan", &format!("{name}_{part}"), io);
    gpu.launch(kernel, extent.grid(), &[args, &extent.args()].concat())
}
