//! Launches of the kernels of `cuda/expression.cu`.

use super::program::{Program, Reach, WORDS};
use crate::gpu::sizes::expression::{INPUTS, OUTPUTS};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View, WARP};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use crate::runtime::maps::MAPS;
use crate::runtime::sums::sums_of_rows;
use candle_core::{DType, Result};

/// Tables of `count` pointers to f32 and to bf16; each tensor is in that of its type.
fn tables<'a>(tensors: impl Iterator<Item = Option<View<'a>>>, count: usize) -> [Arg<'a>; 2] {
    let tensors: Vec<_> = tensors.collect();
    [DType::F32, DType::BF16].map(|dtype| {
        let of_type = |x: &Option<View<'a>>| x.filter(|x| x.dtype() == dtype).into();
        let mut entries: Vec<Arg> = tensors.iter().map(of_type).collect();
        entries.resize(count, Arg::Null);
        Arg::Table(entries)
    })
}

impl CudaOp for Program {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let outs = self.out_counts().map(|count| gpu.alloc(self.dtype, count));
        let outs = outs.collect::<Result<Vec<_>>>()?;
        let given = tables(ins.iter().copied().map(Some), INPUTS);
        let made = tables(outs.iter().map(|out| Some(out.view())), OUTPUTS);
        self.launch(gpu, "expression_forward", 1, &[given, made].concat())?;
        Ok(outs)
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let gpu = call.gpu;
        let inputs = || call.ins.iter().zip(&self.reaches).zip(call.needs_grad);
        // An input without the first axes gets a gradient for each element of the whole; these are then added.
        let grads = inputs().map(|((x, reach), &needed)| {
            let count = if *reach == Reach::Last { self.shape.elem_count() } else { x.len() };
            needed.then(|| gpu.alloc(x.dtype(), count)).transpose()
        });
        let grads = grads.collect::<Result<Vec<_>>>()?;
        let given = tables(call.ins.iter().copied().map(Some), INPUTS);
        let arrived = tables(call.outs.iter().map(|out| out.map(|out| out.grad)), OUTPUTS);
        let made = tables(grads.iter().map(|grad| grad.as_ref().map(Buffer::view)), INPUTS);
        self.launch(gpu, "expression_backward", 2, &[given, arrived, made].concat())?;
        let is_summed = |grad: &Option<Buffer>, x: &View| grad.as_ref().is_some_and(|grad| grad.len() > x.len());
        let long = grads.iter().zip(call.ins).filter(|(grad, x)| is_summed(grad, x));
        let long: Vec<_> = long.filter_map(|(grad, x)| Some((grad.as_ref()?.view(), x.len()))).collect();
        let mut sums = Vec::new();
        for some in long.chunks(MAPS) {
            sums.extend(sums_of_rows(gpu, some)?);
        }
        let mut sums = sums.into_iter();
        let found = grads.into_iter().zip(call.ins);
        Ok(found.map(|(grad, x)| if is_summed(&grad, x) { sums.next() } else { grad }).collect())
    }
}

impl Program {
    /// Launches a kernel with `arrays` numbers in shared memory for each value and element.
    fn launch(&self, gpu: &Gpu, kernel: &str, arrays: usize, tensors: &[Arg]) -> Result<()> {
        let (count, warps) = (self.shape.elem_count(), self.warps(arrays));
        let mut grid = Grid::of(count.div_ceil(self.span * warps), warps * WARP);
        grid.shared = warps * self.bytes(arrays);
        let instructions = gpu.constants(&self.words)?;
        let width = self.shape.dims().last().copied().unwrap_or(1);
        let steps = self.words.len() / WORDS;
        let sizes = [steps.into(), self.values.into(), self.span.into(), width.into(), count.into()];
        let args = [&[instructions.into()], tensors, &sizes].concat();
        gpu.launch(Kernel::new("expression", kernel), grid, &args)
    }

    /// Number of elements of each output.
    fn out_counts(&self) -> impl Iterator<Item = usize> {
        self.out_shapes().into_iter().map(|shape| shape.elem_count())
    }
}
