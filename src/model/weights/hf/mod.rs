//! GPT-NeoX models in the layout of Hugging Face's `transformers`: `config.json` beside `model.safetensors`, or beside
//! several files and their index.

mod config;
mod names;
mod shards;

use super::mapped::Mapped;
use super::{bytes, header, Checkpoint, WeightsOrigin};
use crate::config::{ModelConfig, Precision, Protocol, RunConfig, Schedule, TrainConfig, FORMAT};
use crate::error::{refuse, Error, Result};
use crate::files::{self, write_atomic, write_atomic_by};
use crate::store::Archive;
use crate::tasks::wikitext::{self, Corpus, Tokenizer, TokenizerFile, WikitextConfig};
use crate::tasks::Task;
use candle_core::Tensor;
use config::HfShape;
use shards::INDEX;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

const CONFIG: &str = "config.json";
const WHOLE: &str = "model.safetensors";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// Whether `folder` has the layout of Hugging Face.
pub(super) fn is_in(folder: &Path) -> bool {
    [WHOLE, INDEX].iter().any(|name| folder.join(name).is_file())
}

/// Whether `file` holds tensors under GPT-NeoX's names.
pub(super) fn is_file(file: &Mapped) -> bool {
    file.has(names::EMBEDDING)
}

pub(super) fn read(folder: &Path) -> Result<Checkpoint> {
    let whole = folder.join(WHOLE);
    if whole.is_file() {
        return read_file(&whole, Mapped::open(&whole)?);
    }
    let (files, theirs) = shards::read(folder)?;
    assemble(folder, &files, theirs)
}

/// Reads the model whose tensors are all in `file`, at `path`.
pub(super) fn read_file(path: &Path, file: Mapped) -> Result<Checkpoint> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let theirs = file.floats(|_| true)?;
    assemble(folder, &[file], theirs)
}

/// Builds the model of `config.json` in `folder` from `theirs`, the tensors of `files` by GPT-NeoX's names.
fn assemble(folder: &Path, files: &[Mapped], theirs: HashMap<String, Tensor>) -> Result<Checkpoint> {
    let place = folder.join(CONFIG);
    let text = files::read_text(&place)?;
    let shape = config::read(&text, &place.display().to_string())?;
    let values = rename(theirs, &shape.model).map_err(|why| Error::data(folder, why))?;
    let ours = files.iter().find_map(|file| embedded_run(file, &shape));
    let (config, origin) = match ours {
        Some(known) => known,
        None => (imported_run(shape, tokenizer(folder)?), WeightsOrigin::default()),
    };
    Ok(Checkpoint { config, origin, values, place: folder.to_owned() })
}

/// Returns the parameters by this program's names, or an error message if a tensor is missing, misshapen or unknown.
fn rename(mut theirs: HashMap<String, Tensor>, model: &ModelConfig) -> Result<HashMap<String, Tensor>, String> {
    let mut take = |name: &str| theirs.remove(name).ok_or_else(|| format!("tensor {name} is missing"));
    let mut values = HashMap::new();
    for (ours, name) in names::unfused(model.n_layers) {
        values.insert(ours, take(&name)?);
    }
    for (ours, name) in names::fused(model.n_layers) {
        let (tensor, d) = (take(&name)?, model.d_model);
        if tensor.dim(0).ok() != Some(3 * d) {
            let (found, rows) = (tensor.dims(), 3 * d);
            return Err(format!("tensor {name} has shape {found:?}, not {rows} rows"));
        }
        let parts = names::split(&tensor, model.n_heads).map_err(|e| e.to_string())?;
        values.extend(ours.into_iter().zip(parts));
    }
    let unknown = theirs.keys().filter(|name| !names::is_buffer(name)).min();
    match unknown {
        Some(name) => Err(format!("tensor {name} is not part of the model in {CONFIG}")),
        None => Ok(values),
    }
}

/// Returns the run in the header of an exported file, if its model is the one in `config.json`.
fn embedded_run(file: &Mapped, shape: &HfShape) -> Option<(RunConfig, WeightsOrigin)> {
    let text = file.metadata.get(super::CONFIG)?;
    let config = RunConfig::parse(text, "").ok()?;
    let model = config::read(&config_json(&config, None).ok()?, "").ok()?;
    (model == *shape).then(|| (config, WeightsOrigin::read(&file.metadata)))
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
fn imported_run(shape: HfShape, tokenizer: Tokenizer) -> RunConfig {
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
    }
}

/// Returns the `config.json` of a run's model, with the end-of-text token `eos` of its tokenizer. Fails if the model is
/// not a GPT-NeoX model.
fn config_json(run: &RunConfig, eos: Option<u16>) -> Result<String> {
    let Ok(text) = run.task.typed::<WikitextConfig>() else {
        refuse!("cannot be exported: it is not a model of `dsf wikitext`");
    };
    match config::mismatch(&run.model) {
        Some(why) => refuse!("cannot be exported: {why}"),
        None => Ok(config::write(&run.model, &text, eos)),
    }
}

impl Checkpoint {
    /// Writes `config.json` and `model.safetensors`, which `transformers` 4 and 5 load as a `GPTNeoXForCausalLM`, and
    /// the tokenizer's file if `tokenizer` is given. `eos` is the end-of-text token. Fails if the model is not a
    /// GPT-NeoX model or writing fails.
    pub fn export(&self, folder: &Path, tokenizer: Option<&TokenizerFile>, eos: Option<u16>) -> Result<()> {
        let config = config_json(&self.config, eos).map_err(|e| e.in_file(&self.place, None))?;
        // `transformers` requires the `format`.
        let format = [("format", "pt".to_owned())];
        let header = header(&self.config, &self.origin).into_iter().chain(format);
        let (model, mut theirs) = (&self.config.model, Archive::new(header));
        for (ours, name) in names::unfused(model.n_layers) {
            let value = self.value(&ours)?;
            theirs.add(name, value.dims(), || bytes(value));
        }
        for (ours, name) in names::fused(model.n_layers) {
            let [q, k, v] = [&ours[0], &ours[1], &ours[2]].map(|name| self.value(name));
            let parts = [q?, k?, v?];
            let mut shape = parts[0].dims().to_vec();
            shape[0] *= parts.len();
            let fused = move || bytes(&names::fuse(parts, model.n_heads)?);
            theirs.add(name, &shape, fused);
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
        write_atomic(&folder.join(CONFIG), config.as_bytes())
    }

    fn value(&self, name: &str) -> Result<&Tensor> {
        self.values.get(name).ok_or_else(|| Error::data(&self.place, format!("tensor {name} is missing")))
    }
}

#[cfg(test)]
mod tests;
