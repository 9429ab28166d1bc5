//! Architectures of `transformers` and of flash-linear-attention. To add one, write its three functions and its row in [`ARCHITECTURES`].

mod attention;
mod fla;
mod mamba;
mod recurrent_gemma;
mod rwkv;
mod xlstm;

use super::super::ModelClass;
use super::config_file::{ConfigFile, Rope, BASE};
use super::tensors::TensorMaps;
use crate::config::{
    BlockConfig, InitScheme, LanguageConfig, Layout, MapInit, ModelConfig, NormKind, Rotary, StateMixer,
};
use crate::error::{Error, Result};
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Model and sizes that a `config.json` describes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pretrained {
    pub model: ModelConfig,
    pub vocab_size: usize,
    /// Longest sequence for which the model was trained; for models without a limit, a usual length.
    pub seq_len: usize,
}

/// Library of most architectures.
const TRANSFORMERS: &str = "transformers";

/// Architecture of a pretrained model.
pub(super) struct Architecture {
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// Its class.
    pub class: ModelClass,
    /// Prefix of the tensors outside the head, which some files leave out.
    pub prefix: &'static str,
    /// Model that the file describes. Fails with the key of a feature that this program's model lacks.
    pub read: fn(&ConfigFile) -> Result<Pretrained>,
    /// Correspondence of its tensors.
    pub tensors: fn(&Pretrained) -> TensorMaps,
    /// Keys of the `config.json` of a model; not all models have this architecture, so that the keys must be read again
    /// and compared.
    pub write: fn(&Pretrained) -> Value,
}

/// All architectures.
pub(super) static ARCHITECTURES: &[Architecture] = &[
    attention::GPT_NEOX,
    attention::GPT2,
    attention::LLAMA,
    mamba::MAMBA,
    mamba::FALCON_MAMBA,
    mamba::MAMBA2,
    mamba::BAMBA,
    recurrent_gemma::RECURRENT_GEMMA,
    rwkv::RWKV,
    xlstm::XLSTM,
    fla::GLA,
    fla::DELTA_NET,
    fla::GATED_DELTA_NET,
    fla::RETNET,
    fla::HGRN2,
    fla::RWKV7,
];

impl Architecture {
    /// Architecture of a parsed `config.json`. Fails if it is unknown or its weights are quantised.
    pub fn of(file: &ConfigFile) -> Result<&'static Self> {
        let kind = &file.json["model_type"];
        let Some(found) = ARCHITECTURES.iter().find(|one| kind == one.model_type) else {
            let known: Vec<&str> = ARCHITECTURES.iter().map(|one| one.model_type).collect();
            return Err(file.refused(&format!("`model_type` is {kind}, not one of {}", known.join(", "))));
        };
        if file.given("quantization_config").is_some() {
            return Err(file.refused("`quantization_config`: its weights are quantised; needed are f32, f16 or bf16"));
        }
        Ok(found)
    }

    /// Architecture whose files can hold the weights of `model`, and the keys of its `config.json`; or else the
    /// difference to the nearest one, as the end of a sentence.
    pub fn holding(model: &Pretrained) -> Result<(&'static Self, Value), String> {
        let wanted = as_computed(&model.model);
        let mut nearest: Option<(&str, Vec<String>)> = None;
        for one in ARCHITECTURES {
            let file = ConfigFile { json: one.config_of(model), place: "" };
            let Ok(found) = (one.read)(&file) else { continue };
            let apart = differences(&as_computed(&found.model), &wanted);
            if apart.is_empty() {
                return Ok((one, file.json));
            }
            if nearest.as_ref().is_none_or(|(_, least)| apart.len() < least.len()) {
                nearest = Some((one.class.name, apart));
            }
        }
        let (class, apart) = nearest.unwrap_or(("of none", Vec::new()));
        Err(format!("the nearest architecture, {class}, differs in {}", apart.join(", ")))
    }

    fn config_of(&self, model: &Pretrained) -> Value {
        let mut json = (self.write)(model);
        json["architectures"] = json!([self.class.name]);
        json["model_type"] = json!(self.model_type);
        json["vocab_size"] = json!(model.vocab_size);
        json
    }
}

/// `model` without what only matters in training: initial values, dropout, and a window shorter than its positions.
fn as_computed(model: &ModelConfig) -> ModelConfig {
    let mut model = ModelConfig {
        map_init: MapInit::Released,
        embed_dropout: 0.0,
        attn_dropout: 0.0,
        n_positions: None,
        ..model.clone()
    };
    if let Some(language) = &mut model.language {
        language.init = InitScheme::Hf;
    }
    model
}

/// Fields in which two models differ, with their values.
fn differences(theirs: &ModelConfig, ours: &ModelConfig) -> Vec<String> {
    let [theirs, ours] = [theirs, ours].map(|model| serde_json::to_value(model).unwrap_or_default());
    let mut found = Vec::new();
    differ("", &theirs, &ours, &mut found);
    found
}

fn differ(name: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
    match (theirs.as_object(), ours.as_object()) {
        (Some(a), Some(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            names.into_iter().for_each(|key| differ(key, &theirs[key], &ours[key], found));
        }
        _ if theirs == ours => {}
        _ => found.push(format!("`{name}` ({theirs} in place of {ours})")),
    }
}

/// Length of windows of models that read sequences of any length.
const USUAL_LENGTH: usize = 2048;

/// Model of `layers` layers of width `d` around `mixer` in its `variant`: blocks of two halves after norms, no positions.
fn model(mixer: &str, variant: &str, [d, layers, mlp_width]: [usize; 3]) -> ModelConfig {
    ModelConfig {
        layout: Layout::Transformer,
        state_mixer: StateMixer::Mlp,
        language: Some(LanguageConfig { mlp_width, rotary: Rotary::None, rotary_dims: 0, init: InitScheme::Hf }),
        ..ModelConfig::bare(mixer, variant, [d, layers])
    }
}

/// Sets the rotary positions of `model`.
fn rotate(model: &mut ModelConfig, rope: &Rope) {
    if let Some(language) = model.language.as_mut().filter(|_| rope.dims > 0) {
        (language.rotary, language.rotary_dims) = (Rotary::Pre, rope.dims);
    }
    model.block.rotary_base = Some(rope.base).filter(|base| *base != BASE);
}

/// Blocks with RMS norms of this ε.
fn rms_norms(eps: f64) -> BlockConfig {
    BlockConfig { norm: Some(NormKind::Rms), eps: Some(eps), ..BlockConfig::default() }
}

/// Option `name` of a mixer with this value, unless that is the default.
fn option<T: ToString + PartialEq>(options: &mut BTreeMap<String, String>, name: &str, value: T, default: &T) {
    if value != *default {
        options.insert(name.to_owned(), value.to_string());
    }
}

/// Value of the option `name`, or `default`.
fn option_or<T: std::str::FromStr>(options: &BTreeMap<String, String>, name: &str, default: T) -> T {
    options.get(name).and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Ratio of an inner width to `d` from which that width is computed without loss.
fn ratio(width: usize, d: usize) -> f64 {
    let (width, d) = (width as f64, d as f64);
    let ratio = width / d;
    if (ratio * d).floor() == width {
        ratio
    } else {
        (width + 0.5) / d
    }
}

/// Hidden width of the feed-forward halves, and number of rotary channels.
fn widths(model: &ModelConfig) -> [usize; 2] {
    model.language.as_ref().map_or([0, 0], |language| [language.mlp_width, language.rotary_dims])
}

/// Refusal of a `config.json` with a value that this program's model has not.
fn unlike(file: &ConfigFile, key: &str, why: &str) -> Error {
    file.refused(&format!("`{key}` is {}, {why}", file.json[key]))
}

#[cfg(test)]
mod tests;
