//! Pythia's body around every mixer: its head, its positions, and text token by token.

mod start;

use crate::world::{distance, normal, parameters, perturb, pythia, pythias};
use candle_core::{Device, Tensor};
use dsf::config::{ModelConfig, Rotary};
use dsf::mixers::{find, MIXERS};
use dsf::model::{Io, LanguageModel};
use dsf::nn::{Cx, Params, Rows};

const V: usize = 40;
const L: usize = 12;
const IO: Io = Io { vocab_size: V, seq_len: L };

fn title(config: &ModelConfig) -> String {
    let rotary = config.language.as_ref().map(|l| l.rotary);
    format!("{} {}, rotary {rotary:?}", config.mixer, config.variant)
}

/// Ids `(batch, len)`.
fn ids(batch: usize, len: usize) -> Tensor {
    let id = |i: u32| (i * i + 7 * i + i / 5) % V as u32;
    let ids: Vec<u32> = (0..(batch * len) as u32).map(id).collect();
    Tensor::from_vec(ids, (batch, len), &Device::Cpu).unwrap()
}

/// The model with perturbed parameters of f64.
fn built(config: &ModelConfig) -> (LanguageModel, Params) {
    let params = parameters();
    let model = LanguageModel::new(config, IO, &params).unwrap();
    perturb(&params);
    (model, params)
}

/// Logits `(batch, len, V)` of all rows.
fn logits(model: &LanguageModel, tokens: &Tensor) -> Tensor {
    let hidden = model.hidden(tokens, None, &Cx::eval()).unwrap();
    model.logits(&hidden).unwrap()
}

/// The same token by token.
fn stepped(model: &LanguageModel, tokens: &Tensor) -> Option<Tensor> {
    let (batch, len) = tokens.dims2().unwrap();
    let mut decoder = model.begin(batch).unwrap()?;
    let step = |i| {
        let token = tokens.narrow(1, i, 1).unwrap().squeeze(1).unwrap();
        model.step(&token, &mut decoder).unwrap()
    };
    let logits: Vec<Tensor> = (0..len).map(step).collect();
    assert_eq!(decoder.read, len);
    Some(Tensor::stack(&logits, 1).unwrap())
}

#[test]
fn text_token_by_token_has_the_logits_of_the_whole() {
    let tokens = ids(3, L);
    for config in pythias() {
        let (model, _) = built(&config);
        let Some(stepped) = stepped(&model, &tokens) else {
            continue;
        };
        let apart = distance(&stepped, &logits(&model, &tokens));
        assert!(apart <= 1e-10, "{}: {apart:e}", title(&config));
    }
}

#[test]
fn every_mixer_but_those_whose_kernels_depend_on_the_length_goes_token_by_token() {
    for entry in MIXERS {
        let (model, _) = built(&pythia(entry, entry.variants[0], Rotary::None));
        let goes = !["dss", "hyena", "sgconv"].contains(&entry.name);
        assert_eq!(model.begin(1).unwrap().is_some(), goes, "{}", entry.name);
    }
}

#[test]
fn a_state_stays_as_large_as_it_is_and_a_cache_grows() {
    let sizes = |mixer: &str| {
        let (model, _) = built(&pythia(find(mixer).unwrap(), "reference", Rotary::Pre));
        let mut decoder = model.begin(2).unwrap().unwrap();
        let token = Tensor::new(&[1u32, 2], &Device::Cpu).unwrap();
        let size = |_| {
            model.step(&token, &mut decoder).unwrap();
            decoder.bytes()
        };
        (0..3).map(size).collect::<Vec<_>>()
    };
    // Two sequences, two layers, 8 bytes a number.
    let of = |numbers: usize| 2 * 2 * 8 * numbers;
    let token = of(16 + 16);
    assert_eq!(sizes("softmax"), [token, 2 * token, 3 * token]);
    assert_eq!(sizes("linear"), [of(2 * 8 * 8 + 16); 3]);
    assert_eq!(sizes("normalized"), [of(2 * 8 * 8); 3]);
}

#[test]
fn the_last_logits_alone_are_those_of_all_rows() {
    let tokens = ids(3, L);
    for config in pythias() {
        let (model, _) = built(&config);
        let all = logits(&model, &tokens);
        let last = all.narrow(1, L - 1, 1).unwrap().squeeze(1).unwrap();
        let apart = distance(&model.last_logits(&tokens).unwrap(), &last);
        assert!(apart <= 1e-12, "{}: {apart:e}", title(&config));
    }
}

/// Rows of the second and of the last token, and what follows there.
fn some_rows(targets: &Tensor) -> (Rows, Tensor) {
    let positions = Tensor::new(&[[1u32, L as u32 - 1]; 3], &Device::Cpu).unwrap();
    let answers = targets.gather(&positions, 1).unwrap();
    (Rows { positions }, answers.flatten_all().unwrap())
}

#[test]
fn the_loss_of_all_rows_and_of_some_is_that_of_the_logits_with_every_gradient() {
    let windows = ids(3, L + 1);
    let tokens = windows.narrow(1, 0, L).unwrap().contiguous().unwrap();
    let targets = windows.narrow(1, 1, L).unwrap().contiguous().unwrap();
    let (rows, answers) = some_rows(&targets);
    let all = targets.flatten_all().unwrap();
    for config in pythias() {
        let (model, params) = built(&config);
        for (rows, answers) in [(None, &all), (Some(&rows), &answers)] {
            let hidden = model.hidden(&tokens, rows, &Cx::eval()).unwrap();
            let found = model.classify(&hidden, answers).unwrap();
            let logits = logits(&model, &tokens);
            let logits = match rows {
                Some(rows) => rows.select(&logits).unwrap(),
                None => logits,
            };
            let wanted = candle_nn::loss::cross_entropy(&logits.flatten(0, 1).unwrap(), answers).unwrap();
            let apart = distance(&found.loss, &wanted);
            assert!(apart <= 1e-12, "{}: {apart:e}", title(&config));
            let (a, b) = (found.loss.backward().unwrap(), wanted.backward().unwrap());
            for (name, var) in params.vars() {
                let apart = match (a.get(&var), b.get(&var)) {
                    (Some(a), Some(b)) => distance(a, b),
                    (None, None) if name.ends_with("alpha") => 0.0,
                    _ => f64::NAN,
                };
                assert!(apart <= 1e-12, "{}, {name}: {apart:e}", title(&config));
            }
        }
    }
}

#[test]
fn where_positions_are_turned_matters_to_linear_attention_only() {
    let tokens = ids(1, L);
    let hidden = |mixer: &str, rotary| {
        let (model, params) = built(&pythia(find(mixer).unwrap(), "reference", rotary));
        for (name, var) in params.vars() {
            var.set(&normal(&name, var.shape())).unwrap();
        }
        model.hidden(&tokens, None, &Cx::eval()).unwrap()
    };
    for mixer in ["softmax", "linear", "normalized", "generalized-linear"] {
        let [none, pre, post] = [Rotary::None, Rotary::Pre, Rotary::Post].map(|r| hidden(mixer, r));
        assert!(distance(&none, &pre) > 1e-3, "{mixer}");
        let apart = distance(&pre, &post);
        assert_eq!(apart > 1e-3, mixer == "linear", "{mixer}: {apart:e}");
        assert!(mixer == "linear" || apart == 0.0, "{mixer}: {apart:e}");
    }
}
