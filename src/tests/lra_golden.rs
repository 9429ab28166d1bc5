//! The classifiers of the Long Range Arena against golden files that PyTorch made from the equations
//! (`golden/lra/make.py`), each built as `dsf lra` builds it from flags.

use crate::world::flat;
use candle_core::{DType, Device, Tensor};
use dsf::config::{Dual, Generator, LraDataset, Pool, Protocol, RunConfig, TaskConfig};
use dsf::mixers::MIXERS;
use dsf::model::protocol::{Asked, Preset, Task};
use dsf::model::Classifier;
use dsf::nn::{Cx, Params};
use dsf::train::AdamW;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What all golden files have in common.
fn asked(mixer: &str, dataset: LraDataset) -> Asked {
    let pictures = dataset.is_picture();
    Asked {
        mixer: Some(mixer.to_owned()),
        dataset: Some(dataset),
        preset: Some(Preset::Full),
        data: Some(Generator::Files),
        seq_len: (!pictures).then_some(16),
        vocab_size: (!pictures).then_some(12),
        d: Some(8),
        layers: Some(2),
        mlp_width: Some(6),
        dropout: Some(0.0),
        attn_dropout: Some(0.0),
        ..Asked::default()
    }
}

fn attends(mixer: &str, dataset: LraDataset) -> Asked {
    Asked {
        n: Some(6),
        heads: Some(2),
        ..asked(mixer, dataset)
    }
}

fn states(mixer: &str, dataset: LraDataset) -> Asked {
    let widens = ["mamba", "rg-lru"].contains(&mixer);
    Asked {
        n: Some(3),
        expand: widens.then_some(1.3),
        ..asked(mixer, dataset)
    }
}

/// Golden files and the flags that ask for what is in them.
fn cases() -> Vec<(&'static str, Asked)> {
    use LraDataset::{Image, Listops, Pathfinder, Retrieval, Text};
    let lambda = |asked: Asked| Asked {
        lambda_skip: Some(true),
        ..asked
    };
    let under = |protocol: Protocol, asked: Asked| Asked {
        protocol: Some(protocol),
        ..asked
    };
    let pooled = |pool: Pool, asked: Asked| Asked {
        pool: Some(pool),
        ..under(Protocol::Matched, asked)
    };
    let features = Asked {
        dual: Some(Dual::Features),
        ..attends("linear", Retrieval)
    };
    let wider = Asked {
        d: Some(17),
        ..states("mamba", Image)
    };
    vec![
        ("softmax_listops", attends("softmax", Listops)),
        ("linear_text", lambda(attends("linear", Text))),
        ("normalized_exp_text", attends("normalized", Text)),
        (
            "normalized_softplus_listops",
            attends("normalized-softplus", Listops),
        ),
        (
            "normalized_sigmoid_text",
            attends("normalized-sigmoid", Text),
        ),
        (
            "softmax_listops_matched",
            under(Protocol::Matched, attends("softmax", Listops)),
        ),
        (
            "linear_listops_last",
            pooled(Pool::Last, attends("linear", Listops)),
        ),
        ("mamba_listops", lambda(states("mamba", Listops))),
        ("mamba_text", lambda(states("mamba", Text))),
        ("mamba_image", wider),
        ("mamba_pathfinder", states("mamba", Pathfinder)),
        ("s6_listops", states("s6", Listops)),
        (
            "s6_listops_paper",
            under(Protocol::Paper, states("s6", Listops)),
        ),
        ("s6_text_max", pooled(Pool::Max, states("s6", Text))),
        ("ssd_image", states("ssd-mamba2", Image)),
        ("hawk_listops", states("rg-lru", Listops)),
        ("softmax_retrieval", attends("softmax", Retrieval)),
        ("linear_retrieval_features", features),
        ("mamba_retrieval", states("mamba", Retrieval)),
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden/lra")
}

fn built(config: &RunConfig, params: &Params) -> Classifier {
    let TaskConfig::Lra(task) = &config.task else {
        panic!("the Long Range Arena was asked for");
    };
    Classifier::new(&config.model, task, params).unwrap()
}

/// A golden file.
struct Golden(HashMap<String, Tensor>);

impl Golden {
    fn load(name: &str) -> Self {
        let file = folder().join(format!("{name}.safetensors"));
        Self(candle_core::safetensors::load(file, &Device::Cpu).unwrap())
    }

    fn ids(&self, name: &str) -> Tensor {
        self.0[name].to_dtype(DType::U32).unwrap()
    }

    /// What stands under `kind/`, without that.
    fn named(&self, kind: &str) -> HashMap<String, Tensor> {
        let named = self
            .0
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(kind)?.to_owned(), value.clone())));
        named.collect()
    }
}

/// Largest difference in units of the largest number of `b`, or of `least`.
fn apart(a: &Tensor, b: &Tensor, least: f64) -> f64 {
    assert_eq!(a.dims(), b.dims());
    let (a, b) = (flat(a), flat(b));
    let scale = b.iter().fold(least, |m, x| m.max(x.abs()));
    let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs() / scale);
    // A comparison that NaN fails: it must not pass for close.
    apart.fold(0.0, |worst, d| if d <= worst { worst } else { d })
}

/// Everything that is not within `close` of the file.
fn differences(name: &str, asked: &Asked, dtype: DType, close: f64) -> Vec<String> {
    let golden = Golden::load(name);
    let params = Params::given(golden.named("param/"), dtype, &Device::Cpu);
    let model = built(&asked.resolve(Task::Lra).unwrap(), &params);
    let names: Vec<String> = params.vars().into_iter().map(|(name, _)| name).collect();
    let mut wanted: Vec<String> = golden.named("param/").into_keys().collect();
    wanted.sort();
    assert_eq!(names, wanted, "{name}");

    let [tokens, lengths, labels] = ["tokens", "lengths", "labels"].map(|ids| golden.ids(ids));
    let loss = || {
        let found = model.classify(&tokens, &lengths, &labels, &Cx::eval());
        found.unwrap().loss
    };
    let (before, grads) = (loss(), loss().backward().unwrap());
    let mut found = vec![
        (
            "logits".to_owned(),
            model.logits(&tokens, &lengths, &Cx::eval()).unwrap(),
        ),
        ("loss".to_owned(), before),
    ];
    for (name, var) in params.vars() {
        let grad = grads.get(&var).unwrap_or_else(|| panic!("{name}"));
        found.push((format!("grad/{name}"), grad.clone()));
    }
    let mut optimiser = AdamW::new(params.vars(), 0.1).unwrap();
    optimiser.step(&grads, 1e-3).unwrap();
    found.push(("loss_after".to_owned(), loss()));

    // The gradient of a key's bias under softmax is zero but for rounding.
    let gradients = golden.named("grad/").into_values();
    let steepest = gradients
        .flat_map(|g| flat(&g))
        .fold(0.0, |m: f64, g| m.max(g.abs()));
    let far = found.into_iter().filter_map(|(what, x)| {
        let distance = apart(&x, &golden.0[&what], 1e-2 * steepest);
        let near = distance <= close;
        (!near).then(|| format!("{name}: {what} is {distance:.1e} apart"))
    });
    far.collect()
}

#[test]
fn classifiers_are_those_of_the_equations() {
    let all = |dtype, close| -> Vec<String> {
        let cases = cases();
        let far = cases
            .iter()
            .map(|(name, asked)| differences(name, asked, dtype, close));
        far.flatten().collect()
    };
    let exact = all(DType::F64, 1e-10);
    assert!(exact.is_empty(), "{}", exact.join("\n"));
    let single = all(DType::F32, 5e-5);
    assert!(single.is_empty(), "{}", single.join("\n"));
}

#[test]
fn every_golden_classifier_is_looked_at() {
    let files = fs::read_dir(folder())
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<String> = files
        .filter(|file| file.extension().is_some_and(|e| e == "safetensors"))
        .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let mut named: Vec<String> = cases()
        .into_iter()
        .map(|(name, _)| name.to_owned())
        .collect();
    files.sort();
    named.sort();
    assert_eq!(files, named);
}

#[test]
fn documents_meet_in_the_width_of_the_config_and_in_512_beside_hawk() {
    for (mixer, m) in [("softmax", 6), ("s6", 6), ("rg-lru", 512)] {
        let params = Params::seeded(3, DType::F32, &Device::Cpu);
        let asked = asked(mixer, LraDataset::Retrieval);
        let asked = Asked {
            n: Some(8),
            heads: Some(1),
            ..asked
        };
        built(&asked.resolve(Task::Lra).unwrap(), &params);
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
            let asked = Asked {
                protocol: Some(protocol),
                seq_len: Some(LEN),
                n: Some(8),
                expand: None,
                ..asked(entry.name, dataset)
            };
            let config = asked.resolve(Task::Lra).unwrap();
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
                assert!(
                    early <= 1e-13,
                    "{name}: token {t} is seen before it, {early}"
                );
                assert!(moved(t) > 1e-6, "{name}: token {t} is not seen at all");
            }
        }
    }
}
