//! Mixers that read documents in both directions, by two passes.

use crate::world::{distance, flat, normal, parameters, perturb, Case};
use candle_core::{DType, Device, Tensor};
use dsf::inspect::{Need, Network, NetworkInput, View};
use dsf::ltv::Ltv;
use dsf::mixers::{find, Carried, Family, Mixer, MixerSpec, MIXERS};
use dsf::nn::{Cx, Params, Rows};
use dsf::recipes;
use std::collections::HashMap;

/// Scope of the parameters of the second pass.
const BACKWARD: &str = "backward.";

/// Positions in a document of 9 tokens from its end, and in one of 6 tokens and 3 of padding.
const REVERSED: [[u32; 9]; 2] = [[8, 7, 6, 5, 4, 3, 2, 1, 0], [5, 4, 3, 2, 1, 0, 6, 7, 8]];

/// A pass over two documents of these lengths.
fn cx(lengths: &[u32], seq_len: usize) -> Cx {
    Cx::eval().seeing_all(&Tensor::new(lengths, &Device::Cpu).unwrap(), seq_len).unwrap()
}

/// The first `count` tokens of example `which` of x `(batch, seq_len, width)`.
fn part(x: &Tensor, which: usize, count: usize) -> Tensor {
    x.narrow(0, which, 1).unwrap().narrow(1, 0, count).unwrap().contiguous().unwrap()
}

/// x `(2, 9, width)` with the tokens of each document in reverse order.
fn turned(x: &Tensor) -> Tensor {
    let of = |which: usize| {
        let order = Tensor::new(&REVERSED[which], x.device()).unwrap();
        x.narrow(0, which, 1).unwrap().contiguous().unwrap().index_select(&order, 1).unwrap()
    };
    Tensor::cat(&[of(0), of(1)], 0).unwrap()
}

fn values(params: &Params) -> HashMap<String, Tensor> {
    params.vars().into_iter().map(|(name, var)| (name, var.as_detached_tensor())).collect()
}

/// The mixer of `case` for one pass, with the parameters under `prefix`.
fn pass(case: &Case, params: &Params, prefix: &str) -> Box<dyn Mixer> {
    let own = values(params).into_iter().filter_map(|(name, value)| match prefix {
        "" => (!name.starts_with(BACKWARD)).then_some((name, value)),
        prefix => Some((name.strip_prefix(prefix)?.to_owned(), value)),
    });
    let own: HashMap<String, Tensor> = own.collect();
    let config = case.config.clone().one_way();
    case.entry.build(&config, &Params::given(own, DType::F64, &Device::Cpu)).unwrap()
}

#[test]
fn every_mixer_but_softmax_over_a_pattern_reads_in_both_directions() {
    for entry in MIXERS {
        let case = Case::new(entry, entry.variants[0], 1).in_both_directions();
        let refused = entry.check_sizes(&case.config).is_err();
        assert_eq!(refused, entry.family == Family::Attention && !entry.bidirectional, "{}", entry.name);
    }
    let alibi = Case::new(find("alibi").unwrap(), "paper", 1).in_both_directions();
    let at = alibi.entry.check_sizes(&alibi.config).unwrap_err().diagnostic();
    assert_eq!(at.flag.as_deref(), Some("--bidirectional"), "{at:?}");
    assert!(at.reason.contains("`alibi`"), "{at:?}");
}

#[test]
fn the_output_is_the_sum_of_a_pass_and_of_one_over_the_reversed_document() {
    for case in Case::both_directions() {
        let (mixer, params) = case.build();
        let x = case.input(2, 9);
        let y = mixer.forward(&x, &cx(&[9, 6], 9)).unwrap();
        let forward = pass(&case, &params, "").forward(&x, &Cx::eval()).unwrap();
        let backward = pass(&case, &params, BACKWARD).forward(&turned(&x), &Cx::eval()).unwrap();
        let wanted = (&forward + turned(&backward)).unwrap();
        assert!(distance(&y, &wanted) <= 1e-12, "{case}");
        assert!(mixer.recurrent().is_none(), "{case}: it cannot decode token by token");
        // Without lengths every token is one of the document.
        let whole = mixer.forward(&x, &Cx::eval()).unwrap();
        assert_eq!(distance(&whole, &mixer.forward(&x, &cx(&[9, 9], 9)).unwrap()), 0.0, "{case}");
        let rows = Rows { positions: Tensor::new(&[[0u32, 8], [2, 5]], &Device::Cpu).unwrap() };
        let asked = mixer.forward(&x, &cx(&[9, 6], 9).only(Some(&rows))).unwrap();
        assert!(distance(&asked, &rows.select(&y).unwrap()) <= 1e-12, "{case}: rows");
    }
}

#[test]
fn an_output_depends_on_every_token_of_its_document_and_on_no_padding() {
    for case in Case::both_directions() {
        let mixer = case.build().0;
        let x = case.input(2, 9);
        let run = |x: &Tensor, lengths: &[u32]| mixer.forward(x, &cx(lengths, x.dim(1).unwrap())).unwrap();
        let y = part(&run(&x, &[9, 6]), 1, 6);
        let width = x.dim(2).unwrap();
        let other = |at: usize| {
            let token = normal("other", (1, 1, width));
            part(&run(&x.slice_assign(&[1..2, at..at + 1, 0..width], &token).unwrap(), &[9, 6]), 1, 6)
        };
        for at in 0..6 {
            let moved = flat(&(other(at) - &y).unwrap().abs().unwrap().max(2).unwrap());
            assert!(moved.iter().all(|moved| *moved > 1e-12), "{case}, token {at}: {moved:?}");
        }
        for at in 6..9 {
            assert_eq!(distance(&other(at), &y), 0.0, "{case}: padding {at}");
        }
        let alone = run(&part(&x, 1, 6), &[6]);
        assert!(distance(&alone, &y) <= 1e-12, "{case}: without padding");
    }
}

#[test]
fn a_reversed_document_with_swapped_passes_has_the_reversed_output() {
    for case in Case::both_directions() {
        let (mixer, params) = case.build();
        let swapped = values(&params).into_iter().map(|(name, value)| match name.strip_prefix(BACKWARD) {
            Some(forward) => (forward.to_owned(), value),
            None => (format!("{BACKWARD}{name}"), value),
        });
        let swapped: HashMap<String, Tensor> = swapped.collect();
        let swapped = case.mixer(&Params::given(swapped, DType::F64, &Device::Cpu));
        let (x, cx) = (case.input(2, 9), cx(&[9, 6], 9));
        let (y, z) = (mixer.forward(&x, &cx).unwrap(), swapped.forward(&turned(&x), &cx).unwrap());
        // The order of the sum's two terms does not matter.
        let apart =
            [(0, 9), (1, 6)].map(|(which, count)| distance(&part(&turned(&z), which, count), &part(&y, which, count)));
        assert!(apart.iter().all(|apart| *apart <= 1e-12), "{case}: {apart:?}");
    }
}

#[test]
fn the_forward_pass_has_the_parameters_of_the_mixer_that_reads_in_order() {
    for case in Case::both_directions() {
        let (one, both) = (parameters(), parameters());
        case.entry.build(&case.config.clone().one_way(), &one).unwrap();
        case.mixer(&both);
        let (one, both) = (values(&one), values(&both));
        assert_eq!(both.len(), 2 * one.len(), "{case}");
        for (name, value) in &one {
            assert_eq!(flat(&both[name]), flat(value), "{case}: {name}");
            let other = &both[&format!("{BACKWARD}{name}")];
            assert_eq!(other.dims(), value.dims(), "{case}: {name}");
        }
        let apart = one.iter().any(|(name, value)| flat(&both[&format!("{BACKWARD}{name}")]) != flat(value));
        assert!(apart, "{case}: the backward pass starts from values of its own");
    }
}

/// Layers that read the values of the first one do so pass by pass, and share a parameter among the same passes.
#[test]
fn what_layers_share_they_share_by_direction() {
    let mut case = Case::new(find("rwkv7").unwrap(), "paper", 3);
    case.config
        .options
        .extend([("value_residual", "true"), ("v_rank", "3")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    let case = case.in_both_directions();
    let (params, x, cx) = (parameters(), case.input(2, 9), cx(&[9, 6], 9));
    let of = |config, layer: usize, params: &Params| {
        case.entry.build(MixerSpec::from(config).in_layer(layer), params).unwrap()
    };
    let both = [0, 1].map(|layer| of(&case.config, layer, &params.scope(layer)));
    perturb(&params);
    let mut carried = Carried::default();
    let y: Vec<Tensor> = both.iter().map(|mixer| mixer.forward_with(&x, &mut carried, &cx).unwrap()).collect();
    assert_eq!(carried.first_values.unwrap().dims(), [2, 9, 24]);
    let alone = case.config.clone().one_way();
    let [mut own, mut other] = [Carried::default(), Carried::default()];
    for (layer, y) in y.iter().enumerate() {
        let scope = params.scope(layer);
        let forward = of(&alone, layer, &scope).forward_with(&x, &mut own, &Cx::eval()).unwrap();
        let backward = of(&alone, layer, &scope.scope("backward"));
        let backward = backward.forward_with(&turned(&x), &mut other, &Cx::eval()).unwrap();
        assert!(distance(y, &(forward + turned(&backward)).unwrap()) <= 1e-12, "layer {layer}");
    }
    let mut bounded = Case::new(find("hgrn2").unwrap(), "paper", 3);
    bounded.config.options.insert("lower_bound".to_owned(), "learnt".to_owned());
    let (bounded, params) = (bounded.in_both_directions(), parameters());
    for layer in [0, 1] {
        let spec = MixerSpec::from(&bounded.config).in_layer(layer);
        bounded.entry.build(spec, &params.scope("layers").scope(layer)).unwrap();
    }
    let shared: Vec<String> = values(&params).into_keys().filter(|name| name.ends_with("lower_bounds")).collect();
    assert_eq!(shared.len(), 2, "{shared:?}");
    assert!(shared.contains(&"lower_bounds".to_owned()) && shared.contains(&format!("{BACKWARD}lower_bounds")));
}

/// Classifier of small documents with two layers of `mixer` in both directions.
fn network(mixer: &str, more: &[(&str, &str)]) -> dsf::error::Result<Network> {
    let settings = [
        ("preset", "smoke"),
        ("mixer", mixer),
        ("bidirectional", "true"),
        ("protocol", "matched"),
        ("d", "8"),
        ("n", "4"),
        ("heads", "1"),
        ("layers", "2"),
        ("seq-len", "128"),
    ];
    Network::fresh(recipes::run("lra", &[&settings, more].concat()).unwrap(), DType::F64)
}

#[test]
fn both_directions_together_are_the_system_of_the_layer() {
    for entry in MIXERS.iter().filter(|entry| !entry.bidirectional && entry.family != Family::Attention) {
        for seq_len in [1, 17, 100] {
            let network = network(entry.name, &[]).unwrap();
            let subjects = network.subjects(NetworkInput::Tokens(Some(seq_len)), &[], Need::System).unwrap();
            let name = entry.name;
            let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
            let wanted = ["0, forward", "0, backward", "1, forward", "1, backward"];
            assert_eq!(names, wanted.map(|pass| format!("{name}, layer {pass}")));
            let views: Vec<View> = subjects.iter().map(|subject| View::of(subject, true).unwrap()).collect();
            for (subjects, views) in subjects.chunks(2).zip(views.chunks(2)) {
                assert!(views[0].both.is_none(), "{name}");
                for view in views.iter().filter(|view| view.found.is_ok()) {
                    assert!(view.errors.unwrap().hold(), "{}: {:?}", view.name, view.errors);
                }
                let Some(both) = &views[1].both else {
                    assert!(views[1].found.is_err(), "{name}");
                    continue;
                };
                let errors = both.errors.unwrap();
                assert!(errors.hold() && errors.recurrence <= 1e-10 && errors.kernel <= 1e-10, "{name}: {errors:?}");
                assert_eq!((both.rows.len(), both.rows[both.rows.len() - 1]), (seq_len.min(64), seq_len - 1));
                assert!(both.norms.iter().all(|row| row.len() == seq_len), "{name}");
                let seen = [0, 1].map(|pass: usize| subjects[pass].system().unwrap().ok().unwrap());
                if seq_len == 17 && seen.iter().all(|seen| seen.around.is_none()) {
                    let state_alone = |seen: dsf::inspect::Seen| Ltv { skip: None, direct: None, ..seen.system };
                    assert_norms(&both.norms, seen.map(state_alone), 8);
                }
            }
        }
    }
}

/// Asserts that these are the norms of the blocks of Φ_f + R Φ_b R, spelled out, for inputs of `width` channels.
fn assert_norms(norms: &[Vec<f64>], systems: [Ltv; 2], width: usize) {
    let of_inputs = |system: Ltv| {
        let system = Ltv { offset: None, ..system };
        system.kernel().unwrap().narrow(3, 0, width).unwrap().contiguous().unwrap()
    };
    let [forward, backward] = systems.map(of_inputs);
    let order: Vec<u32> = (0..norms.len() as u32).rev().collect();
    let order = Tensor::new(order, &Device::Cpu).unwrap();
    let backward = backward.index_select(&order, 0).unwrap().index_select(&order, 1).unwrap();
    let squares = (forward + backward).unwrap().sqr().unwrap().sum(3).unwrap().sum(2).unwrap();
    let wanted: Vec<Vec<f64>> = squares.sqrt().unwrap().to_vec2().unwrap();
    for (norm, wanted) in norms.concat().iter().zip(wanted.concat()) {
        assert!((norm - wanted).abs() < 1e-9 * wanted.max(1.0), "{norm} {wanted}");
    }
}

/// The sums over earlier and later tokens are two systems, whose kernels and outputs add up to the layer's.
#[test]
fn attention_to_all_tokens_is_the_sum_of_two_systems() {
    let separable = MIXERS.iter().filter(|entry| entry.bidirectional && entry.family != Family::Attention);
    for (name, variant) in separable.flat_map(|entry| entry.variants.iter().map(|variant| (entry.name, *variant))) {
        let options = ["unit_qk=true", "scaled_output=true"].map(|option| ("option", option));
        let options = if name == "taylor" { &options[..] } else { &[] };
        for (seq_len, heads) in [(1, "1"), (17, "1"), (17, "2"), (100, "2")] {
            let network = network(name, &[&[("variant", variant), ("heads", heads)], options].concat()).unwrap();
            let subjects = network.subjects(NetworkInput::Tokens(Some(seq_len)), &[1], Need::System).unwrap();
            assert_eq!(subjects.len(), 2, "{name}");
            let views: Vec<View> = subjects.iter().map(|subject| View::of(subject, true).unwrap()).collect();
            assert!(views.iter().all(|view| view.errors.is_none() && view.found.is_ok()), "{name}");
            let both = views[1].both.as_ref().unwrap();
            let errors = both.errors.unwrap();
            assert!(errors.recurrence <= 1e-10 && errors.kernel <= 1e-10, "{name} {variant}: {errors:?}");
            let systems = [0, 1].map(|pass: usize| subjects[pass].system().unwrap().ok().unwrap().system);
            if seq_len == 17 {
                assert_norms(&both.norms, systems, 8);
            }
        }
    }
}

/// Softmax attention has no finite system; its weights are shown, over all tokens.
#[test]
fn softmax_attention_to_all_tokens_shows_its_weights() {
    let seq_len = 23;
    let hybrid = network("s6", &[("hybrid", "softmax:every=2")]).unwrap();
    let read = || NetworkInput::Tokens(Some(seq_len));
    let subjects = hybrid.subjects(read(), &[], Need::System).unwrap();
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
    assert_eq!(names, ["s6, layer 0, forward", "s6, layer 0, backward", "s6, layer 1 (softmax)"]);
    let view = View::of(&subjects[2], true).unwrap();
    assert!(view.found.is_err() && view.attention.own && view.attention.horizon.is_none() && view.uniform.is_none());
    assert_eq!(view.attention.rows, (0..seq_len).collect::<Vec<_>>());

    let (subject, w) = (&subjects[2], &subjects[2].weights);
    let map = |x: &Tensor, name: &str| {
        let y = x.matmul(&w[&format!("w{name}")].t().unwrap().contiguous().unwrap()).unwrap();
        y.broadcast_add(&w[&format!("b{name}")]).unwrap()
    };
    let weights = Tensor::new(view.attention.weights.clone(), &Device::Cpu).unwrap();
    let y = map(&weights.matmul(&map(&subject.u, "v")).unwrap(), "out");
    let cx = Cx::eval().seeing_all_of(&subject.u).unwrap();
    let wanted = subject.mixer.forward(&subject.u.unsqueeze(0).unwrap(), &cx).unwrap().squeeze(0).unwrap();
    assert!(distance(&y, &wanted) <= 1e-12);

    // There is no pass token by token to time.
    let engines = hybrid.subjects(read(), &[], Need::Pass).err().unwrap().diagnostic();
    assert_eq!(engines.flag.as_deref(), Some("--bidirectional"), "{engines:?}");
    assert!(engines.reason.contains("`softmax`"), "{engines:?}");
}
