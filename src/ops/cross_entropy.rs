//! Cross entropy: one pass over the logits forward, one backward, and no copy of them between.

use super::float::Float;
use super::fused::{apply_one, runs_on, Backward, Forward, FusedOp};
use super::lanes::{largest, total};
use super::shape;
use candle_core::{bail, Result, Shape, Tensor, D};
use multiversion::multiversion;
use rayon::prelude::*;

/// Rows per task.
const ROWS: usize = 16;

/// The mean over rows of ln Σ_v e^{x_v} - x_target, a scalar.
///
/// `logits`: (R, V); `targets`: (R) of u32 below V.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let [rows, classes] = shape::dims(CrossEntropy::NAME, ("logits", logits))?;
    if targets.dims() != [rows] {
        bail!(
            "cross_entropy: targets has shape {:?}, but logits of shape {:?} asks for [{rows}]",
            targets.dims(),
            logits.dims()
        );
    }
    let ids: Vec<u32> = targets.to_vec1()?;
    if let Some(row) = ids.iter().position(|&id| id as usize >= classes) {
        bail!(
            "cross_entropy: target {} in row {row}, but there are {classes} classes",
            ids[row]
        );
    }
    if runs_on(logits) {
        apply_one(
            CrossEntropy {
                classes,
                targets: ids,
            },
            &[logits],
        )
    } else {
        reference(logits, targets)
    }
}

fn reference(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let target = logits.gather(&targets.unsqueeze(1)?, 1)?;
    let largest = logits.max_keepdim(D::Minus1)?.detach();
    let sum = logits
        .broadcast_sub(&largest)?
        .exp()?
        .sum_keepdim(D::Minus1)?;
    ((sum.log()? + largest)? - target)?.mean_all()
}

struct CrossEntropy {
    classes: usize,
    targets: Vec<u32>,
}

impl FusedOp for CrossEntropy {
    const NAME: &'static str = "cross_entropy";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![Shape::from(())]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut losses = vec![F::zero(); self.targets.len()];
        losses
            .par_chunks_mut(ROWS)
            .zip(self.targets.par_chunks(ROWS))
            .zip(ins[0].par_chunks(ROWS * self.classes))
            .for_each(|((losses, targets), logits)| forward_rows(logits, targets, losses));
        let sum: f64 = losses.iter().map(|loss| loss.to_f64()).sum();
        vec![vec![F::from_f64(sum / losses.len() as f64)]]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let scale = call.only().grad[0] / F::from_f64(self.targets.len() as f64);
        let mut grads = vec![F::zero(); call.ins[0].len()];
        grads
            .par_chunks_mut(ROWS * self.classes)
            .zip(self.targets.par_chunks(ROWS))
            .zip(call.ins[0].par_chunks(ROWS * self.classes))
            .for_each(|((grads, targets), logits)| backward_rows(logits, targets, scale, grads));
        vec![grads]
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn forward_rows<F: Float>(logits: &[F], targets: &[u32], losses: &mut [F]) {
    let rows = logits.chunks_exact(logits.len() / targets.len());
    for ((x, &target), loss) in rows.zip(targets).zip(losses) {
        let top = largest(x);
        let sum = total([x], |[x]| (x - top).exp());
        *loss = sum.ln() + top - x[target as usize];
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn backward_rows<F: Float>(logits: &[F], targets: &[u32], scale: F, grads: &mut [F]) {
    let classes = logits.len() / targets.len();
    let rows = logits
        .chunks_exact(classes)
        .zip(grads.chunks_exact_mut(classes));
    for ((x, grad), &target) in rows.zip(targets) {
        let top = largest(x);
        for (grad, &x) in grad.iter_mut().zip(x) {
            *grad = (x - top).exp();
        }
        let share = scale / total([grad], |[e]| e);
        for grad in grad.iter_mut() {
            *grad *= share;
        }
        grad[target as usize] -= scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{self, Case};
    use candle_core::Device;

    /// Targets that visit every class.
    fn targets(logits: &Tensor) -> Tensor {
        let (rows, classes) = logits.dims2().unwrap();
        let ids: Vec<u32> = (0..rows).map(|row| (row * 7 % classes) as u32).collect();
        Tensor::new(ids, &Device::Cpu).unwrap()
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        cross_entropy(&ins[0], &targets(&ins[0]))
    }

    fn case(rows: usize, classes: usize) -> Case {
        let name = format!("{rows} x {classes}");
        Case::new(name).uniform("logits", &[rows, classes], -20.0, 20.0)
    }

    #[test]
    fn fused_equals_reference() {
        let sizes = [(1, 1), (1, 2), (2, 63), (7, 64), (65, 65), (33, 1000)];
        let cases = sizes.map(|(rows, classes)| case(rows, classes));
        check::agree(&cases, fused, |ins| reference(&ins[0], &targets(&ins[0])));
    }

    #[test]
    fn gradients_are_finite_differences() {
        let case = Case::new("tiny").normal("logits", &[3, 4]);
        check::finite_differences(&case, fused);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&case(100, 77), fused);
    }

    #[test]
    fn strided_logits_are_read_in_order() {
        check::partial_tracking(&case(3, 4), fused);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let logits = Tensor::new(&[[1e30f32, -1e30, 0.0]], &Device::Cpu).unwrap();
        let loss = cross_entropy(&logits, &Tensor::new(&[0u32], &Device::Cpu).unwrap()).unwrap();
        assert_eq!(loss.to_scalar::<f32>().unwrap(), 0.0);
    }

    #[test]
    fn a_target_beyond_the_classes_is_an_error() {
        let logits = Tensor::new(&[[0f32, 1.0], [0.0, 1.0]], &Device::Cpu).unwrap();
        let targets = Tensor::new(&[1u32, 2], &Device::Cpu).unwrap();
        let error = cross_entropy(&logits, &targets).unwrap_err().to_string();
        assert!(
            error.contains("target 2 in row 1, but there are 2 classes"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_shape_is_named() {
        check::refuses(
            &[&[2, 3], &[3]],
            |ins| cross_entropy(&ins[0], &ins[1]),
            "cross_entropy: targets has shape [3], but logits of shape [2, 3]",
        );
    }

    #[test]
    #[ignore = "a measurement"]
    fn speed() {
        check::speed(&case(512, 8192), fused, 512 * 8192);
    }
}
