//! Mixers in classifiers: inner widths, options and dropout that a language model does
//! without.

use crate::initial::{case, values};
use crate::world::{distance, flat, run, try_run, Case};
use candle_core::Tensor;
use dsf::config::{ClassifierConfig, Dual, HeadKind, InputMap, Loss, ModelConfig, Pool, Protocol};
use dsf::mixers::{find, Mixer, MIXERS};
use dsf::nn::{Cx, Scheme};
use dsf::ops;

#[test]
fn an_inner_width_is_a_multiple_of_d_rounded_down() {
    for (mixer, variant) in [
        ("mamba", "block"),
        ("rg-lru", "hawk"),
        ("qlstm", "reference"),
        ("qlstm-reversed", "reference"),
        ("gss", "paper"),
    ] {
        for (expand, width) in [(0.09, 1), (1.0, 12), (2.3, 27)] {
            let mut case = case(mixer, variant);
            case.config.expand = Some(expand);
            case.entry.check_sizes(&case.config).unwrap();
            let start = values(&case, Scheme::Gpt);
            assert_eq!(start["wout"].dims(), [12, width], "{mixer}");
            let numbers = start.values().flat_map(flat).collect::<Vec<f64>>();
            assert!(numbers.iter().all(|x| x.is_finite()), "{mixer} {width}");
            agrees_with_its_steps(&case);
        }
        let mut two = case(mixer, variant);
        two.config.expand = Some(2.0);
        let usual = values(&case(mixer, variant), Scheme::Gpt);
        for (name, value) in values(&two, Scheme::Gpt) {
            assert_eq!(flat(&value), flat(&usual[&name]), "{mixer} {name}");
        }
    }
}

fn agrees_with_its_steps(case: &Case) {
    let (mixer, _) = case.build();
    let x = case.input(2, 9);
    let whole = mixer.forward(&x, &Cx::eval()).unwrap();
    let steps = mixer.recurrent().unwrap();
    let mut state = steps.init(2).unwrap();
    assert_eq!(state.size(), mixer.state_size(9), "{case}");
    let step = |i| {
        let x = x.narrow(1, i, 1).unwrap().squeeze(1).unwrap();
        steps.step(&x, i, &mut state).unwrap()
    };
    let stepped = Tensor::stack(&(0..9).map(step).collect::<Vec<_>>(), 1).unwrap();
    assert!(distance(&stepped, &whole) <= 1e-10, "{case}");
}

#[test]
fn an_inner_width_that_cannot_be_is_refused_in_one_sentence() {
    let refusal = |mixer: &str, variant: &str, expand: f64| {
        let mut case = case(mixer, variant);
        case.config.expand = Some(expand);
        let refused = case.entry.check_sizes(&case.config);
        let at = refused.unwrap_err().diagnostic();
        assert_eq!(at.flag.as_deref(), Some("--expand"), "{at:?}");
        at
    };
    for expand in [0.0, -1.0, 0.01, 64.5, f64::NAN, f64::INFINITY] {
        let at = refusal("mamba", "block", expand);
        assert_eq!(at.value, Some(expand.to_string()), "{at:?}");
        assert!(at.reason.contains("64"), "{at:?}");
    }
    for (mixer, variant) in [("s6", "reference"), ("qlstm", "dsf"), ("softmax", "paper")] {
        let at = refusal(mixer, variant, 2.0);
        assert!(at.reason.contains(mixer), "{at:?}");
    }
}

#[test]
fn an_option_whose_default_goes_without_saying_renames_no_run() {
    let with = |value: &str| {
        let option = format!("lambda_init={value}");
        run("rg-lru", Protocol::Reference, &[("option", &option)])
    };
    let usual = run("rg-lru", Protocol::Reference, &[]);
    assert!(usual.model.options.is_empty());
    assert_eq!(with("exp").id(), usual.id());
    assert_ne!(with("uniform").id(), usual.id());
    assert_eq!(with("uniform").model.options["lambda_init"], "uniform");
    let paper = ("variant", "paper");
    let plain = run("rg-lru", Protocol::Reference, &[paper]);
    assert!(plain.model.options.is_empty());
    let changes = [paper, ("option", "lambda_init=exp")];
    let said = try_run("rg-lru", Protocol::Reference, &changes);
    let at = said.unwrap_err().diagnostic();
    assert_eq!(at.flag.as_deref(), Some("--option"), "{at:?}");
    for name in ["`paper`", "rg-lru", "hawk"] {
        assert!(at.reason.contains(name), "{at:?}");
    }
}

#[test]
fn lambda_spreads_between_its_bounds_in_both_ways() {
    let lambda = |init: Option<&str>| {
        let mut case = case("rg-lru", "hawk");
        case.config.options.clear();
        if let Some(init) = init {
            case.config.options.insert("lambda_init".into(), init.into());
        }
        flat(&values(&case, Scheme::Gpt)["lam"])
    };
    assert_eq!(lambda(None), lambda(Some("exp")));
    let (even, bent) = (lambda(None), lambda(Some("uniform")));
    for (lambda, middle) in [(even, -6.661_5), (bent, -5.035_4)] {
        assert_eq!(lambda.len(), 24);
        assert!((lambda[0] + 9.0).abs() < 1e-12 && (lambda[23] + 4.323).abs() < 1e-12);
        assert!(lambda.windows(2).all(|w| w[0] < w[1]));
        let between = (lambda[11] + lambda[12]) / 2.0;
        assert!((between - middle).abs() < 0.02, "{between}");
    }
}

/// The plainest classifier.
pub fn classifier() -> ClassifierConfig {
    ClassifierConfig {
        input: InputMap::Embedding,
        mlp_width: 8,
        dropout: 0.0,
        lambda_skip: false,
        bidirectional: false,
        pad_to_longest: false,
        pool: Pool::Mean,
        mask: false,
        head: HeadKind::Mlp,
        dual: Dual::Logits,
        loss: Loss::Ce,
    }
}

fn with_classifier(case: &mut Case) {
    let config: &mut ModelConfig = &mut case.config;
    config.classifier = Some(classifier());
}

#[test]
fn classifiers_drop_outputs_where_there_is_no_softmax() {
    const P: f64 = 0.4;
    for (mixer, heads) in [
        ("softmax", 1),
        ("linear", 1),
        ("linear", 3),
        ("generalized-linear", 1),
        ("normalized", 3),
        ("normalized-softplus", 1),
    ] {
        // The variant without an output projection: what is dropped is seen.
        let mut case = Case::new(find(mixer).unwrap(), "paper", heads);
        case.config.attn_dropout = P;
        let weights = case.build().0;
        with_classifier(&mut case);
        let outputs = case.build().0;
        let x = case.input(3, 40);
        let run = |m: &dyn Mixer, cx: &Cx| m.forward(&x, cx).unwrap();
        let cx = Cx::train(1, 5);
        let (exact, got) = (run(&*outputs, &Cx::eval()), run(&*outputs, &cx));
        assert_eq!(distance(&exact, &run(&*weights, &Cx::eval())), 0.0, "{case}");
        if mixer == "softmax" {
            assert_eq!(distance(&got, &run(&*weights, &cx)), 0.0, "{case}");
            continue;
        }
        assert!(distance(&got, &run(&*weights, &cx)) > 1e-3, "{case}");
        let mask = cx.mask("attention", P).unwrap();
        let wanted = ops::dropout(&exact, mask).unwrap();
        assert!(distance(&got, &wanted) <= 1e-12, "{case}");
        let zeros = flat(&got).iter().filter(|y| **y == 0.0).count() as f64;
        assert!((zeros / (3.0 * 40.0 * 12.0) - P).abs() < 0.05, "{case}: {zeros}");
        let mut projected = Case::new(case.entry, "reference", heads);
        projected.config.attn_dropout = P;
        with_classifier(&mut projected);
        let behind = run(&*projected.build().0, &cx);
        assert!(flat(&behind).iter().all(|y| *y != 0.0), "{case}: projected after it");
    }
}

/// Each token sees all others and no padding: the order of tokens is that of outputs and nothing else, and the last
/// token sees what it would see anyway.
#[test]
fn attention_that_sees_all_tokens_knows_no_order() {
    // Blocks have an order.
    let seeing: Vec<_> = MIXERS.iter().filter(|entry| entry.bidirectional && entry.name != "sinkhorn").collect();
    assert_eq!(seeing.len(), 8);
    for entry in seeing {
        for heads in [1, 3] {
            let case = Case::new(entry, entry.variants[0], heads);
            let mixer = case.build().0;
            let x = case.input(2, 9);
            let device = x.device();
            let at = |order: &[u32]| Tensor::new(order, device).unwrap();
            let run = |x: &Tensor, lengths: &[u32]| {
                let cx = Cx::eval().seeing_all(&at(lengths), x.dim(1).unwrap());
                mixer.forward(x, &cx.unwrap()).unwrap()
            };
            let whole = run(&x, &[9, 9]);
            let causal = mixer.forward(&x, &Cx::eval()).unwrap();
            let last = |y: &Tensor| y.narrow(1, 8, 1).unwrap();
            assert!(distance(&last(&whole), &last(&causal)) <= 1e-12, "{case}");
            assert!(distance(&whole, &causal) > 1e-6, "{case}");
            let order = at(&[3, 8, 0, 5, 1, 7, 2, 6, 4]);
            let turned = |x: &Tensor| x.index_select(&order, 1).unwrap();
            let moved = run(&turned(&x).contiguous().unwrap(), &[9, 9]);
            assert!(distance(&moved, &turned(&whole)) <= 1e-12, "{case}");
            // The last three tokens of the second sequence as padding.
            let padded = run(&x, &[9, 6]).narrow(0, 1, 1).unwrap();
            let alone = x.narrow(0, 1, 1).unwrap().narrow(1, 0, 6).unwrap();
            let alone = run(&alone.contiguous().unwrap(), &[6]);
            assert!(distance(&padded.narrow(1, 0, 6).unwrap(), &alone) <= 1e-12, "{case}");
        }
    }
}

/// Sorted blocks of a whole document: padding of any length changes nothing, and every token sees every other one. A
/// causal model refuses SortCut.
#[test]
fn sorted_blocks_are_those_of_a_document() {
    for (options, seq_len) in [
        ("sortcut=0", 9),
        ("sortcut=2", 9),
        ("sortcut=9 sorting=network max_blocks=9", 9),
        ("sortcut=1", 2),
        ("rounds=0", 2),
    ] {
        for heads in [1, 3] {
            let mut case = Case::new(dsf::mixers::find("sinkhorn").unwrap(), "reference", heads).in_both_directions();
            let given = options.split(' ').map(|option| option.split_once('=').unwrap());
            case.config.options.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
            let mixer = case.build().0;
            let whole = case.input(2, 14);
            let run = |len: usize| {
                let x = whole.narrow(1, 0, len).unwrap().contiguous().unwrap();
                let lengths = Tensor::new(&[seq_len as u32; 2], x.device()).unwrap();
                let cx = Cx::eval().seeing_all(&lengths, len).unwrap();
                mixer.forward(&x, &cx).unwrap().narrow(1, 0, seq_len).unwrap()
            };
            let alone = run(seq_len);
            for len in [seq_len + 1, 10, 14] {
                assert!(distance(&run(len), &alone) <= 1e-12, "{case}, {len}");
            }
            let x = whole.narrow(1, 0, seq_len).unwrap().contiguous().unwrap();
            for time in 0..seq_len {
                let token = Tensor::ones((1, 1, x.dim(2).unwrap()), x.dtype(), x.device()).unwrap();
                let range = [0..1, time..time + 1, 0..x.dim(2).unwrap()];
                let other = x.slice_assign(&range, &token).unwrap();
                let lengths = Tensor::new(&[seq_len as u32; 2], x.device()).unwrap();
                let y = mixer.forward(&other, &Cx::eval().seeing_all(&lengths, seq_len).unwrap()).unwrap();
                for i in 0..seq_len {
                    let at = |y: &Tensor| y.narrow(0, 0, 1).unwrap().narrow(1, i, 1).unwrap();
                    assert!(distance(&at(&y), &at(&alone)) > 1e-9, "{case}: token {i} does not see token {time}");
                }
            }
            let causal = case.entry.check_sizes(&case.config.clone().one_way());
            assert_eq!(causal.is_err(), options.contains("sortcut") && !options.contains("sortcut=0"), "{case}");
        }
    }
}
