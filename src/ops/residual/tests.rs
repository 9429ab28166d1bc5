use super::cpu::CHUNK;
use super::*;
use crate::runtime::check::{self, Case, Suite};
use crate::runtime::tuned::at_full_size;
use candle_core::DType;
use candle_core::Device;

const DROPPED: Dropout = Dropout { p: 0.3, key: [3, 5], index: 1 << 40 };

/// Inputs with a scale; the case without one has two inputs.
fn scaled(shape: &[usize]) -> Case {
    plain(shape).normal("scale", &[1]).parameter()
}

fn plain(shape: &[usize]) -> Case {
    Case::new(format!("{shape:?}")).normal("x", shape).normal("branch", shape)
}

fn by(dropout: Option<Dropout>) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync {
    move |ins| residual(&ins[0], &ins[1], dropout, ins.get(2))
}

fn reference(dropout: Option<Dropout>) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| reference::residual(&ins[0], &ins[1], Mask::new("test", dropout)?, ins.get(2))
}

#[test]
fn it_passes_the_suite() {
    let shapes: [&[usize]; 5] = [&[1], &[7, 3], &[2, 65, 5], &[64, 64], &[40, 1000]];
    for case in [scaled as fn(&[usize]) -> Case, plain] {
        for dropout in [None, Some(DROPPED)] {
            let of_all = Suite {
                agree: &shapes.map(case),
                differences: &[case(&[3, 5])],
                bits: &[case(&[3, CHUNK + 7])],
                tracked: &[case(&[3, 4])],
                refused: &[
                    (&[&[2, 3], &[2, 4]], "residual: branch has shape [2, 4], but x of shape [2, 3] asks for [2, 3]"),
                    (&[&[2, 3], &[2, 3], &[3]], "residual: scale has shape [3], but x of shape [2, 3] asks for [1]"),
                ],
            };
            check::suite(of_all, by(dropout), reference(dropout));
        }
    }
}

/// More numbers than the blocks of a backward pass take at once.
#[test]
fn grids_of_full_size_equal_the_reference() {
    let cases = [&[1, 3], &[1100, 1001]].map(|x| scaled(x));
    let dropout = Some(DROPPED);
    at_full_size(|| check::kernels_agree(&cases, by(dropout), reference(dropout)));
}

#[test]
fn kernels_equal_the_reference() {
    // a partial last group, several iterations of a block
    let shapes: [&[usize]; 4] = [&[1], &[7, 3], &[2, 65, 8], &[5, 1001]];
    for (case, dropout) in [(scaled as fn(&[usize]) -> Case, None), (scaled, Some(DROPPED)), (plain, Some(DROPPED))] {
        check::kernels_agree(&shapes.map(case), by(dropout), reference(dropout));
    }
    // without a scale and dropout, only the forward pass has a kernel
    let twice = |op: &dyn Fn(&[Tensor]) -> Result<Tensor>, ins: &[Tensor]| op(&[op(ins)?, ins[1].clone()]);
    check::kernels_agree(&shapes.map(plain), |ins| twice(&by(None), ins), |ins| twice(&reference(None), ins));
}

#[test]
fn a_wrong_probability_is_named() {
    let certain = Dropout { p: 1.0, ..DROPPED };
    let message = "residual: dropout of 1, needed is 0 <= p < 1";
    check::refuses(&[&[2, 3], &[2, 3]], by(Some(certain)), message);
}

#[test]
fn nothing_is_a_residual_of_nothing() {
    let nothing = Tensor::zeros((0, 3), DType::F32, &Device::Cpu).unwrap();
    let y = residual(&nothing, &nothing, Some(DROPPED), None).unwrap();
    assert_eq!(y.dims(), [0, 3]);
}

#[test]
fn kernels_index_large_tensors() {
    at_full_size(|| check::large(&scaled(&[1, 1024])).blocks(1).agrees(by(None), reference(None)));
}
