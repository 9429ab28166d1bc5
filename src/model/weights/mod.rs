//! Trained weights of a language model on disk: this program's files, and pretrained models in the layout of Hugging
//! Face.
//!
//! This program writes a safetensors file of the model's parameters by name. Its header holds `config`, the canonical
//! text of the run's config, and the `run`, `epoch` and `step` of the weights.

mod hf;
mod mapped;
mod values;

use super::{Io, LanguageModel};
use crate::config::RunConfig;
use crate::error::{refuse, Error, Result};
use crate::files::write_atomic_by;
use crate::nn::Params;
use crate::store::{Archive, Weights};
use crate::tasks::wikitext::WikitextConfig;
use crate::tasks::Sources;
use candle_core::{DType, Device, Tensor};
use mapped::Mapped;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
pub use values::WeightValues;

/// File of a run's weights at the epoch with the best validation score.
const BEST: &str = Weights::Best.file();
/// File of a run's weights at its end.
const LAST: &str = Weights::Last.file();

const CONFIG: &str = "config";
const RUN: &str = "run";
const EPOCH: &str = "epoch";
const STEP: &str = "step";

/// Whether `folder` holds a pretrained model in the layout of Hugging Face, not a run of this program.
pub fn is_pretrained(folder: &Path) -> bool {
    ![BEST, LAST].iter().any(|name| folder.join(name).is_file()) && hf::is_in(folder)
}

/// Class of a library, with a language-model head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelClass {
    /// Name of the class.
    pub name: &'static str,
    /// Library that has it.
    pub library: &'static str,
}

/// Weights of a model with the config and origin they belong to.
#[derive(Debug)]
pub struct Checkpoint {
    /// Config of the run that trained them; that of an imported model has no epochs.
    pub config: RunConfig,
    /// Run, epoch and step of the weights.
    pub origin: WeightsOrigin,
    /// Class that saved it, if it was read from files of another library.
    pub architecture: Option<ModelClass>,
    /// Weights by name.
    pub values: WeightValues,
    /// File or folder of the weights, for messages.
    pub place: PathBuf,
    /// Files of the weights, in the order of their names.
    pub files: Vec<PathBuf>,
}

/// Run, epoch and step at which weights were saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightsOrigin {
    /// Id of the run; `None` if the weights were trained elsewhere.
    pub run: Option<String>,
    /// Number of finished epochs.
    pub epoch: usize,
    /// Number of optimiser steps made.
    pub step: usize,
}

impl WeightsOrigin {
    fn read(metadata: &HashMap<String, String>) -> Self {
        let number = |key| metadata.get(key).and_then(|text| text.parse().ok());
        Self {
            run: metadata.get(RUN).filter(|run| !run.is_empty()).cloned(),
            epoch: number(EPOCH).unwrap_or(0),
            step: number(STEP).unwrap_or(0),
        }
    }
}

impl Checkpoint {
    /// Opens the weights at `path`: a file, the folder of a run (its best weights, or else its last), or the folder of
    /// a Hugging Face model. Fails with the name of the file and the defect, or if the weights are not those of a
    /// language model.
    pub fn open(path: &Path) -> Result<Self> {
        let found = Self::of_any_task(path)?;
        if !found.config.task.entry()?.objective.is_language_model() {
            let task = found.config.task.name();
            return Err(Error::data(&found.place, format!("weights of `dsf {task}`, not of a language model")));
        }
        Ok(found)
    }

    /// Same as [`Self::open`] for the model of any task.
    pub fn of_any_task(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return Self::open_file(path);
        }
        match [BEST, LAST].map(|name| path.join(name)).iter().find(|file| file.is_file()) {
            Some(file) => Self::open_file(file),
            None if hf::is_in(path) => hf::read(path),
            None => refuse!(
                path path,
                "contains no weights: neither {BEST} or {LAST} of a run of `dsf wikitext`, nor a model.safetensors of Hugging Face"
            ),
        }
    }

    fn open_file(path: &Path) -> Result<Self> {
        let file = Mapped::open(path)?;
        if hf::is_file(path, &file) {
            return hf::read_file(path, file);
        }
        let refused = |why: &str| Error::data(path, why);
        let Some(text) = file.metadata.get(CONFIG) else {
            return Err(refused(reason_without_config(&file)));
        };
        let config = RunConfig::parse(text, &path.display().to_string())?;
        Ok(Self {
            origin: WeightsOrigin::read(&file.metadata),
            architecture: None,
            values: file.floats(|_| true)?.into(),
            place: path.to_owned(),
            files: vec![path.to_owned()],
            config,
        })
    }

    /// Twelve hex digits of a SHA-256 over the files of the weights, whatever their names.
    pub fn digest(&self) -> Result<String> {
        let mut sources = Sources::default();
        for (number, file) in self.files.iter().enumerate() {
            sources.push(number.to_string(), file.clone());
        }
        sources.digest()
    }

    /// Data set and tokenizer that the model was trained on.
    pub fn text(&self) -> Result<WikitextConfig> {
        self.config.task.typed()
    }

    /// Number of parameters of the model. The weights of a pretrained one have been compared with its config when it
    /// was opened.
    pub fn check(&self) -> Result<usize> {
        let sizes = self.values.sizes();
        if !self.values.is_mapped() {
            self.model(&Device::Cpu)?;
        }
        Ok(sizes.values().sum())
    }

    /// Numbers that the model keeps per sequence after `seq_len` tokens. No weight is read.
    pub fn state_size(&self, seq_len: usize) -> Result<usize> {
        let io = Io::of(&self.config.task)?;
        let model = LanguageModel::new(&self.config.model, io, &Params::without_values(DType::F32))?;
        Ok(model.state_size(seq_len))
    }

    /// Builds the model, without gradients, in the precision of its run on `device`. Fails with the name of a tensor
    /// that is missing, misshapen or not part of the model.
    pub fn model(&self, device: &Device) -> Result<LanguageModel> {
        self.model_of([DType::F32, self.config.train.precision.activations(device)], device)
    }

    /// Same as [`Self::model`] with parameters and activations of `dtype`.
    pub fn model_in(&self, dtype: DType, device: &Device) -> Result<LanguageModel> {
        self.model_of([dtype; 2], device)
    }

    fn model_of(&self, [dtype, activations]: [DType; 2], device: &Device) -> Result<LanguageModel> {
        let refused = |why: &str| Error::data(&self.place, why);
        let params = Params::given(self.values.clone(), dtype, device).for_activations(activations).detached();
        let io = Io::of(&self.config.task)?;
        let model = LanguageModel::new(&self.config.model, io, &params);
        let model = model.map_err(|e| refused(e.to_string().lines().next().unwrap_or("")))?;
        let used = params.vars();
        let known = |name: &String| used.iter().any(|(used, _)| used == name);
        match self.values.sizes().keys().find(|name| !known(name)) {
            Some(name) => Err(refused(&format!("its model has no parameter {name}"))),
            None => Ok(model),
        }
    }

    /// Writes the weights to a safetensors file, in f32.
    pub fn save(&self, path: &Path) -> Result<()> {
        let values = self.values.all()?;
        let archive = archive(&self.config, &self.origin, &values);
        write_atomic_by(path, |out| archive.write(out))
    }
}

/// Safetensors file of `weights` by name, in f32. Its header holds the config and `origin`.
pub fn archive<'a>(
    config: &RunConfig,
    origin: &WeightsOrigin,
    weights: impl IntoIterator<Item = (&'a String, &'a Tensor)>,
) -> Archive<'a> {
    let mut archive = Archive::new(header(config, origin)).digested();
    for (name, tensor) in weights {
        archive.add(name.clone(), tensor.dims(), || bytes(tensor));
    }
    archive
}

fn header(config: &RunConfig, origin: &WeightsOrigin) -> [(&'static str, String); 4] {
    let WeightsOrigin { run, epoch, step } = origin;
    [
        (CONFIG, config.canonical()),
        (RUN, run.clone().unwrap_or_default()),
        (EPOCH, epoch.to_string()),
        (STEP, step.to_string()),
    ]
}

/// Reason for which a file without a config is refused.
fn reason_without_config(file: &Mapped) -> &'static str {
    if file.metadata.contains_key("progress") {
        return "is the checkpoint of an unfinished run, which writes its first weights after an epoch with a finite validation loss";
    }
    if file.names.iter().any(|name| name == "embed.tok") {
        return "has no `config` in its header, which describes the model";
    }
    "has neither weights of `dsf wikitext` nor, beside it, the config.json of a pretrained model"
}

/// Bytes of a tensor as little-endian f32.
fn bytes(tensor: &Tensor) -> candle_core::Result<Vec<u8>> {
    let values = tensor.to_dtype(DType::F32)?.flatten_all()?;
    Ok(values.to_vec1::<f32>()?.into_iter().flat_map(f32::to_le_bytes).collect())
}

#[cfg(test)]
mod tests;
