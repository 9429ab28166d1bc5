//! Check of the indices of an op's kernels in tensors of about 2^32 elements, without data: only the last sequence of the
//! batch has any, and must get the results that it gets alone.

use super::{compare, part, run, Case, CheckedOp};
use crate::gpu::{Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{apply_one, Backward, CpuOp, CudaOp, Forward, Launch, LaunchBackward, Op};
use crate::runtime::distance::{numbers, Distance};
use crate::runtime::float::Float;
use crate::runtime::maps::table;
use candle_core::{DType, Result, Shape, Tensor};
use dsf_emulation::{at_ends, emulated};

/// Batches are multiples of the numbers of blocks that kernels with few blocks have, so that their last block processes
/// the last sequence.
const STEP: usize = 1024 * 33;

/// More blocks than the grid of a sequence has.
const EVERY: usize = 1 << 20;

/// A sequence, which is to be the last of a large batch. The inputs of its case with one row that are no parameters grow
/// with the batch.
pub(crate) struct Large<'a> {
    case: &'a Case,
    blocks: usize,
    beyond: bool,
    of_rows: f64,
}

/// Returns the sequence of a case whose batch is one.
pub(crate) fn large(case: &Case) -> Large<'_> {
    Large { case, blocks: 16, beyond: false, of_rows: Distance::limit(DType::BF16).of_rows }
}

impl Large<'_> {
    /// The number of blocks at the end of a grid that run, which must process the whole sequence; 16 if not given. Each
    /// takes long if a grid has few.
    pub(crate) fn blocks(self, blocks: usize) -> Self {
        Self { blocks, ..self }
    }

    /// Tests with more than 2^32 elements, for kernels that do not count elements in 32 bits.
    pub(crate) fn beyond_32_bits(self) -> Self {
        let beyond = true;
        Self { beyond, ..self }
    }

    /// Another limit for rows of results, as in [`kernels_agree_to`](super::kernels_agree_to).
    pub(crate) fn within(self, of_rows: f64) -> Self {
        Self { of_rows, ..self }
    }

    /// The number of sequences, if the widest tensor has `width` elements for each.
    pub(crate) fn batch(&self, width: usize) -> usize {
        let most = u32::MAX as usize / width;
        match self.beyond {
            true => (most + 2).next_multiple_of(STEP),
            false => most / STEP * STEP,
        }
    }

    fn grows(&self, input: usize) -> bool {
        !self.case.parameters.contains(&input) && self.case.inputs[input].dims()[0] == 1
    }

    /// Checks output and gradients of the kernels of `fused` in bf16.
    pub(crate) fn agrees(
        &self,
        fused: impl Fn(&[Tensor]) -> Result<Tensor>,
        reference: impl Fn(&[Tensor]) -> Result<Tensor>,
    ) {
        self.compare(&fused, &reference);
    }

    fn compare(&self, fused: CheckedOp, reference: CheckedOp) {
        let (case, dtype) = (self.case, DType::BF16);
        let expected = run(&case.rounded_to(dtype).vars(DType::F64), reference);
        let inputs = case.inputs.iter().enumerate().filter(|(i, _)| self.grows(*i)).map(|(_, x)| x);
        let width = inputs.chain([&expected[0]]).map(Tensor::elem_count).max();
        let batch = self.batch(width.expect("an output"));
        let last_of_batch = |ins: &[Tensor]| {
            let ins = ins.iter().enumerate().map(|(i, x)| match self.grows(i) {
                true => apply_one(Placed::new(batch, x.dims(), Way::In), &[x]),
                false => Ok(x.clone()),
            });
            let y = fused(&ins.collect::<Result<Vec<_>>>()?)?;
            apply_one(Placed::new(batch, &[&[1], &y.dims()[1..]].concat(), Way::Out), &[&y])
        };
        let vars = case.rounded_to(dtype).vars(dtype);
        let got = emulated(|| at_ends(self.blocks, || run(&vars, &last_of_batch)));
        let what = format!("{}, the last of {batch}", case.name);
        compare(&what, &got, &expected, Distance { of_rows: self.of_rows, ..Distance::limit(dtype) });
        for (i, x) in got.iter().enumerate() {
            let written = numbers(x).unwrap().iter().any(|x| *x != 0.0);
            assert!(written, "{what}, {}: only zeros", part(i));
        }
    }
}

#[derive(Clone, Copy)]
enum Way {
    In,
    Out,
}

/// Places a sequence at the end of a batch of zeros, or takes the last sequence of a batch.
struct Placed {
    batch: usize,
    sequence: Vec<usize>,
    way: Way,
}

impl Placed {
    fn new(batch: usize, sequence: &[usize], way: Way) -> Self {
        Self { batch, sequence: sequence.to_vec(), way }
    }

    fn width(&self) -> usize {
        self.sequence.iter().product()
    }

    fn on_gpu(&self, gpu: &Gpu, x: View, way: Way) -> Result<Buffer> {
        let (all, width) = (self.batch * self.width(), self.width());
        match way {
            Way::In => {
                let whole = gpu.alloc(x.dtype(), all)?;
                let end = whole.view().part(all - width, width);
                let kernel = Kernel::of("pointwise", "add_to", x.dtype());
                let args = [table([x].into_iter()), end.into(), 1usize.into(), width.into()];
                at_ends(EVERY, || gpu.launch(kernel, Grid::for_each(width), &args))?;
                Ok(whole)
            }
            Way::Out => gpu.copy(x.part(all - width, width)),
        }
    }

    fn on_cpu<F: Float>(&self, x: &[F], way: Way) -> Vec<F> {
        let before = (self.batch - 1) * self.width();
        match way {
            Way::In => [&vec![F::zero(); before], x].concat(),
            Way::Out => x[before..].to_vec(),
        }
    }

    fn back(&self) -> Way {
        match self.way {
            Way::In => Way::Out,
            Way::Out => Way::In,
        }
    }
}

impl Op for Placed {
    const NAME: &'static str = "placed";

    fn out_shapes(&self) -> Vec<Shape> {
        let mut shape = self.sequence.clone();
        if let Way::In = self.way {
            shape[0] *= self.batch;
        }
        vec![shape.into()]
    }
}

impl CpuOp for Placed {
    fn forward<F: Float>(&self, call: Forward<F>) -> Vec<Vec<F>> {
        vec![self.on_cpu(call.ins[0], self.way)]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        vec![self.on_cpu(call.only().grad, self.back())]
    }
}

impl CudaOp for Placed {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![self.on_gpu(call.gpu, call.ins[0], self.way)?])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        Ok(vec![Some(self.on_gpu(call.gpu, call.only().grad, self.back())?)])
    }
}
