use super::architectures::ARCHITECTURES;
use super::*;
use crate::error::testing::Fails;
use crate::model::weights::tests::{assert_same, checkpoint, run};
use candle_core::DType;
use std::path::PathBuf;

/// Path of a small model saved by `transformers`, with its logits.
pub(super) fn saved() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden/wikitext/hf")
}

/// Largest distance of a model's logits from those that `transformers` computed for [`saved`].
fn error(found: &Checkpoint) -> f64 {
    use candle_core::{safetensors, Device};
    let file = saved().join("expected.safetensors");
    let expected = safetensors::load(file, &Device::Cpu).unwrap();
    let tokens = expected["tokens"].to_dtype(DType::U32).unwrap();
    let model = found.model(&Device::Cpu).unwrap();
    let hidden = model.hidden(&tokens, None, &crate::nn::Cx::eval()).unwrap();
    let apart = (model.logits(&hidden).unwrap() - &expected["logits"]).unwrap();
    let apart = apart.abs().unwrap().max_all().unwrap();
    f64::from(apart.to_scalar::<f32>().unwrap())
}

pub(super) fn tensors() -> Vec<(String, Tensor)> {
    let file = Mapped::open(&saved().join(WHOLE)).unwrap();
    let mut tensors: Vec<_> = file.floats(|_| true).unwrap().into_iter().collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    tensors
}

/// Folder with the config of [`saved`].
pub(super) fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(saved().join(CONFIG), dir.path().join(CONFIG)).unwrap();
    dir
}

pub(super) fn put(path: &Path, tensors: &[(String, Tensor)]) {
    let bytes = safetensors::serialize(tensors.to_vec(), None).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_model_that_transformers_saved_computes_the_same_logits_here() {
    let found = Checkpoint::open(&saved()).unwrap();
    assert_eq!(found.origin, WeightsOrigin::default());
    assert!(error(&found) < 1e-5, "{}", error(&found));
    let file = Checkpoint::open(&saved().join(WHOLE)).unwrap();
    assert_same(&file, &found);
}

#[test]
fn an_imported_model_is_read_back_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (path, found) = (dir.path().join("ours"), Checkpoint::open(&saved()).unwrap());
    found.save(&path).unwrap();
    assert_same(&Checkpoint::open(&path).unwrap(), &found);
}

#[test]
fn an_exported_run_comes_back_to_the_bit_with_its_config() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = checkpoint(&run("softmax"));
    assert_eq!(wanted.export(dir.path(), None, Some(0)).unwrap().name, "GPTNeoXForCausalLM");
    assert_same(&Checkpoint::open(dir.path()).unwrap(), &wanted);
    // With another width in config.json, the run in the header is not the one of this model.
    let place = dir.path().join(CONFIG);
    let text = fs::read_to_string(&place).unwrap();
    let text = text.replace("\"max_position_embeddings\": 16", "\"max_position_embeddings\": 32");
    fs::write(&place, text).unwrap();
    let found = Checkpoint::open(dir.path()).unwrap();
    assert_eq!((found.text().unwrap().seq_len, found.origin), (32, WeightsOrigin::default()));
}

#[test]
fn a_model_saved_by_transformers_is_exported_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    Checkpoint::open(&saved()).unwrap().export(dir.path(), None, Some(0)).unwrap();
    let back = Mapped::open(&dir.path().join(WHOLE)).unwrap().floats(|_| true).unwrap();
    assert_eq!(back.len(), tensors().len());
    for (name, tensor) in tensors() {
        let bits = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(back[&name].dims(), tensor.dims(), "{name}");
        assert_eq!(bits(&back[&name]), bits(&tensor), "{name}");
    }
}

#[test]
fn shards_and_half_precision_and_old_buffers_are_read() {
    let dir = folder();
    let mut tensors = tensors();
    let mask = Tensor::ones((1, 1, 12, 12), DType::U8, &candle_core::Device::Cpu).unwrap();
    tensors.push(("gpt_neox.layers.0.attention.bias".to_owned(), mask));
    let one = Tensor::new(&[-1e9f32], &candle_core::Device::Cpu).unwrap();
    tensors.push(("gpt_neox.layers.0.attention.masked_bias".to_owned(), one));
    let halves = [&tensors[..9], &tensors[9..]];
    let mut map = serde_json::Map::new();
    for (i, half) in halves.iter().enumerate() {
        let name = format!("model-0000{}-of-00002.safetensors", i + 1);
        put(&dir.path().join(&name), half);
        map.extend(half.iter().map(|(t, _)| (t.clone(), name.clone().into())));
    }
    let index = serde_json::json!({ "metadata": {}, "weight_map": map });
    fs::write(dir.path().join(INDEX), index.to_string()).unwrap();
    let found = Checkpoint::open(dir.path()).unwrap();
    assert_same(&found, &Checkpoint::open(&saved()).unwrap());
    fs::remove_file(dir.path().join("model-00002-of-00002.safetensors")).unwrap();
    let at = Checkpoint::open(dir.path()).fails("missing");
    at.is_at("model-00002-of-00002.safetensors", None);

    for (dtype, within) in [(DType::F16, 0.05), (DType::BF16, 0.4)] {
        let dir = folder();
        let half = tensors.iter().filter(|(name, _)| !is_buffer(name));
        let half = half.map(|(name, t)| (name.clone(), t.to_dtype(dtype).unwrap()));
        put(&dir.path().join(WHOLE), &half.collect::<Vec<_>>());
        let error = error(&Checkpoint::open(dir.path()).unwrap());
        assert!(error < within && error > 0.0, "{dtype:?}: {error}");
    }
}

#[test]
fn a_tensor_that_is_missing_misshapen_or_unknown_is_named() {
    type Tensors = Vec<(String, Tensor)>;
    let refused = |change: &dyn Fn(&mut Tensors)| {
        let (dir, mut tensors) = (folder(), tensors());
        change(&mut tensors);
        put(&dir.path().join(WHOLE), &tensors);
        let found = Checkpoint::open(dir.path()).and_then(|found| {
            found.model(&candle_core::Device::Cpu)?;
            Ok(())
        });
        found.fails("data")
    };
    refused(&|tensors| tensors.retain(|(name, _)| name != "embed_out.weight")).names(&["embed_out.weight"]);
    let fused = "gpt_neox.layers.1.attention.query_key_value.weight";
    refused(&|tensors| {
        let found = tensors.iter_mut().find(|(name, _)| name == fused).unwrap();
        found.1 = found.1.narrow(0, 0, 40).unwrap().contiguous().unwrap();
    })
    .names(&[fused, "48"]);
    refused(&|tensors| {
        let bias = tensors[0].1.clone();
        tensors.push(("gpt_neox.layers.2.input_layernorm.bias".to_owned(), bias));
    })
    .names(&["layers.2.input_layernorm.bias"]);
}

#[test]
fn what_gpt_neox_has_not_is_not_exported() {
    let dir = tempfile::tempdir().unwrap();
    let linear = checkpoint(&run("linear"));
    let refused = linear.export(dir.path(), None, Some(0));
    refused.fails("refused").names(&["linear"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Folders of tiny models of every architecture.
fn of_every_architecture() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    let within = |name: &str| fs::read_dir(dir.join(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = within("pretrained").chain(within("fla")).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

#[test]
fn every_architecture_is_written_back_to_the_bit_and_read_again() {
    let folders = of_every_architecture();
    let mut classes = HashSet::new();
    for folder in folders {
        let dir = tempfile::tempdir().unwrap();
        let found = Checkpoint::open(&folder).unwrap();
        let class = found.export(dir.path(), None, Some(0)).unwrap();
        classes.insert(class);
        assert_eq!(found.architecture, Some(class));
        let floats = |folder: &Path| Mapped::open(&folder.join(WHOLE)).unwrap().floats(|_| true).unwrap();
        let (theirs, written) = (floats(&folder), floats(dir.path()));
        assert_eq!(theirs.len(), written.len(), "{folder:?}");
        for (name, tensor) in theirs {
            let bits = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            // Where `fuse_norm` is false, the norm has another name.
            let fused = name.replace("g_norm.", "g_norm_swish_gate.");
            let name = if written.contains_key(&name) { name } else { fused };
            assert_eq!(
                (written[&name].dims(), bits(&written[&name])),
                (tensor.dims(), bits(&tensor)),
                "{folder:?} {name}"
            );
        }
        let again = Checkpoint::open(dir.path()).unwrap();
        assert_eq!(again.config, found.config, "{folder:?}");
        // It becomes one file of this program, too.
        let file = dir.path().join("ours.safetensors");
        found.save(&file).unwrap();
        assert_same(&Checkpoint::open(&file).unwrap(), &found);
    }
    assert_eq!(classes.len(), ARCHITECTURES.len());
}

#[test]
fn a_changed_size_is_refused_with_the_tensor_or_the_key() {
    for folder in of_every_architecture() {
        let dir = tempfile::tempdir().unwrap();
        fs::copy(folder.join(WHOLE), dir.path().join(WHOLE)).unwrap();
        let text = fs::read_to_string(folder.join(CONFIG)).unwrap();
        let mut json: Value = serde_json::from_str(&text).unwrap();
        json["vocab_size"] = json!(62);
        fs::write(dir.path().join(CONFIG), json.to_string()).unwrap();
        Checkpoint::open(dir.path()).fails("data").names(&["62"]);
        json["vocab_size"] = json!(0);
        fs::write(dir.path().join(CONFIG), json.to_string()).unwrap();
        Checkpoint::open(dir.path()).fails("data").names(&["`vocab_size`"]);
    }
}

#[test]
fn files_that_no_model_can_be_read_from_are_named() {
    let saved = |change: &dyn Fn(&mut Value), keep: bool| {
        let dir = folder();
        let mut json: Value = serde_json::from_str(&fs::read_to_string(saved().join(CONFIG)).unwrap()).unwrap();
        change(&mut json);
        fs::write(dir.path().join(CONFIG), json.to_string()).unwrap();
        if keep {
            put(&dir.path().join(WHOLE), &tensors());
        }
        dir
    };
    let dir = saved(&|json| json["model_type"] = json!("bert"), true);
    let at = Checkpoint::open(dir.path()).fails("data");
    at.is_at(dir.path().join(CONFIG), None).names(&["`model_type`", "bert", "mamba2"]);
    let dir = saved(&|json| json["quantization_config"] = json!({ "quant_method": "gptq" }), true);
    Checkpoint::open(dir.path()).fails("data").names(&["`quantization_config`"]);
    let dir = saved(&|_| {}, false);
    Checkpoint::open(dir.path()).fails("missing").is_at(dir.path().join(WHOLE), None);
    fs::write(dir.path().join(PICKLED[0]), "").unwrap();
    Checkpoint::open(dir.path()).fails("data").is_at(dir.path().join(PICKLED[0]), None);
}

#[test]
fn files_of_a_model_without_a_head_lack_a_prefix() {
    let folder = of_every_architecture().into_iter().find(|path| path.ends_with("gpt2")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::copy(folder.join(CONFIG), dir.path().join(CONFIG)).unwrap();
    let theirs = Mapped::open(&folder.join(WHOLE)).unwrap().floats(|_| true).unwrap();
    let shorter = |name: &str| name.strip_prefix("transformer.").unwrap_or(name).to_owned();
    let theirs: Vec<(String, Tensor)> = theirs.iter().map(|(name, t)| (shorter(name), t.clone())).collect();
    put(&dir.path().join(WHOLE), &theirs);
    assert_same(&Checkpoint::open(dir.path()).unwrap(), &Checkpoint::open(&folder).unwrap());
}
