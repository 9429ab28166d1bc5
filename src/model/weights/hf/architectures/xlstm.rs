//! xLSTM 7B (Beck et al. 2025): mLSTM with soft-capped gates and gated MLPs.

use super::super::tensors::{ElementOrder, TensorMaps};
use super::attention::head;
use super::{
    model, option, option_or, rms_norms, widths, Architecture, ModelClass, Pretrained, TRANSFORMERS, USUAL_LENGTH,
};
use crate::config::{Activation, BlockConfig, StateMixer};
use crate::mixers;
use serde_json::json;

/// Variant of the mLSTM with soft-capped gates.
const LARGE: &str = "large";

/// `x` rounded up to a multiple of `of`, as `transformers` does.
fn rounded_up(x: f64, of: usize) -> usize {
    (x as usize).next_multiple_of(of)
}

pub(super) const XLSTM: Architecture = Architecture {
    model_type: "xlstm",
    class: ModelClass { name: "xLSTMForCausalLM", library: TRANSFORMERS },
    prefix: "backbone.",
    read: |file| {
        file.only("use_bias", &json!(false))?;
        file.only("add_out_norm", &json!(true))?;
        file.only("weight_mode", &json!("single"))?;
        let (d, heads) = (file.size("hidden_size")?, file.size("num_heads")?);
        let layers = file.size_or("num_hidden_layers", file.size_or("num_blocks", 32)?)?;
        let multiple = file.size_or("ffn_round_up_to_multiple_of", 64)?;
        let width = rounded_up(file.real_or("ffn_proj_factor", 2.667)? * d as f64, multiple);
        let mut model = model(mixers::MLSTM, LARGE, [d, layers, width]);
        model.n_heads = heads;
        model.d_state = (d as f64 * file.real_or("qk_dim_factor", 0.5)?) as usize;
        option(&mut model.options, "value_width", (d as f64 * file.real_or("v_dim_factor", 1.0)?) as usize, &d);
        option(&mut model.options, "gate_cap", file.real_or("gate_soft_cap", 15.0)?, &15.0);
        option(&mut model.options, "denominator_eps", file.real_or("eps", 1e-6)?, &1e-6);
        let eps = file.real_or("norm_eps", 1e-6)?;
        option(&mut model.options, "norm_eps", eps, &1e-6);
        model.state_mixer = StateMixer::GatedMlp;
        model.block = BlockConfig {
            activation: Some(Activation::Silu),
            tie: file.tied(false)?,
            logit_cap: Some(file.real_or("output_logit_soft_cap", 30.0)?),
            ..rms_norms(eps)
        };
        Ok(Pretrained { model, vocab_size: file.size("vocab_size")?, seq_len: USUAL_LENGTH })
    },
    tensors: |found| {
        let (model, mut maps) = (&found.model, TensorMaps::default());
        let (d, n, heads, [m, _]) = (model.d_model, model.d_state, model.n_heads, widths(model));
        let values = option_or(&model.options, "value_width", d);
        maps.within("", "backbone.");
        maps.one("embed.tok", "embeddings.weight", &[found.vocab_size, d]);
        maps.norm("norm_f", "out_norm", d, false);
        head(&mut maps, found);
        for layer in 0..model.n_layers {
            maps.within(format!("layers.{layer}."), format!("backbone.blocks.{layer}."));
            maps.norm("norm1", "norm_mlstm", d, false);
            maps.norm("norm2", "norm_ffn", d, false);
            for (theirs, weight, bias, shape) in [
                ("q", "wq", None, [n, d]),
                ("k", "wk", None, [n, d]),
                ("v", "wv", None, [values, d]),
                ("ogate_preact", "wo", None, [values, d]),
                ("igate_preact", "wi", Some("bi"), [heads, d]),
                ("fgate_preact", "wf", Some("bf"), [heads, d]),
                ("out_proj", "wout", None, [d, values]),
            ] {
                maps.affine("mixer.", &format!("mlstm_layer.{theirs}"), &shape, (weight, bias));
            }
            maps.one("mixer.norm", "mlstm_layer.multihead_norm.weight", &[values]);
            let half: &[usize] = &[m, d];
            maps.add(
                &[("ffn.proj_up_gate.weight", half), ("ffn.proj_up.weight", half)],
                &[("mlp.grow", &[2 * m, d])],
                ElementOrder::Same,
            );
            maps.one("mlp.shrink", "ffn.proj_down.weight", &[d, m]);
        }
        maps
    },
    write: |found| {
        let model = &found.model;
        let of_d = |width: usize| super::ratio(width, model.d_model);
        json!({
            "hidden_size": model.d_model,
            "embedding_dim": model.d_model,
            "num_hidden_layers": model.n_layers,
            "num_blocks": model.n_layers,
            "num_heads": model.n_heads,
            "use_bias": false,
            "add_out_norm": true,
            "weight_mode": "single",
            "qk_dim_factor": of_d(model.d_state),
            "v_dim_factor": of_d(option_or(&model.options, "value_width", model.d_model)),
            "ffn_proj_factor": of_d(widths(model)[0]),
            "ffn_round_up_to_multiple_of": 1,
            "gate_soft_cap": option_or(&model.options, "gate_cap", 15.0),
            "output_logit_soft_cap": model.block.logit_cap,
            "norm_eps": model.block.eps,
            "eps": option_or(&model.options, "denominator_eps", 1e-6),
            "tie_word_embeddings": model.is_tied(),
        })
    },
};
