//! Pythia's body against golden files that PyTorch made from the equations (`golden/wikitext/make.py`).

use crate::pytorch::{files, names, Golden};
use crate::world::pythia;
use candle_core::{DType, Device};
use dsf::config::{AdamConfig, Decay, Precision, Rotary, Schedule, TrainConfig};
use dsf::mixers::find;
use dsf::model::{Io, LanguageModel};
use dsf::nn::{Cx, Params};
use dsf::ops::{prefer, taken, Route};
use dsf::train::AdamW;
use std::env;
use std::process::Command;

/// Golden files by mixer and place of positions.
const CASES: [(&str, &str, Rotary); 7] = [
    ("softmax_pre", "softmax", Rotary::Pre),
    ("softmax_none", "softmax", Rotary::None),
    ("linear_pre", "linear", Rotary::Pre),
    ("linear_post", "linear", Rotary::Post),
    ("linear_none", "linear", Rotary::None),
    ("normalized_pre", "normalized", Rotary::Pre),
    ("normalized_none", "normalized", Rotary::None),
];

/// The optimiser of the files.
fn training() -> TrainConfig {
    TrainConfig {
        schedule: Schedule::Cosine,
        lr: 1e-3,
        warmup_epochs: 0,
        epochs: 1,
        batch_size: 3,
        weight_decay: 0.1,
        precision: Precision::F32,
        micro_batch: None,
        decay: None,
        adam: Some(AdamConfig { beta1: 0.9, beta2: 0.95, eps: 1e-8, clip: Some(1.0), decay: Decay::Matrices }),
        stop_above: 2.0,
    }
}

/// Everything that is not within `close` of the file.
fn differences((name, mixer, rotary): (&str, &str, Rotary), dtype: DType, close: f64) -> Vec<String> {
    let golden = Golden::load("wikitext", name);
    let params = Params::given(golden.named("param/"), dtype, &Device::Cpu);
    let config = pythia(find(mixer).unwrap(), "reference", rotary);
    let (tokens, targets) = (golden.ids("tokens"), golden.ids("targets"));
    let io = Io { vocab_size: 40, seq_len: 12 };
    let model = LanguageModel::new(&config, io, &params).unwrap();
    assert_eq!(names(&params), golden.parameters(), "{name}");

    let (cx, targets) = (Cx::eval(), targets.flatten_all().unwrap());
    let loss = || model.classify(&model.hidden(&tokens, None, &cx).unwrap(), &targets).unwrap().loss;
    let (before, grads) = (loss(), loss().backward().unwrap());
    let mut found = golden.gradients(&params, &grads);
    let hidden = model.hidden(&tokens, None, &cx).unwrap();
    found.push(("logits".to_owned(), model.logits(&hidden).unwrap()));
    found.push(("loss".to_owned(), before));
    let mut optimiser = AdamW::configured(&params, &training()).unwrap();
    optimiser.step(&grads, 1e-3).unwrap();
    found.push(("loss_after".to_owned(), loss()));
    let far = golden.far(found, close);
    far.into_iter().map(|what| format!("{name}: {what}")).collect()
}

fn all_agree() {
    for (dtype, close) in [(DType::F64, 1e-10), (DType::F32, 5e-5)] {
        let far = CASES.into_iter().flat_map(|case| differences(case, dtype, close));
        let far: Vec<String> = far.collect();
        assert!(far.is_empty(), "{dtype:?}:\n{}", far.join("\n"));
    }
}

#[test]
fn pythia_is_that_of_the_equations() {
    all_agree();
}

#[test]
#[ignore = "changes the ops of the whole process; the next test gives it one of its own"]
fn pythia_made_of_reference_ops() {
    prefer(Route::Reference);
    all_agree();
    assert_eq!(taken(), "reference");
}

#[test]
fn reference_ops_make_the_same_pythia() {
    let name = concat!(module_path!(), "::pythia_made_of_reference_ops");
    let name = name.split_once("::").unwrap().1;
    let mut alone = Command::new(env::current_exe().unwrap());
    let ended = alone.args([name, "--exact", "--ignored"]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn every_golden_file_of_pythia_is_looked_at() {
    let mut named = CASES.map(|(name, ..)| name);
    named.sort();
    assert_eq!(files("wikitext"), named);
}
