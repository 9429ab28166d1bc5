use super::*;
use crate::ops::check::{self, Case};

fn case(x: &[usize], hidden: usize, out: usize) -> Case {
    let inner = x[x.len() - 1];
    Case::new(format!("{x:?}, {hidden}, {out}"))
        .normal("x", x)
        .normal("w1", &[hidden, inner])
        .parameter()
        .normal("b1", &[hidden])
        .parameter()
        .uniform("w2", &[out, hidden], -0.2, 0.2)
        .parameter()
        .normal("b2", &[out])
        .parameter()
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    mlp(&ins[0], [&ins[1], &ins[2]], [&ins[3], &ins[4]])
}

fn reference(ins: &[Tensor]) -> Result<Tensor> {
    let layer = |x: &Tensor, w: &Tensor, b: &Tensor| {
        let inner = x.dim(x.rank() - 1)?;
        x.reshape(((), inner))?.matmul(&w.t()?)?.broadcast_add(b)
    };
    let z = layer(&ins[0], &ins[1], &ins[2])?;
    let below = (((&z * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)? * 0.5)?;
    let y = layer(&(z * below)?, &ins[3], &ins[4])?;
    let leading = &ins[0].dims()[..ins[0].rank() - 1];
    y.reshape([leading, &[ins[3].dim(0)?]].concat())
}

#[test]
fn fused_equals_reference() {
    let cases = [
        case(&[1], 1, 2),
        case(&[7, 63, 16], 20, 5),
        case(&[2, 1000, 3], 12, 3),
    ];
    check::agree(&cases, fused, reference);
}

#[test]
fn kernels_equal_the_reference() {
    let cases = [
        case(&[3, 2], 5, 2),
        case(&[1], 1, 2),
        case(&[7, 63, 8], 20, 5),
        case(&[65, 16], 64, 16),
    ];
    check::kernels_agree(&cases, fused, reference);
}

#[test]
fn gradients_are_finite_differences() {
    check::finite_differences(&case(&[2, 3], 4, 2), fused);
}

#[test]
fn bits_do_not_depend_on_threads() {
    check::same_bits(&case(&[3, 700, 8], 32, 8), fused);
}

#[test]
fn every_subset_of_inputs_can_be_tracked() {
    check::partial_tracking(&case(&[3, 2], 5, 2), fused);
}

#[test]
fn a_wrong_shape_is_named() {
    let message = "mlp: w2 has shape [2, 5], but w1 of shape [4, 3] asks for [2, 4]";
    check::refuses(&[&[2, 3], &[4, 3], &[4], &[2, 5], &[2]], fused, message);
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    check::speed(&case(&[32_768, 64], 256, 64), fused, 32_768 * 256);
}
