//! Models of flash-linear-attention (Yang & Zhang 2024): GLA, DeltaNet, Gated DeltaNet, RetNet, HGRN2 and RWKV-7.

use super::super::config_file::ConfigFile;
use super::super::tensors::{ElementOrder, TensorMaps};
use super::attention::{gated_mlp_tensors, head};
use super::{model, option, option_or, ratio, rms_norms, unlike, widths, Architecture, ModelClass, Pretrained};
use crate::config::{Activation, BlockConfig, ModelConfig, StateMixer};
use crate::error::Result;
use crate::mixers;
use serde_json::{json, Value};

/// Name of the library.
const FLA: &str = "flash-linear-attention";

/// Variant of the mixers but RetNet.
const PAPER: &str = "paper";

/// Prefix of the tensors outside the head.
const PREFIX: &str = "model.";

/// Length of windows, unless the file says otherwise.
const SEQ_LEN: usize = 2048;

/// ε of the norms of a model, unless the file says otherwise.
const EPS: f64 = 1e-6;

/// Values of keys that every model must have, if the file has the key.
fn usual(file: &ConfigFile, keys: &[(&str, Value)]) -> Result<()> {
    for key in ["attn", "attnres_block_size", "clamp_min", "feature_map"] {
        if file.given(key).is_some() {
            return Err(unlike(file, key, "but dsf supports only null"));
        }
    }
    keys.iter().try_for_each(|(key, value)| file.only(key, value))
}

/// `width`, which `key` makes, rounded down.
fn whole(file: &ConfigFile, key: &str, width: f64) -> Result<usize> {
    let most = 1usize << 24;
    if width <= most as f64 {
        return Ok(width as usize);
    }
    Err(unlike(file, key, &format!("which makes a width above {most}")))
}

/// Width of the feed-forward halves; where the file does not say it, `ratio` d rounded up to a multiple of `multiple`.
fn hidden_width(file: &ConfigFile, d: usize, usual_ratio: f64, [part, multiple]: [f64; 2]) -> Result<usize> {
    let ratio = file.real_or("hidden_ratio", usual_ratio)?;
    if file.given("intermediate_size").is_some() {
        return file.size("intermediate_size");
    }
    Ok(whole(file, "hidden_ratio", d as f64 * ratio * part)?.next_multiple_of(multiple as usize))
}

/// Model of `mixer` and gated MLPs, with the ε of its norms.
fn decoder(file: &ConfigFile, [mixer, variant]: [&str; 2], usual_ratio: f64) -> Result<(ModelConfig, f64)> {
    if file.given("hidden_act").is_some_and(|name| name != "swish" && name != "silu") {
        return Err(unlike(file, "hidden_act", "but dsf supports only swish"));
    }
    let (d, layers) = (file.size("hidden_size")?, file.size("num_hidden_layers")?);
    let width = hidden_width(file, d, usual_ratio, [2.0 / 3.0, 256.0])?;
    let mut model = model(mixer, variant, [d, layers, width]);
    let eps = file.real_or("norm_eps", EPS)?;
    model.state_mixer = StateMixer::GatedMlp;
    model.block = BlockConfig { activation: Some(Activation::Silu), tie: file.tied(false)?, ..rms_norms(eps) };
    Ok((model, eps))
}

/// Number of heads, which must be that of keys and values, too, and the widths of all keys and of all values.
fn heads(file: &ConfigFile, model: &mut ModelConfig, [keys, values]: [usize; 2]) -> Result<()> {
    let heads = file.size("num_heads")?;
    if file.size_or("num_kv_heads", heads)? != heads {
        return Err(unlike(file, "num_kv_heads", &format!("but dsf supports only the {heads} of `num_heads`")));
    }
    for (key, width) in [("expand_k", keys), ("expand_v", values)] {
        if width == 0 || !width.is_multiple_of(heads) {
            let why = format!("`{key}` makes a width of {width}, which the {heads} of `num_heads` do not divide");
            return Err(file.refused(&why));
        }
    }
    (model.n_heads, model.d_state) = (heads, keys);
    option(&mut model.options, "value_width", values, &model.d_model);
    Ok(())
}

/// Widths of keys and values by their ratios to d.
fn expanded(file: &ConfigFile, d: usize, [keys, values]: [f64; 2]) -> Result<[usize; 2]> {
    let width = |key: &str, ratio: f64| whole(file, key, file.real_or(key, ratio)? * d as f64);
    Ok([width("expand_k", keys)?, width("expand_v", values)?])
}

/// Width of a head in a model of width d, by `key`; where that is null, by `num_heads`.
fn head_width(file: &ConfigFile, key: &str, d: usize, default: usize) -> Result<usize> {
    if file.json.get(key).is_some_and(Value::is_null) {
        return file.head_width(d, file.size("num_heads")?);
    }
    let width = file.size_or(key, default)?;
    if d.is_multiple_of(width) {
        return Ok(width);
    }
    Err(file.refused(&format!("`{key}` is {width}, which does not divide a `hidden_size` of {d}")))
}

/// Model of these sizes, with the vocabulary and the longest sequence of the file.
fn sized(file: &ConfigFile, model: ModelConfig) -> Result<Pretrained> {
    let seq_len = file.size_or("max_position_embeddings", SEQ_LEN)?;
    Ok(Pretrained { model, vocab_size: file.size("vocab_size")?, seq_len })
}

/// Width of the values of all heads.
fn value_width(model: &ModelConfig) -> usize {
    option_or(&model.options, "value_width", model.d_model)
}

/// Whether a mixer has an output gate, by default if `gated`.
fn has_gate(model: &ModelConfig, gated: bool) -> bool {
    option_or(&model.options, "output_gate", gated)
}

/// Tensors of a model with gated MLPs, whose mixers have those that `mixer` adds.
fn decoder_tensors(found: &Pretrained, mixer: impl Fn(&mut TensorMaps, &ModelConfig)) -> TensorMaps {
    let (model, mut maps) = (&found.model, TensorMaps::default());
    ends(&mut maps, found, false);
    for layer in 0..model.n_layers {
        maps.within(format!("layers.{layer}."), format!("{PREFIX}layers.{layer}."));
        maps.norm("norm1", "attn_norm", model.d_model, false);
        maps.norm("norm2", "mlp_norm", model.d_model, false);
        gated_mlp_tensors(&mut maps, model, "mlp");
        mixer(&mut maps, model);
    }
    maps
}

/// Embeddings, final norm, with a bias or without, and head.
fn ends(maps: &mut TensorMaps, found: &Pretrained, bias: bool) {
    let d = found.model.d_model;
    maps.within("", PREFIX);
    maps.one("embed.tok", "embeddings.weight", &[found.vocab_size, d]);
    maps.norm("norm_f", "norm", d, bias);
    head(maps, found);
}

/// Maps of a mixer without biases: name here, name in the file, output width, input width.
fn linear_maps(maps: &mut TensorMaps, list: &[(&str, &str, usize, usize)]) {
    for (ours, theirs, rows, columns) in list {
        maps.one(&format!("mixer.{ours}"), &format!("attn.{theirs}.weight"), &[*rows, *columns]);
    }
}

/// Output gate and norm of each head of GLA and RetNet.
fn gate_and_norm(maps: &mut TensorMaps, model: &ModelConfig) {
    let (d, width) = (model.d_model, value_width(model));
    let name = match has_gate(model, true) {
        true => {
            linear_maps(maps, &[("wg", "g_proj", width, d)]);
            maps.synonym("attn.g_norm.weight", "attn.g_norm_swish_gate.weight"); // where `fuse_norm` is false
            "attn.g_norm_swish_gate.weight"
        }
        false => "attn.g_norm.weight",
    };
    maps.one("mixer.norm", name, &[width / model.n_heads]);
}

/// Keys that all models with gated MLPs write.
fn written(found: &Pretrained) -> Value {
    let model = &found.model;
    json!({
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layers,
        "num_heads": model.n_heads,
        "intermediate_size": widths(model)[0],
        "hidden_act": "swish",
        "norm_eps": model.block.eps,
        "max_position_embeddings": found.seq_len,
        "tie_word_embeddings": model.is_tied(),
        "fuse_norm": true,
    })
}

/// `json` with the ratios of the widths of keys and values to d.
fn with_expansion(mut json: Value, model: &ModelConfig) -> Value {
    json["expand_k"] = json!(ratio(model.d_state, model.d_model));
    json["expand_v"] = json!(ratio(value_width(model), model.d_model));
    json
}

pub(super) const GLA: Architecture = Architecture {
    model_type: "gla",
    class: ModelClass { name: "GLAForCausalLM", library: FLA },
    prefix: PREFIX,
    read: |file| {
        usual(file, &[("use_short_conv", json!(false)), ("elementwise_affine", json!(true))])?;
        usual(file, &[("use_gk", json!(true)), ("use_gv", json!(false)), ("residual_mode", json!("standard"))])?;
        let (mut model, eps) = decoder(file, [mixers::GLA, PAPER], 4.0)?;
        let widths = expanded(file, model.d_model, [0.5, 1.0])?;
        heads(file, &mut model, widths)?;
        let rank = file.size_or("gate_low_rank_dim", 16)?;
        let options = &mut model.options;
        options.insert("gate_rank".to_owned(), rank.to_string());
        option(options, "gate_temperature", file.real_or("gate_logit_normalizer", 16.0)?, &16.0);
        option(options, "output_gate", file.truth_or("use_output_gate", true)?, &true);
        option(options, "norm_eps", eps, &1e-5);
        sized(file, model)
    },
    tensors: |found| {
        decoder_tensors(found, |maps, model| {
            let (d, n, width) = (model.d_model, model.d_state, value_width(model));
            let rank = option_or(&model.options, "gate_rank", 16);
            linear_maps(
                maps,
                &[
                    ("wq", "q_proj", n, d),
                    ("wk", "k_proj", n, d),
                    ("wv", "v_proj", width, d),
                    ("wout", "o_proj", d, width),
                ],
            );
            linear_maps(maps, &[("wf1", "gk_proj.0", rank, d), ("wf2", "gk_proj.1", n, rank)]);
            maps.one("mixer.bf", "attn.gk_proj.1.bias", &[n]);
            gate_and_norm(maps, model);
        })
    },
    write: |found| {
        let (model, mut json) = (&found.model, with_expansion(written(found), &found.model));
        json["gate_low_rank_dim"] = json!(option_or(&model.options, "gate_rank", 16));
        json["gate_logit_normalizer"] = json!(option_or(&model.options, "gate_temperature", 16.0));
        json["use_output_gate"] = json!(has_gate(model, true));
        json
    },
};

/// Options of both delta nets.
fn delta_options(file: &ConfigFile, model: &mut ModelConfig, eps: f64, gated: bool) -> Result<()> {
    usual(file, &[("use_short_conv", json!(true))])?;
    let options = &mut model.options;
    option(options, "output_gate", file.truth_or("use_gate", gated)?, &gated);
    option(options, "negative_eigenvalues", file.truth_or("allow_neg_eigval", false)?, &false);
    option(options, "conv_width", file.size_or("conv_size", 4)?, &4);
    option(options, "conv_bias", file.truth_or("conv_bias", false)?, &true);
    option(options, "scaled_queries", true, &false);
    option(options, "norm_eps", eps, &1e-5);
    Ok(())
}

/// Tensors of a layer of both delta nets.
fn delta_tensors(maps: &mut TensorMaps, model: &ModelConfig, gated: bool) {
    let (d, width, s) = (model.d_model, value_width(model), model.n_heads);
    let n = model.d_state / s * option_or(&model.options, "key_heads", s);
    let taps = option_or(&model.options, "conv_width", 4);
    let stacked = |maps: &mut TensorMaps, ours: &str, [before, after]: [&str; 2], theirs: &[usize], rest: &[usize]| {
        let names = ["q", "k", "v"].map(|part| format!("attn.{part}{before}.{after}"));
        let shapes = [n, n, width].map(|rows| [&[rows], theirs].concat());
        let parts: Vec<(&str, &[usize])> =
            names.iter().map(String::as_str).zip(shapes.iter().map(Vec::as_slice)).collect();
        maps.add(&parts, &[(ours, &[&[2 * n + width], rest].concat())], ElementOrder::Same);
    };
    stacked(maps, "mixer.win", ["_proj", "weight"], &[d], &[d]);
    stacked(maps, "mixer.conv_w", ["_conv1d", "weight"], &[1, taps], &[taps]);
    if option_or(&model.options, "conv_bias", true) {
        stacked(maps, "mixer.conv_b", ["_conv1d", "bias"], &[], &[]);
    }
    linear_maps(maps, &[("wb", "b_proj", s, d), ("wout", "o_proj", d, width)]);
    if has_gate(model, gated) {
        linear_maps(maps, &[("wg", "g_proj", width, d)]);
    }
    maps.one("mixer.norm", "attn.o_norm.weight", &[width / s]);
}

/// `json` with the keys of [`delta_options`].
fn with_delta_options(mut json: Value, model: &ModelConfig, gated: bool) -> Value {
    let options = &model.options;
    json["use_short_conv"] = json!(true);
    json["use_gate"] = json!(has_gate(model, gated));
    json["allow_neg_eigval"] = json!(option_or(options, "negative_eigenvalues", false));
    json["conv_size"] = json!(option_or(options, "conv_width", 4));
    json["conv_bias"] = json!(option_or(options, "conv_bias", true));
    json
}

pub(super) const DELTA_NET: Architecture = Architecture {
    model_type: "delta_net",
    class: ModelClass { name: "DeltaNetForCausalLM", library: FLA },
    prefix: PREFIX,
    read: |file| {
        usual(file, &[("qk_norm", json!("l2")), ("qk_activation", json!("silu")), ("use_beta", json!(true))])?;
        usual(file, &[("use_output_norm", json!(true))])?;
        let (mut model, eps) = decoder(file, [mixers::DELTA_NET, PAPER], 4.0)?;
        let widths = expanded(file, model.d_model, [1.0, 1.0])?;
        heads(file, &mut model, widths)?;
        delta_options(file, &mut model, eps, false)?;
        sized(file, model)
    },
    tensors: |found| decoder_tensors(found, |maps, model| delta_tensors(maps, model, false)),
    write: |found| with_delta_options(with_expansion(written(found), &found.model), &found.model, false),
};

pub(super) const GATED_DELTA_NET: Architecture = Architecture {
    model_type: "gated_deltanet",
    class: ModelClass { name: "GatedDeltaNetForCausalLM", library: FLA },
    prefix: PREFIX,
    read: |file| {
        usual(file, &[("output_gate_activation", json!("swish"))])?;
        let (mut model, eps) = decoder(file, [mixers::GATED_DELTA_NET, PAPER], 4.0)?;
        let (key_heads, width) = (file.size("num_heads")?, file.size_or("head_dim", 256)?);
        let heads = file.size_or("num_v_heads", key_heads)?;
        if !heads.is_multiple_of(key_heads) {
            return Err(unlike(file, "num_v_heads", &format!("which the {key_heads} of `num_heads` do not divide")));
        }
        (model.n_heads, model.d_state) = (heads, heads * width);
        let values = heads * whole(file, "expand_v", file.real_or("expand_v", 2.0)? * width as f64)?;
        option(&mut model.options, "value_width", values, &model.d_model);
        option(&mut model.options, "key_heads", key_heads, &heads);
        delta_options(file, &mut model, eps, true)?;
        sized(file, model)
    },
    tensors: |found| {
        decoder_tensors(found, |maps, model| {
            let (d, s) = (model.d_model, model.n_heads);
            delta_tensors(maps, model, true);
            linear_maps(maps, &[("wa", "a_proj", s, d)]);
            maps.one("mixer.bdt", "attn.dt_bias", &[s]);
            maps.one("mixer.a_log", "attn.A_log", &[s]);
        })
    },
    write: |found| {
        let model = &found.model;
        let (mut json, heads) = (with_delta_options(written(found), model, true), model.n_heads);
        json["num_heads"] = json!(option_or(&model.options, "key_heads", heads));
        json["num_v_heads"] = json!(heads);
        json["head_dim"] = json!(model.d_state / heads);
        json["expand_v"] = json!(ratio(value_width(model) / heads, model.d_state / heads));
        json
    },
};

pub(super) const RETNET: Architecture = Architecture {
    model_type: "retnet",
    class: ModelClass { name: "RetNetForCausalLM", library: FLA },
    prefix: PREFIX,
    read: |file| {
        usual(file, &[("elementwise_affine", json!(true))])?;
        let (mut model, eps) = decoder(file, [mixers::RETNET, "block"], 2.0)?;
        let widths = expanded(file, model.d_model, [1.0, 2.0])?;
        heads(file, &mut model, widths)?;
        if !(model.d_state / model.n_heads).is_multiple_of(2) {
            return Err(unlike(
                file,
                "expand_k",
                "which makes the width of a head's keys odd; they are rotated in pairs",
            ));
        }
        option(&mut model.options, "output_gate", file.truth_or("use_output_gate", true)?, &true);
        option(&mut model.options, "norm_weights", true, &false);
        option(&mut model.options, "norm_eps", eps, &1e-6);
        sized(file, model)
    },
    tensors: |found| {
        decoder_tensors(found, |maps, model| {
            let (d, n, width) = (model.d_model, model.d_state, value_width(model));
            for part in ["q", "k"] {
                let [ours, theirs] = [format!("mixer.w{part}"), format!("attn.{part}_proj.weight")];
                let order = ElementOrder::Halves(model.n_heads);
                maps.add(&[(theirs.as_str(), &[n, d])], &[(ours.as_str(), &[n, d])], order);
            }
            linear_maps(maps, &[("wv", "v_proj", width, d), ("wout", "o_proj", d, width)]);
            gate_and_norm(maps, model);
        })
    },
    write: |found| {
        let mut json = with_expansion(written(found), &found.model);
        json["use_output_gate"] = json!(has_gate(&found.model, true));
        json
    },
};

pub(super) const HGRN2: Architecture = Architecture {
    model_type: "hgrn2",
    class: ModelClass { name: "HGRN2ForCausalLM", library: FLA },
    prefix: PREFIX,
    read: |file| {
        usual(file, &[("use_short_conv", json!(false)), ("elementwise_affine", json!(true))])?;
        let (mut model, _) = decoder(file, [mixers::HGRN2, PAPER], 4.0)?;
        let d = model.d_model;
        (model.n_heads, model.d_state) = (d / head_width(file, "expand_ratio", d, 128)?, d);
        let bound = if file.truth_or("use_lower_bound", true)? { "learnt" } else { "0" };
        model.options.insert("lower_bound".to_owned(), bound.to_owned());
        option(&mut model.options, "scaled_queries", true, &false);
        sized(file, model)
    },
    tensors: |found| {
        let mut maps = decoder_tensors(found, |maps, model| {
            let d = model.d_model;
            linear_maps(
                maps,
                &[("wq", "q_proj", d, d), ("wf", "f_proj", d, d), ("wv", "i_proj", d, d), ("wout", "o_proj", d, d)],
            );
            maps.one("mixer.norm", "attn.g_norm.weight", &[d]);
        });
        if has_learnt_bounds(&found.model) {
            maps.within("", PREFIX);
            maps.one("lower_bounds", "lower_bounds", &[found.model.n_layers, found.model.d_model]);
        }
        maps
    },
    write: |found| {
        let mut json = written(found);
        json["expand_ratio"] = json!(found.model.d_model / found.model.n_heads);
        json["use_lower_bound"] = json!(has_learnt_bounds(&found.model));
        json
    },
};

/// Whether the forget gates of HGRN2 have lower bounds that were trained.
fn has_learnt_bounds(model: &ModelConfig) -> bool {
    model.options.get("lower_bound").is_some_and(|bound| bound == "learnt")
}

/// Rank of one of RWKV-7's low-rank projections in a file.
struct RankKey {
    key: &'static str,
    /// Option of the mixer.
    option: &'static str,
    /// Rank where the file has not the key.
    default: usize,
    /// Factor of √d in the rank, a multiple of 32, where the key is null.
    factor: f64,
    /// Whether the width of a head multiplies that factor.
    by_head: bool,
}

const RANKS: [RankKey; 4] = [
    RankKey { key: "decay_low_rank_dim", option: "lora_rank", default: 64, factor: 2.5, by_head: true },
    RankKey { key: "a_low_rank_dim", option: "a_rank", default: 64, factor: 2.5, by_head: true },
    RankKey { key: "gate_low_rank_dim", option: "g_rank", default: 128, factor: 5.0, by_head: false },
    RankKey { key: "v_low_rank_dim", option: "v_rank", default: 16, factor: 1.7, by_head: true },
];

impl RankKey {
    /// Rank in a file of a model of width d with heads of width `head`.
    fn read(&self, file: &ConfigFile, d: usize, head: usize) -> Result<usize> {
        if !file.json.get(self.key).is_some_and(Value::is_null) {
            return file.size_or(self.key, self.default);
        }
        let factor = if self.by_head { self.factor * head as f64 / 64.0 } else { self.factor };
        let rank = (factor * (d as f64).sqrt() / 32.0).round_ties_even() * 32.0;
        Ok((rank as usize).max(32))
    }
}

/// ε of the length of removal keys where a file's `fuse_norm` is false: the length is max(|k|, 1e-12).
const TINY: f64 = 1e-24;

/// Rank that one of [`RANKS`] sets.
fn rank(model: &ModelConfig, option: &str) -> usize {
    option_or(&model.options, option, option_or(&model.options, "lora_rank", 16))
}

pub(super) const RWKV7: Architecture = Architecture {
    model_type: "rwkv7",
    class: ModelClass { name: "RWKV7ForCausalLM", library: FLA },
    prefix: PREFIX,
    read: |file| {
        usual(file, &[("hidden_act", json!("sqrelu")), ("norm_bias", json!(true))])?;
        let (d, layers) = (file.size("hidden_size")?, file.size("num_hidden_layers")?);
        let head = head_width(file, "head_dim", d, 64)?;
        let other = |width: &Value| width.as_u64() != Some(d as u64);
        if file
            .given("value_dim")
            .is_some_and(|dims| dims.as_array().map_or(other(dims), |dims| dims.iter().any(other)))
        {
            return Err(unlike(
                file,
                "value_dim",
                &format!("but dsf supports only {d}, the `hidden_size`, in all layers"),
            ));
        }
        let width = hidden_width(file, d, 4.0, [1.0, 32.0])?;
        let mut model = model(mixers::RWKV7, PAPER, [d, layers, width]);
        (model.n_heads, model.d_state) = (d / head, d);
        model.state_mixer = StateMixer::ShiftedMlp;
        let eps = file.real_or("norm_eps", 1e-5)?;
        model.block = BlockConfig {
            eps: Some(eps).filter(|eps| *eps != 1e-5),
            tie: file.tied(false)?,
            embed_norm: file.truth_or("norm_first", true)?,
            ..BlockConfig::default()
        };
        for key in RANKS {
            let rank = key.read(file, d, head)?;
            match key.option {
                "lora_rank" => drop(model.options.insert(key.option.to_owned(), rank.to_string())),
                name => {
                    let of_w = option_or(&model.options, "lora_rank", 16);
                    option(&mut model.options, name, rank, &of_w);
                }
            }
        }
        let options = &mut model.options;
        option(options, "value_residual", true, &false);
        option(options, "norm_eps", eps * head as f64, &64e-5);
        option(options, "key_eps", if file.truth_or("fuse_norm", true)? { 1e-6 } else { TINY }, &1e-6);
        sized(file, model)
    },
    tensors: |found| {
        let (model, mut maps) = (&found.model, TensorMaps::default());
        let (d, n, [m, _]) = (model.d_model, model.d_state, widths(model));
        ends(&mut maps, found, true);
        if model.block.embed_norm {
            maps.within("", PREFIX);
            maps.norm("embed.norm", "layers.0.pre_norm", d, true);
        }
        for layer in 0..model.n_layers {
            maps.within(format!("layers.{layer}."), format!("{PREFIX}layers.{layer}."));
            maps.norm("norm1", "attn_norm", d, true);
            maps.norm("norm2", "ffn_norm", d, true);
            for part in ["r", "w", "k", "v", "a", "g"] {
                let [ours, theirs] = [format!("mixer.mu_{part}"), format!("attn.x_{part}")];
                maps.shaped((&ours, &[d]), (&theirs, &[1, 1, d]));
            }
            maps.one("mixer.key_scale", "attn.k_k", &[n]);
            maps.one("mixer.key_share", "attn.k_a", &[n]);
            maps.shaped(("mixer.bonus", &[n]), ("attn.r_k", &[model.n_heads, n / model.n_heads]));
            linear_maps(
                &mut maps,
                &[("wr", "r_proj", n, d), ("wk", "k_proj", n, d), ("wv", "v_proj", d, d), ("wout", "o_proj", d, d)],
            );
            for (part, option, rows, bias) in [
                ("w", "w_rank", n, true),
                ("a", "a_rank", n, true),
                ("g", "g_rank", d, false),
                ("v", "v_rank", d, true),
            ] {
                if part == "v" && layer == 0 {
                    continue;
                }
                let (rank, lora) = (rank(model, option), format!("attn.{part}_lora.lora"));
                maps.one(&format!("mixer.w{part}1"), &format!("{lora}.0.weight"), &[rank, d]);
                maps.one(&format!("mixer.w{part}2"), &format!("{lora}.2.weight"), &[rows, rank]);
                if bias {
                    maps.one(&format!("mixer.b{part}"), &format!("{lora}.2.bias"), &[rows]);
                }
            }
            maps.affine("mixer.", "attn.g_norm", &[d], ("norm", Some("bnorm")));
            maps.one("mlp.mu_k", "ffn.x_k", &[d]);
            maps.one("mlp.wk", "ffn.key.weight", &[m, d]);
            maps.one("mlp.wv", "ffn.value.weight", &[d, m]);
        }
        maps
    },
    write: |found| {
        let model = &found.model;
        let mut json = json!({
            "hidden_size": model.d_model,
            "num_hidden_layers": model.n_layers,
            "head_dim": model.d_state / model.n_heads,
            "num_heads": model.n_heads,
            "value_dim": vec![model.d_model; model.n_layers],
            "intermediate_size": widths(model)[0],
            "hidden_act": "sqrelu",
            "norm_first": model.block.embed_norm,
            "norm_bias": true,
            "norm_eps": model.block.eps.unwrap_or(1e-5),
            "max_position_embeddings": found.seq_len,
            "tie_word_embeddings": model.is_tied(),
            "fuse_norm": option_or(&model.options, "key_eps", 1e-6) == 1e-6,
        });
        for RankKey { key, option, .. } in RANKS {
            json[key] = json!(rank(model, option));
        }
        json
    },
};
