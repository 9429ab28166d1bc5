//! RWKV-4 (Peng et al. 2023): time mixing and channel mixing, with a norm of the embeddings.

use super::super::tensors::TensorMaps;
use super::{model, option, option_or, widths, Architecture, ModelClass, Pretrained, TRANSFORMERS};
use crate::config::{BlockConfig, StateMixer};
use crate::mixers;
use serde_json::json;

pub(super) const RWKV: Architecture = Architecture {
    model_type: "rwkv",
    class: ModelClass { name: "RwkvForCausalLM", library: TRANSFORMERS },
    prefix: "rwkv.",
    read: |file| {
        file.only("layer_norm_epsilon", &json!(1e-5))?;
        let d = file.size("hidden_size")?;
        let sizes = [d, file.size("num_hidden_layers")?, file.size_or("intermediate_size", 4 * d)?];
        let mut model = model(mixers::RWKV4, "paper", sizes);
        option(&mut model.options, "width", file.size_or("attention_hidden_size", d)?, &d);
        model.state_mixer = StateMixer::ChannelMix;
        let every = file.given("rescale_every").and_then(serde_json::Value::as_i64).unwrap_or(6);
        model.block = BlockConfig {
            tie: file.tied(false)?,
            embed_norm: true,
            rescale_every: usize::try_from(every).ok().filter(|every| *every > 0),
            ..BlockConfig::default()
        };
        Ok(Pretrained { model, vocab_size: file.size("vocab_size")?, seq_len: file.size_or("context_length", 1024)? })
    },
    tensors: |found| {
        let (model, mut maps) = (&found.model, TensorMaps::default());
        let (d, [m, _]) = (model.d_model, widths(model));
        let width = option_or(&model.options, "width", d);
        maps.within("", "rwkv.");
        maps.one("embed.tok", "embeddings.weight", &[found.vocab_size, d]);
        maps.norm("embed.norm", "blocks.0.pre_ln", d, true);
        maps.norm("norm_f", "ln_out", d, true);
        maps.within("", "");
        if !model.is_tied() {
            maps.one("head.weight", "head.weight", &[found.vocab_size, d]);
        }
        for layer in 0..model.n_layers {
            maps.within(format!("layers.{layer}."), format!("rwkv.blocks.{layer}."));
            maps.norm("norm1", "ln1", d, true);
            maps.norm("norm2", "ln2", d, true);
            for (ours, theirs) in [
                ("mixer.mu_k", "attention.time_mix_key"),
                ("mixer.mu_v", "attention.time_mix_value"),
                ("mixer.mu_r", "attention.time_mix_receptance"),
                ("mlp.mu_k", "feed_forward.time_mix_key"),
                ("mlp.mu_r", "feed_forward.time_mix_receptance"),
            ] {
                maps.shaped((ours, &[d]), (theirs, &[1, 1, d]));
            }
            maps.one("mixer.decay", "attention.time_decay", &[width]);
            maps.one("mixer.bonus", "attention.time_first", &[width]);
            for (ours, theirs, shape) in [
                ("mixer.wk", "attention.key.weight", [width, d]),
                ("mixer.wv", "attention.value.weight", [width, d]),
                ("mixer.wr", "attention.receptance.weight", [width, d]),
                ("mixer.wout", "attention.output.weight", [d, width]),
                ("mlp.wk", "feed_forward.key.weight", [m, d]),
                ("mlp.wr", "feed_forward.receptance.weight", [d, d]),
                ("mlp.wv", "feed_forward.value.weight", [d, m]),
            ] {
                maps.one(ours, theirs, &shape);
            }
        }
        maps
    },
    write: |found| {
        let model = &found.model;
        json!({
            "hidden_size": model.d_model,
            "num_hidden_layers": model.n_layers,
            "intermediate_size": widths(model)[0],
            "attention_hidden_size": option_or(&model.options, "width", model.d_model),
            "context_length": found.seq_len,
            "layer_norm_epsilon": 1e-5,
            "rescale_every": model.block.rescale_every.unwrap_or(0),
            "tie_word_embeddings": model.is_tied(),
        })
    },
};
