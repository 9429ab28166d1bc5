//! Launches of the kernels of `cuda/causal_attention*`: all pairs of queries and keys, in tiles, with heads side by
//! side.

mod gradients;
pub(super) mod linear;

use super::{CausalAttention, Pattern, Weights};
use crate::gpu::sizes::causal_attention::{KEYS, NARROW_THREADS, THREADS};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use crate::runtime::mask::Mask;
use crate::runtime::tuned::Tuned;
use candle_core::{DType, Result, Tensor};

/// Rows per block of the kernel for dot products.
const DOT_ROWS: usize = 8;
/// Queries per tile, if the launch has many blocks and if it has few.
const MANY: usize = 64;
const FEW: usize = 16;
/// Columns of the result per block.
const WIDE: usize = 256;
const NARROW: usize = 64;
/// Widths of heads, of queries and of values, for which kernels hold whole rows in shared memory.
const WHOLE: [usize; 2] = [64, 128];
/// Bytes between such rows.
const ROW_PAD: usize = 16;
/// Bytes of shared memory that a kernel declares beside what a launch asks for, at most.
const DECLARED: usize = 1024;
/// Fewer blocks than this do not occupy a GPU. Tests run on both sides of the threshold.
const FULL: Tuned = Tuned::new(264, 4);

impl CudaOp for CausalAttention {
    /// The output; then, if tracked, the statistics of each row's weights ([`KernelInputs::stats`]).
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        if linear::applies(self) {
            return linear::forward(self, call);
        }
        let (gpu, [q, k, v]) = (call.gpu, [call.ins[0], call.ins[1], call.ins[2]]);
        let items = self.batch * self.heads;
        let mut y = gpu.alloc(v.dtype(), items * self.rows * self.value_width)?;
        let mut stats = match call.tracked && self.weights != Weights::Plain {
            true => Some(gpu.alloc(DType::F32, items * self.rows)?),
            false => None,
        };
        let pairs = KernelInputs {
            op: self,
            gpu,
            ins: [q, k, v],
            gy: None,
            stats: None,
            dots: None,
            bias: call.ins.get(3).copied(),
        };
        pairs.launch(KernelOutput::Y, &mut y, stats.as_mut())?;
        Ok([Some(y), stats].into_iter().flatten().collect())
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        if linear::applies(self) {
            return linear::backward(self, call);
        }
        let (gpu, out) = (call.gpu, call.only());
        let dots = match self.weights {
            Weights::Plain => None,
            _ => Some(dots(self, gpu, out.grad, out.value)?),
        };
        let pairs = KernelInputs {
            op: self,
            gpu,
            ins: [call.ins[0], call.ins[1], call.ins[2]],
            gy: Some(out.grad),
            stats: call.saved.first().map(Buffer::view),
            dots: dots.as_ref().map(Buffer::view),
            bias: call.ins.get(3).copied(),
        };
        let mut grads = pairs.gradients(&call.needs_grad[..3])?;
        if let [_, _, _, needed] = call.needs_grad {
            grads.push(needed.then(|| pairs.bias_gradient()).transpose()?);
        }
        Ok(grads)
    }
}

/// gy . y of each row, which the normalised rules subtract from the gradient of each weight.
fn dots(op: &CausalAttention, gpu: &Gpu, gy: View, y: View) -> Result<Buffer> {
    let sequences = op.batch * op.heads;
    let rows = sequences * op.rows;
    let mut to = gpu.alloc(DType::F32, rows)?;
    let grid = Grid::of(rows.div_ceil(DOT_ROWS), THREADS);
    let kernel = Kernel::of("causal_attention", "causal_attention_dots", y.dtype());
    let args = [
        gy.into(),
        y.into(),
        (&mut to).into(),
        sequences.into(),
        op.heads.into(),
        op.rows.into(),
        op.value_width.into(),
    ];
    gpu.launch(kernel, grid, &args)?;
    Ok(to)
}

/// The result of a kernel.
#[derive(Clone, Copy, PartialEq)]
enum KernelOutput {
    Y,
    Gq,
    Gk,
    Gv,
}

/// Rows in shared memory, with room for `width` elements each.
struct WholeRows {
    width: usize,
    /// Bytes of shared memory of a block.
    bytes: usize,
}

/// The inputs of all kernels.
struct KernelInputs<'a> {
    op: &'a CausalAttention,
    gpu: &'a Gpu,
    ins: [View<'a>; 3],
    gy: Option<View<'a>>,
    /// For each row, the base-2 logarithm of the softmax's normaliser, or the reciprocal of the sum
    /// of scores.
    stats: Option<View<'a>>,
    /// gy . y of each row.
    dots: Option<View<'a>>,
    bias: Option<View<'a>>,
}

impl KernelInputs<'_> {
    /// A result of a kernel of [`Self::shape`]; `stats_to` belongs to the output.
    fn launch(&self, out: KernelOutput, to: &mut Buffer, stats_to: Option<&mut Buffer>) -> Result<()> {
        let (grid, kernel) = self.shape(out)?;
        self.run(kernel, grid, &[to.into(), stats_to.into()])
    }

    /// Launches a kernel that writes `to`.
    fn run(&self, kernel: Kernel, grid: Grid, to: &[Arg]) -> Result<()> {
        let op = self.op;
        let rows = op.batch * op.heads * op.rows.max(op.len);
        u32::try_from(rows).map_err(candle_core::Error::wrap)?; // kernels count rows in 32 bits
        let held = op.positions.as_ref().map(|x| x.storage_and_layout());
        let positions = held.as_ref().map(|(storage, layout)| self.gpu.view(storage, layout));
        let [q, k, v] = self.ins;
        let tensors = [
            q.into(),
            k.into(),
            v.into(),
            self.gy.into(),
            positions.transpose()?.into(),
            self.stats.into(),
            self.dots.into(),
        ];
        let mask = Mask::args(op.mask.as_ref(), self.gpu)?;
        let sizes = [op.heads, op.rows, op.len, op.key_width, op.value_width].map(Arg::from);
        let rule = match op.weights {
            Weights::Softmax => 0u32,
            Weights::LinearNormalised => 1,
            Weights::Plain => 2,
        };
        let rest = [rule.into(), self.by_four().into(), Arg::F32(op.scale())];
        let none = Pattern::default();
        let pattern = op.pattern.as_ref().map_or(&none, |checked| &checked.pattern);
        let held = pattern.links.as_ref().map(|x| x.storage_and_layout());
        let links = held.as_ref().map(|(storage, layout)| self.gpu.view(storage, layout));
        let each = |links: &Tensor| links.dims()[1];
        let pattern = [
            links.transpose()?.into(),
            pattern.links.as_ref().map_or(0, each).into(),
            pattern.window.unwrap_or(0).into(),
            pattern.globals.into(),
            pattern.slopes.into(),
            self.bias.into(),
            op.distances().into(),
        ];
        self.gpu.launch(kernel, grid, &[&tensors[..], &mask, to, &sizes, &rest, &pattern].concat())
    }

    /// True if the rows of all tensors can be read four elements at a time.
    fn by_four(&self) -> bool {
        let widths = [self.op.key_width, self.op.value_width];
        let tensors = self.ins.iter().chain(&self.gy);
        widths.iter().all(|width| width.is_multiple_of(4)) && tensors.into_iter().all(|x| x.aligned(4))
    }

    /// The launch configuration: few queries per tile if there are few queries, or if there would
    /// otherwise be few blocks.
    fn shape(&self, out: KernelOutput) -> Result<(Grid, Kernel)> {
        let op = self.op;
        let (name, module, width) = match out {
            KernelOutput::Y => ("y", "causal_attention", op.value_width),
            KernelOutput::Gq => ("gq", "causal_attention_gq", op.key_width),
            KernelOutput::Gk => ("gk", "causal_attention_gk", op.key_width),
            KernelOutput::Gv => ("gv", "causal_attention_gv", op.value_width),
        };
        let columns = if width > NARROW { WIDE } else { NARROW };
        let over_keys = matches!(out, KernelOutput::Y | KernelOutput::Gq);
        let blocks = |queries: usize| {
            let tiles = match over_keys {
                true => op.rows.div_ceil(queries),
                false => op.len.div_ceil(KEYS),
            };
            [op.batch * op.heads * tiles, width.div_ceil(columns), 1]
        };
        let full = blocks(MANY)[..2].iter().product::<usize>() >= FULL.get();
        let few = op.rows <= FEW && (over_keys || columns == NARROW);
        let queries = match few || over_keys && !full {
            true => FEW,
            false => MANY,
        };
        if out == KernelOutput::Y && queries == MANY {
            if let Some(tiles) = self.whole_rows(MANY + 2 * KEYS, 0)? {
                let grid = Grid { blocks: blocks(MANY), threads: NARROW_THREADS, shared: tiles.bytes };
                return Ok((grid, self.kernel("causal_attention_narrow", &format!("_{}", tiles.width))));
            }
        }
        let name = format!("{}_{name}_{queries}_{columns}", CausalAttention::NAME);
        let grid = Grid { blocks: blocks(queries), threads: THREADS, shared: 0 };
        let io = self.ins[0].dtype();
        Ok((grid, Kernel::of_products(module, &name, io)))
    }

    /// Shared memory for `rows` rows of queries, keys or values at their whole width and `more` other bytes; `None` if
    /// heads are too wide for the kernels that hold them, or for this GPU.
    fn whole_rows(&self, rows: usize, more: usize) -> Result<Option<WholeRows>> {
        let widest = self.op.key_width.max(self.op.value_width);
        let Some(width) = WHOLE.into_iter().find(|&width| widest <= width) else {
            return Ok(None);
        };
        let bytes = rows * (width * self.ins[0].dtype().size_in_bytes() + ROW_PAD) + more;
        let fits = bytes + DECLARED <= self.gpu.most_shared()?;
        Ok(fits.then_some(WholeRows { width, bytes }))
    }

    /// A kernel whose name begins with that of its file.
    fn kernel(&self, file: &'static str, rest: &str) -> Kernel {
        Kernel::of_products(file, &format!("{file}{rest}"), self.ins[0].dtype())
    }
}
