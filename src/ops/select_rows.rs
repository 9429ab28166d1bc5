//! Selection of steps of every sequence. Candle computes the gradient of such a selection on one thread, in four passes
//! over the whole sequence.

use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel};
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::tile::Tiles;
use crate::runtime::zeros::zeros;
use candle_core::{DType, Result, Shape, Tensor};

/// y\[b, r\] = x\[b, positions\[b, r\]\].
///
/// `x`: (B, L, d); `positions`: (B, R) of u32 below L; result (B, R, d).
pub fn select_rows(x: &Tensor, positions: &Tensor) -> Result<Tensor> {
    let [batch, len, width] = shape::dims(SelectRows::NAME, ("x", x))?;
    let [_, rows] = shape::dims(SelectRows::NAME, ("positions", positions))?;
    let needed = ("x", [batch, rows]);
    let times = shape::times(SelectRows::NAME, positions, needed, ("x", len))?;
    if runs_on(x) {
        let op = SelectRows { known: times, positions: positions.contiguous()?, batch, rows, len, width };
        apply_one(op, &[x])
    } else {
        reference(x, positions)
    }
}

fn reference(x: &Tensor, positions: &Tensor) -> Result<Tensor> {
    let index = positions.unsqueeze(2)?;
    let (batch, rows, _) = index.dims3()?;
    let index = index.broadcast_as((batch, rows, x.dim(2)?))?;
    x.gather(&index.contiguous()?, 1)
}

struct SelectRows {
    /// The positions on the CPU in row-major order; empty for positions on a GPU.
    known: Vec<usize>,
    /// (B, R), on the device of x.
    positions: Tensor,
    batch: usize,
    rows: usize,
    len: usize,
    width: usize,
}

impl FusedOp for SelectRows {
    const NAME: &'static str = "select_rows";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.rows, self.width).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = Vec::with_capacity(self.known.len() * self.width);
        let sequences = ins[0].chunks_exact(self.len * self.width);
        for (x, positions) in sequences.zip(self.known.chunks_exact(self.rows)) {
            for &step in positions {
                y.extend_from_slice(&x[step * self.width..][..self.width]);
            }
        }
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let mut gx = zeros(call.ins[0].len());
        gx.chunks_mut(self.len * self.width)
            .zip(self.known.chunks(self.rows))
            .zip(call.only().grad.chunks(self.rows * self.width))
            .in_parallel(|((gx, positions), gy)| {
                for (&step, gy) in positions.iter().zip(gy.chunks_exact(self.width)) {
                    let to = &mut gx[step * self.width..][..self.width];
                    for (to, &gy) in to.iter_mut().zip(gy) {
                        *to += gy;
                    }
                }
            });
        vec![gx]
    }

    fn launch(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let (io, rows) = (ins[0].dtype(), self.batch * self.rows);
        let mut y = gpu.alloc(io, rows * self.width)?;
        gpu.with_tensor(Some(&self.positions), |positions| {
            let args = [ins[0].into(), positions.into(), (&mut y).into()];
            self.run(gpu, "forward", io, rows, &args)
        })?;
        Ok(vec![y])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, gy, steps) = (call.gpu, call.only().grad, self.batch * self.len);
        let mut first = gpu.alloc(DType::U32, steps)?;
        let mut next = gpu.alloc(DType::U32, self.batch * self.rows)?;
        gpu.with_tensor(Some(&self.positions), |positions| {
            let lists = [positions.into(), (&mut first).into(), (&mut next).into()];
            let sizes = [self.batch, self.len, self.rows].map(Arg::from);
            let grid = Grid::for_each(steps + self.batch * self.rows);
            let kernel = Kernel::new("select_rows", "select_rows_lists");
            gpu.launch(kernel, grid, &[lists, sizes].concat())
        })?;
        let mut gx = gpu.alloc(gy.dtype(), call.ins[0].len())?;
        let args = [gy.into(), (&first).into(), (&next).into(), (&mut gx).into()];
        self.run(gpu, "backward", gy.dtype(), steps, &args)?;
        Ok(vec![Some(gx)])
    }
}

impl SelectRows {
    /// Launches a kernel on `rows` rows.
    fn run(&self, gpu: &Gpu, part: &str, io: DType, rows: usize, args: &[Arg]) -> Result<()> {
        let tiles = Tiles::of(rows, self.width);
        let sizes = [self.rows.into(), self.len.into()];
        let kernel = Kernel::of("select_rows", &format!("select_rows_{part}"), io);
        gpu.launch(kernel, tiles.grid(), &[args, &sizes, &tiles.args()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::check::{self, Case};
    use candle_core::Device;

    fn positions(batch: usize, rows: usize, len: usize) -> Tensor {
        let steps: Vec<u32> = (0..batch * rows).map(|i| (i * 7 % len) as u32).collect();
        Tensor::from_vec(steps, (batch, rows), &Device::Cpu).unwrap()
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        let (batch, len, _) = ins[0].dims3()?;
        select_rows(&ins[0], &positions(batch, 4, len))
    }

    fn case(shape: &[usize]) -> Case {
        Case::new(format!("{shape:?}")).normal("x", shape)
    }

    #[test]
    fn fused_equals_reference() {
        let shapes: [&[usize]; 4] = [&[1, 1, 1], &[7, 2, 3], &[2, 65, 64], &[1, 1000, 5]];
        check::agree(&shapes.map(case), fused, |ins| {
            let (batch, len, _) = ins[0].dims3()?;
            reference(&ins[0], &positions(batch, 4, len))
        });
    }

    #[test]
    fn kernels_equal_the_reference() {
        let shapes: [&[usize]; 4] = [&[1, 1, 1], &[7, 2, 3], &[2, 65, 40], &[1, 300, 5]];
        check::kernels_agree(&shapes.map(case), fused, |ins| {
            let (batch, len, _) = ins[0].dims3()?;
            reference(&ins[0], &positions(batch, 4, len))
        });
    }

    #[test]
    fn gradients_add_up_where_a_step_is_chosen_twice() {
        check::finite_differences(&case(&[2, 3, 2]), fused);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&case(&[9, 65, 3]), fused);
    }

    #[test]
    fn a_step_beyond_the_sequence_and_another_batch_are_errors() {
        let late = |ins: &[Tensor]| select_rows(&ins[0], &positions(2, 4, 9));
        let message = "select_rows: position 7, but x has 3 steps";
        check::refuses(&[&[2, 3, 4]], late, message);
        let message = "select_rows: positions has shape [2, 4], but x asks for [5, 4]";
        check::refuses(&[&[5, 3, 4]], late, message);
    }
}
