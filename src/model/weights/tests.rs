use super::*;
use crate::config::samples::pythia;
use crate::config::{Precision, Protocol, Rotary, Schedule, TrainConfig, FORMAT};
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use crate::tasks::mqar::MqarConfig;
use crate::tasks::wikitext::{Corpus, Tokenizer};
use crate::tasks::Task;
use std::collections::BTreeMap;
use std::fs;

/// Run of a tiny Pythia around `mixer`.
pub(super) fn run(mixer: &str) -> RunConfig {
    RunConfig {
        format: FORMAT,
        seed: 1,
        protocol: Protocol::Paper,
        task: WikitextConfig {
            corpus: Corpus::Sample,
            tokenizer: Tokenizer::Bytes,
            vocab_size: 256,
            seq_len: 16,
            source_digest: None,
            eos_between_articles: false,
            train_examples: None,
            test_examples: None,
        }
        .config(),
        model: pythia(mixer, Rotary::Pre),
        train: TrainConfig {
            schedule: Schedule::Cosine,
            lr: 1e-3,
            warmup_epochs: 0,
            epochs: 2,
            batch_size: 4,
            weight_decay: 0.1,
            precision: Precision::F32,
            micro_batch: None,
            decay: None,
            adam: None,
            stop_above: 1.0,
        },
        from: None,
    }
}

/// Weights of `config` in the format that training writes.
pub(super) fn checkpoint(config: &RunConfig) -> Checkpoint {
    let params = Params::seeded(config.seed, DType::F32, &Device::Cpu);
    LanguageModel::new(&config.model, Io::of(&config.task).unwrap(), &params).unwrap();
    let values = params.vars().into_iter();
    Checkpoint {
        origin: WeightsOrigin { run: Some(config.id()), epoch: 2, step: 34 },
        config: config.clone(),
        architecture: None,
        values: values.map(|(name, var)| (name, var.as_tensor().clone())).collect::<HashMap<_, _>>().into(),
        place: PathBuf::from("in memory"),
        files: Vec::new(),
    }
}

/// Asserts that two checkpoints are equal bit for bit.
pub(super) fn assert_same(a: &Checkpoint, b: &Checkpoint) {
    assert_eq!((&a.config, &a.origin), (&b.config, &b.origin));
    let bits = |c: &Checkpoint| -> BTreeMap<String, (Vec<usize>, Vec<u32>)> {
        let bits = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let values = c.values.all().unwrap();
        let values = values.iter().map(|(name, t)| {
            let bits = bits(t).into_iter().map(f32::to_bits).collect();
            (name.clone(), (t.dims().to_vec(), bits))
        });
        values.collect()
    };
    assert_eq!(bits(a), bits(b));
}

/// Asserts that what lies at `path` ends in an error of `kind`, and gives it.
fn fails(path: &Path, kind: &str) -> Diagnostic {
    let at = Checkpoint::open(path).fails(kind);
    at.is_at(path, None);
    at
}

#[test]
fn saved_weights_are_read_back_bit_for_bit_from_a_file_and_from_a_run_folder() {
    let dir = tempfile::tempdir().unwrap();
    let mut wanted = checkpoint(&run("normalized"));
    wanted.save(&dir.path().join(LAST)).unwrap();
    assert_same(&Checkpoint::open(&dir.path().join(LAST)).unwrap(), &wanted);
    let found = Checkpoint::open(dir.path()).unwrap();
    assert_same(&found, &wanted);
    found.model(&Device::Cpu).unwrap();
    wanted.origin.epoch = 1;
    wanted.save(&dir.path().join(BEST)).unwrap();
    let found = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(found.origin.epoch, 1, "the best weights come first");
}

#[test]
fn a_file_that_is_none_of_ours_is_named_with_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    fails(&path, "io");
    for content in [&b""[..], b"no weights", &[255; 64]] {
        fs::write(&path, content).unwrap();
        fails(&path, "data");
    }
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n";
    fs::write(&path, pointer).unwrap();
    fails(&path, "data").names(&["`git lfs pull`"]);
    let kept = |tensors: &[(&str, Tensor)], metadata: &[(&str, &str)]| {
        let tensors = tensors.iter().map(|(name, t)| ((*name).to_owned(), t.clone()));
        let pairs = metadata.iter();
        let pairs = pairs.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        fs::write(&path, safetensors::serialize(tensors, Some(pairs)).unwrap()).unwrap();
        let at = Checkpoint::open(&path).err().unwrap().diagnostic();
        at.is_at(&path, None);
        at
    };
    let one = Tensor::ones(2, DType::F32, &Device::Cpu).unwrap();
    kept(&[("model.layers.0.w", one.clone())], &[]);
    kept(&[("embed.tok", one.clone())], &[]).names(&["`config`"]);
    let unfinished = [("run", "0123456789ab"), ("progress", "{}")];
    kept(&[("embed.tok", one.clone())], &unfinished);
    kept(&[("embed.tok", one.clone())], &[("config", "{}")]);
    let mut other = run("softmax");
    other.format = FORMAT + 1;
    kept(&[("embed.tok", one.clone())], &[("config", &other.canonical())]).names(&["format"]);
    let mut recall = run("softmax");
    recall.task = MqarConfig {
        data: crate::tasks::Generator::Native,
        data_seed: 0,
        vocab_size: 32,
        seq_len: 16,
        test_seq_len: None,
        kv_pairs: 2,
        key_tokens: 1,
        overwrites: 0,
        passes: 1,
        val_examples: 0,
        train_examples: 4,
        fresh_examples: false,
        test_examples: 4,
    }
    .config();
    kept(&[("embed.tok", one)], &[("config", &recall.canonical())]).names(&["dsf mqar"]);
}

#[test]
fn a_file_cut_short_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short.safetensors");
    checkpoint(&run("softmax")).save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    for kept in [4, 100, bytes.len() - 1] {
        fs::write(&path, &bytes[..kept]).unwrap();
        fails(&path, "data");
    }
}

#[test]
fn the_error_of_a_folder_without_weights_names_the_expected_files() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("empty");
    fs::create_dir(&folder).unwrap();
    fails(&folder, "refused").names(&[BEST, LAST, "model.safetensors"]);
}

#[test]
fn a_tensor_that_is_missing_misshapen_or_one_too_many_is_named() {
    let refused = |change: &dyn Fn(&mut HashMap<String, Tensor>)| {
        let mut found = checkpoint(&run("softmax"));
        let mut values = found.values.all().unwrap().into_iter().collect();
        change(&mut values);
        found.values = values.into();
        let at = found.model(&Device::Cpu).fails("data");
        at.is_at("in memory", None);
        at
    };
    let name = "layers.1.mixer.wq";
    let zeros = Tensor::zeros((3, 3), DType::F32, &Device::Cpu).unwrap();
    refused(&|values| drop(values.remove(name))).names(&[name]);
    let set = |key: &str| {
        let (key, zeros) = (key.to_owned(), zeros.clone());
        move |values: &mut HashMap<String, Tensor>| drop(values.insert(key.clone(), zeros.clone()))
    };
    refused(&set(name)).names(&[name, "[3, 3]"]);
    refused(&set("layers.7.mixer.wq")).names(&["layers.7.mixer.wq"]);
}
