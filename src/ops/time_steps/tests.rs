use super::*;
use crate::runtime::check::{self, Case};

fn case(batch: usize, len: usize, width: usize) -> Case {
    Case::new(format!("{batch} x {len} x {width}")).normal("x", &[batch, len, width])
}

/// A weighted sum of all steps but the first.
fn but_one(steps: Vec<Tensor>) -> Result<Tensor> {
    let weighed = steps.iter().enumerate().map(|(t, x)| x * t as f64);
    Tensor::stack(&weighed.skip(1).collect::<Result<Vec<_>>>()?, 1)
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    but_one(time_steps(&ins[0])?)
}

#[test]
fn fused_equals_reference() {
    let cases = [case(7, 2, 5), case(1, 64, 3), case(2, 65, 1)];
    check::agree(&cases, fused, |ins| but_one(reference::time_steps(&ins[0])?));
}

#[test]
fn kernels_equal_the_reference() {
    let cases = [case(7, 2, 5), case(1, 64, 3), case(2, 65, 40)];
    check::kernels_agree(&cases, fused, |ins| but_one(reference::time_steps(&ins[0])?));
}

#[test]
fn bits_do_not_depend_on_threads() {
    check::same_bits(&case(7, 9, 5), fused);
}

#[test]
fn a_wrong_shape_is_named() {
    check::refuses(&[&[2, 3]], fused, "time_steps: x has shape [2, 3]");
}
