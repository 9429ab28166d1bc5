use super::*;
use crate::runtime::check::matrix_state::{CheckSizes, MatrixOp, TILES};
use crate::runtime::distance::numbers;
use crate::runtime::rng::Rng;
use candle_core::{DType, Device};

/// The inputs are in the order of the function's arguments.
const OP: MatrixOp = MatrixOp {
    transition: |case, shape, bound| case.uniform("a", shape, -bound, bound).uniform("b", shape, -bound, bound),
    fused: |x, rows| delta_rule(&x[0], &x[1], &x[2], &x[3], &x[4], &x[5], rows),
    reference: |x, rows| reference::delta_rule([&x[0], &x[1], &x[2], &x[5], &x[3], &x[4]], rows),
};

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    (OP.fused)(ins, None)
}

fn tensor(values: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, &Device::Cpu).unwrap()
}

const SIZES: [CheckSizes; 11] = [
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
fn it_passes_the_suite() {
    let (k, v, g) = (&[2, 5, 3, 4][..], &[2, 5, 3, 6][..], &[2, 5, 3, 1][..]);
    let of_k = |given: &str| format!("delta_rule: {given}, but k of shape [2, 5, 3, 4] asks for [2, 5, 3, 4]");
    let narrow = "delta_rule: v has shape [2, 5, 2, 6], but k of shape [2, 5, 3, 4] asks for [2, 5, 3, 6]";
    OP.suite(
        &SIZES,
        &[
            (&[&[2, 4, 3, 4], k, v, k, k, g], &of_k("q has shape [2, 4, 3, 4]")),
            (&[k, k, &[2, 5, 2, 6], k, k, g], narrow),
            (&[k, k, v, v, k, g], &of_k("a has shape [2, 5, 3, 6]")),
            (&[k, k, v, k, g, g], &of_k("b has shape [2, 5, 3, 1]")),
            (&[k, k, v, k, k, &[2, 5, 3, 2]], "delta_rule: g has shape [2, 5, 3, 2], but needed are 4 decays a head"),
        ],
    );
    OP.wrong_times_are_refused(&[&[2, 2, 3, 4], k, v, k, k, g]);
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
    OP.kernels_agree_at_some_times(&TILES[..4]);
}

#[test]
fn kernels_take_extreme_decays() {
    OP.kernels_take_extreme_decays();
}

#[test]
fn kernels_refuse_wide_keys() {
    OP.kernels_refuse_wide_keys("delta_rule");
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
        let got = numbers(&fused(&ins).unwrap()).unwrap();
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
    assert_eq!(numbers(&o).unwrap(), values);
}

#[test]
fn the_first_transition_has_no_effect_and_no_gradient() {
    OP.first_transition_has_no_effect();
}

#[test]
fn without_a_rank_one_part_it_is_gated_linear_attention() {
    let vars = OP.case([2, 50, 2, 5, 7, 5]).vars(DType::F64);
    let mut ins: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    ins[3] = ins[3].zeros_like().unwrap();
    let o = crate::gla(&ins[0], &ins[1], &ins[2], &ins[5], None).unwrap();
    let apart = (fused(&ins).unwrap() - o).unwrap();
    assert!(numbers(&apart).unwrap().iter().all(|x| x.abs() < 1e-12));
}

#[test]
fn kernels_index_large_tensors() {
    OP.indices_hold();
}
