//! Cross entropy by kernels, for tiles of rows whose logits stay in the L2 cache of a GPU.

use super::CrossEntropy;
use crate::gpu::sizes::cross_entropy::THREADS;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, Matrix, Product, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::convert::converted;
use crate::runtime::maps::{padded, table};
use crate::runtime::tuned::Tuned;
use candle_core::{DType, Result};

/// Bytes of logits and their gradients that exist at one time: most of the L2 cache of a large GPU;
/// small in tests, so that there are several tiles.
const CACHED_BYTES: Tuned = Tuned::new(32 << 20, 1 << 14);
/// The bound for tiles that exceed the cache in any case.
const MAX_BYTES: Tuned = Tuned::new(512 << 20, 1 << 18);

/// A tile of rows: the index of the first, their targets, and their hidden layer.
struct RowTile<'a> {
    first: usize,
    hidden: View<'a>,
}

/// The inputs that all tiles read, and the outputs that each writes for its rows.
struct Head<'a> {
    gpu: &'a Gpu,
    weight: View<'a>,
    targets: View<'a>,
    tracked: bool,
}

impl CudaOp for CrossEntropy {
    /// The loss and the correctness of each row; then, if tracked, the gradients of hidden layer and weight.
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        let (gpu, hidden, weight) = (call.gpu, call.ins[0], call.ins[1]);
        let (storage, layout) = self.ids.storage_and_layout();
        let targets = gpu.view(&storage, layout)?;
        let rows = targets.len();
        let narrow = converted(gpu, weight, hidden.dtype())?;
        let head = Head { gpu, weight: narrow.as_ref().map_or(weight, Buffer::view), targets, tracked: call.tracked };
        let mut losses = gpu.alloc(DType::F32, rows)?;
        let mut correct = gpu.alloc(DType::F32, rows)?;
        let of = |x: View| if call.tracked { x.len() } else { 0 };
        let mut gw = gpu.alloc(DType::F32, of(weight))?;
        let mut gh = gpu.alloc(hidden.dtype(), of(hidden))?;
        let tile = self.tile(rows, hidden.dtype());
        for first in (0..rows).step_by(tile) {
            let some = tile.min(rows - first);
            let hidden = hidden.part(first * self.width, some * self.width);
            let tile = RowTile { first, hidden };
            let slopes = self.slopes(&head, &tile, &mut losses, &mut correct)?;
            if call.tracked {
                self.add_gradient(&head, &tile, slopes.view(), &mut gw)?;
                self.gradient(&head, &tile, slopes.view(), &mut gh)?;
            }
        }
        let mut loss = gpu.alloc(DType::F32, 1)?;
        let kept = gpu.take_loss().map_or(Arg::Null, Arg::from);
        let args = [(&losses).into(), (&mut loss).into(), kept, rows.into()];
        gpu.launch(Kernel::new("cross_entropy", "mean"), Grid::of(1, 1024), &args)?;
        let kept = call.tracked.then_some([gh, gw]).into_iter().flatten();
        Ok([loss, correct].into_iter().chain(kept).collect())
    }

    /// The saved gradients, times the gradient of the loss.
    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let Some(loss) = call.outs[0] else {
            return Ok(vec![None, None]); // no loss, no gradients
        };
        let gpu = call.gpu;
        let alloc = |(saved, needed): (&Buffer, &bool)| -> Result<Option<Buffer>> {
            needed.then(|| gpu.alloc(saved.dtype(), saved.len())).transpose()
        };
        let scaled = call.saved.iter().zip(call.needs_grad).map(alloc).collect::<Result<Vec<_>>>()?;
        let pairs = || call.saved.iter().zip(&scaled).filter_map(|(from, to)| Some((from, to.as_ref()?)));
        for dtype in [DType::F32, DType::BF16] {
            let pairs: Vec<_> = pairs().filter(|(from, _)| from.dtype() == dtype).collect();
            let counts = || pairs.iter().map(|(from, _)| from.len());
            let Some(longest) = counts().max() else { continue };
            let mut args = vec![
                table(pairs.iter().map(|(from, _)| from.view())),
                table(pairs.iter().map(|(_, to)| to.view())),
                loss.grad.into(),
            ];
            args.extend(padded(counts()));
            let grid = Grid::for_each_of(pairs.len(), longest);
            gpu.launch(Kernel::of("cross_entropy", "scale", dtype), grid, &args)?;
        }
        Ok(scaled)
    }
}

impl CrossEntropy {
    /// Rows per tile, about equal for all tiles: a function of the sizes alone.
    ///
    /// Every tile reads and writes the gradient of the weight, 8 d bytes per class. With few rows
    /// per tile and many classes, that exceeds the 16 bytes per logit that tiles outside the cache
    /// cost; with 2 d rows it is 4 bytes per logit.
    pub(super) fn tile(&self, rows: usize, io: DType) -> usize {
        let bytes = match io {
            DType::F32 => 4,
            _ => 4 + 2,
        };
        let within = |bytes_of_all: usize| bytes_of_all / bytes / self.classes;
        let cached = within(CACHED_BYTES.get()).max(1);
        let most = match 8 * self.width > 16 * cached {
            true => within(MAX_BYTES.get()).min(2 * self.width).max(cached),
            false => cached,
        };
        rows.div_ceil(rows.div_ceil(most))
    }

    /// The gradient of the mean loss with respect to a tile's logits; unspecified values if
    /// untracked.
    fn slopes(&self, head: &Head, tile: &RowTile, losses: &mut Buffer, correct: &mut Buffer) -> Result<Buffer> {
        let (gpu, io) = (head.gpu, tile.hidden.dtype());
        let rows = tile.hidden.len() / self.width;
        let mut logits = gpu.alloc(DType::F32, rows * self.classes)?;
        let (hidden, weight) = (Matrix::plain(tile.hidden), Matrix::transposed(head.weight));
        let product = Product::one([rows, self.width, self.classes], hidden, weight);
        gpu.multiply(product, &mut logits)?;
        let mut narrow = match io {
            DType::F32 => None,
            _ if !head.tracked => None,
            io => Some(gpu.alloc(io, logits.len())?),
        };
        let share = 1.0 / head.targets.len() as f32;
        let mut args: Vec<Arg> = vec![(&mut logits).into(), head.targets.into()];
        args.extend([losses.into(), correct.into()]);
        args.push(match io {
            DType::F32 => head.tracked.into(),
            _ => narrow.as_mut().into(),
        });
        args.extend([tile.first.into(), self.classes.into(), share.into()]);
        let kernel = Kernel::of("cross_entropy", "slopes", io);
        gpu.launch(kernel, Grid::of(rows, THREADS), &args)?;
        Ok(narrow.unwrap_or(logits))
    }

    /// Adds a tile's contribution to the gradient of the weight, slopes^T h.
    fn add_gradient(&self, head: &Head, tile: &RowTile, slopes: View, gw: &mut Buffer) -> Result<()> {
        let sizes = [self.classes, tile.hidden.len() / self.width, self.width];
        let (slopes, hidden) = (Matrix::transposed(slopes), Matrix::plain(tile.hidden));
        let product = Product::one(sizes, slopes, hidden).added(tile.first > 0);
        head.gpu.multiply(product, gw)
    }

    /// Writes the gradient of a tile's hidden layer, slopes W, into that of all.
    fn gradient(&self, head: &Head, tile: &RowTile, slopes: View, gh: &mut Buffer) -> Result<()> {
        let sizes = [tile.hidden.len() / self.width, self.classes, self.width];
        let (slopes, weight) = (Matrix::plain(slopes), Matrix::plain(head.weight));
        head.gpu.multiply_into(Product::one(sizes, slopes, weight), gh, tile.first * self.width)
    }
}
