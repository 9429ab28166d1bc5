//! Inputs ten and a hundred times as large as usual: what softmax attention can read, the others can, too.

use crate::world::{flat, normal, Case};
use candle_core::{DType, Device, Tensor, Var};
use dsf::config::Rotary;
use dsf::nn::{Cx, Params};
use std::collections::HashMap;

/// Output and gradients, by name, for an input `scale` times as large as usual.
fn numbers(case: &Case, dtype: DType, scale: f64, seq_len: usize) -> Vec<(String, Vec<f64>)> {
    let (_, params) = case.build();
    let given = params.vars().into_iter();
    let given = given.map(|(name, var)| (name, var.as_tensor().clone()));
    let params = Params::given(given.collect::<HashMap<_, _>>(), dtype, &Device::Cpu);
    let of = |x: Tensor| x.to_dtype(dtype).unwrap();
    let u = Var::from_tensor(&of((case.input(2, seq_len) * scale).unwrap())).unwrap();
    let y = case.mixer(&params).forward(&u, &Cx::eval()).unwrap();
    let weight = of(normal("w", y.shape()));
    let grads = (&y * weight).unwrap().sum_all().unwrap();
    let grads = grads.backward().unwrap();
    let vars = params.vars().into_iter().chain([("u".to_owned(), u)]);
    let grads = vars.filter_map(|(name, var)| Some((name, flat(grads.get(&var)?))));
    [("y".to_owned(), flat(&y))].into_iter().chain(grads).collect()
}

/// Numbers that f32 holds with room for the sums on the way to them.
const HELD: f64 = 1e30;

/// Names of what is no number in f64, or in f32 where f32 would hold it.
fn lost(case: &Case, scale: f64, seq_len: usize) -> Vec<String> {
    let of = |dtype| numbers(case, dtype, scale, seq_len);
    let pairs = of(DType::F64).into_iter().zip(of(DType::F32));
    let bad = pairs.filter(|((_, wide), (_, single))| {
        let held = wide.iter().all(|x| x.abs() < HELD);
        !wide.iter().all(|x| x.is_finite()) || held && !single.iter().all(|x| x.is_finite())
    });
    bad.map(|((name, _), _)| name).collect()
}

#[test]
fn every_mixer_reads_large_inputs() {
    let mut failed = Vec::new();
    // Features that are turned after their map have signs, and no logarithms.
    let turned = |case: &Case| {
        let language = case.config.language.as_ref();
        language.is_some_and(|language| language.rotary == Rotary::Post)
    };
    for case in Case::all().into_iter().filter(|case| !turned(case)) {
        for (scale, seq_len) in [(10.0, 7), (10.0, 33), (100.0, 1), (100.0, 33)] {
            let lost = lost(&case, scale, seq_len);
            if !lost.is_empty() {
                failed.push(format!("{case}, x {scale}, L = {seq_len}: {}", lost.join(" ")));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
