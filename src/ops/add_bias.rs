//! A bias for every row. Candle's broadcast add copies the bias to every row first, and its
//! gradient, a sum over rows, takes longer than the matrix product before it.

use super::float::Float;
use super::fused::{apply_one, only, runs_on, FusedOp, Used};
use super::lanes::sum_parts;
use super::shape;
use candle_core::{bail, Result, Shape, Tensor};
use multiversion::multiversion;
use rayon::prelude::*;

/// Rows per task, and per partial sum of the bias's gradient.
const ROWS: usize = 128;

/// x + bias along the last axis. `x`: (..., d); `bias`: (d); result like `x`.
pub fn add_bias(x: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let width = match x.dims() {
        [.., width] if x.elem_count() > 0 => *width,
        dims => bail!("add_bias: x has shape {dims:?}, needed is a last axis and no empty one"),
    };
    shape::expect(AddBias::NAME, ("bias", bias), ("x", x), &[width])?;
    if runs_on(x) {
        let shape = x.shape().clone();
        apply_one(AddBias { shape, width }, &[x, bias])
    } else {
        x.broadcast_add(bias)
    }
}

struct AddBias {
    shape: Shape,
    width: usize,
}

impl FusedOp for AddBias {
    const NAME: &'static str = "add_bias";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn forward<F: Float>(&self, ins: &[&[F]]) -> Vec<Vec<F>> {
        let mut y = ins[0].to_vec();
        y.par_chunks_mut(ROWS * self.width)
            .for_each(|y| add_to_rows(y, ins[1]));
        vec![y]
    }

    fn backward<F: Float>(&self, _: &[&[F]], outs: &[Option<Used<F>>]) -> Vec<Vec<F>> {
        let gy = only(outs).grad;
        let chunk = ROWS * self.width;
        let mut parts = vec![F::zero(); gy.len().div_ceil(chunk) * self.width];
        parts
            .par_chunks_mut(self.width)
            .zip(gy.par_chunks(chunk))
            .for_each(|(part, gy)| sum_rows(gy, part));
        vec![gy.to_vec(), sum_parts(&parts, self.width)]
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn add_to_rows<F: Float>(y: &mut [F], bias: &[F]) {
    for row in y.chunks_exact_mut(bias.len()) {
        for (y, &bias) in row.iter_mut().zip(bias) {
            *y += bias;
        }
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn sum_rows<F: Float>(rows: &[F], sums: &mut [F]) {
    for row in rows.chunks_exact(sums.len()) {
        for (sum, &x) in sums.iter_mut().zip(row) {
            *sum += x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{self, Case};

    fn case(shape: &[usize]) -> Case {
        Case::new(format!("{shape:?}"))
            .normal("x", shape)
            .normal("bias", &shape[shape.len() - 1..])
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        add_bias(&ins[0], &ins[1])
    }

    #[test]
    fn fused_equals_reference() {
        let shapes: [&[usize]; 5] = [&[5], &[1, 2], &[7, 63, 16], &[130, 17], &[1, 1000, 33]];
        check::agree(&shapes.map(case), fused, |ins| {
            ins[0].broadcast_add(&ins[1])
        });
    }

    #[test]
    fn gradients_are_finite_differences() {
        check::finite_differences(&case(&[2, 3]), fused);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&case(&[3, 100, 20]), fused);
    }

    #[test]
    fn every_subset_of_inputs_can_be_tracked() {
        check::partial_tracking(&case(&[3, 5]), fused);
    }

    #[test]
    fn a_wrong_shape_is_named() {
        let message = "add_bias: bias has shape [4], but x of shape [2, 3]";
        check::refuses(&[&[2, 3], &[4]], fused, message);
    }

    #[test]
    #[ignore = "a measurement"]
    fn speed() {
        check::speed(&case(&[32_768, 64]), fused, 32_768 * 64);
    }
}
