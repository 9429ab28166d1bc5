//! The linear scan of complex numbers, for LRU and similar mixers.

use super::{launch, reference, Extent};
use crate::gpu::Buffer;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::lanes::map;
use crate::runtime::shape;
use crate::runtime::strips::{Rows, Strip, Strips};
use crate::runtime::zeros::zeros;
use candle_core::{bail, Result, Shape, Tensor};
use dsf_simd::simd;

/// h_t = a_t h_{t-1} + x_t elementwise in complex numbers, h_{-1} = 0.
///
/// `a`, `x`: (B, L, 2, N), real parts before imaginary parts, which is the output of one linear map
/// of width 2N; result (B, L, 2, N). Gradients are those with respect to real and imaginary parts.
pub fn complex_scan(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    let scan = ComplexScan::check(a, x)?;
    if runs_on(a) {
        apply_one(scan, &[a, x])
    } else {
        reference::complex_scan(a, x)
    }
}

struct ComplexScan(Extent);

impl ComplexScan {
    fn check(a: &Tensor, x: &Tensor) -> Result<Self> {
        let [batch, len, parts, width] = shape::dims(Self::NAME, ("a", a))?;
        if parts != 2 {
            bail!(
                "{}: a has shape {:?}, needed are a real and an imaginary part on the third axis",
                Self::NAME,
                a.dims()
            );
        }
        let needed = [batch, len, 2, width];
        shape::expect(Self::NAME, ("x", x), ("a", a), &needed)?;
        Ok(Self(Extent::of(batch, len, width)))
    }
}

impl FusedOp for ComplexScan {
    const NAME: &'static str = "complex_scan";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.0.batch, self.0.len, 2, self.0.width).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut h = zeros(ins[1].len());
        let Extent { batch, len, width, .. } = self.0;
        Strips::new(batch, width).run([&mut h], |strip, [h]| {
            forward_strip(len, strip, [ins[0], ins[1]], h);
        });
        vec![h]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (a, h) = (call.ins[0], call.only());
        let mut ga = zeros(a.len());
        let mut gx = zeros(a.len());
        let Extent { batch, len, width, .. } = self.0;
        let strips = Strips::new(batch, width);
        strips.run([&mut ga, &mut gx], |strip, [ga, gx]| {
            backward_strip(len, strip, [a, h.value, h.grad], ga, gx);
        });
        vec![ga, gx]
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        launch::forward(call, launch::COMPLEX, self.0)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        launch::backward(call, launch::COMPLEX, self.0)
    }
}

/// Returns the rows of real and of imaginary parts of a strip at time `t`.
#[inline(always)]
fn pair<F>(strip: Strip, x: &[F], len: usize, t: usize) -> [&[F]; 2] {
    map([0, 1], |part| strip.row(x, 2 * len, 2 * t + part))
}

/// `to` += `a` `b` + sign `c` `d`.
#[inline(always)]
fn add_products<F: Float>(to: &mut [F], [a, b]: [&[F]; 2], sign: F, [c, d]: [&[F]; 2]) {
    let products = a.iter().zip(b).zip(c).zip(d);
    for (to, (((&a, &b), &c), &d)) in to.iter_mut().zip(products) {
        *to = a.fma(b, (sign * c).fma(d, *to));
    }
}

#[simd]
fn forward_strip<F: Float>(len: usize, strip: Strip, [a, x]: [&[F]; 2], mut h: Rows<F>) {
    for t in 0..len {
        let [x_re, x_im] = pair(strip, x, len, t);
        h[2 * t].copy_from_slice(x_re);
        h[2 * t + 1].copy_from_slice(x_im);
        let (before, now) = h.split_at_mut(2 * t);
        let ([.., re, im], [h_re, h_im, ..]) = (before, now) else {
            continue; // there is no state before the first step
        };
        let ([a_re, a_im], re, im) = (pair(strip, a, len, t), &**re, &**im);
        add_products(h_re, [a_re, re], -F::one(), [a_im, im]);
        add_products(h_im, [a_re, im], F::one(), [a_im, re]);
    }
}

/// The adjoint scan: dL/dh_{t-1} receives conj(a_t) dL/dh_t, and dL/da_t = conj(h_{t-1}) dL/dh_t.
/// Both gradients must be zero on entry.
#[simd]
fn backward_strip<F: Float>(len: usize, strip: Strip, [a, h, gh]: [&[F]; 3], mut ga: Rows<F>, mut gx: Rows<F>) {
    for t in (0..len).rev() {
        for (part, gh) in pair(strip, gh, len, t).into_iter().enumerate() {
            for (gx, &gh) in gx[2 * t + part].iter_mut().zip(gh) {
                *gx += gh;
            }
        }
        let (before, now) = gx.split_at_mut(2 * t);
        let ([.., to_re, to_im], [re, im, ..]) = (before, now) else {
            continue; // there is no state before the first step
        };
        let ([a_re, a_im], re, im) = (pair(strip, a, len, t), &**re, &**im);
        add_products(to_re, [a_re, re], F::one(), [a_im, im]);
        add_products(to_im, [a_re, im], -F::one(), [a_im, re]);
        let [h_re, h_im] = pair(strip, h, len, t - 1);
        add_products(ga[2 * t], [re, h_re], F::one(), [im, h_im]);
        add_products(ga[2 * t + 1], [im, h_re], -F::one(), [re, h_im]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::check::{self, Case};

    /// Decays inside the unit circle.
    fn case(batch: usize, len: usize, width: usize) -> Case {
        Case::new(format!("{batch} x {len} x {width}"))
            .uniform("a", &[batch, len, 2, width], -0.7, 0.7)
            .normal("x", &[batch, len, 2, width])
    }

    fn cases() -> [Case; 6] {
        [1, 2, 63, 64, 65, 1000].map(|len| case(1 + len % 2 * 6, len, 1 + len % 7 * 5))
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        complex_scan(&ins[0], &ins[1])
    }

    fn reference(ins: &[Tensor]) -> Result<Tensor> {
        reference::complex_scan(&ins[0], &ins[1])
    }

    #[test]
    fn fused_equals_reference() {
        check::agree(&cases(), fused, reference);
    }

    #[test]
    fn kernels_equal_the_reference() {
        check::kernels_agree(&cases(), fused, reference);
    }

    #[test]
    fn kernels_agree_in_any_number_of_pieces() {
        for pieces in [1, 2, 31] {
            let in_pieces = |ins: &[Tensor]| {
                let scan = ComplexScan::check(&ins[0], &ins[1])?;
                apply_one(ComplexScan(scan.0.cut(pieces)), &[&ins[0], &ins[1]])
            };
            check::kernels_agree(&cases()[1..5], in_pieces, reference);
        }
    }

    #[test]
    fn a_constant_decay_turns_an_impulse_around_the_circle() {
        let (len, angle) = (9, 0.7f64);
        let values = |f: &dyn Fn(usize) -> [f64; 2]| {
            let values: Vec<f64> = (0..len).flat_map(f).collect();
            Tensor::from_vec(values, (1, len, 2, 1), &candle_core::Device::Cpu).unwrap()
        };
        let a = values(&|_| [0.9 * angle.cos(), 0.9 * angle.sin()]);
        let h = complex_scan(&a, &values(&|t| [f64::from(t == 0), 0.0])).unwrap();
        let h = h.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        for (t, h) in h.chunks_exact(2).enumerate() {
            let (size, angle) = (0.9f64.powi(t as i32), angle * t as f64);
            assert!((h[0] - size * angle.cos()).abs() < 1e-14, "{t}");
            assert!((h[1] - size * angle.sin()).abs() < 1e-14, "{t}");
        }
    }

    #[test]
    fn gradients_are_finite_differences() {
        check::finite_differences(&case(2, 4, 2), fused);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&case(1, 30, 200), fused);
        check::same_bits(&case(20, 30, 10), fused);
    }

    #[test]
    fn every_subset_of_inputs_can_be_tracked() {
        check::partial_tracking(&case(2, 5, 3), fused);
    }

    #[test]
    fn a_wrong_shape_is_named() {
        let message = "complex_scan: x has shape [2, 3, 2, 5]";
        check::refuses(&[&[2, 3, 2, 4], &[2, 3, 2, 5]], fused, message);
        let message = "a real and an imaginary part";
        check::refuses(&[&[2, 3, 3, 4], &[2, 3, 3, 4]], fused, message);
    }
}
