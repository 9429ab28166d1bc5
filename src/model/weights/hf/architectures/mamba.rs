//! Pretrained state space models: Mamba, Falcon-Mamba, Mamba-2 and Bamba.

use super::super::config_file::{activation_name, ConfigFile};
use super::super::tensors::{ElementOrder, TensorMaps};
use super::attention::{decoder_tensors, gated_mlp, head, GroupedAttention};
use super::{
    model, option, option_or, ratio, rms_norms, rotate, unlike, widths, Architecture, ModelClass, Pretrained,
    TRANSFORMERS, USUAL_LENGTH,
};
use crate::config::{BlockConfig, Hybrid, HybridLayers, Layout, ModelConfig, StateMixer};
use crate::error::Result;
use crate::mixers;
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// Variant of both mixers.
const BLOCK: &str = "block";

pub(super) const MAMBA: Architecture = Architecture {
    model_type: "mamba",
    class: ModelClass { name: "MambaForCausalLM", library: TRANSFORMERS },
    prefix: "backbone.",
    read: |file| read_mamba(file, None),
    tensors: mamba_tensors,
    write: write_mamba,
};

pub(super) const FALCON_MAMBA: Architecture = Architecture {
    model_type: "falcon_mamba",
    class: ModelClass { name: "FalconMambaForCausalLM", library: TRANSFORMERS },
    prefix: "backbone.",
    read: |file| read_mamba(file, Some(file.real_or("mixer_rms_eps", 1e-6)?)),
    tensors: mamba_tensors,
    write: |found| {
        let mut json = write_mamba(found);
        json["mixer_rms_eps"] = json!(option_or(&found.model.options, "norm_eps", 1e-6));
        json
    },
};

/// Reads a Mamba model. `norm_eps` is the ε of Falcon-Mamba's norms of B, C and Δ; Mamba has none.
fn read_mamba(file: &ConfigFile, norm_eps: Option<f64>) -> Result<Pretrained> {
    file.only("hidden_act", &json!("silu"))?;
    let (d, layers) = (file.size("hidden_size")?, file.size("num_hidden_layers")?);
    let mut model = backbone(file, d, layers, mixers::MAMBA, true)?;
    let rank = match file.given("time_step_rank").and_then(Value::as_str) {
        Some("auto") => d.div_ceil(16),
        _ => file.size_or("time_step_rank", d.div_ceil(16))?,
    };
    let width = match file.given("intermediate_size") {
        Some(_) => file.size("intermediate_size")?,
        None => (file.real_or("expand", 2.0)? * d as f64) as usize,
    };
    model.expand = Some(ratio(width, d));
    model.options.insert("dt_rank".to_owned(), rank.to_string());
    if let Some(eps) = norm_eps {
        model.options.insert("bcdt_norm".to_owned(), "rms".to_owned());
        option(&mut model.options, "norm_eps", eps, &1e-6);
    }
    Ok(Pretrained { model, vocab_size: file.size("vocab_size")?, seq_len: USUAL_LENGTH })
}

/// Model of `mixer` blocks without a feed-forward half, with its convolution and biases as in the file.
fn backbone(file: &ConfigFile, d: usize, layers: usize, mixer: &str, tie: bool) -> Result<ModelConfig> {
    let mut model = model(mixer, BLOCK, [d, layers, 4 * d]);
    (model.layout, model.state_mixer) = (Layout::Mamba, StateMixer::None);
    model.d_state = file.size_or("state_size", 16)?;
    model.block = BlockConfig { tie: file.tied(tie)?, ..rms_norms(file.real_or("layer_norm_epsilon", 1e-5)?) };
    let keys = ["conv_kernel", "use_conv_bias", "use_bias"];
    convolution(file, keys, &mut model.options)?;
    Ok(model)
}

/// Options of the convolution and of the biases of a mixer, by the keys of the file.
fn convolution(
    file: &ConfigFile,
    [width, conv_bias, bias]: [&str; 3],
    options: &mut BTreeMap<String, String>,
) -> Result<()> {
    option(options, "conv_width", file.size_or(width, 4)?, &4);
    option(options, "conv_bias", file.truth_or(conv_bias, true)?, &true);
    option(options, "bias", file.truth_or(bias, false)?, &false);
    Ok(())
}

/// Writes the keys of [`convolution`].
fn write_convolution(json: &mut Value, [width, conv_bias, bias]: [&str; 3], options: &BTreeMap<String, String>) {
    json[width] = json!(option_or(options, "conv_width", 4));
    json[conv_bias] = json!(option_or(options, "conv_bias", true));
    json[bias] = json!(option_or(options, "bias", false));
}

/// Inner width of a mixer.
fn inner_width(model: &ModelConfig) -> usize {
    (model.expand.unwrap_or(2.0) * model.d_model as f64) as usize
}

/// Ratio of the inner width to d, which `transformers` takes only as a whole number.
fn whole_ratio(model: &ModelConfig) -> Option<u64> {
    let ratio = model.expand.unwrap_or(2.0);
    (ratio.fract() == 0.0).then_some(ratio as u64)
}

/// Ends of a model below `backbone`, and the norm of each layer.
fn ends(maps: &mut TensorMaps, found: &Pretrained) {
    let d = found.model.d_model;
    maps.within("", "backbone.");
    maps.one("embed.tok", "embeddings.weight", &[found.vocab_size, d]);
    maps.norm("norm_f", "norm_f", d, false);
    head(maps, found);
}

/// Convolution over `channels` and output projection, which are below `theirs` in the file.
fn shared_tensors(maps: &mut TensorMaps, model: &ModelConfig, channels: usize, theirs: &str) {
    let (options, taps) = (&model.options, option_or(&model.options, "conv_width", 4));
    let weight = format!("{theirs}.conv1d.weight");
    maps.shaped(("mixer.conv_w", &[channels, taps]), (weight.as_str(), &[channels, 1, taps]));
    if option_or(options, "conv_bias", true) {
        maps.one("mixer.conv_b", &format!("{theirs}.conv1d.bias"), &[channels]);
    }
    let (shape, bias) = ([model.d_model, inner_width(model)], option_or(options, "bias", false));
    maps.affine("mixer.", &format!("{theirs}.out_proj"), &shape, ("wout", bias.then_some("bout")));
}

fn mamba_tensors(found: &Pretrained) -> TensorMaps {
    let (model, mut maps) = (&found.model, TensorMaps::default());
    let (d, n, width) = (model.d_model, model.d_state, inner_width(model));
    let rank = option_or(&model.options, "dt_rank", d.div_ceil(16));
    let bias = option_or(&model.options, "bias", false);
    ends(&mut maps, found);
    for layer in 0..model.n_layers {
        maps.within(format!("layers.{layer}."), format!("backbone.layers.{layer}."));
        maps.norm("norm1", "norm", d, false);
        maps.affine("mixer.", "mixer.in_proj", &[2 * width, d], ("win", bias.then_some("bin")));
        shared_tensors(&mut maps, model, width, "mixer");
        let parts: [(&str, &[usize]); 3] =
            [("mixer.wu", &[rank, width]), ("mixer.wb", &[n, width]), ("mixer.wc", &[n, width])];
        maps.add(&[("mixer.x_proj.weight", &[rank + 2 * n, width])], &parts, ElementOrder::Same);
        maps.affine("mixer.", "mixer.dt_proj", &[width, rank], ("wdt", Some("bdt")));
        maps.one("mixer.a_log", "mixer.A_log", &[width, n]);
        maps.one("mixer.dskip", "mixer.D", &[width]);
    }
    maps
}

fn write_mamba(found: &Pretrained) -> Value {
    let model = &found.model;
    let mut json = json!({
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layers,
        "state_size": model.d_state,
        "intermediate_size": inner_width(model),
        "expand": whole_ratio(model),
        "time_step_rank": option_or(&model.options, "dt_rank", model.d_model.div_ceil(16)),
        "layer_norm_epsilon": model.block.eps,
        "hidden_act": "silu",
        "tie_word_embeddings": model.is_tied(),
    });
    write_convolution(&mut json, ["conv_kernel", "use_conv_bias", "use_bias"], &model.options);
    json
}

pub(super) const MAMBA2: Architecture = Architecture {
    model_type: "mamba2",
    class: ModelClass { name: "Mamba2ForCausalLM", library: TRANSFORMERS },
    prefix: "backbone.",
    read: |file| {
        file.only("hidden_act", &json!("silu"))?;
        file.only("rms_norm", &json!(true))?;
        let (d, layers) = (file.size("hidden_size")?, file.size("num_hidden_layers")?);
        let mut model = backbone(file, d, layers, mixers::MAMBA2, false)?;
        model.d_state = file.size_or("state_size", 128)?;
        model.n_heads = file.size("num_heads")?;
        let width = model.n_heads * file.size("head_dim")?;
        if (file.real_or("expand", 2.0)? * d as f64) as usize != width {
            return Err(unlike(file, "expand", &format!("but the heads have {width} channels in all")));
        }
        model.expand = Some(ratio(width, d));
        groups(&mut model.options, file.size_or("n_groups", 8)?);
        option(&mut model.options, "norm_eps", file.real_or("layer_norm_epsilon", 1e-5)?, &1e-5);
        dt_limit(file, &mut model.options)?;
        Ok(Pretrained { model, vocab_size: file.size("vocab_size")?, seq_len: USUAL_LENGTH })
    },
    tensors: |found| {
        let (model, mut maps) = (&found.model, TensorMaps::default());
        ends(&mut maps, found);
        for layer in 0..model.n_layers {
            maps.within(format!("layers.{layer}."), format!("backbone.layers.{layer}."));
            maps.norm("norm1", "norm", model.d_model, false);
            mamba2_tensors(&mut maps, model, "mixer");
        }
        maps
    },
    write: |found| {
        let model = &found.model;
        let mut json = json!({
            "hidden_size": model.d_model,
            "num_hidden_layers": model.n_layers,
            "state_size": model.d_state,
            "expand": whole_ratio(model),
            "num_heads": model.n_heads,
            "head_dim": inner_width(model) / model.n_heads.max(1),
            "n_groups": option_or(&model.options, "groups", 1),
            "layer_norm_epsilon": model.block.eps,
            "hidden_act": "silu",
            "time_step_limit": written_limit(&model.options),
            "tie_word_embeddings": model.is_tied(),
        });
        write_convolution(&mut json, ["conv_kernel", "use_conv_bias", "use_bias"], &model.options);
        json
    },
};

/// Options of Mamba-2 for groups of B and C, each with a norm of its own.
fn groups(options: &mut BTreeMap<String, String>, count: usize) {
    option(options, "groups", count, &1);
    option(options, "norm_groups", count, &1);
}

/// Bounds of Δ from `time_step_limit`, where infinity may be a number, a word or an object with that word.
fn dt_limit(file: &ConfigFile, options: &mut BTreeMap<String, String>) -> Result<()> {
    let Some(limit) = file.given("time_step_limit") else {
        return Ok(());
    };
    let bound = |value: &Value| {
        let word = value.as_str().or(value["__float__"].as_str());
        value.as_f64().or(word.filter(|word| word.to_lowercase().starts_with("inf")).map(|_| f64::INFINITY))
    };
    match [&limit[0], &limit[1]].map(bound) {
        [Some(low), Some(high)] if low == 0.0 && high.is_infinite() => Ok(()),
        [Some(low), Some(high)] if low >= 0.0 && low < high => {
            options.insert("dt_limit".to_owned(), format!("{low}:{high}"));
            Ok(())
        }
        _ => Err(unlike(file, "time_step_limit", "not two bounds of 0 or more")),
    }
}

/// The keys of [`dt_limit`].
fn written_limit(options: &BTreeMap<String, String>) -> Value {
    let limit = options.get("dt_limit").map_or("0:inf", String::as_str);
    let bound = |text: &str| match text.parse::<f64>() {
        Ok(number) if number.is_finite() => json!(number),
        _ => json!({ "__float__": "Infinity" }),
    };
    let (low, high) = limit.split_once(':').unwrap_or(("0", "inf"));
    json!([bound(low), bound(high)])
}

/// Maps of a layer of Mamba-2, which are below `theirs` in the file.
fn mamba2_tensors(maps: &mut TensorMaps, model: &ModelConfig, theirs: &str) {
    let (d, n, heads, width) = (model.d_model, model.d_state, model.n_heads, inner_width(model));
    let channels = width + 2 * n * option_or(&model.options, "groups", 1);
    let bias = option_or(&model.options, "bias", false);
    let shape = [width + channels + heads, d];
    maps.affine("mixer.", &format!("{theirs}.in_proj"), &shape, ("win", bias.then_some("bin")));
    shared_tensors(maps, model, channels, theirs);
    for (ours, name, size) in [("bdt", "dt_bias", heads), ("a_log", "A_log", heads), ("dskip", "D", heads)] {
        maps.one(&format!("mixer.{ours}"), &format!("{theirs}.{name}"), &[size]);
    }
    maps.one("mixer.norm", &format!("{theirs}.norm.weight"), &[width]);
}

pub(super) const BAMBA: Architecture = Architecture {
    model_type: "bamba",
    class: ModelClass { name: "BambaForCausalLM", library: TRANSFORMERS },
    prefix: "model.",
    read: |file| {
        let (d, layers) = (file.size("hidden_size")?, file.size("num_hidden_layers")?);
        let sizes = [d, layers, file.size("intermediate_size")?];
        let eps = file.real_or("rms_norm_eps", 1e-5)?;
        let mut model = model(mixers::MAMBA2, BLOCK, sizes);
        (model.d_state, model.n_heads) = (file.size("mamba_d_state")?, file.size("mamba_n_heads")?);
        model.expand = Some(file.real_or("mamba_expand", 2.0)?);
        convolution(file, BAMBA_KEYS, &mut model.options)?;
        groups(&mut model.options, file.size_or("mamba_n_groups", 1)?);
        option(&mut model.options, "norm_eps", eps, &1e-5);
        dt_limit(file, &mut model.options)?;
        model.state_mixer = StateMixer::GatedMlp;
        model.block = BlockConfig { tie: file.tied(false)?, ..gated_mlp(file, rms_norms(eps))? };
        let bias = if file.truth_or("attention_bias", false)? { "all" } else { "none" };
        let attention = GroupedAttention::read(file, d, bias)?;
        let indices = file.given("attn_layer_indices").and_then(Value::as_array).cloned().unwrap_or_default();
        let indices: Vec<usize> = indices.iter().filter_map(|i| usize::try_from(i.as_u64()?).ok()).collect();
        if indices.iter().any(|&layer| layer >= layers) || !indices.is_sorted_by(|a, b| a < b) {
            return Err(unlike(file, "attn_layer_indices", &format!("not ascending indices of {layers} layers")));
        }
        if !indices.is_empty() {
            attention.apply_to(&mut model, indices, mixers::SOFTMAX, None);
            rotate(&mut model, &file.rope(attention.width, 0.5)?);
        }
        Ok(Pretrained {
            model,
            vocab_size: file.size("vocab_size")?,
            seq_len: file.size_or("max_position_embeddings", 262_144)?,
        })
    },
    tensors: |found| {
        let norms = ["input_layernorm", "pre_ff_layernorm", "final_layernorm"];
        decoder_tensors(found, norms, ["feed_forward", "self_attn"], |maps, model| mamba2_tensors(maps, model, "mamba"))
    },
    write: |found| {
        let model = &found.model;
        let mut json = json!({
            "hidden_size": model.d_model,
            "num_hidden_layers": model.n_layers,
            "intermediate_size": widths(model)[0],
            "max_position_embeddings": found.seq_len,
            "mamba_d_state": model.d_state,
            "mamba_n_heads": model.n_heads,
            "mamba_d_head": inner_width(model) / model.n_heads.max(1),
            "mamba_expand": whole_ratio(model),
            "mamba_n_groups": option_or(&model.options, "groups", 1),
            "rms_norm_eps": model.block.eps,
            "hidden_act": activation_name(model.block.activation),
            "mlp_bias": model.block.bias == Some(true),
            "time_step_limit": written_limit(&model.options),
            "tie_word_embeddings": model.is_tied(),
        });
        write_convolution(&mut json, BAMBA_KEYS, &model.options);
        if let Some(Hybrid { layers: HybridLayers::At(layers), options, .. }) = &model.hybrid {
            json["attn_layer_indices"] = json!(layers);
            GroupedAttention::of(model, options).write(&mut json, model);
        } else {
            json["num_attention_heads"] = json!(1);
        }
        json
    },
};

/// Width of the convolution, its bias, and the biases of the projections in Bamba.
const BAMBA_KEYS: [&str; 3] = ["mamba_d_conv", "mamba_conv_bias", "mamba_proj_bias"];
