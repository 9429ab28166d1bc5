use super::*;
use crate::runtime::check::matrix_state::{CheckSizes, MatrixOp, TILES};
use candle_core::{DType, Device};

const OP: MatrixOp = MatrixOp {
    transition: |case, _, _| case,
    fused: |x, rows| gla(&x[0], &x[1], &x[2], &x[3], rows),
    reference: |x, rows| reference::gla([&x[0], &x[1], &x[2], &x[3]], rows),
};

const SIZES: [CheckSizes; 10] = [
    [2, 5, 2, 3, 2, 3],
    [3, 1, 2, 3, 5, 3],
    [1, 2, 1, 1, 1, 1],
    [2, 31, 2, 4, 7, 1],
    [1, 32, 3, 16, 16, 16],
    [7, 33, 3, 5, 9, 5],
    [1, 65, 1, 17, 33, 17],
    [2, 64, 4, 16, 20, 1],
    [1, 40, 1, 70, 40, 70],
    [1, 9, 1, 3, 130, 1],
];

#[test]
fn it_passes_the_suite() {
    let (k, v, g) = (&[2, 5, 3, 4][..], &[2, 5, 3, 6][..], &[2, 5, 3, 1][..]);
    let late = "gla: q has shape [2, 4, 3, 4], but k of shape [2, 5, 3, 4] asks for [2, 5, 3, 4]";
    let narrow = "gla: v has shape [2, 5, 2, 6], but k of shape [2, 5, 3, 4] asks for [2, 5, 3, 6]";
    OP.suite(
        &SIZES,
        &[
            (&[&[2, 4, 3, 4], k, v, g], late),
            (&[k, k, &[2, 5, 2, 6], g], narrow),
            (&[k, k, v, &[2, 5, 3, 2]], "gla: g has shape [2, 5, 3, 2], but needed are 4 decays a head"),
            (&[k, k, v, &[2, 5, 1, 1]], "gla: g has shape [2, 5, 1, 1]"),
            (&[k, &[2, 5, 12], v, g], "gla: k has shape [2, 5, 12]"),
        ],
    );
    OP.wrong_times_are_refused(&[&[2, 2, 3, 4], k, v, g]);
}

#[test]
fn many_queries_at_one_time_and_none_at_the_end_are_fine() {
    OP.crowded_queries_agree();
}

#[test]
fn kernels_equal_the_reference() {
    OP.kernels_agree(&TILES);
}

#[test]
fn kernels_read_at_the_times_of_rows() {
    OP.kernels_agree_at_some_times(&TILES);
}

#[test]
fn kernels_refuse_wide_keys() {
    OP.kernels_refuse_wide_keys("gla");
}

#[test]
fn kernels_take_extreme_decays() {
    OP.kernels_take_extreme_decays();
}

#[test]
fn the_first_decay_has_no_effect_and_no_gradient() {
    OP.first_transition_has_no_effect();
}

/// The state is a running sum of any length if all decays are 1.
#[test]
fn without_decay_it_is_a_sum() {
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap();
    let [q, v] = [ones(&[1, 2000, 1, 3]), ones(&[1, 2000, 1, 2])];
    let g = ones(&[1, 2000, 1, 1]).zeros_like().unwrap();
    let o = gla(&q, &q, &v, &g, None).unwrap();
    let o: Vec<f32> = o.flatten_all().unwrap().to_vec1().unwrap();
    assert!(o.iter().enumerate().all(|(i, &o)| o == (i / 2 + 1) as f32 * 3.0));
}

#[test]
fn kernels_index_large_tensors() {
    OP.indices_hold();
}
