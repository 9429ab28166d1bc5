//! Language models before training: names, number and initial values of the parameters, and refused settings.

use super::{IO, V};
use crate::world::{flat, parameters, pythia};
use candle_core::{DType, Device, Tensor};
use dsf::config::{InitScheme, ModelConfig, Rotary};
use dsf::mixers::find;
use dsf::model::{Io, LanguageModel};
use dsf::nn::{Cx, Params};
use std::collections::{BTreeMap, HashMap};

/// Config of Pythia-70M around a mixer.
fn pythia_70m(mixer: &str) -> ModelConfig {
    let mut config = pythia(find(mixer).unwrap(), "reference", Rotary::Pre);
    (config.d_model, config.d_state) = (512, 512);
    (config.n_heads, config.n_layers) = (8, 6);
    if let Some(language) = &mut config.language {
        (language.mlp_width, language.rotary_dims) = (2048, 16);
    }
    config
}

/// Names and shapes of the parameters of Pythia-70M, for a vocabulary of `V` tokens.
fn shapes(mixer: &str) -> HashMap<String, Vec<usize>> {
    let d = 512;
    let mut shapes = HashMap::new();
    let mut name = |name: String, shape: &[usize]| shapes.insert(name, shape.to_vec());
    for (table, rows) in [("embed.tok", V), ("head.weight", V)] {
        name(table.to_owned(), &[rows, d]);
    }
    for layer in 0..6 {
        let mut of = |part: &str, shape: &[usize]| name(format!("layers.{layer}.{part}"), shape);
        for norm in ["norm1", "norm2"] {
            of(&format!("{norm}.weight"), &[d]);
            of(&format!("{norm}.bias"), &[d]);
        }
        for map in ["q", "k", "v", "out"] {
            of(&format!("mixer.w{map}"), &[d, d]);
            of(&format!("mixer.b{map}"), &[d]);
        }
        if mixer == "normalized" {
            of("mixer.wn", &[8, d]);
            of("mixer.bn", &[8]);
        }
        of("mlp.w1", &[4 * d, d]);
        of("mlp.b1", &[4 * d]);
        of("mlp.w2", &[d, 4 * d]);
        of("mlp.b2", &[d]);
    }
    name("norm_f.weight".to_owned(), &[d]);
    name("norm_f.bias".to_owned(), &[d]);
    shapes
}

#[test]
fn pythia_70m_has_the_published_number_of_parameters() {
    for (mixer, further) in [("softmax", 0), ("linear", 0), ("normalized", 24_624)] {
        let zeros = |shape: Vec<usize>| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
        let given: HashMap<_, _> = shapes(mixer).into_iter().map(|(name, shape)| (name, zeros(shape))).collect();
        let names = given.len();
        let params = Params::given(given, DType::F32, &Device::Cpu);
        LanguageModel::new(&pythia_70m(mixer), IO, &params).unwrap();
        assert_eq!(params.vars().len(), names, "{mixer}");
        let body = params.count() - 2 * V * 512;
        assert_eq!(body, 18_915_328 + further, "{mixer}");
        assert_eq!(body + 2 * 50_304 * 512, 70_426_624 + further, "{mixer}");
    }
}

/// Standard deviation of the initial values of each parameter that is not constant, by the last part of its name. It
/// must be the same in all layers.
fn spreads(init: InitScheme) -> BTreeMap<String, f64> {
    let mut config = pythia(find("normalized").unwrap(), "reference", Rotary::Pre);
    (config.d_model, config.d_state, config.n_layers) = (64, 64, 3);
    if let Some(language) = &mut config.language {
        (language.init, language.mlp_width) = (init, 256);
    }
    let params = parameters();
    LanguageModel::new(&config, IO, &params).unwrap();
    let mut spreads = BTreeMap::new();
    for (name, var) in params.vars() {
        let values = flat(&var);
        let last = match name.as_str() {
            "embed.tok" | "head.weight" => name.as_str(),
            _ => name.rsplit('.').next().unwrap(),
        };
        if last == "weight" || last == "bias" || last.starts_with('b') {
            let start = f64::from(u8::from(last == "weight"));
            assert!(values.iter().all(|&x| x == start), "{name}");
            continue;
        }
        let square = values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64;
        let error = square.sqrt() / (2.0 * values.len() as f64).sqrt();
        let before = *spreads.entry(last.to_owned()).or_insert(square.sqrt());
        assert!((before - square.sqrt()).abs() <= 8.0 * error, "{name}");
    }
    spreads
}

#[test]
fn initial_weights_are_those_of_pythias_training_or_of_transformers() {
    let (small, back) = ((2f64 / (5.0 * 64.0)).sqrt(), 2.0 / (3.0 * 8.0));
    for (init, inputs, outputs) in [(InitScheme::Pythia, small, back), (InitScheme::Hf, 0.02, 0.02)] {
        let spreads = spreads(init);
        assert_eq!(spreads.len(), 9, "two tables, and wq wk wv wn wout w1 w2");
        for (name, spread) in spreads {
            let wanted = match name.as_str() {
                "wout" | "w2" => outputs,
                _ => inputs,
            };
            // The smallest parameter, wn, has 128 elements, for which 25 % are four standard errors.
            let error = (spread / wanted - 1.0).abs();
            assert!(error <= 0.25, "{init:?} {name}: {spread}, not {wanted}");
        }
    }
}

#[test]
fn the_loss_of_an_untrained_model_is_near_that_of_uniform_predictions() {
    for mixer in ["softmax", "linear", "normalized"] {
        let config = pythia(find(mixer).unwrap(), "reference", Rotary::Pre);
        let io = Io { vocab_size: 50_304, seq_len: 64 };
        let params = Params::seeded(1, DType::F32, &Device::Cpu);
        let model = LanguageModel::new(&config, io, &params).unwrap();
        let windows: Vec<u32> = (0..65u32).map(|i| i * 773 % 50_277).collect();
        let ids = |first: usize| Tensor::from_slice(&windows[first..][..64], (1, 64), &Device::Cpu);
        let targets = ids(1).unwrap().flatten_all().unwrap();
        let hidden = model.hidden(&ids(0).unwrap(), None, &Cx::eval()).unwrap();
        let found = model.classify(&hidden, &targets);
        let loss = f64::from(found.unwrap().loss.to_scalar::<f32>().unwrap());
        let excess = loss - 50_304f64.ln();
        // Random logits raise the loss by half of their variance, here 16 channels times 0.158².
        assert!((-0.1..0.6).contains(&excess), "{mixer}: {loss}");
    }
}

#[test]
fn unsuitable_rotary_embeddings_are_refused_with_the_flag() {
    let refusal = |mixer: &str, rotary, dims: usize| {
        let entry = find(mixer).unwrap();
        let mut config = pythia(entry, entry.variants[0], rotary);
        if let Some(language) = &mut config.language {
            language.rotary_dims = dims;
        }
        entry.check_sizes(&config).map_err(|e| e.diagnostic())
    };
    for mixer in ["s6", "ssd", "qlstm", "lstm"] {
        let at = refusal(mixer, Rotary::Pre, 4).unwrap_err();
        assert_eq!(at.flag.as_deref(), Some("--rotary"), "{at:?}");
        assert!(at.reason.contains(mixer), "{at:?}");
        refusal(mixer, Rotary::None, 0).unwrap();
    }
    for mixer in ["softmax", "linear", "normalized"] {
        for dims in [0, 1, 3, 7, 9, 10] {
            let at = refusal(mixer, Rotary::Post, dims).unwrap_err();
            let (flag, value) = (at.flag.as_deref(), at.value.as_deref());
            assert_eq!((flag, value), (Some("--rotary-dims"), Some(&*dims.to_string())), "{at:?}");
        }
        for dims in [2, 8] {
            refusal(mixer, Rotary::Post, dims).unwrap();
        }
        refusal(mixer, Rotary::None, 0).unwrap();
    }
}
