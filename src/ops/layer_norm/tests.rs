use super::*;
use crate::runtime::check::{self, Case, Suite};
use crate::runtime::tuned::at_full_size;

fn case(shape: &[usize]) -> Case {
    let width = &shape[shape.len() - 1..];
    Case::new(format!("{shape:?}"))
        .normal("x", shape)
        .uniform("weight", width, 0.5, 1.5)
        .parameter()
        .normal("bias", width)
        .parameter()
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    layer_norm(&ins[0], &ins[1], &ins[2], 1e-5)
}

fn of_x(ins: &[Tensor]) -> Result<Tensor> {
    reference::layer_norm(&ins[0], &ins[1], &ins[2], 1e-5)
}

#[test]
fn it_passes_the_suite() {
    let shapes: [&[usize]; 6] = [&[5], &[1, 2], &[7, 63, 16], &[2, 64, 64], &[65, 17], &[1, 1000, 33]];
    let of_all = Suite {
        agree: &shapes.map(case),
        differences: &[case(&[2, 3])],
        bits: &[case(&[3, 100, 20])],
        tracked: &[case(&[3, 5])],
        refused: &[(&[&[2, 3], &[3], &[4]], "layer_norm: bias has shape [4], but x of shape [2, 3]")],
    };
    check::suite(of_all, fused, of_x);
}

fn sums(shape: &[usize]) -> Case {
    let width = &shape[shape.len() - 1..];
    Case::new(format!("sum of {shape:?}"))
        .normal("x", shape)
        .normal("y", shape)
        .uniform("weight", width, 0.5, 1.5)
        .parameter()
        .normal("bias", width)
        .parameter()
}

/// Both outputs, concatenated.
fn added(ins: &[Tensor]) -> Result<Tensor> {
    let (sum, normed) = add_layer_norm(&ins[0], &ins[1], &ins[2], &ins[3], 1e-5)?;
    Tensor::cat(&[sum, normed], 0)
}

fn of_sum(ins: &[Tensor]) -> Result<Tensor> {
    let sum = (&ins[0] + &ins[1])?;
    let normed = reference::layer_norm(&sum, &ins[2], &ins[3], 1e-5)?;
    Tensor::cat(&[sum, normed], 0)
}

/// The output other than `unused`.
fn one_of_two(ins: &[Tensor], unused: usize) -> Result<Tensor> {
    let (sum, normed) = add_layer_norm(&ins[0], &ins[1], &ins[2], &ins[3], 1e-5)?;
    Ok([normed, sum][unused].clone())
}

#[test]
fn the_sum_and_its_norm_pass_the_suite() {
    let shapes: [&[usize]; 4] = [&[5], &[1, 2], &[7, 63, 16], &[1, 1000, 33]];
    let message = "add_layer_norm: y has shape [2, 4], but x of shape [2, 3]";
    let of_all = Suite {
        agree: &shapes.map(sums),
        differences: &[sums(&[2, 3])],
        bits: &[sums(&[3, 100, 20])],
        tracked: &[sums(&[3, 5])],
        refused: &[(&[&[2, 3], &[2, 4], &[3], &[3]], message)],
    };
    check::suite(of_all, added, of_sum);
}

#[test]
fn kernels_equal_the_reference() {
    let shapes: [&[usize]; 9] =
        [&[3, 5], &[1, 2], &[3, 11, 16], &[130, 64], &[7, 100], &[2, 256], &[9, 384], &[33, 1024], &[2, 1030]];
    check::kernels_agree(&shapes.map(case), fused, of_x);
    check::kernels_agree(&shapes.map(sums), added, of_sum);
}

/// More rows than the blocks of a backward pass take at once.
#[test]
fn grids_of_full_size_equal_the_reference() {
    at_full_size(|| {
        check::kernels_agree(&[&[1, 2], &[540, 65]].map(|x| case(x)), fused, of_x);
        check::kernels_agree(&[&[1, 2], &[8500, 8]].map(|x| sums(x)), added, of_sum);
    });
}

#[test]
fn either_output_of_kernels_may_be_unused() {
    for unused in [0, 1] {
        let again = |x: &Tensor, ins: &[Tensor]| layer_norm(x, &ins[2], &ins[3], 1e-5);
        let one = |ins: &[Tensor]| again(&one_of_two(ins, unused)?, ins);
        let by_reference = |ins: &[Tensor]| again(&of_sum(ins)?.chunk(2, 0)?[1 - unused], ins);
        check::kernels_agree(&[sums(&[4, 8])], one, by_reference);
    }
}

#[test]
fn either_output_may_be_unused() {
    for unused in [0, 1] {
        check::finite_differences(&sums(&[2, 3]), |ins| one_of_two(ins, unused));
    }
}

#[test]
fn kernels_index_large_tensors() {
    let normed = |ins: &[Tensor]| reference::layer_norm(&(&ins[0] + &ins[1])?, &ins[2], &ins[3], 1e-5);
    at_full_size(|| check::large(&sums(&[1, 1024])).blocks(1).agrees(|ins| one_of_two(ins, 0), normed));
}
