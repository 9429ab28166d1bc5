use super::*;
use crate::runtime::check::{self, Case, Suite};

fn case(leading: &[usize], [rows, inner, columns]: [usize; 3]) -> Case {
    let shape = |of: [usize; 2]| [leading, &of].concat();
    Case::new(format!("{leading:?} of {rows}, {inner}, {columns}"))
        .normal("a", &shape([rows, inner]))
        .normal("b", &shape([inner, columns]))
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    matmul(&ins[0], &ins[1])
}

fn by_candle(ins: &[Tensor]) -> Result<Tensor> {
    reference::matmul(&ins[0], &ins[1])
}

fn cases() -> [Case; 4] {
    [case(&[], [3, 4, 5]), case(&[2], [1, 7, 1]), case(&[2, 3], [16, 5, 8]), case(&[2, 1], [40, 33, 17])]
}

#[test]
fn it_passes_the_suite() {
    let of_all = Suite {
        agree: &cases(),
        differences: &[case(&[2], [3, 2, 4])],
        bits: &[case(&[5, 2], [9, 20, 11])],
        tracked: &[case(&[2, 3], [4, 5, 6])],
        refused: &[
            (&[&[2, 3, 4], &[2, 5, 4]], "have no product"),
            (&[&[2, 3, 4], &[3, 4, 5]], "have no product"),
            (&[&[4], &[4]], "needed are two axes"),
        ],
    };
    check::suite(of_all, fused, by_candle);
}

#[test]
fn kernels_equal_candle() {
    check::kernels_agree(&cases(), fused, by_candle);
}

#[test]
fn products_round_to_tf32_where_they_are_asked_to() {
    let case = case(&[2, 3], [17, 20, 9]);
    check::rounded_to_tf32(1, &case, &[true; 3], fused, by_candle);
}

#[test]
fn kernels_index_large_tensors() {
    check::large(&case(&[1], [16, 16, 16])).beyond_32_bits().agrees(fused, by_candle);
}
