use super::*;
use crate::runtime::check::{self, Case};

const SHAPES: [&[usize]; 4] = [&[4], &[7, 63, 16], &[2, 300, 8], &[1, 1000, 12]];
/// Shapes for kernels: more rows than a tile, more columns than a warp.
const SMALLER: [&[usize]; 4] = [&[4], &[7, 11, 16], &[130, 40], &[2, 3, 132]];

fn skip_case(shape: &[usize]) -> Case {
    Case::new(format!("{shape:?}"))
        .normal("x", shape)
        .normal("y", shape)
        .normal("scale", &shape[shape.len() - 1..])
        .parameter()
}

fn skip(ins: &[Tensor]) -> Result<Tensor> {
    add_scaled(&ins[0], &ins[1], &ins[2])
}

#[test]
fn add_scaled_is_a_broadcast_product_and_a_sum() {
    let reference = |ins: &[Tensor]| reference::add_scaled(&ins[0], &ins[1], &ins[2]);
    check::agree(&SHAPES.map(skip_case), skip, reference);
    check::kernels_agree(&SMALLER.map(skip_case), skip, reference);
    check::finite_differences(&skip_case(&[2, 3]), skip);
    check::same_bits(&skip_case(&[3, 700, 5]), skip);
    check::partial_tracking(&skip_case(&[3, 4]), skip);
    let message = "add_scaled: scale has shape [4], but x of shape [2, 3]";
    check::refuses(&[&[2, 3], &[2, 3], &[4]], skip, message);
}

fn step_case(shape: &[usize], width: usize) -> Case {
    Case::new(format!("{shape:?}, {width}")).uniform("x", shape, -20.0, 20.0).normal("bias", &[width]).parameter()
}

fn step(ins: &[Tensor]) -> Result<Tensor> {
    softplus_biased(&ins[0], &ins[1])
}

#[test]
fn softplus_biased_repeats_a_single_channel() {
    let of_sum = |ins: &[Tensor]| reference::softplus_biased(&ins[0], &ins[1]);
    let cases = SHAPES.map(|shape| step_case(shape, shape[shape.len() - 1]));
    check::agree(&cases, step, of_sum);
    let cases = [([7, 65, 1], 16), ([1, 1000, 1], 33), ([1, 1, 1], 1)];
    check::agree(&cases.map(|(shape, width)| step_case(&shape, width)), step, of_sum);
    for shape in [[2, 3], [2, 1]] {
        check::finite_differences(&step_case(&shape, 3), step);
        check::partial_tracking(&step_case(&shape, 3), step);
    }
    let cases = SMALLER.map(|shape| step_case(shape, shape[shape.len() - 1]));
    check::kernels_agree(&cases, step, of_sum);
    let cases = [([7, 20, 1], 16), ([1, 70, 1], 140), ([1, 1, 1], 1)];
    check::kernels_agree(&cases.map(|(shape, width)| step_case(&shape, width)), step, of_sum);
    check::same_bits(&step_case(&[3, 700, 1], 5), step);
    let message = "softplus_biased: bias has shape [4], but x of shape [2, 3] asks for [3]";
    check::refuses(&[&[2, 3], &[4]], step, message);
}

fn heads_case(shape: &[usize], heads: usize) -> Case {
    let leading = &shape[..shape.len() - 1];
    Case::new(format!("{shape:?}, {heads}")).normal("x", shape).normal("scale", &[leading, &[heads]].concat())
}

fn heads(ins: &[Tensor]) -> Result<Tensor> {
    scale_heads(&ins[0], &ins[1])
}

#[test]
fn scale_heads_multiplies_each_head_by_its_own_number() {
    let reference = |ins: &[Tensor]| reference::scale_heads(&ins[0], &ins[1]);
    let cases = SHAPES.map(|shape| heads_case(shape, shape[shape.len() - 1] / 4));
    check::agree(&cases, heads, reference);
    let cases = SMALLER.map(|shape| heads_case(shape, shape[shape.len() - 1] / 4));
    check::kernels_agree(&cases, heads, reference);
    let cases = [heads_case(&[3, 140], 1), heads_case(&[3, 140], 2)];
    check::kernels_agree(&cases, heads, reference);
    check::finite_differences(&heads_case(&[2, 3, 4], 2), heads);
    check::same_bits(&heads_case(&[3, 700, 6], 1), heads);
    check::partial_tracking(&heads_case(&[3, 4], 2), heads);
    let message = "scale_heads: x has 4 channels, which 3 heads cannot share equally";
    check::refuses(&[&[2, 4], &[2, 3]], heads, message);
}
