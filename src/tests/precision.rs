//! f32 against f64: every mixer within the tolerances that the golden files ask for, at lengths and
//! widths where a fused op has remainders to get wrong.

use crate::world::{flat, normal, Case};
use candle_core::{DType, Device, Tensor, Var};
use dsf::nn::{Cx, Params};
use std::collections::HashMap;

/// Output and gradients of sum(y ⊙ w), the input's under `u`.
fn differentiated(case: &Case, params: &Params, u: &Tensor) -> HashMap<String, Vec<f64>> {
    let u = Var::from_tensor(u).unwrap();
    let y = case.mixer(params).forward(u.as_tensor(), &Cx::eval()).unwrap();
    let w = normal("cotangent", y.shape()).to_dtype(y.dtype()).unwrap();
    let grads = (&y * w).unwrap().sum_all().unwrap().backward().unwrap();
    let mut found = HashMap::from([("y".to_owned(), flat(&y))]);
    let mut vars = params.vars();
    vars.push(("u".to_owned(), u));
    for (name, var) in vars {
        if let Some(grad) = grads.get(&var) {
            found.insert(format!("gradient of {name}"), flat(grad));
        }
    }
    found
}

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |m, x| m.max(x.abs()))
}

/// Outputs and gradients that are further from f64 than the golden files allow.
fn too_far(case: &Case, seq_len: usize) -> Vec<String> {
    let (_, params) = case.build();
    let given = params.vars().into_iter().map(|(n, v)| (n, v.as_tensor().clone()));
    let single = Params::given(given.collect::<HashMap<_, _>>(), DType::F32, &Device::Cpu);
    // Both start from the numbers that f32 holds.
    let rounded = |t: &Tensor| t.to_dtype(DType::F32).unwrap().to_dtype(DType::F64).unwrap();
    for (_, var) in params.vars() {
        var.set(&rounded(&var)).unwrap();
    }
    let u = rounded(&case.input(2, seq_len));
    let wanted = differentiated(case, &params, &u);
    let got = differentiated(case, &single, &u.to_dtype(DType::F32).unwrap());
    let gradients = wanted.iter().filter(|(name, _)| *name != "y");
    let floor = 0.01 * gradients.map(|(_, g)| largest(g)).fold(0.0, f64::max);
    // The kernels of two are sums of many terms that cancel, as is what mLSTM divides by: the golden files, too, ask
    // for less of the former.
    let cancels = ["dss", "hyena", "mlstm"].contains(&case.entry.name);
    let digits = if cancels { 5e-5 } else { 1e-5 };
    let errors = wanted.iter().filter_map(|(name, wanted)| {
        let tolerance = match name.as_str() {
            "y" => digits * largest(wanted),
            _ => 10.0 * digits * largest(wanted).max(floor),
        };
        let errors: Vec<f64> = got[name].iter().zip(wanted).map(|(a, b)| (a - b).abs()).collect();
        // Not by the largest: of a number and NaN, `max` is the number.
        let within = errors.iter().all(|error| *error <= tolerance);
        let error = largest(&errors);
        (!within).then(|| format!("{case}, L = {seq_len}, {name}: {error} over {tolerance}"))
    });
    errors.collect()
}

/// Mixers with a norm after their state, which takes the product of query and key of a single token out again, and
/// mLSTM, whose normaliser does that with its gate: their gradients are then rounding alone.
const NORMALISED: [&str; 12] = [
    "retnet",
    "lightning",
    "gla",
    "hgrn2",
    "delta-net",
    "gated-delta-net",
    "rwkv5",
    "rwkv6",
    "rwkv7",
    "mamba2",
    "mlstm",
    "mlstm-block",
];

#[test]
fn f32_stays_within_the_golden_tolerances_at_odd_sizes() {
    let mut errors = Vec::new();
    for mut case in Case::all() {
        // Kernels have the length of the input, as in the golden files: over others, the sum that a complex softmax
        // divides by can be nearly 0. S4 needs a length.
        if case.entry.name != "s4" {
            case.config.options.remove("l_max");
        }
        for (d_model, d_state) in [(12, 6), (3, 3), (51, 33)] {
            case.config.d_model = d_model;
            case.config.d_state = if case.entry.expands { d_state } else { 1 };
            if case.entry.check_sizes(&case.config).is_err() {
                continue; // a head of one channel has no pair of them to turn
            }
            for seq_len in [1, 2, 33] {
                if seq_len == 1 && NORMALISED.contains(&case.entry.name) {
                    continue;
                }
                errors.extend(too_far(&case, seq_len));
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
