//! RecurrentGemma (Botev et al. 2024): Griffin's recurrent blocks and local attention, of which several heads share
//! keys and values.

use super::super::config_file::{activation_name, ConfigFile};
use super::super::tensors::{ElementOrder, TensorMaps};
use super::attention::{decoder_tensors, GroupedAttention};
use super::{model, option, option_or, rotate, unlike, widths, Architecture, ModelClass, Pretrained, TRANSFORMERS};
use crate::config::{BlockConfig, ModelConfig, NormKind, StateMixer};
use crate::error::Result;
use crate::mixers;
use half::bf16;
use serde_json::{json, Value};

/// Variant of the RG-LRU that is Griffin's recurrent block.
const GRIFFIN: &str = "griffin";

/// Length of the windows that the released models were trained on.
const TRAINED_LENGTH: usize = 8192;

pub(super) const RECURRENT_GEMMA: Architecture = Architecture {
    model_type: "recurrent_gemma",
    class: ModelClass { name: "RecurrentGemmaForCausalLM", library: TRANSFORMERS },
    prefix: "model.",
    read: |file| {
        let (d, layers) = (file.size("hidden_size")?, file.size("num_hidden_layers")?);
        file.only("hidden_activation", &json!("gelu_pytorch_tanh"))?;
        let bias = if file.truth_or("attention_bias", false)? { "all" } else { "out" };
        let attention = GroupedAttention::read(file, d, bias)?;
        let mut model = model(mixers::RG_LRU, GRIFFIN, [d, layers, file.size("intermediate_size")? / 2]);
        option(&mut model.options, "width", file.size_or("lru_width", d)?, &d);
        option(&mut model.options, "blocks", attention.heads, &1);
        option(&mut model.options, "conv_width", file.size_or("conv1d_width", 4)?, &4);
        model.state_mixer = StateMixer::GatedMlp;
        model.block = BlockConfig {
            norm: Some(NormKind::RmsOffset),
            eps: Some(file.real_or("rms_norm_eps", 1e-6)?),
            activation: Some(file.activation("hidden_activation", "gelu_pytorch_tanh")?),
            bias: Some(true),
            tie: file.tied(true)?,
            // Kept in bf16 by the authors' code, whatever the precision of the model.
            embed_scale: Some(bf16::from_f64((d as f64).sqrt()).to_f64()),
            logit_cap: Some(file.real_or("logits_soft_cap", 30.0)?),
            ..BlockConfig::default()
        };
        let attends = attention_layers(file, layers)?;
        if !attends.is_empty() {
            let window = file.size_or("attention_window_size", 2048)?.to_string();
            attention.apply_to(&mut model, attends, mixers::SLIDING_WINDOW, Some(("window".to_owned(), window)));
            rotate(&mut model, &file.rope(attention.width, 0.5)?);
        }
        Ok(Pretrained { model, vocab_size: file.size("vocab_size")?, seq_len: TRAINED_LENGTH })
    },
    tensors: |found| {
        let norms = ["temporal_pre_norm", "channel_pre_norm", "final_norm"];
        decoder_tensors(found, norms, ["mlp_block", "temporal_block"], recurrent_tensors)
    },
    write: |found| {
        let model = &found.model;
        let mut json = json!({
            "hidden_size": model.d_model,
            "num_hidden_layers": model.n_layers,
            "intermediate_size": 2 * widths(model)[0],
            "lru_width": option_or(&model.options, "width", model.d_model),
            "conv1d_width": option_or(&model.options, "conv_width", 4),
            "hidden_activation": activation_name(model.block.activation),
            "rms_norm_eps": model.block.eps,
            "logits_soft_cap": model.block.logit_cap,
            "tie_word_embeddings": model.is_tied(),
            "num_attention_heads": option_or(&model.options, "blocks", 1),
            "block_types": (0..model.n_layers).map(|layer| block_type(model, layer)).collect::<Vec<_>>(),
        });
        if let Some(hybrid) = &model.hybrid {
            json["attention_window_size"] = json!(option_or(&hybrid.options, "window", 64));
            GroupedAttention::of(model, &hybrid.options).write(&mut json, model);
        }
        json
    },
};

const RECURRENT: &str = "recurrent";

fn block_type(model: &ModelConfig, layer: usize) -> &'static str {
    let attends = model.hybrid.as_ref().is_some_and(|hybrid| hybrid.has(layer));
    if attends {
        "attention"
    } else {
        RECURRENT
    }
}

/// Layers of attention: `block_types`, repeated.
fn attention_layers(file: &ConfigFile, layers: usize) -> Result<Vec<usize>> {
    let usual = json!([RECURRENT, RECURRENT, "attention"]);
    let types = file.given("block_types").unwrap_or(&usual);
    let known = |kind: &Value| matches!(kind.as_str(), Some("attention" | RECURRENT));
    match types.as_array().filter(|types| !types.is_empty() && types.iter().all(known)) {
        Some(types) => Ok((0..layers).filter(|layer| types[layer % types.len()] != RECURRENT).collect()),
        None => Err(unlike(file, "block_types", "not a list of `recurrent` and `attention`")),
    }
}

/// Maps of a recurrent block.
fn recurrent_tensors(maps: &mut TensorMaps, model: &ModelConfig) {
    let d = model.d_model;
    let width = option_or(&model.options, "width", d);
    let blocks = option_or(&model.options, "blocks", 1);
    let taps = option_or(&model.options, "conv_width", 4);
    let of = width / blocks;
    for (theirs, weight, bias, shape) in [
        ("linear_x", "wx", "bx", [width, d]),
        ("linear_y", "wy", "by", [width, d]),
        ("linear_out", "wout", "bout", [d, width]),
    ] {
        maps.affine("mixer.", &format!("temporal_block.{theirs}"), &shape, (weight, Some(bias)));
    }
    maps.shaped(("mixer.conv_w", &[width, taps]), ("temporal_block.conv_1d.weight", &[width, 1, taps]));
    maps.one("mixer.conv_b", "temporal_block.conv_1d.bias", &[width]);
    let of_gates = |kind: &str| ["recurrent", "input"].map(|gate| format!("temporal_block.rg_lru.{gate}_gate_{kind}"));
    let [recurrent, input] = of_gates("weight");
    let one: &[usize] = &[blocks, of, of];
    maps.add(&[(&recurrent, one), (&input, one)], &[("mixer.wgates", &[2 * width, of])], ElementOrder::Transposed);
    let [recurrent, input] = of_gates("bias");
    let one: &[usize] = &[blocks, of];
    maps.add(&[(&recurrent, one), (&input, one)], &[("mixer.bgates", &[2 * width])], ElementOrder::Same);
    maps.one("mixer.lam", "temporal_block.rg_lru.recurrent_param", &[width]);
}
