use super::*;
use crate::runtime::check::{self, Case};
use crate::runtime::rng::Rng;
use candle_core::{DType, Device};

/// B, L, s, m, e, and the decays of a head.
type Sizes = [usize; 6];

/// Inputs whose transitions neither grow nor vanish, in the order of the function's arguments.
fn case_of_rows([batch, len, heads, keys, values, decays]: Sizes, rows: usize) -> Case {
    let name = format!("{batch} x {len} x {heads}, {keys} by {values}, {decays} decays, {rows} rows");
    let side = (keys as f64).powf(-0.5);
    Case::new(name)
        .normal("q", &[batch, rows, heads, keys])
        .normal("k", &[batch, len, heads, keys])
        .normal("v", &[batch, len, heads, values])
        .uniform("a", &[batch, len, heads, keys], -side, side)
        .uniform("b", &[batch, len, heads, keys], -side, side)
        .uniform("g", &[batch, len, heads, decays], -1.5, 0.0)
}

fn case(sizes: Sizes) -> Case {
    case_of_rows(sizes, sizes[1])
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    fused_at(None)(ins)
}

fn fused_at(rows: Option<&Tensor>) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync + use<'_> {
    move |ins| delta_rule(&ins[0], &ins[1], &ins[2], &ins[3], &ins[4], &ins[5], rows)
}

fn reference_at(rows: Option<&Tensor>) -> impl Fn(&[Tensor]) -> Result<Tensor> + use<'_> {
    move |ins| {
        let ins = [&ins[0], &ins[1], &ins[2], &ins[5], &ins[3], &ins[4]];
        reference::delta_rule(ins, rows)
    }
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

fn tensor(values: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, &Device::Cpu).unwrap()
}

fn numbers(x: &Tensor) -> Vec<f64> {
    let x = x.to_dtype(DType::F64).unwrap();
    x.flatten_all().unwrap().to_vec1().unwrap()
}

const SIZES: [Sizes; 11] = [
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
    [1, 66, 2, 36, 19, 1],
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

/// Sizes around the tiles and teams of the kernels, and numbers of events around their spans.
const TILES: [Sizes; 11] = [
    [2, 5, 2, 3, 2, 3],
    [3, 1, 1, 1, 1, 1],
    [1, 8, 2, 9, 5, 1],
    [1, 17, 1, 16, 32, 16],
    [2, 25, 2, 17, 33, 17],
    [1, 9, 1, 130, 3, 130],
    [1, 10, 1, 256, 34, 1],
    [1, 33, 1, 8, 257, 8],
    [2, 16, 1, 33, 65, 1],
    [1, 19, 1, 300, 9, 300],
    [1, 3, 2, 1000, 3, 1],
];

#[test]
fn kernels_equal_the_reference() {
    check::kernels_agree(&TILES.map(case), fused, reference_at(None));
}

#[test]
fn kernels_read_at_the_times_of_rows() {
    for sizes in &TILES[..4] {
        let rows = some(sizes[0], sizes[1]);
        let case = case_of_rows(*sizes, 4);
        check::kernels_agree(&[case], fused_at(Some(&rows)), reference_at(Some(&rows)));
    }
}

#[test]
fn kernels_take_extreme_decays() {
    check::kernels_agree(&[extreme(8)], fused, reference_at(None));
}

#[test]
fn kernels_refuse_keys_that_no_warp_holds() {
    let vars = case([1, 2, 1, 1025, 2, 1]).vars(DType::F32);
    let ins: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let error = dsf_emulation::emulated(|| fused(&ins)).unwrap_err();
    let message = "delta_rule: keys of 1025 features, kernels take up to 1024";
    assert!(error.to_string().contains(message), "{error}");
}

/// Decays of 1, some that underflow, and all between.
fn extreme(decays: usize) -> Case {
    let [batch, len, heads, keys, values] = [1, 70, 2, 8, 3];
    let logs = [0.0, -1e-30, -1e-3, -50.0, -87.5, -0.5, -300.0, -1e4];
    let g: Vec<f64> = (0..len * heads * decays).map(|i| logs[(i * 5 + i / 7) % 8]).collect();
    Case::new("extreme")
        .normal("q", &[batch, len, heads, keys])
        .normal("k", &[batch, len, heads, keys])
        .normal("v", &[batch, len, heads, values])
        .uniform("a", &[batch, len, heads, keys], -0.3, 0.3)
        .uniform("b", &[batch, len, heads, keys], -0.3, 0.3)
        .values(&g, &[batch, len, heads, decays])
}

#[test]
fn extreme_decays_agree_with_the_reference() {
    check::agree(&[extreme(1), extreme(8)], fused, reference_at(None));
}

/// S_t = (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ with keys of length 1, in plain loops.
fn delta_net([q, k, v, beta]: [&[f64]; 4], [len, keys, values]: [usize; 3]) -> Vec<f64> {
    let mut state = vec![vec![0.0; values]; keys];
    let mut o = Vec::with_capacity(len * values);
    for t in 0..len {
        let (q, k) = (&q[t * keys..][..keys], &k[t * keys..][..keys]);
        for c in 0..values {
            let recalled: f64 = (0..keys).map(|i| k[i] * state[i][c]).sum();
            let written = beta[t] * (v[t * values + c] - recalled);
            for i in 0..keys {
                state[i][c] += k[i] * written;
            }
            o.push((0..keys).map(|i| q[i] * state[i][c]).sum());
        }
    }
    o
}

#[test]
fn with_keys_of_length_one_it_is_delta_net() {
    let [len, keys, values] = [300, 12, 21];
    let mut rng = Rng::new(3, "delta net", 0);
    let mut normals = |count: usize| -> Vec<f64> { (0..count).map(|_| rng.normals().0).collect() };
    let (q, v) = (normals(len * keys), normals(len * values));
    let mut k = normals(len * keys);
    for k in k.chunks_exact_mut(keys) {
        let length = k.iter().map(|x| x * x).sum::<f64>().sqrt();
        k.iter_mut().for_each(|x| *x /= length);
    }
    let beta: Vec<f64> = normals(len).iter().map(|x| 1.0 / (1.0 + x.exp())).collect();
    let expected = delta_net([&q, &k, &v, &beta], [len, keys, values]);
    let of_keys = [1, len, 1, keys];
    let (q, k) = (tensor(&q, &of_keys), tensor(&k, &of_keys));
    let (v, beta) = (tensor(&v, &[1, len, 1, values]), tensor(&beta, &[1, len, 1, 1]));
    let scaled = k.broadcast_mul(&beta).unwrap();
    let g = beta.zeros_like().unwrap();
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
        let ins = [&q, &scaled, &v, &scaled.neg().unwrap(), &k, &g];
        let ins = ins.map(|x| x.to_dtype(dtype).unwrap());
        let got = numbers(&fused(&ins).unwrap());
        let apart = got.iter().zip(&expected).map(|(x, y)| (x - y).abs());
        let apart = apart.fold(0.0, f64::max);
        assert!(apart < tolerance, "{dtype:?}: {apart:e}");
    }
}

/// A value is read back exactly under its key, and is replaced by a later write.
#[test]
fn a_write_under_the_same_key_replaces_the_value() {
    let len = 200;
    let keys: Vec<f64> = (0..len).flat_map(|t| [t % 3 == 0, t % 3 == 1, t % 3 == 2]).map(f64::from).collect();
    let values: Vec<f64> = (0..len).map(|t| t as f64).collect();
    let (k, v) = (tensor(&keys, &[1, len, 1, 3]), tensor(&values, &[1, len, 1, 1]));
    let g = v.zeros_like().unwrap();
    let o = delta_rule(&k, &k, &v, &k.neg().unwrap(), &k, &g, None).unwrap();
    assert_eq!(numbers(&o), values);
}

#[test]
fn the_first_transition_has_no_effect_and_no_gradient() {
    let vars = case([2, 6, 2, 3, 4, 3]).vars(DType::F32);
    let ins: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let grads = fused(&ins).unwrap().backward().unwrap();
    let mut other = ins.clone();
    for input in [3, 4, 5] {
        let of_first = grads.get(&ins[input]).unwrap().narrow(1, 0, 1).unwrap();
        assert!(numbers(&of_first).iter().all(|&x| x == 0.0), "input {input}");
        let first = (of_first.zeros_like().unwrap() + 1e4).unwrap();
        let later = ins[input].narrow(1, 1, 5).unwrap();
        other[input] = Tensor::cat(&[first, later], 1).unwrap();
    }
    assert_eq!(numbers(&fused(&ins).unwrap()), numbers(&fused(&other).unwrap()));
}

#[test]
fn without_a_rank_one_part_it_is_gated_linear_attention() {
    let vars = case([2, 50, 2, 5, 7, 5]).vars(DType::F64);
    let mut ins: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    ins[3] = ins[3].zeros_like().unwrap();
    let o = crate::gla(&ins[0], &ins[1], &ins[2], &ins[5], None).unwrap();
    let apart = (fused(&ins).unwrap() - o).unwrap();
    assert!(numbers(&apart).iter().all(|x| x.abs() < 1e-12));
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
    let refused = |shapes: [&[usize]; 6], message| check::refuses(&shapes, fused, message);
    refused(
        [&[2, 4, 3, 4], k, v, k, k, g],
        "delta_rule: q has shape [2, 4, 3, 4], but k of shape [2, 5, 3, 4] asks for [2, 5, 3, 4]",
    );
    refused(
        [k, k, &[2, 5, 2, 6], k, k, g],
        "delta_rule: v has shape [2, 5, 2, 6], but k of shape [2, 5, 3, 4] asks for [2, 5, 3, 6]",
    );
    refused(
        [k, k, v, v, k, g],
        "delta_rule: a has shape [2, 5, 3, 6], but k of shape [2, 5, 3, 4] asks for [2, 5, 3, 4]",
    );
    refused(
        [k, k, v, k, g, g],
        "delta_rule: b has shape [2, 5, 3, 1], but k of shape [2, 5, 3, 4] asks for [2, 5, 3, 4]",
    );
    refused([k, k, v, k, k, &[2, 5, 3, 2]], "delta_rule: g has shape [2, 5, 3, 2], but needed are 4 decays a head");
    let rows = Tensor::new(&[[0u32, 1], [1, 0]], &Device::Cpu).unwrap();
    let shapes = [&[2, 2, 3, 4], k, v, k, k, g];
    check::refuses(&shapes, fused_at(Some(&rows)), "must ascend");
}
