use super::*;
use crate::runtime::autograd::apply_one;
use crate::runtime::check::{self, Case, Suite};

fn cases() -> Vec<Case> {
    let sizes = [1, 2, 63, 64, 65, 1000].map(|len| (1 + len % 2 * 6, len, 1 + len % 7 * 5));
    let case = |(batch, len, width)| {
        Case::new(format!("{batch} x {len} x {width}"))
            .uniform("a", &[batch, len, width], 0.0, 1.0)
            .normal("x", &[batch, len, width])
    };
    sizes.into_iter().map(case).collect()
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    linear_scan(&ins[0], &ins[1])
}

fn reference(ins: &[Tensor]) -> Result<Tensor> {
    reference::linear_scan(&ins[0], &ins[1])
}

#[test]
fn it_passes_the_suite() {
    let tiny = Case::new("tiny").normal("a", &[2, 3, 2]).normal("x", &[2, 3, 2]);
    let long = Case::new("long").uniform("a", &[1, 70, 200], 0.0, 1.0).normal("x", &[1, 70, 200]);
    let of_all = Suite {
        agree: &cases(),
        differences: &[tiny],
        bits: &[cases().swap_remove(4), long],
        tracked: &[cases().swap_remove(2)],
        refused: &[(&[&[2, 3, 4], &[2, 3, 5]], "linear_scan: x has shape [2, 3, 5]")],
    };
    check::suite(of_all, fused, reference);
}

#[test]
fn kernels_equal_the_reference() {
    check::kernels_agree(&cases(), fused, reference);
}

#[test]
fn kernels_agree_in_any_number_of_pieces() {
    for pieces in [1, 2, 4, 31] {
        let in_pieces = |ins: &[Tensor]| {
            let scan = LinearScan::check(&ins[0], &ins[1])?;
            apply_one(LinearScan(scan.0.cut(pieces)), &[&ins[0], &ins[1]])
        };
        check::kernels_agree(&cases()[1..5], in_pieces, reference);
    }
}

#[test]
fn many_channels_take_one_piece_and_few_take_more() {
    let pieces = |batch, len, width| Extent::of(batch, len, width).slots() / (batch * width);
    assert_eq!(pieces(512, 64, 64), 1);
    assert_eq!(pieces(64, 512, 512), 1);
    assert_eq!(pieces(1, 20, 64), 1);
    assert_eq!(pieces(1, 4096, 128), 128);
    assert_eq!(pieces(8, 4096, 512), 16);
}

#[test]
fn kernels_index_large_tensors() {
    let case = Case::new("large").uniform("a", &[1, 16, 64], 0.0, 1.0).normal("x", &[1, 16, 64]);
    check::large(&case).beyond_32_bits().agrees(fused, reference);
}
