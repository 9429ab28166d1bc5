//! f32 against f64: every mixer within the tolerances that the golden files ask for, at lengths and
//! widths where a fused op has remainders to get wrong.

use crate::world::{flat, normal, Case};
use candle_core::{DType, Device, Tensor, Var};
use dsf::nn::{Cx, Params};
use std::collections::HashMap;

/// Output and gradients of sum(y ⊙ w), the input's under `u`.
fn differentiated(case: &Case, params: &Params, u: &Tensor) -> HashMap<String, Vec<f64>> {
    let u = Var::from_tensor(u).unwrap();
    let y = case
        .mixer(params)
        .forward(u.as_tensor(), &Cx::eval())
        .unwrap();
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

fn assert_close(case: &Case, seq_len: usize) {
    let (_, params) = case.build();
    let given = params
        .vars()
        .into_iter()
        .map(|(n, v)| (n, v.as_tensor().clone()))
        .collect();
    let single = Params::given(given, DType::F32, &Device::Cpu);
    // Both start from the numbers that f32 holds.
    let rounded = |t: &Tensor| {
        t.to_dtype(DType::F32)
            .unwrap()
            .to_dtype(DType::F64)
            .unwrap()
    };
    for (_, var) in params.vars() {
        var.set(&rounded(&var)).unwrap();
    }
    let u = rounded(&case.input(2, seq_len));
    let wanted = differentiated(case, &params, &u);
    let got = differentiated(case, &single, &u.to_dtype(DType::F32).unwrap());
    let gradients = wanted.iter().filter(|(name, _)| *name != "y");
    let floor = 0.01 * gradients.map(|(_, g)| largest(g)).fold(0.0, f64::max);
    for (name, wanted) in &wanted {
        let tolerance = match name.as_str() {
            "y" => 1e-5 * largest(wanted),
            _ => 1e-4 * largest(wanted).max(floor),
        };
        let pairs = got[name].iter().zip(wanted);
        let error = pairs.fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()));
        assert!(
            error <= tolerance,
            "{case}, L = {seq_len}, {name}: {error} over {tolerance}"
        );
    }
}

#[test]
fn f32_stays_within_the_golden_tolerances_at_odd_sizes() {
    for mut case in Case::all() {
        for (d_model, d_state) in [(12, 6), (3, 3), (51, 33)] {
            case.config.d_model = d_model;
            case.config.d_state = if case.entry.expands { d_state } else { 1 };
            if case.entry.check_sizes(&case.config).is_err() {
                continue; // a head of one channel has no pair of them to turn
            }
            for seq_len in [1, 2, 33] {
                assert_close(&case, seq_len);
            }
        }
    }
}
