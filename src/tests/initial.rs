//! Initial values of linear maps by scheme, and how many numbers mixers of the classifiers have.

use crate::world::{flat, parameters, Case};
use candle_core::{DType, Device, Tensor};
use dsf::config::MapInit;
use dsf::mixers::find;
use dsf::nn::{Params, Scheme};
use std::collections::BTreeMap;

/// A mixer with one head.
pub fn case(mixer: &str, variant: &str) -> Case {
    Case::new(find(mixer).unwrap(), variant, 1)
}

/// Initial values by name.
pub fn values(case: &Case, scheme: Scheme) -> BTreeMap<String, Tensor> {
    let params = parameters().with_scheme(scheme);
    case.mixer(&params);
    let vars = params.vars().into_iter();
    vars.map(|(name, var)| (name, var.as_detached_tensor())).collect()
}

/// The first number of some parameters with seed 3, before there were schemes.
const FIRST: [(&str, &str, &str, f64); 6] = [
    ("softmax", "reference", "wq", 0.029220437143586322),
    ("linear", "reference", "wout", -0.0006004874391368224),
    ("normalized", "paper", "wn", 0.021975811824250166),
    ("ssd", "reference", "wu", -0.032537878220225316),
    ("rg-lru", "hawk", "wgates", -0.006774428240548662),
    ("qlstm", "reference", "win", 0.008119065879555833),
];

#[test]
fn the_language_model_starts_from_the_numbers_it_always_started_from() {
    let first = |mixer: &str, variant: &str, name: &str| flat(&values(&case(mixer, variant), Scheme::Gpt)[name])[0];
    for (mixer, variant, name, expected) in FIRST {
        let got = first(mixer, variant, name);
        let apart = (got - expected).abs();
        assert!(apart <= 1e-15 * expected.abs(), "{mixer} {variant} {name}: {got:e}");
    }
}

#[test]
fn every_linear_map_follows_the_scheme_and_nothing_else_does() {
    for case in Case::all() {
        let [gpt, torch, fan_in] = [Scheme::Gpt, Scheme::Torch, Scheme::FanIn].map(|scheme| values(&case, scheme));
        for (name, usual) in gpt {
            let place = format!("{case}: {name}");
            let (a, b, c) = (flat(&usual), flat(&torch[&name]), flat(&fan_in[&name]));
            if case.entry.own_init.contains(&name.as_str()) {
                assert!(a == b && a == c, "{place}");
                continue;
            }
            let bias = usual.rank() == 1;
            assert_eq!(a.iter().all(|x| *x == 0.0), bias, "{place}");
            assert_eq!(c.iter().all(|x| *x == 0.0), bias, "{place}");
            // Griffin's variance of the map to the residual stream, 2/layers/E, is that of the fan-in where there are
            // two layers.
            let griffin = case.config.variant == "griffin";
            assert!(bias || a != c || griffin && name == "wout", "{place}");
            let reads = match usual.dims() {
                [_, reads] => *reads,
                _ if name == "bgates" && !griffin => 2 * case.config.d_model,
                _ => case.config.d_model,
            };
            let edge = (reads as f64).powf(-0.5);
            assert!(b.iter().all(|x| x.abs() <= edge && *x != 0.0), "{place}");
            let largest = b.iter().fold(0f64, |m, x| m.max(x.abs()));
            assert!(b.len() < 40 || largest > 0.9 * edge, "{place}: {largest}");
        }
    }
}

/// Weight decay of `maps` must reach every matrix that multiplies tokens, and no other parameter.
#[test]
fn maps_are_the_matrices_that_start_by_a_scheme_and_a_few_with_values_of_their_own() {
    let own_maps =
        |name: &str| ["wdt", "wf", "wi"].contains(&name) || name.starts_with(['w', 'r', 'u', 'e']) && name.len() == 2;
    for case in Case::all() {
        let params = parameters();
        case.mixer(&params);
        for (name, var) in params.vars() {
            let own = case.entry.own_init.contains(&name.as_str());
            let place = format!("{case}: {name} {:?}", var.dims());
            match params.is_map(&name) {
                true => assert!(var.rank() == 2 && (!own || own_maps(&name)), "{place}"),
                false => assert!(var.rank() == 1 || own, "{place}"),
            }
        }
    }
    let params = parameters();
    case("mamba", "block").mixer(&params);
    let (maps, others): (Vec<String>, Vec<String>) =
        params.vars().into_iter().map(|(name, _)| name).partition(|name| params.is_map(name));
    assert_eq!(maps, ["wb", "wc", "wdt", "win", "wout", "wu"]);
    assert_eq!(others, ["a_log", "bdt", "conv_b", "conv_w", "dskip"]);
}

/// Initial values by name, of a mixer with `init`.
fn started(mixer: &str, init: MapInit) -> BTreeMap<String, Tensor> {
    let mut case = case(mixer, find(mixer).unwrap().variants[0]);
    case.config.map_init = init;
    values(&case, Scheme::Gpt)
}

/// Mamba's code leaves PyTorch's uniform values, zeroes biases, and divides the maps to the residual stream by the root
/// of their number, here two layers of two.
#[test]
fn mambas_maps_start_as_in_the_code_of_its_authors() {
    let largest = |x: &Tensor| flat(x).iter().fold(0f64, |m, x| m.max(x.abs()));
    for mixer in ["mamba", "mamba2", "ssd-mamba2"] {
        let [released, authors] = [MapInit::Released, MapInit::Authors].map(|init| started(mixer, init));
        let own = find(mixer).unwrap().own_init;
        for (name, x) in &authors {
            let place = format!("{mixer}: {name}");
            if own.contains(&name.as_str()) {
                assert_eq!(flat(x), flat(&released[name]), "{place}");
                continue;
            }
            let reads = x.dim(1).unwrap() as f64;
            let edge = reads.powf(-0.5) / if name == "wout" { 2.0 } else { 1.0 };
            assert!((0.75 * edge..=edge).contains(&largest(x)), "{place}: {} of {edge}", largest(x));
        }
    }
    let flats = |values: BTreeMap<String, Tensor>| values.into_values().map(|x| flat(&x)).collect::<Vec<_>>();
    let [released, authors] = [MapInit::Released, MapInit::Authors].map(|init| flats(started("s6", init)));
    assert_eq!(released, authors, "without a rule of its authors");
}

/// The public code of xLSTM draws maps from the residual stream with √(2/(5d)), those inside the block too, and the map
/// to it with 2/(layers √d); gates ignore their input at the start.
#[test]
fn xlstms_maps_start_as_in_the_code_of_its_authors() {
    let spread = |x: &Tensor| (flat(x).iter().map(|x| x * x).sum::<f64>() / x.elem_count() as f64).sqrt();
    for (mixer, maps) in [("mlstm-block", &["win", "wq", "wk", "wv"][..]), ("slstm-block", &["wz", "wf", "wi", "wo"])] {
        let mut case = case(mixer, "block");
        (case.config.d_model, case.config.map_init) = (64, MapInit::Authors);
        case.config.d_state = if case.entry.expands { 128 } else { 1 };
        let started = values(&case, Scheme::Gpt);
        let near = |name: &str, std: f64| {
            let ratio = spread(&started[name]) / std;
            assert!((ratio - 1.0).abs() < 0.15, "{mixer} {name}: {ratio}");
        };
        maps.iter().for_each(|name| near(name, (2f64 / (5.0 * 64.0)).sqrt()));
        let (zeros, biases) = match mixer {
            "mlstm-block" => (["wi", "wf"], [3.0, 3.0]),
            _ => (["uz", "uf"], [5.0, -7.0]),
        };
        assert!(zeros.iter().all(|name| flat(&started[*name]).iter().all(|x| *x == 0.0)), "{mixer}");
        let forget = flat(&started["bf"]);
        assert_eq!([forget[0], forget[forget.len() - 1]], biases, "{mixer}");
        if mixer == "mlstm-block" {
            near("wout", 2.0 / (2.0 * 8.0));
        }
    }
}

/// Numbers of one mixer at sizes d, n and, where it widens, `expand`.
fn count(mixer: &str, d: usize, n: usize, expand: Option<f64>) -> usize {
    let mut case = case(mixer, find(mixer).unwrap().variants[0]);
    let config = &mut case.config;
    (config.d_model, config.d_state, config.expand) = (d, n, expand);
    let params = Params::seeded(0, DType::F32, &Device::Cpu);
    case.mixer(&params);
    params.count()
}

#[test]
fn mamba_has_the_parameters_of_the_released_classifiers() {
    let pairs = 4 * 512 + 512 + 512 * 256 + 256 + 256 * 2 + 2;
    for (layers, d, expand, classes, further, total) in [
        (10, 64, 3.0, 10, 0, 851_348),
        (6, 64, 2.5, 2, 0, 433_992),
        (6, 256, 1.5, 2, pairs, 3_229_706),
        (2, 256, 2.0, 10, 0, 1_290_252),
        (6, 128, 4.0, 2, 0, 2_040_328),
    ] {
        let glu = 2 * d * d + 2 * d;
        let block = count("mamba", d, 64, Some(expand)) + glu + 2 * d + 1;
        let got = layers * block + 2 * d + d * classes + classes + further;
        assert_eq!(got, total, "{layers} layers, d = {d}, expand {expand}");
    }
}

#[test]
fn the_cores_without_a_gate_have_the_parameters_of_the_released_classifiers() {
    let (d, n) = (128, 64);
    let rank = d / 16;
    let s6 = d * (rank + 2 * n) + rank * d + d + n * d + d + d * d;
    assert_eq!(count("s6", d, n, None), s6);
    let heads = 1;
    let ssd = d * (d + 2 * n + heads) + 3 * heads + d * d;
    assert_eq!(count("ssd-mamba2", d, n, None), ssd);
}
