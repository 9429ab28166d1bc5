//! Launches of the kernels of `cuda/long_conv_fft.cu`.

use super::{LongConv, Time, ENOUGH};
use crate::gpu::sizes::fft::{EACH, THREADS};
use crate::gpu::sizes::long_conv_fft::MOVERS;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View, WARP};
use crate::runtime::sums::sum_parts;
use candle_core::{DType, Result};

/// The file of the kernels, and the beginning of their names.
const FILE: &str = "long_conv_fft";
/// Coefficients of the smallest transform.
const LEAST: usize = EACH * EACH;
/// The most levels beyond those of the smallest transform that a block has.
const LEVELS: usize = 4;
/// The most nodes, each transformed by a block, that a transform is split into.
const NODES: usize = 16;
/// The most numbers of scratch memory for sequences that are split, unless one takes more: 1 GiB.
const SCRATCH: usize = 1 << 28;

/// Transforms of one size.
pub(super) struct Fft {
    /// Levels of a block beyond those of the smallest transform.
    levels: usize,
    nodes: usize,
}

impl Fft {
    /// Returns the smallest transforms of `len` real numbers; `None` for more than 131,072.
    pub(super) fn of(len: usize) -> Option<Self> {
        let least = len.div_ceil(2 * LEAST).next_power_of_two();
        let levels = LEVELS.min(least.ilog2() as usize);
        let nodes = least >> levels;
        (nodes <= NODES).then_some(Self { levels, nodes })
    }

    /// Complex coefficients of a transform.
    fn coefficients(&self) -> usize {
        (LEAST << self.levels) * self.nodes
    }

    /// Returns the instructions that a channel of a sequence takes: for each coefficient three a level forward and four
    /// back, and some 30 to load, exchange, multiply and store.
    pub(super) fn instructions(&self) -> usize {
        self.coefficients() * (7 * self.coefficients().ilog2() as usize + 30)
    }

    /// Channels of a block.
    fn channels(&self) -> usize {
        WARP >> self.levels
    }
}

/// The convolution by transforms.
pub(super) struct ByFft<'a> {
    pub(super) conv: &'a LongConv,
    pub(super) fft: Fft,
    pub(super) gpu: &'a Gpu,
}

/// Sequences (count, len, width), or kernels (count, width, taps) if there are taps, of which `len` have an effect.
struct Rows {
    count: usize,
    len: usize,
    width: usize,
    taps: usize,
    time: Time,
}

impl ByFft<'_> {
    /// The convolution of `x` with the kernel, in one direction of time.
    pub(super) fn convolve(&self, x: View, kernel: View, time: Time) -> Result<Buffer> {
        let spectra = self.spectra(kernel)?;
        let mut y = self.gpu.alloc(x.dtype(), x.len())?;
        if self.fft.nodes == 1 {
            let rows = self.rows(self.conv.batch, time);
            let (grid, each) = self.grid(rows.count);
            let mut args = vec![x.into(), (&spectra).into(), (&mut y).into()];
            args.extend([rows.count, rows.len, rows.width, self.fft.levels, each].map(Arg::from));
            args.push(time.is_mirrored().into());
            self.gpu.launch(Kernel::of(FILE, FILE, x.dtype()), grid, &args)?;
            return Ok(y);
        }
        for group in self.groups() {
            let rows = self.rows(group.count, time);
            let mut parts = self.split(group.of(x), &rows)?;
            let (grid, each) = self.grid(rows.count);
            let node = self.nodes_of(&rows);
            let mut args = vec![(&spectra).into(), (&mut parts).into()];
            let sizes = [node.count, node.len, node.width, self.fft.levels, self.fft.nodes, each];
            args.extend(sizes.map(Arg::from));
            self.gpu.launch(Kernel::of(FILE, "long_conv_fft_nodes", DType::F32), grid, &args)?;
            self.merge(&parts, group.of(y.view()), &rows, self.conv.len)?;
        }
        Ok(y)
    }

    /// The gradient of the kernel, from partial sums over groups of sequences that leave enough blocks.
    pub(super) fn gradient(&self, u: View, gy: View) -> Result<Buffer> {
        let &LongConv { batch, width, taps, len } = self.conv;
        if self.fft.nodes == 1 {
            let rows = Rows { taps, ..self.rows(batch, Time::Ahead) };
            return self.correlate([u, gy], &rows, width * taps);
        }
        let mut sum: Option<Buffer> = None;
        for group in self.groups() {
            let rows = self.rows(group.count, Time::Ahead);
            let [u, gy] = [u, gy].map(|x| self.split(group.of(x), &rows));
            let part = self.correlate([u?.view(), gy?.view()], &self.nodes_of(&rows), self.numbers())?;
            match &mut sum {
                Some(sum) => sum.add(&[part])?,
                None => sum = Some(part),
            }
        }
        let gk = self.gpu.alloc(DType::F32, width * taps)?;
        let kernels = Rows { count: 1, len: taps, width, taps, time: Time::Ahead };
        if let Some(sum) = sum {
            self.merge(&sum, gk.view(), &kernels, len)?;
        }
        Ok(gk)
    }

    /// The spectra of the kernel.
    fn spectra(&self, kernel: View) -> Result<Buffer> {
        let &LongConv { width, taps, .. } = self.conv;
        let rows = Rows { count: 1, len: self.conv.reach(), width, taps, time: Time::Ahead };
        if self.fft.nodes == 1 {
            return self.transform(kernel, &rows);
        }
        let parts = self.split(kernel, &rows)?;
        self.transform(parts.view(), &self.nodes_of(&rows))
    }

    fn transform(&self, x: View, rows: &Rows) -> Result<Buffer> {
        let mut spectra = self.gpu.alloc(DType::F32, self.blocks() * 2 * EACH * THREADS)?;
        let mut args = vec![x.into(), (&mut spectra).into()];
        args.extend([rows.len, rows.width, rows.taps, self.fft.levels, self.fft.nodes].map(Arg::from));
        let kernel = Kernel::of(FILE, "long_conv_fft_spectrum", DType::F32);
        self.gpu.launch(kernel, Grid::of(self.blocks(), THREADS), &args)?;
        Ok(spectra)
    }

    /// The sum over sequences of their correlations, each with `numbers` numbers.
    fn correlate(&self, [u, gy]: [View; 2], rows: &Rows, numbers: usize) -> Result<Buffer> {
        let (grid, each) = self.grid(rows.count);
        let mut parts = self.gpu.alloc(DType::F32, grid.blocks[1] * numbers)?;
        let mut args = vec![u.into(), gy.into(), (&mut parts).into()];
        let sizes = [rows.count, rows.len, rows.width, rows.taps, self.fft.levels, self.fft.nodes, each];
        args.extend(sizes.map(Arg::from));
        self.gpu.launch(Kernel::of(FILE, "long_conv_fft_kernel", u.dtype()), grid, &args)?;
        sum_parts(self.gpu, &parts, numbers)
    }

    /// The coefficients of nodes, in scratch memory (count, pairs of channels, nodes, 2, coefficients, 2).
    fn split(&self, x: View, rows: &Rows) -> Result<Buffer> {
        let mut parts = self.gpu.alloc(DType::F32, rows.count * self.numbers())?;
        let args = [x.into(), (&mut parts).into()];
        self.move_rows("long_conv_fft_split", x.dtype(), &args, rows, None)?;
        Ok(parts)
    }

    /// Writes sequences or kernels from the coefficients of nodes, zero from `reach` on.
    fn merge(&self, parts: &Buffer, to: View, rows: &Rows, reach: usize) -> Result<()> {
        self.move_rows("long_conv_fft_merge", to.dtype(), &[parts.into(), to.into()], rows, Some(reach))
    }

    fn move_rows(&self, name: &str, io: DType, ends: &[Arg], rows: &Rows, reach: Option<usize>) -> Result<()> {
        let mut args = ends.to_vec();
        let levels = self.fft.nodes.ilog2();
        args.extend([rows.count, rows.len, rows.width, rows.taps].map(Arg::from));
        args.extend([levels.into(), rows.time.is_mirrored().into()]);
        args.extend(reach.map(Arg::from));
        let threads = rows.count * self.numbers() / (2 * self.fft.nodes);
        self.gpu.launch(Kernel::of(FILE, name, io), Grid::of(threads.div_ceil(MOVERS), MOVERS), &args)
    }

    fn rows(&self, count: usize, time: Time) -> Rows {
        Rows { count, len: self.conv.len, width: self.conv.width, taps: 0, time }
    }

    /// The nodes of some rows, each with both parts of its coefficients as a sequence.
    fn nodes_of(&self, rows: &Rows) -> Rows {
        let len = 2 * self.fft.coefficients() / self.fft.nodes;
        Rows { count: rows.count, len, width: self.fft.channels(), taps: 0, time: Time::Ahead }
    }

    /// Groups of channels, times nodes: the spectra, each of a block.
    fn blocks(&self) -> usize {
        self.conv.width.div_ceil(self.fft.channels()) * self.fft.nodes
    }

    /// Numbers of scratch memory for a sequence that is split.
    fn numbers(&self) -> usize {
        self.blocks() * 2 * EACH * THREADS
    }

    /// A grid of enough blocks, each with several sequences, and their number.
    fn grid(&self, sequences: usize) -> (Grid, usize) {
        let each = sequences.div_ceil(ENOUGH.div_ceil(self.blocks()));
        let blocks = [self.blocks(), sequences.div_ceil(each), 1];
        (Grid { blocks, threads: THREADS, shared: 0 }, each)
    }

    /// Groups of sequences that share scratch memory.
    fn groups(&self) -> impl Iterator<Item = Group> {
        let (batch, each) = (self.conv.batch, (SCRATCH / self.numbers()).max(1));
        let size = self.conv.len * self.conv.width;
        (0..batch).step_by(each).map(move |first| Group { first, count: each.min(batch - first), size })
    }
}

/// Consecutive sequences of `size` numbers.
struct Group {
    first: usize,
    count: usize,
    size: usize,
}

impl Group {
    fn of<'a>(&self, all: View<'a>) -> View<'a> {
        all.part(self.first * self.size, self.count * self.size)
    }
}
