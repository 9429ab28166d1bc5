use super::*;
use crate::runtime::check::{self, Case, Suite};
use candle_core::{DType, Device, Var};

fn case(batch: usize, len: usize, channels: usize, states: usize) -> Case {
    rows_case(batch, [len, len], channels, states)
}

fn rows_case(batch: usize, [len, rows]: [usize; 2], channels: usize, states: usize) -> Case {
    Case::new(format!("{batch} x {rows} of {len} x {channels}, {states} states"))
        .normal("u", &[batch, len, channels])
        .uniform("delta", &[batch, len, channels], 0.0, 1.5)
        .uniform("a", &[channels], -2.0, 0.0)
        .parameter()
        .normal("b", &[batch, len, states])
        .normal("c", &[batch, rows, states])
}

fn fused(x: &[Tensor]) -> Result<Tensor> {
    ssd(&x[0], &x[1], &x[2], &x[3], &x[4], None)
}

fn reference(x: &[Tensor]) -> Result<Tensor> {
    reference::ssd([&x[0], &x[1], &x[2], &x[3], &x[4]], None)
}

/// Ascending times, different for each sequence.
fn positions(batch: usize, len: usize, rows: usize) -> Tensor {
    let time = |b: usize, r: usize| (r * len / rows + b % (len / rows)) as u32;
    let times: Vec<u32> = (0..batch).flat_map(|b| (0..rows).map(move |r| time(b, r))).collect();
    Tensor::from_vec(times, (batch, rows), &Device::Cpu).unwrap()
}

fn agree_at(case: &Case, positions: &Tensor) {
    let at = Some(positions);
    check::agree(
        std::slice::from_ref(case),
        |x| ssd(&x[0], &x[1], &x[2], &x[3], &x[4], at),
        |x| reference::ssd([&x[0], &x[1], &x[2], &x[3], &x[4]], at),
    );
}

#[test]
fn it_passes_the_suite() {
    let lengths = [(7, 1), (1, 2), (7, 63), (2, 64), (1, 65), (1, 129), (1, 1000)];
    let lengths = lengths.map(|(batch, len)| case(batch, len, 3, 4));
    let widths = [(1, 17), (4, 33), (16, 80), (100, 81), (256, 5), (1024, 3)];
    let widths = widths.map(|(states, channels)| case(2, 70, channels, states));
    let (x, a, b) = (&[2, 5, 3][..], &[3][..], &[2, 5, 4][..]);
    let of_all = Suite {
        agree: &[&lengths[..], &widths, &[extreme(2)]].concat(),
        differences: &[case(2, 3, 2, 2), case(1, 18, 1, 1), case(1, 66, 1, 1)],
        bits: &[case(7, 35, 20, 5), case(1, 200, 90, 5)],
        tracked: &[case(2, 5, 3, 2)],
        refused: &[
            (&[x, &[2, 5, 4], a, b, b], "ssd: delta has shape [2, 5, 4], but u of shape [2, 5, 3]"),
            (&[x, x, &[3, 1], b, b], "ssd: a has shape [3, 1], but u of shape [2, 5, 3]"),
            (&[x, x, a, b, &[2, 5, 5]], "ssd: c has shape [2, 5, 5], but b of shape [2, 5, 4]"),
        ],
    };
    check::suite(of_all, fused, reference);
}

#[test]
fn fused_equals_reference_for_some_rows() {
    for (batch, len, rows) in [(7, 1, 1), (3, 64, 4), (2, 65, 16), (1, 300, 2), (7, 20, 20)] {
        let case = rows_case(batch, [len, rows], 18, 5);
        agree_at(&case, &positions(batch, len, rows));
    }
    let early = Tensor::new(&[[0u32, 0, 7, 70, 70]], &Device::Cpu).unwrap();
    agree_at(&rows_case(1, [300, 5], 18, 5), &early);
}

fn kernels_agree_at(case: Case, positions: &Tensor) {
    let at = Some(positions);
    check::kernels_agree(
        &[case],
        |x| ssd(&x[0], &x[1], &x[2], &x[3], &x[4], at),
        |x| reference::ssd([&x[0], &x[1], &x[2], &x[3], &x[4]], at),
    );
}

#[test]
fn kernels_equal_the_reference_at_all_lengths() {
    let lengths = [(2, 2), (7, 1), (1, 33), (1, 64), (2, 65), (1, 200)];
    let cases = lengths.map(|(batch, len)| case(batch, len, 3, 4));
    check::kernels_agree(&cases, fused, reference);
}

#[test]
fn kernels_equal_the_reference_at_all_widths() {
    let widths = [(70, 33, 1), (130, 5, 16), (70, 40, 100), (70, 3, 256)];
    let cases = widths.map(|(len, channels, states)| case(1, len, channels, states));
    check::kernels_agree(&cases, fused, reference);
}

/// No channel has such a long memory that its gradient dominates that of the rates.
#[test]
fn products_round_to_tf32() {
    let (wide, narrow) = ([1, 200, 33], [1, 200, 16]);
    let case = Case::new("tf32")
        .normal("u", &wide)
        .uniform("delta", &wide, 0.0, 1.5)
        .uniform("a", &[33], -2.0, -0.5)
        .parameter()
        .normal("b", &narrow)
        .normal("c", &narrow);
    check::rounded_to_tf32(3, &case, &[true; 6], fused, reference);
}

#[test]
fn kernels_equal_the_reference_for_some_rows() {
    for (batch, len, rows) in [(2, 1, 1), (1, 65, 16), (1, 130, 3)] {
        let case = rows_case(batch, [len, rows], 3, 5);
        kernels_agree_at(case, &positions(batch, len, rows));
    }
    let early = Tensor::new(&[[0u32, 0, 7, 70, 70]], &Device::Cpu).unwrap();
    kernels_agree_at(rows_case(1, [130, 5], 2, 5), &early);
    let crowded: Vec<u32> = (0..40).map(|r| 3 + r / 18 * 30).collect();
    let crowded = Tensor::from_vec(crowded, (1, 40), &Device::Cpu).unwrap();
    kernels_agree_at(rows_case(1, [66, 40], 2, 5), &crowded);
}

#[test]
fn extreme_decays_are_exact_by_kernels() {
    check::kernels_agree(&[extreme(1)], fused, reference);
    let (wide, narrow) = ([1, 100, 4], [1, 100, 4]);
    let strong = |name: &str, rate: f64| {
        Case::new(name)
            .normal("u", &wide)
            .uniform("delta", &wide, 0.5, 1.0)
            .values(&[rate; 4], &[4])
            .parameter()
            .normal("b", &narrow)
            .normal("c", &narrow)
    };
    let cases = [strong("strong", -50.0), strong("weak", -1.0), strong("none", 0.0)];
    check::kernels_agree(&cases, fused, reference);
}

/// Steps with decays 1, almost 1, e^{-30} and 0, in turn and together.
fn extreme(batch: usize) -> Case {
    let (len, channels, states) = (150, 4, 3);
    let steps: Vec<f64> =
        (0..batch * len * channels).map(|i| [0.0, 1e-8, 30.0, 1e4, 0.1, 1e-8, 0.0][i * i % 11 % 7]).collect();
    let given = |shape: &[usize]| -> Vec<f64> {
        let count = shape.iter().product();
        (0..count).map(|i| (i as f64 * 0.7).sin()).collect()
    };
    let (wide, narrow) = ([batch, len, channels], [batch, len, states]);
    Case::new("extreme")
        .values(&given(&wide), &wide)
        .values(&steps, &wide)
        .values(&[-1.0, -0.5, -300.0, -1e-3], &[channels])
        .parameter()
        .values(&given(&narrow), &narrow)
        .normal("c", &narrow)
}

#[test]
fn wrong_positions_are_named() {
    let at = |times: &Tensor| {
        let tensor = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
        let (x, b) = (tensor(&[1, 4, 3]), tensor(&[1, 4, 2]));
        let c = b.narrow(1, 0, 2).unwrap();
        ssd(&x, &x, &tensor(&[3]), &b, &c, Some(times)).unwrap_err().to_string()
    };
    let times = |times: &[u32]| Tensor::from_slice(times, (1, times.len()), &Device::Cpu).unwrap();
    assert!(at(&times(&[0, 4])).contains("position 4, but u has 4 steps"));
    assert!(at(&times(&[2, 1])).contains("must ascend"));
    assert!(at(&times(&[1, 2, 3])).contains("positions has shape [1, 3], but c asks for [1, 2]"));
}

/// The state is the last input alone if the decay is e^{-300}, and no rounding reaches the gradient of a.
#[test]
fn a_decay_that_underflows_forgets_exactly() {
    let tensor = |values: &[f32], shape: &[usize]| {
        let values: Vec<f32> = values.to_vec();
        Var::from_vec(values, shape, &Device::Cpu).unwrap()
    };
    let u = tensor(&[1.0, 2.0, 3.0], &[1, 3, 1]);
    let ones = tensor(&[1.0; 3], &[1, 3, 1]);
    let delta = tensor(&[1.0; 3], &[1, 3, 1]);
    let a = tensor(&[-300.0], &[1]);
    let y = ssd(&u, &delta, &a, &ones, &ones, None).unwrap();
    let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(values(&y), [1.0, 2.0, 3.0]);
    let grads = y.backward().unwrap();
    assert_eq!(values(grads.get(&u).unwrap()), [1.0; 3]);
    assert_eq!(values(grads.get(&delta).unwrap()), [1.0, 2.0, 3.0]);
    assert_eq!(values(grads.get(&a).unwrap()), [0.0]);
}

#[test]
fn kernels_index_large_tensors() {
    check::large(&case(1, 64, 32, 16)).beyond_32_bits().agrees(fused, reference);
}
