//! Pretrained models with softmax attention: GPT-NeoX (Pythia), GPT-2 and Llama.

use super::super::config_file::{activation_name, rotary_share, ConfigFile, BASE};
use super::super::tensors::{ElementOrder, TensorMaps};
use super::{model, option, option_or, rms_norms, rotate, widths, Architecture, ModelClass, Pretrained, TRANSFORMERS};
use crate::config::{Activation, BlockConfig, Hybrid, HybridLayers, InitScheme, Layout, ModelConfig, StateMixer};
use crate::error::Result;
use crate::mixers::SOFTMAX;
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// Variant of softmax attention with an output projection.
pub(super) const REFERENCE: &str = "reference";

pub(super) const GPT_NEOX: Architecture = Architecture {
    model_type: "gpt_neox",
    class: ModelClass { name: "GPTNeoXForCausalLM", library: TRANSFORMERS },
    prefix: "gpt_neox.",
    read: |file| {
        file.only("use_parallel_residual", &json!(true))?;
        file.only("attention_bias", &json!(true))?;
        let (d, heads) = (file.size("hidden_size")?, file.size("num_attention_heads")?);
        let head = file.head_width(d, heads)?;
        let sizes = [d, file.size("num_hidden_layers")?, file.size("intermediate_size")?];
        let mut model = ModelConfig { d_state: d, n_heads: heads, ..model(SOFTMAX, REFERENCE, sizes) };
        model.layout = Layout::Parallel;
        // The runs of this program start so.
        if let Some(language) = &mut model.language {
            language.init = InitScheme::Pythia;
        }
        let activation = file.activation("hidden_act", "gelu")?;
        model.block = BlockConfig {
            eps: Some(file.real_or("layer_norm_eps", 1e-5)?).filter(|eps| *eps != 1e-5),
            activation: Some(activation).filter(|activation| *activation != Activation::Gelu),
            tie: file.tied(false)?,
            ..BlockConfig::default()
        };
        rotate(&mut model, &file.rope(head, 0.25)?);
        Ok(Pretrained { model, vocab_size: file.size("vocab_size")?, seq_len: file.size("max_position_embeddings")? })
    },
    tensors: |found| {
        let (model, mut maps) = (&found.model, TensorMaps::default());
        let (d, [m, _]) = (model.d_model, widths(model));
        maps.within("", "gpt_neox.");
        maps.one("embed.tok", "embed_in.weight", &[found.vocab_size, d]);
        maps.norm("norm_f", "final_layer_norm", d, true);
        maps.within("", "");
        if !model.is_tied() {
            maps.one("head.weight", "embed_out.weight", &[found.vocab_size, d]);
        }
        for layer in 0..model.n_layers {
            maps.within(format!("layers.{layer}."), format!("gpt_neox.layers.{layer}."));
            maps.norm("norm1", "input_layernorm", d, true);
            maps.norm("norm2", "post_attention_layernorm", d, true);
            let names = |kind: &str| ["q", "k", "v"].map(|part| format!("mixer.{kind}{part}"));
            for (kind, theirs, shape) in [("w", "weight", &[d, d][..]), ("b", "bias", &[d][..])] {
                let fused = [&[3 * d], &shape[1..]].concat();
                let [q, k, v] = names(kind);
                let theirs = format!("attention.query_key_value.{theirs}");
                let ours = [(q.as_str(), shape), (k.as_str(), shape), (v.as_str(), shape)];
                maps.add(&[(theirs.as_str(), &fused)], &ours, ElementOrder::ByHead(model.n_heads));
            }
            maps.affine("mixer.", "attention.dense", &[d, d], ("wout", Some("bout")));
            maps.affine("mlp.", "mlp.dense_h_to_4h", &[m, d], ("w1", Some("b1")));
            maps.affine("mlp.", "mlp.dense_4h_to_h", &[d, m], ("w2", Some("b2")));
        }
        maps
    },
    write: |found| {
        let model = &found.model;
        let ([width, dims], head) = (widths(model), model.d_model / model.n_heads);
        // Without rotary channels, `transformers` fails.
        let share = (dims > 0).then(|| rotary_share(dims, head));
        let base = model.block.rotary_base.unwrap_or(BASE);
        json!({
            "hidden_size": model.d_model,
            "num_hidden_layers": model.n_layers,
            "num_attention_heads": model.n_heads,
            "intermediate_size": width,
            "max_position_embeddings": found.seq_len,
            "hidden_act": activation_name(model.block.activation),
            "layer_norm_eps": model.block.eps.unwrap_or(1e-5),
            "use_parallel_residual": true,
            "attention_bias": true,
            "tie_word_embeddings": model.is_tied(),
            "rotary_emb_base": base,
            "rotary_pct": share,
            "rope_parameters": { "rope_type": "default", "rope_theta": base, "partial_rotary_factor": share },
            "attention_dropout": 0.0,
            "hidden_dropout": 0.0,
            "initializer_range": 0.02,
        })
    },
};

pub(super) const GPT2: Architecture = Architecture {
    model_type: "gpt2",
    class: ModelClass { name: "GPT2LMHeadModel", library: TRANSFORMERS },
    prefix: "transformer.",
    read: |file| {
        file.only("scale_attn_weights", &json!(true))?;
        file.only("scale_attn_by_inverse_layer_idx", &json!(false))?;
        file.only("add_cross_attention", &json!(false))?;
        let (d, heads) = (file.size("n_embd")?, file.size("n_head")?);
        file.head_width(d, heads)?;
        let sizes = [d, file.size("n_layer")?, file.size_or("n_inner", 4 * d)?];
        let activation = file.activation("activation_function", "gelu_new")?;
        let block = BlockConfig {
            eps: Some(file.real_or("layer_norm_epsilon", 1e-5)?).filter(|eps| *eps != 1e-5),
            activation: Some(activation).filter(|activation| *activation != Activation::Gelu),
            tie: file.tied(true)?,
            ..BlockConfig::default()
        };
        let model =
            ModelConfig { d_state: d, n_heads: heads, positions: true, block, ..model(SOFTMAX, REFERENCE, sizes) };
        Ok(Pretrained { model, vocab_size: file.size("vocab_size")?, seq_len: file.size("n_positions")? })
    },
    tensors: |found| {
        let (model, mut maps) = (&found.model, TensorMaps::default());
        let (d, [m, _]) = (model.d_model, widths(model));
        maps.within("", "transformer.");
        maps.one("embed.tok", "wte.weight", &[found.vocab_size, d]);
        maps.one("embed.pos", "wpe.weight", &[found.seq_len, d]);
        maps.norm("norm_f", "ln_f", d, true);
        head(&mut maps, found);
        for layer in 0..model.n_layers {
            maps.within(format!("layers.{layer}."), format!("transformer.h.{layer}."));
            maps.norm("norm1", "ln_1", d, true);
            maps.norm("norm2", "ln_2", d, true);
            let (square, row): (&[usize], &[usize]) = (&[d, d], &[d]);
            let qkv = [("mixer.wq", square), ("mixer.wk", square), ("mixer.wv", square)];
            maps.add(&[("attn.c_attn.weight", &[d, 3 * d])], &qkv, ElementOrder::Transposed);
            let qkv = [("mixer.bq", row), ("mixer.bk", row), ("mixer.bv", row)];
            maps.add(&[("attn.c_attn.bias", &[3 * d])], &qkv, ElementOrder::Same);
            for (theirs, ours, bias, [out, into]) in [
                ("attn.c_proj", "mixer.wout", "mixer.bout", [d, d]),
                ("mlp.c_fc", "mlp.w1", "mlp.b1", [m, d]),
                ("mlp.c_proj", "mlp.w2", "mlp.b2", [d, m]),
            ] {
                let weight = format!("{theirs}.weight");
                maps.add(&[(weight.as_str(), &[into, out])], &[(ours, &[out, into])], ElementOrder::Transposed);
                maps.one(bias, &format!("{theirs}.bias"), &[out]);
            }
        }
        maps
    },
    write: |found| {
        let model = &found.model;
        json!({
            "n_embd": model.d_model,
            "n_layer": model.n_layers,
            "n_head": model.n_heads,
            "n_inner": widths(model)[0],
            "n_positions": found.seq_len,
            "n_ctx": found.seq_len,
            "activation_function": match model.block.activation {
                Some(Activation::GeluTanh) => "gelu_new",
                other => activation_name(other),
            },
            "layer_norm_epsilon": model.block.eps.unwrap_or(1e-5),
            "tie_word_embeddings": model.is_tied(),
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        })
    },
};

pub(super) const LLAMA: Architecture = Architecture {
    model_type: "llama",
    class: ModelClass { name: "LlamaForCausalLM", library: TRANSFORMERS },
    prefix: "model.",
    read: |file| {
        let d = file.size("hidden_size")?;
        let sizes = [d, file.size("num_hidden_layers")?, file.size("intermediate_size")?];
        let bias = if file.truth_or("attention_bias", false)? { "all" } else { "none" };
        let attention = GroupedAttention::read(file, d, bias)?;
        let mut model = model(SOFTMAX, REFERENCE, sizes);
        attention.apply(&mut model);
        model.state_mixer = StateMixer::GatedMlp;
        model.block =
            BlockConfig { tie: file.tied(false)?, ..gated_mlp(file, rms_norms(file.real_or("rms_norm_eps", 1e-6)?))? };
        rotate(&mut model, &file.rope(attention.width, 1.0)?);
        Ok(Pretrained {
            model,
            vocab_size: file.size("vocab_size")?,
            seq_len: file.size_or("max_position_embeddings", 2048)?,
        })
    },
    tensors: |found| {
        let norms = ["input_layernorm", "post_attention_layernorm", "norm"];
        decoder_tensors(found, norms, ["mlp", "self_attn"], |maps, model| {
            GroupedAttention::of(model, &model.options).tensors(maps, "self_attn");
        })
    },
    write: |found| {
        let model = &found.model;
        let attention = GroupedAttention::of(model, &model.options);
        let mut json = json!({
            "hidden_size": model.d_model,
            "num_hidden_layers": model.n_layers,
            "intermediate_size": widths(model)[0],
            "max_position_embeddings": found.seq_len,
            "hidden_act": activation_name(model.block.activation),
            "rms_norm_eps": model.block.eps,
            "mlp_bias": model.block.bias == Some(true),
            "tie_word_embeddings": model.is_tied(),
            "head_dim": attention.width,
        });
        attention.write(&mut json, model);
        json
    },
};

/// Head of a model, `lm_head` in the file, unless the token table is shared.
pub(super) fn head(maps: &mut TensorMaps, found: &Pretrained) {
    maps.within("", "");
    if !found.model.is_tied() {
        maps.one("head.weight", "lm_head.weight", &[found.vocab_size, found.model.d_model]);
    }
}

/// Block whose gated MLP is that of `file`.
pub(super) fn gated_mlp(file: &ConfigFile, block: BlockConfig) -> Result<BlockConfig> {
    let activation = file.activation("hidden_act", "silu")?;
    Ok(BlockConfig {
        activation: Some(activation).filter(|activation| *activation != Activation::Gelu),
        bias: file.truth_or("mlp_bias", false)?.then_some(true),
        ..block
    })
}

/// Tensors of a decoder with gated MLPs: norms before the mixer, before the MLP and at the end, and MLP and attention,
/// under these names; the mixer of layers that are not a hybrid's attention, by `others`.
pub(super) fn decoder_tensors(
    found: &Pretrained,
    [norm1, norm2, norm_f]: [&str; 3],
    [mlp, attention]: [&str; 2],
    others: impl Fn(&mut TensorMaps, &ModelConfig),
) -> TensorMaps {
    let (model, mut maps) = (&found.model, TensorMaps::default());
    let d = model.d_model;
    maps.within("", "model.");
    maps.one("embed.tok", "embed_tokens.weight", &[found.vocab_size, d]);
    maps.norm("norm_f", norm_f, d, false);
    head(&mut maps, found);
    let grouped = GroupedAttention::of_hybrid(model);
    for layer in 0..model.n_layers {
        maps.within(format!("layers.{layer}."), format!("model.layers.{layer}."));
        maps.norm("norm1", norm1, d, false);
        maps.norm("norm2", norm2, d, false);
        gated_mlp_tensors(&mut maps, model, mlp);
        match model.hybrid.as_ref().is_some_and(|hybrid| hybrid.has(layer)) {
            true => grouped.tensors(&mut maps, attention),
            false => others(&mut maps, model),
        }
    }
    maps
}

/// Maps of a gated MLP, which the file keeps as three.
pub(super) fn gated_mlp_tensors(maps: &mut TensorMaps, model: &ModelConfig, theirs: &str) {
    let (d, [m, _]) = (model.d_model, widths(model));
    let named = |part: &str| format!("{theirs}.{part}");
    let stacked = |maps: &mut TensorMaps, kind: &str, ours: &str, rest: &[usize]| {
        let half = [&[m], rest].concat();
        let both = [&[2 * m], rest].concat();
        let [gate, up] = ["gate_proj", "up_proj"].map(|part| named(&format!("{part}.{kind}")));
        maps.add(&[(gate.as_str(), &half), (up.as_str(), &half)], &[(ours, &both)], ElementOrder::Same);
    };
    stacked(maps, "weight", "mlp.grow", &[d]);
    maps.one("mlp.shrink", &named("down_proj.weight"), &[d, m]);
    if model.block.bias == Some(true) {
        stacked(maps, "bias", "mlp.grow_b", &[]);
        maps.one("mlp.shrink_b", &named("down_proj.bias"), &[d]);
    }
}

/// Sizes of softmax attention whose keys and values may be shared by several heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupedAttention<'a> {
    pub d: usize,
    pub heads: usize,
    pub kv_heads: usize,
    /// Width of a head.
    pub width: usize,
    /// Maps with biases: `all`, `out`, `none`.
    pub bias: &'a str,
}

impl<'a> GroupedAttention<'a> {
    pub fn read(file: &ConfigFile, d: usize, bias: &'a str) -> Result<Self> {
        let heads = file.size("num_attention_heads")?;
        let width = match file.given("head_dim") {
            Some(_) => file.size("head_dim")?,
            None => file.head_width(d, heads)?,
        };
        let kv_heads = file.size_or("num_key_value_heads", heads)?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(
                file.refused(&format!("`num_key_value_heads` is {kv_heads}, which does not divide {heads} heads"))
            );
        }
        Ok(Self { d, heads, kv_heads, width, bias })
    }

    /// Attention of the layers of `model` whose mixer has these options.
    pub fn of(model: &ModelConfig, options: &'a BTreeMap<String, String>) -> Self {
        let heads = model.hybrid.as_ref().and_then(|hybrid| hybrid.n_heads).unwrap_or(model.n_heads);
        Self {
            d: model.d_model,
            heads,
            kv_heads: option_or(options, "kv_heads", heads),
            width: option_or(options, "head_dim", model.d_model / heads.max(1)),
            bias: options.get("bias").map_or("all", String::as_str),
        }
    }

    /// Attention of the layers of another mixer in `model`; of all layers if there are none.
    pub fn of_hybrid(model: &'a ModelConfig) -> Self {
        Self::of(model, model.hybrid.as_ref().map_or(&model.options, |hybrid| &hybrid.options))
    }

    /// Gives the `layers` of `model` this attention as `mixer`, which has the options `further`, too.
    pub fn apply_to(
        &self,
        model: &mut ModelConfig,
        layers: Vec<usize>,
        mixer: &str,
        further: impl IntoIterator<Item = (String, String)>,
    ) {
        let mut options = self.options();
        options.extend(further);
        model.hybrid = Some(Hybrid {
            mixer: mixer.to_owned(),
            layers: HybridLayers::At(layers),
            n_heads: Some(self.heads),
            d_state: Some(self.features()),
            variant: REFERENCE.to_owned(),
            options,
        });
    }

    /// Query and key width.
    pub fn features(&self) -> usize {
        self.heads * self.width
    }

    pub fn options(&self) -> BTreeMap<String, String> {
        let mut options = BTreeMap::new();
        option(&mut options, "kv_heads", self.kv_heads, &self.heads);
        option(&mut options, "bias", self.bias, &"all");
        if self.features() != self.d {
            options.insert("head_dim".to_owned(), self.width.to_string());
        }
        options
    }

    /// Gives all layers of `model` this attention.
    pub fn apply(&self, model: &mut ModelConfig) {
        (model.d_state, model.n_heads, model.options) = (self.features(), self.heads, self.options());
    }

    /// Maps of a layer, which are below `theirs` in the file.
    pub fn tensors(&self, maps: &mut TensorMaps, theirs: &str) {
        let (all, kv) = (self.features(), self.kv_heads * self.width);
        let qkv = matches!(self.bias, "all" | "qkv");
        let out = matches!(self.bias, "all" | "out");
        for (part, ours, bias, shape, biased) in [
            ("q_proj", "wq", "bq", [all, self.d], qkv),
            ("k_proj", "wk", "bk", [kv, self.d], qkv),
            ("v_proj", "wv", "bv", [kv, self.d], qkv),
            ("o_proj", "wout", "bout", [self.d, all], out),
        ] {
            maps.affine("mixer.", &format!("{theirs}.{part}"), &shape, (ours, biased.then_some(bias)));
        }
    }

    /// Writes the sizes and the rotary positions of `model` to a `config.json`.
    pub fn write(&self, json: &mut Value, model: &ModelConfig) {
        let base = model.block.rotary_base.unwrap_or(BASE);
        let share = rotary_share(widths(model)[1], self.width);
        json["num_attention_heads"] = json!(self.heads);
        json["num_key_value_heads"] = json!(self.kv_heads);
        json["attention_bias"] = json!(self.bias == "all");
        json["attention_dropout"] = json!(0.0);
        json["rope_theta"] = json!(base);
        json["partial_rotary_factor"] = json!(share);
        json["rope_parameters"] = json!({ "rope_type": "default", "rope_theta": base, "partial_rotary_factor": share });
    }
}
