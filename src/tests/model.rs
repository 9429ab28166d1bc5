//! The network around the mixers.

use crate::world::{distance, flat, parameters, perturb, run, PROTOCOLS};
use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor};
use dsf::config::{ModelConfig, Protocol, RunConfig};
use dsf::mixers::MIXERS;
use dsf::model::{Io, LanguageModel};
use dsf::nn::{Cx, Params, Rows};
use dsf::train::Labelled;

const V: usize = 32;
const L: usize = 16;

/// Every mixer in every variant under every protocol.
fn runs() -> Vec<RunConfig> {
    let mut runs = Vec::new();
    for entry in MIXERS {
        for protocol in PROTOCOLS {
            for variant in entry.variants {
                runs.push(run(entry.name, protocol, &[("variant", variant)]));
            }
        }
    }
    // Layers of two kinds, once with a state that grows and once with one that does not.
    for hybrid in
        ["softmax:every=2,offset=1", "sliding-window:every=2,offset=0,window=3", "sinkhorn:every=2,offset=1,block=3"]
    {
        runs.push(run("mamba", Protocol::Matched, &[("hybrid", hybrid)]));
    }
    runs
}

fn title(run: &RunConfig) -> String {
    let (m, protocol) = (&run.model, run.protocol.as_str());
    let hybrid = m.hybrid.as_ref().map(|hybrid| format!(" with {hybrid}"));
    let hybrid = hybrid.unwrap_or_default();
    format!("{} {}{hybrid}, protocol {protocol}", m.mixer, m.variant)
}

/// Three examples with two labels each.
fn batch() -> Labelled {
    let tokens: Vec<u32> = (0..3 * L as u32).map(|i| (i * i + 5 * i) % V as u32).collect();
    let positions = Tensor::new(&[[0u32, 9], [7, 15], [4, 5]], &Device::Cpu).unwrap();
    let tokens = Tensor::from_vec(tokens, (3, L), &Device::Cpu).unwrap();
    let answers = Tensor::new(&[3u32, 31, 0, 7, 7, 20], &Device::Cpu).unwrap();
    Labelled::of(tokens, Some(Rows { positions }), answers)
}

/// The loss as it is written down: logits everywhere, of which the labelled count.
fn full_loss(model: &LanguageModel, batch: &Labelled) -> Tensor {
    let hidden = model.hidden(&batch.tokens, None, &Cx::eval()).unwrap();
    let rows = batch.rows.as_ref().unwrap();
    let logits = rows.select(&model.logits(&hidden).unwrap()).unwrap();
    candle_nn::loss::cross_entropy(&logits.flatten(0, 1).unwrap(), &batch.answers).unwrap()
}

#[test]
fn labelled_rows_alone_give_the_loss_and_every_gradient_of_the_full_head() {
    let batch = batch();
    for run in runs() {
        let params = parameters();
        let model = LanguageModel::new(&run.model, Io::of(&run.task).unwrap(), &params).unwrap();
        perturb(&params);
        let (short, full) = (batch.classify(&model, &Cx::eval()).unwrap().loss, full_loss(&model, &batch));
        let apart = distance(&short, &full);
        assert!(apart <= 1e-12, "{}, loss: {apart:e}", title(&run));
        let (short, full) = (short.backward().unwrap(), full.backward().unwrap());
        for (name, var) in params.vars() {
            let grad = |of: &GradStore| of.get(&var).cloned();
            match (grad(&short), grad(&full)) {
                (Some(a), Some(b)) => {
                    let apart = distance(&a, &b);
                    assert!(apart <= 1e-12, "{}, {name}: {apart:e}", title(&run));
                }
                // Sequences of one block have none to mix.
                (None, None) => {
                    let idle = ["alpha", "wsq", "wsk"].iter().any(|idle| name.ends_with(idle));
                    assert!(idle, "{}, {name}", title(&run));
                }
                _ => panic!("{}: {name} has a gradient on one path only", title(&run)),
            }
        }
    }
}

/// The last hidden layer at the labelled rows.
fn hidden(model: &LanguageModel, batch: &Labelled, cx: &Cx) -> Vec<f64> {
    flat(&model.hidden(&batch.tokens, batch.rows.as_ref(), cx).unwrap())
}

#[test]
fn a_model_built_before_its_parameters_change_computes_with_the_new_ones() {
    let batch = batch();
    for run in runs() {
        let (params, io) = (parameters(), Io::of(&run.task).unwrap());
        let build = |params: &Params| LanguageModel::new(&run.model, io, params).unwrap();
        let early = [build(&params), build(&params.detached())];
        perturb(&params);
        let late = hidden(&build(&params), &batch, &Cx::eval());
        for model in early {
            let early = hidden(&model, &batch, &Cx::eval());
            assert_eq!(early, late, "{}", title(&run));
        }
    }
}

/// Sines and cosines are no parameters, and go on beyond the last position of the training.
#[test]
fn sinusoidal_positions_have_no_end() {
    let tokens = batch().tokens;
    let logits = |positions: &[(&str, &str)]| {
        let run = run("softmax", Protocol::Reference, positions);
        let params = parameters();
        let model = LanguageModel::new(&run.model, Io::of(&run.task).unwrap(), &params).unwrap();
        assert!(params.vars().iter().all(|(name, _)| name != "embed.pos"));
        let hidden = model.hidden(&tokens, None, &Cx::eval()).unwrap();
        let mut decoder = model.begin(3).unwrap().unwrap();
        let last = |at| {
            let token = tokens.narrow(1, at, 1).unwrap().squeeze(1).unwrap();
            model.step(&token, &mut decoder).unwrap()
        };
        let last = (0..L).map(last).last().unwrap();
        model.step(&tokens.narrow(1, 0, 1).unwrap().squeeze(1).unwrap(), &mut decoder).unwrap();
        let whole = model.logits(&hidden).unwrap().narrow(1, L - 1, 1).unwrap();
        (whole.squeeze(1).unwrap(), last)
    };
    let (whole, last) = logits(&[("position-embedding", "sinusoidal")]);
    assert!(distance(&whole, &last) <= 1e-10);
    let (without, _) = logits(&[("positions", "false")]);
    assert!(distance(&whole, &without) > 1e-3);
}

#[test]
fn dropout_acts_in_training_only_and_is_a_function_of_seed_and_step() {
    let batch = batch();
    for mut run in runs() {
        run.model.embed_dropout = 0.3;
        run.model.attn_dropout = 0.3;
        let computed = |config: &ModelConfig, cx: Cx| {
            let model = LanguageModel::new(config, Io::of(&run.task).unwrap(), &parameters()).unwrap();
            hidden(&model, &batch, &cx)
        };
        let train = |seed, step| computed(&run.model, Cx::train(seed, step));
        assert_eq!(train(1, 5), train(1, 5), "{}", title(&run));
        assert_ne!(train(1, 5), train(1, 6), "{}", title(&run));
        assert_ne!(train(1, 5), train(2, 5), "{}", title(&run));
        if run.model.mixer == "spatten" {
            continue; // it forgets tokens in evaluation alone
        }
        let tested = computed(&run.model, Cx::eval());
        assert_ne!(train(1, 5), tested, "{}", title(&run));
        let mut plain = run.model.clone();
        (plain.embed_dropout, plain.attn_dropout) = (0.0, 0.0);
        assert_eq!(computed(&plain, Cx::eval()), tested, "{}", title(&run));
        assert_eq!(computed(&plain, Cx::train(1, 5)), tested, "{}", title(&run));
    }
}

#[test]
fn the_model_is_causal() {
    let batch = batch();
    let token = Tensor::new(&[[1u32]], &Device::Cpu).unwrap();
    let other = batch.tokens.slice_assign(&[2..3, 6..7], &token).unwrap();
    for run in runs() {
        let params = parameters();
        let model = LanguageModel::new(&run.model, Io::of(&run.task).unwrap(), &params).unwrap();
        perturb(&params);
        let hidden = |tokens: &Tensor| model.hidden(tokens, None, &Cx::eval()).unwrap();
        let (a, b) = (hidden(&batch.tokens), hidden(&other));
        let part =
            |y: &Tensor, example, first, count| y.narrow(0, example, 1).unwrap().narrow(1, first, count).unwrap();
        assert!(distance(&part(&a, 2, 0, 6), &part(&b, 2, 0, 6)) <= 1e-12, "{}", title(&run));
        assert!(distance(&part(&a, 1, 0, L), &part(&b, 1, 0, L)) <= 1e-12, "{}", title(&run));
        assert!(distance(&part(&a, 2, 6, 1), &part(&b, 2, 6, 1)) > 1e-3, "{}", title(&run));
    }
}

#[test]
fn every_model_goes_token_by_token_until_its_positions_end() {
    let tokens = batch().tokens;
    for run in runs() {
        let params = parameters();
        let model = LanguageModel::new(&run.model, Io::of(&run.task).unwrap(), &params).unwrap();
        perturb(&params);
        let Some(mut decoder) = model.begin(3).unwrap() else {
            continue; // its kernel depends on the length
        };
        let token = |i| tokens.narrow(1, i, 1).unwrap().squeeze(1).unwrap();
        let logits: Vec<Tensor> = (0..L).map(|i| model.step(&token(i), &mut decoder).unwrap()).collect();
        let hidden = model.hidden(&tokens, None, &Cx::eval()).unwrap();
        let whole = model.logits(&hidden).unwrap();
        let apart = distance(&Tensor::stack(&logits, 1).unwrap(), &whole);
        assert!(apart <= 1e-10, "{}: {apart:e}", title(&run));
        let further = model.step(&token(0), &mut decoder);
        assert_eq!(further.is_ok(), !run.model.positions, "{}", title(&run));
    }
}
