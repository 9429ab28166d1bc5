//! Names, numbers and initial values of a model's parameters.

use crate::world::{flat, parameters, run};
use candle_core::{DType, Device, Tensor};
use dsf::config::Protocol;
use dsf::mixers::MIXERS;
use dsf::model::{Io, LanguageModel};
use dsf::nn::Params;
use std::collections::{BTreeMap, BTreeSet};

/// A cell of the paper's smallest task: two layers, d = n = 64, V = 8192, L = 64, reference protocol.
fn small_cell(mixer: &str, seed: u64) -> Params {
    let run = run(mixer, Protocol::Reference, &[("d", "64"), ("n", "64")]);
    let io = Io { vocab_size: 8192, seq_len: 64 };
    let params = Params::seeded(seed, DType::F32, &Device::Cpu);
    LanguageModel::new(&run.model, io, &params).unwrap();
    params
}

/// `embed` and `block` (once a layer) by name, with the number of elements.
fn names(embed: &[(&str, usize)], block: &[(&str, usize)]) -> BTreeMap<String, usize> {
    let around = |(n, c): &(&str, usize)| ((*n).to_owned(), *c);
    let in_layer = |l: usize| {
        let name = move |(n, c): &(&str, usize)| (format!("layers.{l}.{n}"), *c);
        block.iter().map(name)
    };
    let embed = embed.iter().map(around);
    embed.chain(in_layer(0)).chain(in_layer(1)).collect()
}

fn assert_named(mixer: &str, expected: &BTreeMap<String, usize>, total: usize) {
    let params = small_cell(mixer, 1);
    let vars = params.vars().into_iter();
    let got: BTreeMap<String, usize> = vars.map(|(n, v)| (n, v.elem_count())).collect();
    assert_eq!(&got, expected, "{mixer}");
    assert_eq!(params.count(), total, "{mixer}");
}

const D: usize = 64;
const N: usize = 64;
const TOKENS: (&str, usize) = ("embed.tok", 8192 * D);
const POSITIONS: (&str, usize) = ("embed.pos", 64 * D);
const NORM_F: [(&str, usize); 2] = [("norm_f.weight", D), ("norm_f.bias", D)];
const NORM_1: [(&str, usize); 2] = [("norm1.weight", D), ("norm1.bias", D)];
const NORM_2: [(&str, usize); 2] = [("norm2.weight", D), ("norm2.bias", D)];
const ATTENTION: [(&str, usize); 8] = [
    ("mixer.wq", N * D),
    ("mixer.bq", N),
    ("mixer.wk", N * D),
    ("mixer.bk", N),
    ("mixer.wv", D * D),
    ("mixer.bv", D),
    ("mixer.wout", D * D),
    ("mixer.bout", D),
];

#[test]
fn softmax_has_the_parameters_of_the_released_model() {
    let embed = [&[TOKENS, POSITIONS], &NORM_F[..]].concat();
    let block = [&NORM_1[..], &ATTENTION, &NORM_2].concat();
    let layer = 2 * (2 * D) + 2 * (N * D + N) + 2 * (D * D + D);
    let total = 8192 * D + 64 * D + 2 * D + 2 * layer;
    assert_named("softmax", &names(&embed, &block), total);
}

#[test]
fn normalized_attention_adds_its_eta_and_a_feed_forward_half() {
    let embed = [&[TOKENS, POSITIONS], &NORM_F[..]].concat();
    let eta = [("mixer.wn", D), ("mixer.bn", 1)];
    let mlp = [("mlp.w1", 4 * D * D), ("mlp.b1", 4 * D), ("mlp.w2", D * 4 * D), ("mlp.b2", D)];
    let block = [&NORM_1[..], &ATTENTION, &eta, &NORM_2, &mlp].concat();
    let attention = 2 * (N * D + N) + 2 * (D * D + D) + D + 1;
    let layer = 2 * (2 * D) + attention + 8 * D * D + 5 * D;
    let total = 8192 * D + 64 * D + 2 * D + 2 * layer;
    assert_named("normalized", &names(&embed, &block), total);
}

#[test]
fn s6_has_one_norm_a_layer_and_no_positions() {
    let rank = D / 16;
    let embed = [&[TOKENS], &NORM_F[..]].concat();
    let s6 = [
        ("mixer.wu", rank * D),
        ("mixer.wdt", D * rank),
        ("mixer.bdt", D),
        ("mixer.wb", N * D),
        ("mixer.wc", N * D),
        ("mixer.a_log", D * N),
        ("mixer.dskip", D),
        ("mixer.wout", D * D),
    ];
    let block = [&NORM_1[..], &s6].concat();
    let layer = 2 * D + 2 * rank * D + 3 * N * D + D * D + 2 * D;
    let total = 8192 * D + 2 * D + 2 * layer;
    assert_named("s6", &names(&embed, &block), total);
}

#[test]
fn initial_values_have_the_spread_of_the_released_model() {
    let params = small_cell("normalized", 5);
    let shrunk = 0.02 / 4f64.sqrt();
    let mut seen = 0;
    for (name, var) in params.vars() {
        let values = flat(var.as_tensor());
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let square = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let last = name.rsplit('.').next().unwrap();
        let (expected_mean, std) = match last {
            "weight" => (1.0, 0.0),
            "bias" | "bq" | "bk" | "bv" | "bout" | "bn" | "b1" | "b2" => (0.0, 0.0),
            "wout" | "w2" => (0.0, shrunk),
            _ => (0.0, 0.02),
        };
        // Five standard errors of the mean and of the standard deviation.
        let allowed = 5.0 * std / count.sqrt() + 1e-12;
        assert!((mean - expected_mean).abs() <= allowed, "{name}: mean {mean}");
        assert!((square.sqrt() - std).abs() <= allowed, "{name}: {}", square.sqrt());
        seen += usize::from(std > 0.0);
    }
    assert_eq!(seen, 2 + 2 * 7, "embeddings, and wq wk wv wout wn w1 w2 a layer");
}

fn bits(params: &Params) -> BTreeMap<String, Vec<u64>> {
    let of = |x: &Tensor| flat(x).into_iter().map(f64::to_bits).collect();
    let vars = params.vars().into_iter();
    vars.map(|(name, var)| (name, of(var.as_tensor()))).collect()
}

#[test]
fn the_seed_decides_the_initial_bits() {
    let of = |seed| bits(&small_cell("s6", seed));
    assert_eq!(of(1), of(1));
    let (one, two) = (of(1), of(2));
    for name in ["embed.tok", "layers.0.mixer.wu", "layers.1.mixer.wb"] {
        assert_ne!(one[name], two[name], "{name}");
    }
    assert_ne!(one["layers.0.mixer.wb"], one["layers.1.mixer.wb"]);
}

#[test]
fn adding_a_layer_leaves_the_others_as_they_were_but_for_the_output_scale() {
    for entry in MIXERS {
        let of = |n_layers| {
            let run = run(entry.name, Protocol::Matched, &[("layers", n_layers)]);
            let params = parameters();
            LanguageModel::new(&run.model, Io::of(&run.task).unwrap(), &params).unwrap();
            params.vars().into_iter().collect::<BTreeMap<_, _>>()
        };
        let (two, three) = (of("2"), of("3"));
        assert!(three.len() > two.len());
        let mut by_depth = BTreeSet::new();
        for (name, var) in two {
            let (a, b) = (flat(var.as_tensor()), flat(three[&name].as_tensor()));
            let scaled = a.iter().map(|x| x * (2f64 / 3.0).sqrt());
            let shrunk = scaled.zip(&b).all(|(x, y)| (x - y).abs() <= 1e-15);
            let output = name.ends_with("wout") || name.ends_with("w2");
            let last = name.rsplit('.').next().unwrap();
            let known = entry.depth_init.iter().find(|known| **known == last);
            assert!(a == b || output && shrunk || known.is_some(), "{} {name}", entry.name);
            by_depth.extend(known.filter(|_| a != b));
        }
        let stated: BTreeSet<&str> = entry.depth_init.iter().copied().collect();
        assert_eq!(by_depth, stated, "{}", entry.name);
    }
}
