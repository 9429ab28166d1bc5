use super::*;
use crate::runtime::check::{self, Case, Suite};

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

fn by_reference(ins: &[Tensor]) -> Result<Tensor> {
    but_one(reference::time_steps(&ins[0])?)
}

#[test]
fn it_passes_the_suite() {
    let of_all = Suite {
        agree: &[case(7, 2, 5), case(1, 64, 3), case(2, 65, 1)],
        differences: &[case(2, 3, 2)],
        bits: &[case(7, 9, 5)],
        tracked: &[case(2, 3, 4)],
        refused: &[(&[&[2, 3]], "time_steps: x has shape [2, 3]")],
    };
    check::suite(of_all, fused, by_reference);
}

#[test]
fn kernels_equal_the_reference() {
    let cases = [case(7, 2, 5), case(1, 64, 3), case(2, 65, 40)];
    check::kernels_agree(&cases, fused, by_reference);
}
