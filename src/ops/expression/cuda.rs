//! Launches of the kernels of `cuda/expression.cu`.

use super::program::{Program, Reach, Step};
use crate::gpu::sizes::expression::{INPUTS, OUTPUTS, SPAN};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View, SHARED, WARP};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use crate::runtime::maps::MAPS;
use crate::runtime::sums::sums_of_rows;
use candle_core::{DType, Result, Tensor};

/// Words of an instruction: the operation and its operands, and two numbers.
const WORDS: usize = 3;

/// Operations that are no functions, by their numbers in `cuda/expression.cu`.
const LOAD: u32 = 0;
const AFFINE: u32 = 13;
const ROW_SUM: u32 = 19;
const STORE: u32 = 20;

/// Whether the kernels compute a program of these inputs.
pub(super) fn takes(program: &Program, inputs: &[Tensor]) -> bool {
    let is_taken = |(x, reach): (&Tensor, &Reach)| match x.dtype() {
        DType::F32 => true,
        // Gradients of what lacks the first axes are sums in f32.
        DType::BF16 => *reach != Reach::Last,
        _ => false,
    };
    let instructions = Instructions::of(program);
    // Operands are numbers of 8 bits.
    inputs.len() <= INPUTS
        && program.returned.len() <= OUTPUTS
        && instructions.count() <= 0xff
        && instructions.bytes(2) <= SHARED
        && inputs.iter().zip(&program.reaches).all(is_taken)
}

/// A program as instructions: first those that compute a value each, then those that store.
struct Instructions {
    words: Vec<u32>,
    /// Number of instructions that compute a value.
    values: usize,
    /// Elements that a warp computes at a time: a row, or any.
    span: usize,
}

impl Instructions {
    fn of(program: &Program) -> Self {
        let span = if program.by_row { program.width() } else { SPAN };
        let mut this = Self { words: Vec::new(), values: 0, span };
        // The value of each step. The kernels repeat values where they are used.
        let mut at = Vec::<u32>::new();
        let float = |x: f64| (x as f32).to_bits();
        for value in &program.values {
            let of = match value.step {
                Step::Load(input) => {
                    let reach = program.reaches[input];
                    let length = if reach == Reach::Last { value.shape.elem_count() } else { program.width() };
                    this.push(LOAD, [input as u32, 0], [reach as u32, length as u32])
                }
                Step::Unary(function, x) => this.push(function as u32, [at[x], 0], [0, 0]),
                Step::Affine(x, numbers) => this.push(AFFINE, [at[x], 0], numbers.map(float)),
                Step::Binary(function, [x, y]) => this.push(function as u32, [at[x], at[y]], [0, 0]),
                Step::RowSum(x) => this.push(ROW_SUM, [at[x], 0], [0, 0]),
                Step::Expand(x) => at[x],
            };
            at.push(of);
        }
        this.values = this.count();
        for (i, &value) in program.returned.iter().enumerate() {
            let reach = program.reach(value).unwrap_or(Reach::All);
            this.push(STORE, [at[value], i as u32], [reach as u32, 0]);
        }
        this
    }

    fn push(&mut self, operation: u32, [a, b]: [u32; 2], numbers: [u32; 2]) -> u32 {
        let value = self.count();
        self.words.extend([operation | a << 8 | b << 16, numbers[0], numbers[1]]);
        value as u32
    }

    fn count(&self) -> usize {
        self.words.len() / WORDS
    }

    /// Number of warps of a block, for `arrays` numbers for each value and element.
    fn warps(&self, arrays: usize) -> usize {
        (SHARED / self.bytes(arrays)).clamp(1, 4)
    }

    /// Bytes of shared memory of a warp.
    fn bytes(&self, arrays: usize) -> usize {
        arrays * self.values * self.span * size_of::<f32>()
    }
}

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
        let program = Instructions::of(self);
        let (count, span, warps) = (self.shape.elem_count(), program.span, program.warps(arrays));
        let mut grid = Grid::of(count.div_ceil(span * warps), warps * WARP);
        grid.shared = warps * program.bytes(arrays);
        let instructions = gpu.constants(&program.words)?;
        let sizes = [program.count().into(), program.values.into(), span.into(), self.width().into(), count.into()];
        let args = [&[instructions.into()], tensors, &sizes].concat();
        gpu.launch(Kernel::new("expression", kernel), grid, &args)
    }

    /// Number of elements of each output.
    fn out_counts(&self) -> impl Iterator<Item = usize> {
        self.out_shapes().into_iter().map(|shape| shape.elem_count())
    }
}
