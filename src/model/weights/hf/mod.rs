//! Pretrained models in the layout of Hugging Face's `transformers` and of flash-linear-attention: `config.json` beside `model.safetensors`, or beside
//! several files and their index.

mod architectures;
mod config_file;
mod shards;
mod tensors;

use super::mapped::Mapped;
use super::values::{WeightSource, WeightValues};
use super::{bytes, header, Checkpoint, ModelClass, WeightsOrigin};
use crate::config::{Precision, Protocol, RunConfig, Schedule, TrainConfig, FORMAT};
use crate::error::{refuse, Error, Result};
use crate::files::{self, write_atomic, write_atomic_by};
use crate::nn::GivenValues;
use crate::store::Archive;
use crate::tasks::wikitext::{self, Corpus, Tokenizer, TokenizerFile, WikitextConfig};
use crate::tasks::Task;
use architectures::{Architecture, Pretrained};
use candle_core::Tensor;
use config_file::ConfigFile;
use serde_json::{json, Value};
use shards::INDEX;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use tensors::{is_buffer, TensorMaps};

const CONFIG: &str = "config.json";
const WHOLE: &str = "model.safetensors";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// Weights that PyTorch pickled, which only Python can read.
const PICKLED: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// Whether `folder` has the layout of Hugging Face. A run's folder has a `config.json`, too, but of other keys.
pub(super) fn is_in(folder: &Path) -> bool {
    let described = || {
        let text = fs::read_to_string(folder.join(CONFIG)).unwrap_or_default();
        serde_json::from_str::<Value>(&text).is_ok_and(|json| json.get("model_type").is_some())
    };
    [WHOLE, INDEX].iter().any(|name| folder.join(name).is_file()) || described()
}

/// Whether `file` has no config in its header but lies beside a `config.json`.
pub(super) fn is_file(path: &Path, file: &Mapped) -> bool {
    !file.metadata.contains_key(super::CONFIG) && path.with_file_name(CONFIG).is_file()
        || file.metadata.contains_key("format")
}

pub(super) fn read(folder: &Path) -> Result<Checkpoint> {
    let whole = folder.join(WHOLE);
    if whole.is_file() {
        return read_file(&whole, Mapped::open(&whole)?);
    }
    if !folder.join(INDEX).is_file() {
        let pickled = PICKLED.iter().find(|name| folder.join(name).is_file());
        return Err(match pickled {
            Some(name) => Error::data(
                folder.join(name),
                format!("its weights are pickled, which can run code when they are opened; needed is {WHOLE}, which `save_pretrained` of transformers writes"),
            ),
            None => Error::missing_at(&whole, format!("missing beside {CONFIG}: get the weights, too")),
        });
    }
    let (files, places) = shards::open(folder)?;
    assemble(folder, files, places)
}

/// Reads the model whose tensors are all in `file`, at `path`.
pub(super) fn read_file(path: &Path, file: Mapped) -> Result<Checkpoint> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let places = file.names.iter().map(|name| (name.clone(), 0)).collect();
    assemble(folder, vec![file], places)
}

/// Builds the model of `config.json` in `folder` from the tensors of `files`, each in the file of this number.
fn assemble(folder: &Path, files: Vec<Mapped>, places: HashMap<String, usize>) -> Result<Checkpoint> {
    let place = folder.join(CONFIG);
    let text = files::read_text(&place)?;
    let place = place.display().to_string();
    let file = ConfigFile::parse(&text, &place)?;
    let architecture = Architecture::of(&file)?;
    let shape = (architecture.read)(&file)?;
    let ours = files.iter().find_map(|file| embedded_run(file, &shape));
    let of_weights = files.iter().map(|file| file.place.clone()).collect();
    let values = MappedValues::new(files, &places, architecture, &shape, folder)?;
    // Also for a run of this program, whose tokenizer may be known here alone.
    let tokenizer = tokenizer(folder)?;
    let (config, origin) = match ours {
        Some(known) => known,
        None => (imported_run(shape, tokenizer), WeightsOrigin::default()),
    };
    let (architecture, place) = (Some(architecture.class), folder.to_owned());
    Ok(Checkpoint { config, origin, architecture, values: WeightValues::of(values), place, files: of_weights })
}

/// Weights of a pretrained model in its mapped files, by this program's names.
#[derive(Debug)]
struct MappedValues {
    files: Vec<Mapped>,
    /// Number of the file of each tensor, and its name there, which may lack the prefix.
    places: HashMap<String, (usize, String)>,
    maps: TensorMaps,
    /// Map of each parameter, and its part of the map.
    parts: HashMap<String, [usize; 2]>,
    /// Parameters of the map that was read last: several are often parts of one tensor.
    last: RefCell<Option<(usize, Vec<Tensor>)>>,
}

impl MappedValues {
    /// Weights of `shape` in `files`. Fails with the name of a tensor that is missing, misshapen or unknown.
    fn new(
        files: Vec<Mapped>,
        places: &HashMap<String, usize>,
        architecture: &Architecture,
        shape: &Pretrained,
        folder: &Path,
    ) -> Result<Self> {
        let mut shapes = HashMap::new();
        for (number, file) in files.iter().enumerate() {
            let floats = file.shapes()?.into_iter().filter(|(name, _)| places.get(name) == Some(&number));
            shapes.extend(floats.map(|(name, shape)| (name, (number, shape))));
        }
        let maps = (architecture.tensors)(shape);
        let wanted: HashSet<&str> = maps.theirs().collect();
        // Files of a model without a head lack the prefix.
        let prefixed = shapes.keys().any(|name| name.starts_with(architecture.prefix));
        let named = |name: &str| match prefixed || wanted.contains(name) {
            true => name.to_owned(),
            false => format!("{}{name}", architecture.prefix),
        };
        let found: HashMap<String, (&String, &(usize, Vec<usize>))> =
            shapes.iter().map(|(name, place)| (maps.usual(&named(name)).to_owned(), (name, place))).collect();
        maps.check(|name| found.get(name).map(|(_, (_, shape))| shape.clone()), folder)?;
        let tied = |name: &str| shape.model.is_tied() && (name == "lm_head.weight" || name == "head.weight");
        let known = |name: &str| wanted.contains(name) || is_buffer(name) || tied(name);
        if let Some(name) = found.keys().filter(|name| !known(name)).min() {
            return Err(Error::data(folder, format!("tensor {name} is not part of the model in {CONFIG}")));
        }
        let places = found.iter().map(|(name, (own, (number, _)))| (name.clone(), (*number, (*own).clone()))).collect();
        let parts = maps.ours().map(|(name, _, part)| (name.to_owned(), part)).collect();
        Ok(Self { files, places, parts, maps, last: RefCell::new(None) })
    }
}

impl WeightSource for MappedValues {
    fn sizes(&self) -> BTreeMap<String, usize> {
        self.maps.ours().map(|(name, size, _)| (name.to_owned(), size)).collect()
    }

    fn is_mapped(&self) -> bool {
        true
    }
}

impl GivenValues for MappedValues {
    fn value(&self, name: &str) -> candle_core::Result<Option<Tensor>> {
        let Some([map, part]) = self.parts.get(name) else {
            return Ok(None);
        };
        let mut last = self.last.borrow_mut();
        if last.as_ref().is_none_or(|(number, _)| number != map) {
            let read = |name: &str| {
                let (file, own) = &self.places[name];
                self.files[*file].load(own).map_err(candle_core::Error::wrap)
            };
            *last = Some((*map, self.maps.read(*map, read)?));
        }
        let value = last.as_ref().map(|(_, parts)| parts[*part].clone());
        if self.parts.values().filter(|[other, _]| other == map).count() == 1 {
            *last = None;
        }
        Ok(value)
    }
}

/// Returns the run in the header of an exported file, if its model is the one in `config.json`.
fn embedded_run(file: &Mapped, shape: &Pretrained) -> Option<(RunConfig, WeightsOrigin)> {
    let text = file.metadata.get(super::CONFIG)?;
    let config = RunConfig::parse(text, "").ok()?;
    let own = pretrained(&config).ok()?;
    let (architecture, json) = Architecture::holding(&own).ok()?;
    let written = (architecture.read)(&ConfigFile { json, place: "" }).ok()?;
    (written == *shape).then(|| (config, WeightsOrigin::read(&file.metadata)))
}

/// Model and sizes of a run on text.
fn pretrained(run: &RunConfig) -> Result<Pretrained> {
    let Ok(text) = run.task.typed::<WikitextConfig>() else {
        refuse!("cannot be exported: it is not a model of `dsf wikitext`");
    };
    let seq_len = run.model.n_positions.unwrap_or(text.seq_len);
    Ok(Pretrained { model: run.model.clone(), vocab_size: text.vocab_size, seq_len })
}

/// Tokenizer in the folder of the weights, or GPT-NeoX's if the folder has none.
fn tokenizer(folder: &Path) -> Result<Tokenizer> {
    let path = folder.join(TOKENIZER);
    if !path.is_file() {
        return Ok(Tokenizer::GptNeox);
    }
    Ok(wikitext::adopt(&path)?.0)
}

/// Config of a run for imported weights, with no training steps.
fn imported_run(shape: Pretrained, tokenizer: Tokenizer) -> RunConfig {
    RunConfig {
        format: FORMAT,
        seed: 0,
        protocol: Protocol::Paper,
        task: WikitextConfig {
            corpus: Corpus::Wikitext103Raw,
            tokenizer,
            vocab_size: shape.vocab_size,
            seq_len: shape.seq_len,
            source_digest: None,
            eos_between_articles: false,
            train_examples: None,
            test_examples: None,
        }
        .config(),
        model: shape.model,
        train: TrainConfig {
            schedule: Schedule::Cosine,
            lr: 0.0,
            warmup_epochs: 0,
            epochs: 0,
            batch_size: 1,
            weight_decay: 0.0,
            precision: Precision::F32,
            micro_batch: None,
            decay: None,
            adam: None,
            stop_above: 1.0,
        },
        from: None,
    }
}

/// Keys of a `config.json` for tokens of its tokenizer.
const TOKENS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

/// Architecture that holds a run's model, the model, and its `config.json` with the tokens of `source`, the file that it
/// was read from, or else with the end-of-text token `eos` of its tokenizer. The token is written even if it is null:
/// without the key, `transformers` would use id 2.
fn config_json(
    run: &RunConfig,
    source: Option<&Value>,
    eos: Option<u32>,
) -> Result<(&'static Architecture, Pretrained, Value)> {
    let found = pretrained(run)?;
    let (architecture, mut json) = match Architecture::holding(&found) {
        Ok(found) => found,
        Err(why) => {
            refuse!("cannot be exported: no architecture that is known here holds this model; {why}")
        }
    };
    for (key, value) in [
        ("bos_token_id", json!(eos)),
        ("eos_token_id", json!(eos)),
        ("use_cache", json!(true)),
        ("torch_dtype", json!("float32")),
    ] {
        json[key] = value;
    }
    for key in TOKENS {
        if let Some(token) = source.and_then(|source| source.get(key)) {
            json[key] = token.clone();
        }
    }
    Ok((architecture, found, json))
}

impl Checkpoint {
    /// Writes `config.json` and `model.safetensors`, which `transformers` loads, and the tokenizer's file if `tokenizer`
    /// is given. `eos` is the end-of-text token. Returns the class that loads it. Fails if no known architecture
    /// holds the model or writing fails.
    pub fn export(&self, folder: &Path, tokenizer: Option<&TokenizerFile>, eos: Option<u32>) -> Result<ModelClass> {
        let read = self.architecture.map(|_| files::read_text(&self.place.join(CONFIG))).transpose()?;
        let source: Option<Value> = read.and_then(|text| serde_json::from_str(&text).ok());
        let written = config_json(&self.config, source.as_ref(), eos);
        let (architecture, shape, config) = written.map_err(|e| e.in_file(&self.place, None))?;
        // `transformers` requires the `format`.
        let format = [("format", "pt".to_owned())];
        let header = header(&self.config, &self.origin).into_iter().chain(format);
        let (maps, mut theirs) = ((architecture.tensors)(&shape), Archive::new(header));
        for ((name, of_theirs), make, ours) in maps.write() {
            theirs.add(name.clone(), of_theirs, move || {
                let values = ours.iter().map(|name| self.value(name)).collect::<candle_core::Result<Vec<Tensor>>>()?;
                bytes(&make(&values.iter().collect::<Vec<_>>())?)
            });
        }
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        write_atomic_by(&folder.join(WHOLE), |out| theirs.write(out))?;
        if let Some(file) = tokenizer {
            let bytes = fs::read(&file.path).map_err(Error::io("read", &file.path))?;
            write_atomic(&folder.join(TOKENIZER), &bytes)?;
            if let Some(declaration) = &file.declaration {
                write_atomic(&folder.join(TOKENIZER_CONFIG), declaration.as_bytes())?;
            }
        }
        write_atomic(&folder.join(CONFIG), format!("{config:#}\n").as_bytes())?;
        Ok(architecture.class)
    }

    fn value(&self, name: &str) -> candle_core::Result<Tensor> {
        match self.values.value(name)? {
            Some(value) => Ok(value),
            None => candle_core::bail!("tensor {name} is missing"),
        }
    }
}

#[cfg(test)]
mod tests;
