//! Launches of the chunked sum and its gradients (`cuda/chunked*.cu`): scores once for all
//! channels, each chunk's contribution to the state, a scan over the chunks, then all rows in
//! parallel.

use super::CHUNK;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::sums::sum_parts;
use candle_core::{DType, Result};

/// Channels per block, and its threads: one warp per leaf.
const WIDTH: usize = 32;
const LEAVES: usize = 4;
const THREADS: usize = LEAVES * WIDTH;

/// States per block of `chunked_keys`.
const KEYS: usize = 64;

/// A chunked sum on a GPU, with the sizes and inputs of [`Chunked`](super::Chunked) and
/// [`Inputs`](super::Inputs). All inputs but the rate are f32, or all bf16; states are f32.
pub(crate) struct Launched<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) sequences: usize,
    pub(crate) len: usize,
    pub(crate) channels: usize,
    pub(crate) states: usize,
    pub(crate) rows: SummedTimes<'a>,
    /// (sequences, L, n).
    pub(crate) b: View<'a>,
    /// (sequences, R, n).
    pub(crate) c: View<'a>,
    /// (sequences, L, d).
    pub(crate) x: View<'a>,
    pub(crate) decay: Option<GpuDecay<'a>>,
}

/// The times at which the sum is computed.
#[derive(Clone, Copy)]
pub(crate) struct SummedTimes<'a> {
    /// Rows of a sequence.
    pub(crate) count: usize,
    /// (lists, R) of u32, ascending; `None` for every step.
    pub(crate) positions: Option<View<'a>>,
    /// The number of consecutive sequences that share a list.
    pub(crate) shared: usize,
}

/// Decays: v = step · x, and P is the running sum of step · rate.
#[derive(Clone, Copy)]
pub(crate) struct GpuDecay<'a> {
    /// (sequences, L, d).
    pub(crate) step: View<'a>,
    /// (d) of f32, negative.
    pub(crate) rate: View<'a>,
}

/// The gradients, with the shapes and types of the inputs.
pub(crate) struct GpuGradients {
    pub(crate) b: Buffer,
    pub(crate) c: Buffer,
    pub(crate) x: Buffer,
    /// The gradients of step and rate, if there are decays.
    pub(crate) decay: Option<[Buffer; 2]>,
}

/// (sequences, chunks, n, d): the state before each chunk, or the gradient of the state after it.
/// `None` for a single chunk.
type States = Option<Buffer>;

impl Launched<'_> {
    /// y, (sequences, R, d).
    pub(crate) fn forward(&self) -> Result<Buffer> {
        let (before, _) = self.before()?;
        let scores = self.scores()?;
        let count = self.sequences * self.rows.count * self.channels;
        let mut y = self.gpu.alloc(self.x.dtype(), count)?;
        let read = vec![(&scores).into(), before.as_ref().into()];
        let args = [vec![self.c.into()], self.drive(), self.positions(), read, vec![(&mut y).into()], self.sizes()];
        self.run("chunked", "rows", self.chunks() * self.parts(), &args)?;
        Ok(y)
    }

    /// The gradients, given that of y.
    pub(crate) fn backward(&self, gy: View) -> Result<GpuGradients> {
        let (before, wholes) = self.before()?;
        let after = self.after(gy, wholes)?;
        let states = vec![before.as_ref().into(), after.as_ref().into()];
        let (x, decay, g_scores) = self.of_values(gy, &states)?;
        let io = self.x.dtype();
        let mut b = self.gpu.alloc(io, self.b.len())?;
        let mut c = self.gpu.alloc(io, self.c.len())?;
        let args =
            [self.with_rows(gy), states, vec![(&g_scores).into(), (&mut b).into(), (&mut c).into()], self.sizes()];
        let blocks = self.chunks() * self.states.div_ceil(KEYS);
        self.run("chunked_keys", "keys", blocks, &args)?;
        Ok(GpuGradients { b, c, x, decay })
    }

    /// The gradients of x and of the decays, and the contribution of each block of channels to that
    /// of the scores.
    fn of_values(&self, gy: View, states: &[Arg]) -> Result<(Buffer, Option<[Buffer; 2]>, Buffer)> {
        let (io, gpu) = (self.x.dtype(), self.gpu);
        let scores = self.scores()?;
        let mut x = gpu.alloc(io, self.x.len())?;
        let (mut step, mut rates) = (None, None);
        if self.decay.is_some() {
            let chunks = self.sequences * self.chunks();
            step = Some(gpu.alloc(io, self.x.len())?);
            rates = Some(gpu.alloc(DType::F32, chunks * LEAVES * self.channels)?);
        }
        let mut g_scores = gpu.alloc(DType::F32, self.parts() * scores.len())?;
        let args = [
            self.with_rows(gy),
            vec![(&scores).into()],
            states.to_vec(),
            vec![(&mut x).into(), step.as_mut().into(), rates.as_mut().into()],
            vec![(&mut g_scores).into()],
            self.sizes(),
        ];
        self.run("chunked_values", "values", self.chunks() * self.parts(), &args)?;
        let decay = match (step, rates) {
            (Some(step), Some(rates)) => Some([step, sum_parts(gpu, &rates, self.channels)?]),
            _ => None,
        };
        Ok((x, decay, g_scores))
    }

    /// The state before each chunk, and the product of the decays of each chunk, (sequences,
    /// chunks, d).
    fn before(&self) -> Result<(States, Option<Buffer>)> {
        if self.chunks() == 1 {
            return Ok((None, None));
        }
        let chunks = self.sequences * self.chunks();
        let mut own = self.gpu.alloc(DType::F32, chunks * self.states * self.channels)?;
        let mut wholes = match self.decay {
            Some(_) => Some(self.gpu.alloc(DType::F32, chunks * self.channels)?),
            None => None,
        };
        let args = [
            vec![self.b.into()],
            self.drive(),
            vec![(&mut own).into(), wholes.as_mut().into()],
            vec![self.len.into(), self.channels.into(), self.states.into()],
        ];
        self.run("chunked", "forth", (self.chunks() - 1) * self.parts(), &args)?;
        self.walk(&mut own, &wholes, false)?;
        Ok((Some(own), wholes))
    }

    /// The gradient of the state after each chunk.
    fn after(&self, gy: View, wholes: Option<Buffer>) -> Result<States> {
        if self.chunks() == 1 {
            return Ok(None);
        }
        let chunks = self.sequences * self.chunks();
        let mut own = self.gpu.alloc(DType::F32, chunks * self.states * self.channels)?;
        let args =
            [vec![self.c.into(), gy.into()], self.drive(), self.positions(), vec![(&mut own).into()], self.sizes()];
        self.run("chunked", "back", (self.chunks() - 1) * self.parts(), &args)?;
        self.walk(&mut own, &wholes, true)?;
        Ok(Some(own))
    }

    /// Scans over the chunks: replaces each chunk's contribution to the state by the state that
    /// enters it, from the first chunk on or, in `reverse`, from the last.
    fn walk(&self, states: &mut Buffer, wholes: &Option<Buffer>, reverse: bool) -> Result<()> {
        const THREADS: usize = 256;
        let size = self.states * self.channels;
        let args = [
            states.into(),
            wholes.as_ref().into(),
            self.chunks().into(),
            size.into(),
            self.channels.into(),
            reverse.into(),
        ];
        let grid = Grid::of(self.sequences * size.div_ceil(THREADS), THREADS);
        self.gpu.launch(Kernel::new("chunked", "chunked_walk"), grid, &args)
    }

    /// c_r · b_s for each row and the steps of its chunk, (sequences, R, 64); zero for later steps.
    fn scores(&self) -> Result<Buffer> {
        let count = self.sequences * self.rows.count * CHUNK;
        let mut scores = self.gpu.alloc(DType::F32, count)?;
        let args = [
            self.b.into(),
            self.c.into(),
            self.rows.positions.into(),
            (&mut scores).into(),
            self.len.into(),
            self.rows.count.into(),
            self.rows.shared.into(),
            self.states.into(),
        ];
        let kernel = Kernel::of_products("chunked", "chunked_scores", self.x.dtype());
        let grid = Grid::of(self.sequences * self.chunks(), THREADS);
        self.gpu.launch(kernel, grid, &args)?;
        Ok(scores)
    }

    /// Launches a kernel in its variant with or without decays, with `blocks` blocks per sequence.
    fn run(&self, file: &'static str, name: &str, blocks: usize, args: &[Vec<Arg>]) -> Result<()> {
        let drive = match self.decay {
            Some(_) => "ssd",
            None => "sum",
        };
        let name = format!("chunked_{name}_{drive}");
        let kernel = Kernel::of_products(file, &name, self.x.dtype());
        let grid = Grid::of(self.sequences * blocks, THREADS);
        self.gpu.launch(kernel, grid, &args.concat())
    }

    /// The arguments b, c, the gradient of y, the summed values, and the times.
    fn with_rows<'a>(&'a self, gy: View<'a>) -> Vec<Arg<'a>> {
        let factors = vec![self.b.into(), self.c.into(), gy.into()];
        [factors, self.drive(), self.positions()].concat()
    }

    fn drive(&self) -> Vec<Arg<'_>> {
        let step = self.decay.map(|decay| decay.step);
        let rate = self.decay.map(|decay| decay.rate);
        vec![self.x.into(), step.into(), rate.into()]
    }

    fn positions(&self) -> Vec<Arg<'_>> {
        vec![self.rows.positions.into()]
    }

    fn sizes(&self) -> Vec<Arg<'_>> {
        let sizes = [self.len, self.channels, self.rows.count, self.rows.shared, self.states];
        sizes.map(Arg::from).to_vec()
    }

    /// Chunks of a sequence.
    fn chunks(&self) -> usize {
        self.len.div_ceil(CHUNK)
    }

    /// Blocks along the channels.
    fn parts(&self) -> usize {
        self.channels.div_ceil(WIDTH)
    }
}
