//! Kernel of a system whose matrix is lower triangular, with rank-one entries below its diagonal: a cascade of
//! first-order sections. S4's HiPPO-LegS has this form, so its kernel needs no dense matrix.

mod cpu;
mod launch;
mod reference;

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::shape;
use candle_core::{DType, Result, Shape, Tensor};

/// y\[c,l\] = Σ_i w\[c,i\] x\[c,l,i\] for l below `len`, the response to an impulse. Each section subtracts its
/// previous and its new state from the signal, and passes on the rest:
///
/// x_l,i = a_i x_l-1,i + b_i t_l,i, t_l,i+1 = t_l,i - x_l-1,i - x_l,i, where t_l,0 is 1 for l = 0, else 0, and x before
/// it is 0.
///
/// The bilinear discretisation, with step Δ, of x' = A x + r u with A_ij = -r_i r_j below the diagonal and A_ii = -λ_i is
/// of this form: a_i = (1 - λ_i Δ/2) / (1 + λ_i Δ/2), b_i = r_i² (Δ/2) / (1 + λ_i Δ/2), and its state is 2 x_i / r_i.
///
/// `a`, `b`, `w`: (d, n); result (d, len).
pub fn cascade(a: &Tensor, b: &Tensor, w: &Tensor, len: usize) -> Result<Tensor> {
    let op = Cascade::check(a, b, w, len)?;
    // The decay of a slow section has no accuracy in half precision.
    if runs_on(a) && a.dtype() != DType::BF16 {
        apply_one(op, &[a, b, w])
    } else {
        reference::cascade(a, b, w, len)
    }
}

/// Cascade; the inputs are in the order a, b, w.
struct Cascade {
    width: usize,
    states: usize,
    len: usize,
}

impl Cascade {
    fn check(a: &Tensor, b: &Tensor, w: &Tensor, len: usize) -> Result<Self> {
        let others = [("b", b), ("w", w)];
        let [width, states] = shape::kernel(Self::NAME, ("a", a), &others, len)?;
        Ok(Self { width, states, len })
    }
}

impl FusedOp for Cascade {
    const NAME: &'static str = "cascade";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.width, self.len).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![cpu::forward(self, ins)]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        cpu::backward(self, call.ins, call.only().grad)
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        launch::forward(self, call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        launch::backward(self, call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::check::{self, Case};

    fn case(width: usize, states: usize) -> Case {
        let shape = [width, states];
        Case::new(format!("{shape:?}"))
            .uniform("a", &shape, -0.7, 0.9)
            .parameter()
            .uniform("b", &shape, -0.2, 0.4)
            .parameter()
            .normal("w", &shape)
            .parameter()
    }

    /// HiPPO-LegS with steps from 0.001 to 0.1.
    fn legs(width: usize, states: usize) -> Case {
        let shape = [width, states];
        let of = |entry: fn(f64, f64) -> f64| -> Vec<f64> {
            let one = |at: usize| {
                let (c, i) = (at / states, (at % states) as f64);
                entry(0.0005 * 100f64.powf(c as f64 / width as f64), i)
            };
            (0..width * states).map(one).collect()
        };
        let a = of(|s, i| (1.0 - s * (i + 1.0)) / (1.0 + s * (i + 1.0)));
        let b = of(|s, i| s * (2.0 * i + 1.0) / (1.0 + s * (i + 1.0)));
        Case::new(format!("legs {shape:?}"))
            .values(&a, &shape)
            .parameter()
            .values(&b, &shape)
            .parameter()
            .normal("w", &shape)
            .parameter()
    }

    fn fused(len: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> {
        move |x| cascade(&x[0], &x[1], &x[2], len)
    }

    fn reference(len: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> {
        move |x| reference::cascade(&x[0], &x[1], &x[2], len)
    }

    /// Lengths around the number of time steps between stored states, and widths around the number of channels in a
    /// group of lanes.
    #[test]
    fn fused_equals_reference() {
        for len in [1, 2, 31, 32, 33, 100] {
            check::agree(&[case(1, 1), case(17, 3), legs(16, 8)], fused(len), reference(len));
        }
    }

    #[test]
    fn kernels_equal_the_reference() {
        for len in [1, 2, 127, 128, 129, 300] {
            let cases = [case(1, 1), legs(3, 32), legs(2, 40)];
            check::kernels_agree(&cases, fused(len), reference(len));
        }
    }

    /// A chain of 64 sections, for 2,048 steps.
    #[test]
    fn long_chains_keep_their_digits() {
        let case = legs(16, 64);
        let numbers = |dtype| {
            let x: Vec<Tensor> = case.vars(dtype).iter().map(|x| x.as_detached_tensor()).collect();
            let y = fused(2048)(&x).unwrap().to_dtype(DType::F64).unwrap();
            y.flatten_all().unwrap().to_vec1::<f64>().unwrap()
        };
        let (exact, got) = (numbers(DType::F64), numbers(DType::F32));
        let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
        let apart = norm(&mut exact.iter().zip(&got).map(|(x, y)| x - y));
        let whole = norm(&mut exact.iter().copied());
        assert!(apart < 1e-5 * whole, "{apart:e} of {whole}");
    }

    #[test]
    fn gradients_are_finite_differences() {
        check::finite_differences(&case(2, 3), fused(5));
        check::finite_differences(&legs(1, 5), fused(40));
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&legs(37, 9), fused(100));
    }

    #[test]
    fn every_subset_of_inputs_can_be_tracked() {
        check::partial_tracking(&case(2, 3), fused(20));
    }

    #[test]
    fn a_wrong_shape_is_named() {
        check::refuses(&[&[2, 3], &[2, 4], &[2, 3]], fused(4), "cascade: b has shape [2, 4]");
    }
}
