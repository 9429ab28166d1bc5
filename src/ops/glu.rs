//! Gated linear units: a function of one half of each row, times the other half.

use crate::gpu::{Arg, Buffer, Grid, Kernel, View};
use crate::pointwise::{Gelu, Pointwise, Sigmoid};
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::lanes::map_chunks;
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::zeros;
use candle_core::{bail, DType, Result, Shape, Tensor, D};
use dsf_simd::simd;
use std::marker::PhantomData;

/// Rows per task.
const ROWS: usize = 256;

/// The function of a gated linear unit and the half of the row that it applies to, see [`glu()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glu {
    /// The first half times sigmoid of the second.
    Sigmoid,
    /// gelu of the first half, in its exact form, times the second.
    Gelu,
}

/// A function of one half of each row, times the other half, as `kind` says.
///
/// `x`: (..., 2w); result (..., w).
pub fn glu(x: &Tensor, kind: Glu) -> Result<Tensor> {
    match kind {
        Glu::Sigmoid => gated::<Sigmoid>(x, 1),
        Glu::Gelu => gated::<Gelu>(x, 0),
    }
}

fn gated<P: Pointwise>(x: &Tensor, curved: usize) -> Result<Tensor> {
    let (leading, both) = shape::rows(Halves::<P>::NAME, ("x", x))?;
    if both % 2 != 0 {
        bail!("glu: x of shape {:?} has an odd last axis", x.dims());
    }
    let width = both / 2;
    if runs_on(x) {
        let out = [leading, &[width]].concat().into();
        let function = PhantomData::<P>;
        let op = Halves { out, width, curved, function };
        return apply_one(op, &[x]);
    }
    let half = |i: usize| x.narrow(D::Minus1, i * width, width);
    half(1 - curved)? * P::reference(&half(curved)?)?
}

struct Halves<P> {
    out: Shape,
    /// The width of each half.
    width: usize,
    /// The index, 0 or 1, of the half that the function applies to.
    curved: usize,
    function: PhantomData<P>,
}

impl<P: Pointwise> FusedOp for Halves<P> {
    const NAME: &'static str = "glu";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.out.clone()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let (width, curved) = (self.width, self.curved);
        let chunks = [2 * width, width].map(|width| ROWS * width);
        vec![map_chunks(ins[0], chunks, |x, y| {
            products::<P, F>(x, width, curved, y);
        })]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let mut gx = zeros(call.ins[0].len());
        let chunk = ROWS * self.width;
        gx.chunks_mut(2 * chunk)
            .zip(call.ins[0].chunks(2 * chunk))
            .zip(call.only().grad.chunks(chunk))
            .in_parallel(|((gx, x), gy)| slopes::<P, F>(x, gy, self.width, self.curved, gx));
        vec![gx]
    }

    fn launch(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let mut y = gpu.alloc(ins[0].dtype(), self.out.elem_count())?;
        let sizes = self.sizes(&[ins[0], y.view()]);
        let args = [&[ins[0].into(), (&mut y).into()], &sizes[..]].concat();
        gpu.launch(self.kernel("forward", ins[0].dtype()), self.grid(), &args)?;
        Ok(vec![y])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (x, gy) = (call.ins[0], call.only().grad);
        let mut gx = call.gpu.alloc(x.dtype(), x.len())?;
        let sizes = self.sizes(&[x, gy, gx.view()]);
        let args = [&[x.into(), gy.into(), (&mut gx).into()], &sizes[..]].concat();
        let kernel = self.kernel("backward", x.dtype());
        call.gpu.launch(kernel, self.grid(), &args)?;
        Ok(vec![Some(gx)])
    }
}

impl<P: Pointwise> Halves<P> {
    fn kernel(&self, part: &str, io: DType) -> Kernel {
        Kernel::of("glu", &format!("glu_{}_{part}", P::NAME), io)
    }

    /// One thread for four elements of the result.
    fn grid(&self) -> Grid {
        Grid::for_each(self.out.elem_count().div_ceil(4))
    }

    /// The trailing arguments of the kernels.
    fn sizes(&self, views: &[View]) -> [Arg<'static>; 4] {
        let vector = self.width.is_multiple_of(4) && views.iter().all(|view| view.aligned(4));
        let (count, width) = (self.out.elem_count(), self.width);
        [count.into(), width.into(), self.curved.into(), vector.into()]
    }
}

/// The linear half of a row, and the half that the function applies to.
#[inline(always)]
fn halves<F>(row: &[F], width: usize, curved: usize) -> (&[F], &[F]) {
    let (first, second) = row.split_at(width);
    match curved {
        0 => (second, first),
        _ => (first, second),
    }
}

#[simd]
fn products<P: Pointwise, F: Float>(x: &[F], width: usize, curved: usize, y: &mut [F]) {
    for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
        let (linear, gates) = halves(x, width, curved);
        for ((y, &linear), &gate) in y.iter_mut().zip(linear).zip(gates) {
            *y = linear * P::value(gate);
        }
    }
}

#[simd]
fn slopes<P: Pointwise, F: Float>(x: &[F], gy: &[F], width: usize, curved: usize, gx: &mut [F]) {
    let rows = x.chunks_exact(2 * width).zip(gy.chunks_exact(width));
    for ((x, gy), gx) in rows.zip(gx.chunks_exact_mut(2 * width)) {
        let (linear, gates) = halves(x, width, curved);
        let (first, second) = gx.split_at_mut(width);
        let (to_linear, to_gates) = match curved {
            0 => (second, first),
            _ => (first, second),
        };
        for i in 0..width {
            let gate = P::value(gates[i]);
            to_linear[i] = gy[i] * gate;
            to_gates[i] = gy[i] * linear[i] * P::slope(gates[i], gate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::check::{self, Case};
    use crate::{gelu, sigmoid};

    fn case(shape: &[usize]) -> Case {
        Case::new(format!("{shape:?}")).uniform("x", shape, -3.0, 3.0)
    }

    fn by(kind: Glu) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync {
        move |ins| glu(&ins[0], kind)
    }

    fn reference(kind: Glu) -> impl Fn(&[Tensor]) -> Result<Tensor> {
        move |ins| {
            let halves = ins[0].chunk(2, D::Minus1)?;
            match kind {
                Glu::Sigmoid => &halves[0] * Sigmoid::reference(&halves[1])?,
                Glu::Gelu => Gelu::reference(&halves[0])? * &halves[1],
            }
        }
    }

    const BOTH: [Glu; 2] = [Glu::Sigmoid, Glu::Gelu];

    #[test]
    fn fused_equals_reference() {
        let shapes: [&[usize]; 5] = [&[2], &[7, 4], &[2, 63, 32], &[65, 130], &[1, 1000, 6]];
        for kind in BOTH {
            check::agree(&shapes.map(case), by(kind), reference(kind));
        }
    }

    #[test]
    fn kernels_equal_the_reference() {
        // halves that are multiples of four and others; a partial last group
        let shapes: [&[usize]; 5] = [&[3, 2], &[7, 16], &[2, 33, 40], &[5, 6], &[1, 65, 2]];
        for kind in BOTH {
            check::kernels_agree(&shapes.map(case), by(kind), reference(kind));
        }
    }

    #[test]
    fn gradients_are_finite_differences() {
        for kind in BOTH {
            check::finite_differences(&case(&[3, 6]), by(kind));
        }
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        for kind in BOTH {
            check::same_bits(&case(&[3, 2 * ROWS + 5, 6]), by(kind));
        }
    }

    #[test]
    fn strided_inputs_are_read_in_order() {
        for kind in BOTH {
            check::partial_tracking(&case(&[3, 4]), by(kind));
        }
    }

    #[test]
    fn it_is_the_product_of_its_parts_bit_for_bit() {
        let var = &case(&[65, 40]).vars(DType::F32)[0];
        let halves = var.chunk(2, D::Minus1).unwrap();
        let parts = [&halves[0] * sigmoid(&halves[1]).unwrap(), gelu(&halves[0]).unwrap() * &halves[1]];
        for (kind, parts) in BOTH.into_iter().zip(parts) {
            let [got, parts] = [glu(var, kind), parts].map(|x| x.unwrap().to_vec2::<f32>());
            assert_eq!(got.unwrap(), parts.unwrap());
        }
    }

    #[test]
    fn an_odd_axis_has_no_halves() {
        let message = "glu: x of shape [2, 3] has an odd last axis";
        check::refuses(&[&[2, 3]], by(Glu::Gelu), message);
        check::refuses(&[&[2, 0]], by(Glu::Gelu), "needed is a last axis");
    }
}
