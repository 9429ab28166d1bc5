//! Reading and writing of `config.json` of a GPT-NeoX model.

use crate::config::{InitScheme, LanguageConfig, Layout, MapInit, ModelConfig, PositionEmbedding, Rotary, StateMixer};
use crate::error::{Error, Result};
use crate::mixers::GPT_NEOX;
use crate::tasks::wikitext::WikitextConfig;
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// Model and sizes described by the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HfShape {
    pub model: ModelConfig,
    pub vocab_size: usize,
    /// Longest sequence for which the model was trained.
    pub seq_len: usize,
}

/// Parsed file and its name for errors.
struct ConfigFile<'a> {
    json: Value,
    place: &'a str,
}

impl ConfigFile<'_> {
    fn refused(&self, why: &str) -> Error {
        Error::data(self.place, why)
    }

    fn size(&self, key: &str) -> Result<usize> {
        let size = self.json[key].as_u64().filter(|n| (1..=1 << 24).contains(n));
        let size = size.and_then(|n| usize::try_from(n).ok());
        size.ok_or_else(|| self.refused(&format!("`{key}` is missing or not a size")))
    }

    /// Fails if `key` is present with a value other than `wanted`.
    fn only(&self, key: &str, wanted: &Value) -> Result<()> {
        self.only_in(&self.json, key, wanted)
    }

    fn only_in(&self, object: &Value, key: &str, wanted: &Value) -> Result<()> {
        let same = |found: &Value| match (found.as_f64(), wanted.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs(),
            _ => found == wanted,
        };
        match object.get(key) {
            None => Ok(()),
            Some(found) if same(found) || (found.is_null() && wanted == &json!(false)) => Ok(()),
            Some(found) => Err(self.refused(&format!("`{key}` is {found}, but dsf supports only {wanted}"))),
        }
    }

    /// Fraction of a head's channels with rotary positions, under any of its three names.
    fn rotary_share(&self) -> f64 {
        let rope = self.rope();
        let shares = [&rope["partial_rotary_factor"], &self.json["partial_rotary_factor"], &self.json["rotary_pct"]];
        shares.iter().find_map(|s| s.as_f64()).unwrap_or(0.25)
    }

    fn rope(&self) -> &Value {
        &self.json["rope_parameters"]
    }
}

/// Keys and values that all models of this program have in common.
fn fixed() -> [(&'static str, Value); 6] {
    [
        ("hidden_act", json!("gelu")),
        ("layer_norm_eps", json!(1e-5)),
        ("use_parallel_residual", json!(true)),
        ("attention_bias", json!(true)),
        ("tie_word_embeddings", json!(false)),
        ("rotary_emb_base", json!(10_000)),
    ]
}

/// Reads the text of a `config.json`. Fails if the file describes another kind of model or has a feature that this
/// program's model lacks.
pub(super) fn read(text: &str, place: &str) -> Result<HfShape> {
    let json: Value =
        serde_json::from_str(text).map_err(|e| Error::data(place, format!("not the config of a model: {e}")))?;
    let file = ConfigFile { json, place };
    if file.json["model_type"] != "gpt_neox" {
        let kind = &file.json["model_type"];
        return Err(file.refused(&format!("`model_type` is {kind}, not \"gpt_neox\"")));
    }
    let other = [("rope_theta", json!(10_000)), ("rope_scaling", json!(false))];
    for (key, wanted) in fixed().into_iter().chain(other) {
        file.only(key, &wanted)?;
    }
    file.only_in(file.rope(), "rope_theta", &json!(10_000))?;
    file.only_in(file.rope(), "rope_type", &json!("default"))?;
    let (d, heads) = (file.size("hidden_size")?, file.size("num_attention_heads")?);
    if !d.is_multiple_of(heads) {
        return Err(file.refused(&format!("{heads} heads do not divide a width of {d}")));
    }
    let dims = (file.rotary_share() * (d / heads) as f64) as usize;
    if !dims.is_multiple_of(2) || dims > d / heads {
        return Err(file.refused(&format!("it has {dims} rotary channels in heads of width {}", d / heads)));
    }
    Ok(HfShape {
        model: ModelConfig {
            mixer: GPT_NEOX.0.to_owned(),
            variant: GPT_NEOX.1.to_owned(),
            options: BTreeMap::new(),
            d_model: d,
            d_state: d,
            n_heads: heads,
            n_layers: file.size("num_hidden_layers")?,
            layout: Layout::Parallel,
            state_mixer: StateMixer::Mlp,
            positions: false,
            position_embedding: PositionEmbedding::Learnt,
            short_conv: false,
            state_norm: false,
            map_init: MapInit::Released,
            embed_dropout: 0.0,
            attn_dropout: 0.0,
            expand: None,
            hybrid: None,
            classifier: None,
            language: Some(LanguageConfig {
                mlp_width: file.size("intermediate_size")?,
                rotary: if dims == 0 { Rotary::None } else { Rotary::Pre },
                rotary_dims: dims,
                init: InitScheme::Pythia,
            }),
        },
        vocab_size: file.size("vocab_size")?,
        seq_len: file.size("max_position_embeddings")?,
    })
}

/// Returns the reason why `model` is not a GPT-NeoX model, or `None` if it is one.
pub(super) fn mismatch(model: &ModelConfig) -> Option<String> {
    let Some(language) = &model.language else {
        return Some("it is not a model of `dsf wikitext`".to_owned());
    };
    let other = |what: &str, is: &str, there: &str| Some(format!("{what} is `{is}`, but GPT-NeoX has only `{there}`"));
    let (mixer, variant) = GPT_NEOX;
    if model.mixer != mixer {
        return other("the mixer", &model.mixer, mixer);
    }
    if let Some(hybrid) = &model.hybrid {
        return other("the mixer of some layers", &hybrid.mixer, mixer);
    }
    if model.variant != variant {
        return other(&format!("the variant of {mixer}"), &model.variant, variant);
    }
    if model.layout != Layout::Parallel || model.state_mixer != StateMixer::Mlp {
        return Some("the layout is not Pythia's".to_owned());
    }
    let around =
        [(model.short_conv, "a short convolution in front of"), (model.state_norm, "a norm behind the state of")];
    if let Some((_, what)) = around.iter().find(|(has, _)| *has) {
        return Some(format!("there is {what} its mixers, but none in GPT-NeoX"));
    }
    if model.d_state != model.d_model {
        return Some(format!(
            "queries and keys have width {}, but in GPT-NeoX they have the width of the model, {}",
            model.d_state, model.d_model
        ));
    }
    // Without a feature map, rotary positions before and after it are the same.
    let turned = language.rotary != Rotary::None && language.rotary_dims > 0;
    (!turned).then(|| "it has no rotary positions, but GPT-NeoX always has them".to_owned())
}

/// Returns the `config.json` of `model`, for which [`mismatch`] must be `None`, with the keys of `transformers` 4 and
/// 5. The end-of-text token `eos` is written even if it is null: without the key, `transformers` would use id 2.
pub(super) fn write(model: &ModelConfig, text: &WikitextConfig, eos: Option<u16>) -> String {
    let (width, dims) = model.language.as_ref().map_or((0, 0), |l| (l.mlp_width, l.rotary_dims));
    let share = share(dims, model.d_model / model.n_heads);
    let mut config = json!({
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layers,
        "num_attention_heads": model.n_heads,
        "intermediate_size": width,
        "vocab_size": text.vocab_size,
        "max_position_embeddings": text.seq_len,
        "rotary_pct": share,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": share,
        },
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "initializer_range": 0.02,
        "bos_token_id": eos,
        "eos_token_id": eos,
        "use_cache": true,
        "torch_dtype": "float32",
    });
    for (key, value) in fixed() {
        config[key] = value;
    }
    format!("{config:#}\n")
}

/// Returns a `rotary_pct` from which `transformers`, which rounds down, computes `dims` rotary channels out of `width`.
fn share(dims: usize, width: usize) -> f64 {
    let (dims, width) = (dims as f64, width as f64);
    let share = dims / width;
    if (share * width).trunc() == dims {
        share
    } else {
        (dims + 0.5) / width
    }
}

#[cfg(test)]
mod tests;
