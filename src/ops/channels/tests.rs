use super::*;
use crate::runtime::check::{self, Case, Suite};

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

fn skip_by_reference(ins: &[Tensor]) -> Result<Tensor> {
    reference::add_scaled(&ins[0], &ins[1], &ins[2])
}

#[test]
fn add_scaled_passes_the_suite() {
    let of_all = Suite {
        agree: &SHAPES.map(skip_case),
        differences: &[skip_case(&[2, 3])],
        bits: &[skip_case(&[3, 700, 5])],
        tracked: &[skip_case(&[3, 4])],
        refused: &[(&[&[2, 3], &[2, 3], &[4]], "add_scaled: scale has shape [4], but x of shape [2, 3]")],
    };
    check::suite(of_all, skip, skip_by_reference);
}

#[test]
fn kernels_of_add_scaled_equal_the_reference() {
    check::kernels_agree(&SMALLER.map(skip_case), skip, skip_by_reference);
}

fn step_case(shape: &[usize], width: usize) -> Case {
    Case::new(format!("{shape:?}, {width}")).uniform("x", shape, -20.0, 20.0).normal("bias", &[width]).parameter()
}

fn step(ins: &[Tensor]) -> Result<Tensor> {
    softplus_biased(&ins[0], &ins[1])
}

fn step_by_reference(ins: &[Tensor]) -> Result<Tensor> {
    reference::softplus_biased(&ins[0], &ins[1])
}

/// Also with a single channel, which is repeated.
#[test]
fn softplus_biased_passes_the_suite() {
    let whole = SHAPES.map(|shape| step_case(shape, shape[shape.len() - 1]));
    let single = [([7, 65, 1], 16), ([1, 1000, 1], 33), ([1, 1, 1], 1)].map(|(shape, width)| step_case(&shape, width));
    let message = "softplus_biased: bias has shape [4], but x of shape [2, 3] asks for [3]";
    let of_all = Suite {
        agree: &[&whole[..], &single].concat(),
        differences: &[step_case(&[2, 3], 3), step_case(&[2, 1], 3)],
        bits: &[step_case(&[3, 700, 1], 5)],
        tracked: &[step_case(&[2, 3], 3), step_case(&[2, 1], 3)],
        refused: &[(&[&[2, 3], &[4]], message)],
    };
    check::suite(of_all, step, step_by_reference);
}

#[test]
fn kernels_of_softplus_biased_equal_the_reference() {
    let whole = SMALLER.map(|shape| step_case(shape, shape[shape.len() - 1]));
    let single = [([7, 20, 1], 16), ([1, 70, 1], 140), ([1, 1, 1], 1)].map(|(shape, width)| step_case(&shape, width));
    check::kernels_agree(&[&whole[..], &single].concat(), step, step_by_reference);
}

fn heads_case(shape: &[usize], heads: usize) -> Case {
    let leading = &shape[..shape.len() - 1];
    Case::new(format!("{shape:?}, {heads}")).normal("x", shape).normal("scale", &[leading, &[heads]].concat())
}

fn heads(ins: &[Tensor]) -> Result<Tensor> {
    scale_heads(&ins[0], &ins[1])
}

fn heads_by_reference(ins: &[Tensor]) -> Result<Tensor> {
    reference::scale_heads(&ins[0], &ins[1])
}

#[test]
fn scale_heads_passes_the_suite() {
    let of_all = Suite {
        agree: &SHAPES.map(|shape| heads_case(shape, shape[shape.len() - 1] / 4)),
        differences: &[heads_case(&[2, 3, 4], 2)],
        bits: &[heads_case(&[3, 700, 6], 1)],
        tracked: &[heads_case(&[3, 4], 2)],
        refused: &[(&[&[2, 4], &[2, 3]], "scale_heads: x has 4 channels, which 3 heads cannot share equally")],
    };
    check::suite(of_all, heads, heads_by_reference);
}

#[test]
fn kernels_of_scale_heads_equal_the_reference() {
    let cases = SMALLER.map(|shape| heads_case(shape, shape[shape.len() - 1] / 4));
    let wide = [heads_case(&[3, 140], 1), heads_case(&[3, 140], 2)];
    check::kernels_agree(&[&cases[..], &wide].concat(), heads, heads_by_reference);
}

#[test]
fn kernels_index_large_tensors() {
    check::large(&skip_case(&[1, 16, 64])).blocks(1).agrees(skip, skip_by_reference);
    check::large(&heads_case(&[1, 4, 64], 4)).blocks(2).agrees(heads, heads_by_reference);
}
