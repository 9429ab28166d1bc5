use super::*;
use crate::runtime::check::{self, Case};
use candle_core::{DType, Device};

/// B, L, s, m, e, and the decays of a head.
type Sizes = [usize; 6];

fn case_of_rows([batch, len, heads, keys, values, decays]: Sizes, rows: usize) -> Case {
    let name = format!("{batch} x {len} x {heads}, {keys} by {values}, {decays} decays, {rows} rows");
    Case::new(name)
        .normal("q", &[batch, rows, heads, keys])
        .normal("k", &[batch, len, heads, keys])
        .normal("v", &[batch, len, heads, values])
        .uniform("g", &[batch, len, heads, decays], -1.5, 0.0)
}

fn case(sizes: Sizes) -> Case {
    case_of_rows(sizes, sizes[1])
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    fused_at(None)(ins)
}

fn fused_at(rows: Option<&Tensor>) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync + use<'_> {
    move |ins| gla(&ins[0], &ins[1], &ins[2], &ins[3], rows)
}

fn reference_at(rows: Option<&Tensor>) -> impl Fn(&[Tensor]) -> Result<Tensor> + use<'_> {
    move |ins| reference::gla([&ins[0], &ins[1], &ins[2], &ins[3]], rows)
}

/// Four times of each sequence, with a repetition.
fn some(batch: usize, len: usize) -> Tensor {
    let of = |b: usize| {
        let late = (len / 2).max(len - 1 - b % len.min(2));
        [len / 3, len / 2, len / 2, late]
    };
    let times = (0..batch).flat_map(of).map(|t| t as u32);
    let times = Tensor::from_iter(times, &Device::Cpu).unwrap();
    times.reshape((batch, 4)).unwrap()
}

const SIZES: [Sizes; 10] = [
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
fn fused_equals_reference() {
    for sizes in SIZES {
        check::agree(&[case(sizes)], fused, reference_at(None));
    }
    check::agree(&[case([1, 700, 2, 5, 6, 5])], fused, reference_at(None));
}

#[test]
fn rows_at_times_are_those_of_the_reference() {
    for sizes in SIZES {
        let rows = some(sizes[0], sizes[1]);
        let case = case_of_rows(sizes, 4);
        check::agree(&[case], fused_at(Some(&rows)), reference_at(Some(&rows)));
    }
}

#[test]
fn many_queries_at_one_time_and_none_at_the_end_are_fine() {
    let mut times = vec![0u32; 50];
    times.extend([40; 30]);
    let rows = Tensor::from_vec(times, (1, 80), &Device::Cpu).unwrap();
    let case = case_of_rows([1, 90, 2, 6, 5, 6], 80);
    check::agree(&[case], fused_at(Some(&rows)), reference_at(Some(&rows)));
}

/// Sizes around the tiles of the kernels, and numbers of events around their spans.
const TILES: [Sizes; 7] = [
    [2, 5, 2, 3, 2, 3],
    [3, 1, 1, 1, 1, 1],
    [1, 8, 2, 9, 5, 1],
    [1, 17, 1, 16, 32, 16],
    [2, 25, 2, 17, 33, 17],
    [1, 9, 1, 130, 3, 130],
    [1, 10, 1, 256, 34, 1],
];

#[test]
fn kernels_equal_the_reference() {
    check::kernels_agree(&TILES.map(case), fused, reference_at(None));
}

#[test]
fn kernels_read_at_the_times_of_rows() {
    for sizes in TILES {
        let rows = some(sizes[0], sizes[1]);
        let case = case_of_rows(sizes, 4);
        check::kernels_agree(&[case], fused_at(Some(&rows)), reference_at(Some(&rows)));
    }
}

#[test]
fn kernels_take_extreme_decays() {
    check::kernels_agree(&[extreme(8)], fused, reference_at(None));
}

/// Decays of 1, some that underflow, and all between.
fn extreme(decays: usize) -> Case {
    let sizes = [1, 70, 2, 8, 3];
    let [batch, len, heads, keys, values] = sizes;
    let logs = [0.0, -1e-30, -1e-3, -50.0, -87.5, -0.5, -300.0, -1e4];
    let g: Vec<f64> = (0..len * heads * decays).map(|i| logs[(i * 5 + i / 7) % 8]).collect();
    Case::new("extreme")
        .normal("q", &[batch, len, heads, keys])
        .normal("k", &[batch, len, heads, keys])
        .normal("v", &[batch, len, heads, values])
        .values(&g, &[batch, len, heads, decays])
}

#[test]
fn extreme_decays_agree_with_the_reference() {
    check::agree(&[extreme(1), extreme(8)], fused, reference_at(None));
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
fn the_first_decay_has_no_effect_and_no_gradient() {
    let vars = case([2, 6, 2, 3, 4, 3]).vars(DType::F32);
    let ins: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let of_first = fused(&ins).unwrap().backward().unwrap();
    let of_first = of_first.get(&ins[3]).unwrap().narrow(1, 0, 1).unwrap();
    let largest = of_first.abs().unwrap().flatten_all().unwrap().max(0).unwrap();
    assert_eq!(largest.to_scalar::<f32>().unwrap(), 0.0);
    let first = (ins[3].narrow(1, 0, 1).unwrap().zeros_like().unwrap() + 1e4).unwrap();
    let later = ins[3].narrow(1, 1, 5).unwrap();
    let mut other = ins.clone();
    other[3] = Tensor::cat(&[first, later], 1).unwrap();
    let flat = |x: Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(flat(fused(&ins).unwrap()), flat(fused(&other).unwrap()));
}

#[test]
fn gradients_are_finite_differences() {
    let rows = some(2, 4);
    for decays in [1, 2] {
        let sizes = [2, 4, 2, 2, 3, decays];
        check::finite_differences(&case(sizes), fused);
        check::finite_differences(&case_of_rows(sizes, 4), fused_at(Some(&rows)));
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    check::same_bits(&case([1, 70, 1, 20, 60, 20]), fused);
    check::same_bits(&case([9, 30, 3, 5, 4, 1]), fused);
}

#[test]
fn every_subset_of_inputs_can_be_tracked() {
    for sizes in &SIZES[..2] {
        check::partial_tracking(&case(*sizes), fused);
    }
    check::partial_tracking(&case([1, 3, 1, 2, 40, 1]), fused);
}

#[test]
fn wrong_shapes_and_times_are_named() {
    let (k, v, g) = (&[2, 5, 3, 4][..], &[2, 5, 3, 6][..], &[2, 5, 3, 1][..]);
    let refused = |shapes: [&[usize]; 4], message| check::refuses(&shapes, fused, message);
    refused(
        [&[2, 4, 3, 4], k, v, g],
        "gla: q has shape [2, 4, 3, 4], but k of shape [2, 5, 3, 4] asks for [2, 5, 3, 4]",
    );
    refused(
        [k, k, &[2, 5, 2, 6], g],
        "gla: v has shape [2, 5, 2, 6], but k of shape [2, 5, 3, 4] asks for [2, 5, 3, 6]",
    );
    refused([k, k, v, &[2, 5, 3, 2]], "gla: g has shape [2, 5, 3, 2], but needed are 4 decays a head");
    refused([k, k, v, &[2, 5, 1, 1]], "gla: g has shape [2, 5, 1, 1]");
    refused([k, &[2, 5, 12], v, g], "gla: k has shape [2, 5, 12]");
    let rows = |times: &[[u32; 2]; 2]| Tensor::new(times, &Device::Cpu).unwrap();
    let refused = |rows: &Tensor, message| {
        check::refuses(&[&[2, 2, 3, 4], k, v, g], fused_at(Some(rows)), message);
    };
    refused(&rows(&[[0, 1], [1, 0]]), "must ascend");
    refused(&rows(&[[0, 1], [1, 5]]), "position 5, but k has 5 steps");
    let one = rows(&[[0, 1], [0, 1]]).narrow(0, 0, 1).unwrap();
    refused(&one, "positions has shape [1, 2], but k asks for [2, 2]");
}
