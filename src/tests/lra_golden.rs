//! The classifiers of the Long Range Arena against golden files that PyTorch made from the equations
//! (`golden/lra/make.py`), each built as `dsf lra` builds it from flags.

use crate::pytorch::{files, names, Golden};
use crate::world::flat;
use candle_core::{DType, Device, Tensor};
use dsf::config::{Protocol, RunConfig};
use dsf::mixers::MIXERS;
use dsf::model::Classifier;
use dsf::nn::{Cx, Params};
use dsf::recipes;
use dsf::tasks::lra::LraDataset;
use dsf::train::AdamW;

type Settings = Vec<(&'static str, &'static str)>;

/// Settings that all golden files share.
fn settings(mixer: &'static str, dataset: LraDataset) -> Settings {
    let mut settings = vec![
        ("mixer", mixer),
        ("dataset", dataset.name()),
        ("preset", "paper"),
        ("data", "files"),
        ("d", "8"),
        ("layers", "2"),
        ("mlp-width", "6"),
        ("dropout", "0"),
        ("attn-dropout", "0"),
    ];
    if !dataset.is_picture() {
        settings.extend([("seq-len", "16"), ("vocab-size", "12")]);
    }
    settings
}

fn attends(mixer: &'static str, dataset: LraDataset) -> Settings {
    with(&[("n", "6"), ("heads", "2")], settings(mixer, dataset))
}

fn states(mixer: &'static str, dataset: LraDataset) -> Settings {
    let mut settings = with(&[("n", "3")], settings(mixer, dataset));
    settings.extend(["mamba", "rg-lru"].contains(&mixer).then_some(("expand", "1.3")));
    settings
}

/// `settings` but for `changes`.
fn with(changes: &[(&'static str, &'static str)], settings: Settings) -> Settings {
    [settings.as_slice(), changes].concat()
}

fn run(settings: &Settings) -> RunConfig {
    recipes::run("lra", settings).unwrap()
}

/// Golden files and the flags that ask for what is in them.
fn cases() -> Vec<(&'static str, Settings)> {
    use LraDataset::{Image, Listops, Pathfinder, Retrieval, Text};
    let lambda = |settings| with(&[("lambda-skip", "true")], settings);
    let under = |protocol: Protocol, settings| with(&[("protocol", protocol.as_str())], settings);
    let pooled = |pool, settings| with(&[("pool", pool)], under(Protocol::Matched, settings));
    let features = with(&[("dual", "features")], attends("linear", Retrieval));
    let wider = with(&[("d", "17")], states("mamba", Image));
    vec![
        ("softmax_listops", attends("softmax", Listops)),
        ("linear_text", lambda(attends("linear", Text))),
        ("normalized_exp_text", attends("normalized", Text)),
        ("normalized_softplus_listops", attends("normalized-softplus", Listops)),
        ("normalized_sigmoid_text", attends("normalized-sigmoid", Text)),
        ("softmax_listops_matched", under(Protocol::Matched, attends("softmax", Listops))),
        ("linear_listops_last", pooled("last", attends("linear", Listops))),
        ("mamba_listops", lambda(states("mamba", Listops))),
        ("mamba_text", lambda(states("mamba", Text))),
        ("mamba_image", wider),
        ("mamba_pathfinder", states("mamba", Pathfinder)),
        ("s6_listops", states("s6", Listops)),
        ("s6_listops_paper", under(Protocol::Paper, states("s6", Listops))),
        ("s6_text_max", pooled("max", states("s6", Text))),
        ("ssd_image", states("ssd-mamba2", Image)),
        ("hawk_listops", states("rg-lru", Listops)),
        ("softmax_retrieval", attends("softmax", Retrieval)),
        ("linear_retrieval_features", features),
        ("mamba_retrieval", states("mamba", Retrieval)),
    ]
}

fn built(config: &RunConfig, params: &Params) -> Classifier {
    Classifier::new(&config.model, &config.task.sizes().unwrap(), params).unwrap()
}

/// Everything that is not within `close` of the file.
fn differences(name: &str, settings: &Settings, dtype: DType, close: f64) -> Vec<String> {
    let golden = Golden::load("lra", name);
    let values = golden.named("param/");
    let mut config = run(settings);
    // One file of `matched` is older than its positions.
    config.model.positions = values.contains_key("embed.pos");
    let params = Params::given(values, dtype, &Device::Cpu);
    let model = built(&config, &params);
    assert_eq!(names(&params), golden.parameters(), "{name}");

    let [tokens, lengths, labels] = ["tokens", "lengths", "labels"].map(|ids| golden.ids(ids));
    let loss = || {
        let found = model.classify(&tokens, &lengths, &labels, &Cx::eval());
        found.unwrap().loss
    };
    let (before, grads) = (loss(), loss().backward().unwrap());
    let mut found = golden.gradients(&params, &grads);
    let logits = model.logits(&tokens, &lengths, &Cx::eval()).unwrap();
    found.extend([("logits".to_owned(), logits), ("loss".to_owned(), before)]);
    let mut optimiser = AdamW::new(params.vars(), 0.1).unwrap();
    optimiser.step(&grads, 1e-3).unwrap();
    found.push(("loss_after".to_owned(), loss()));

    let far = golden.far(found, close);
    far.into_iter().map(|what| format!("{name}: {what}")).collect()
}

#[test]
fn classifiers_are_those_of_the_equations() {
    let all = |dtype, close| -> Vec<String> {
        let cases = cases();
        let far = cases.iter().map(|(name, settings)| differences(name, settings, dtype, close));
        far.flatten().collect()
    };
    let exact = all(DType::F64, 1e-10);
    assert!(exact.is_empty(), "{}", exact.join("\n"));
    let single = all(DType::F32, 5e-5);
    assert!(single.is_empty(), "{}", single.join("\n"));
}

#[test]
fn every_golden_classifier_is_looked_at() {
    let mut named: Vec<String> = cases().into_iter().map(|(name, _)| name.to_owned()).collect();
    named.sort();
    assert_eq!(files("lra"), named);
}

#[test]
fn documents_meet_in_the_width_of_the_config_and_in_512_beside_hawk() {
    for (mixer, m) in [("softmax", 6), ("s6", 6), ("rg-lru", 512)] {
        let params = Params::seeded(3, DType::F32, &Device::Cpu);
        let one_head = [("n", "8"), ("heads", "1")];
        built(&run(&with(&one_head, settings(mixer, LraDataset::Retrieval))), &params);
        let shape = |name: &str| {
            let found = params.vars().into_iter().find(|(of, _)| of == name);
            found.unwrap().1.dims().to_vec()
        };
        assert_eq!(shape("match.w1"), [m, 4], "{mixer}");
        assert_eq!(shape("match.w2"), [m / 2, m], "{mixer}");
    }
}

#[test]
fn no_hidden_row_knows_a_later_token() {
    const LEN: usize = 70;
    let layouts = [Protocol::Reference, Protocol::Paper];
    for entry in MIXERS {
        for (dataset, protocol) in [LraDataset::Listops, LraDataset::Text]
            .into_iter()
            .flat_map(|dataset| layouts.map(|protocol| (dataset, protocol)))
        {
            let changes = [("protocol", protocol.as_str()), ("seq-len", "70"), ("n", "8")];
            let config = run(&with(&changes, settings(entry.name, dataset)));
            assert_eq!(config.task.sizes().unwrap().seq_len, LEN);
            let name = format!("{} {:?}", entry.name, config.model.layout);
            let params = Params::seeded(3, DType::F64, &Device::Cpu);
            let model = built(&config, &params.detached());
            let hidden = |tokens: &[u32]| {
                let tokens = Tensor::from_slice(tokens, (1, LEN), &Device::Cpu).unwrap();
                flat(&model.hidden(&tokens, &Cx::eval()).unwrap())
            };
            let tokens: Vec<u32> = (0..LEN as u32).map(|t| 3 + t * t % 8).collect();
            let before = hidden(&tokens);
            for t in [1, 33, LEN - 1] {
                let mut changed = tokens.clone();
                changed[t] = 11;
                let after = hidden(&changed);
                let moved = |row: usize| {
                    let row = row * 8..(row + 1) * 8;
                    let pairs = before[row.clone()].iter().zip(&after[row]);
                    pairs.fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()))
                };
                let early = (0..t).map(moved).fold(0.0, f64::max);
                assert!(early <= 1e-13, "{name}: token {t} is seen before it, {early}");
                assert!(moved(t) > 1e-6, "{name}: token {t} is not seen at all");
            }
        }
    }
}
