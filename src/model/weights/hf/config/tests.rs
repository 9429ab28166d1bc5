use super::*;
use crate::error::testing::Fails;
use crate::model::weights::tests::run;

/// Config as `transformers` 4 writes it.
fn old() -> Value {
    json!({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 512,
        "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048,
        "vocab_size": 50304, "max_position_embeddings": 2048, "hidden_act": "gelu",
        "layer_norm_eps": 1e-05, "rotary_pct": 0.25, "rotary_emb_base": 10000,
        "use_parallel_residual": true, "tie_word_embeddings": false, "torch_dtype": "float16",
        "bos_token_id": 0, "eos_token_id": 0, "initializer_range": 0.02, "use_cache": true,
        "rope_scaling": null, "transformers_version": "4.24.0"
    })
}

fn dims(json: &Value) -> usize {
    let shape = read(&json.to_string(), "config.json").unwrap();
    shape.model.language.unwrap().rotary_dims
}

#[test]
fn pythia_70m_is_known_in_the_words_of_both_versions() {
    let shape = read(&old().to_string(), "config.json").unwrap();
    let model = &shape.model;
    assert_eq!((model.d_model, model.n_heads, model.n_layers), (512, 8, 6));
    assert_eq!((shape.vocab_size, shape.seq_len), (50_304, 2048));
    let language = model.language.clone().unwrap();
    assert_eq!((language.mlp_width, language.rotary_dims), (2048, 16));
    let mut new = old();
    for key in ["rotary_pct", "rotary_emb_base"] {
        new.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(dims(&new), 16, "a quarter of a head, if nothing is said");
    for share in [0.5, 1.0] {
        new["rope_parameters"] = json!({
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share
        });
        assert_eq!(dims(&new), (64.0 * share) as usize);
    }
    new["rope_parameters"] = Value::Null;
    new["partial_rotary_factor"] = json!(0.125);
    assert_eq!(dims(&new), 8);
}

#[test]
fn what_ours_cannot_be_is_refused_by_the_key_that_asks_for_it() {
    let cases = [
        ("model_type", json!("llama")),
        ("hidden_act", json!("gelu_new")),
        ("layer_norm_eps", json!(1e-6)),
        ("use_parallel_residual", json!(false)),
        ("attention_bias", json!(false)),
        ("tie_word_embeddings", json!(true)),
        ("rotary_emb_base", json!(1e6)),
        ("rope_theta", json!(500_000)),
        ("rope_scaling", json!({ "type": "linear", "factor": 2.0 })),
        ("hidden_size", json!(0)),
        ("vocab_size", json!("many")),
        ("num_hidden_layers", Value::Null),
    ];
    for (key, value) in cases {
        let mut json = old();
        json[key] = value;
        let at = read(&json.to_string(), "a/config.json").fails("data");
        at.is_at("a/config.json", None).names(&[&format!("`{key}`")]);
    }
    for (key, value) in [("rope_theta", json!(1e6)), ("rope_type", json!("yarn"))] {
        let mut json = old();
        json["rope_parameters"] = json!({ key: value });
        let at = read(&json.to_string(), "a/config.json").fails("data");
        at.names(&[&format!("`{key}`")]);
    }
    for (key, value) in [("num_attention_heads", json!(7)), ("rotary_pct", json!(0.21))] {
        let mut json = old();
        json[key] = value;
        read(&json.to_string(), "a/config.json").fails("data");
    }
    read("{", "a/config.json").fails("data");
}

#[test]
fn a_written_model_is_read_back_unchanged() {
    let run = run("softmax");
    let text = run.task.typed().unwrap();
    for (width, dims) in [(16, 2), (16, 8), (98, 2), (98, 46)] {
        let mut model = run.model.clone();
        (model.d_model, model.d_state) = (width, width);
        model.language.as_mut().unwrap().rotary_dims = dims;
        assert_eq!(mismatch(&model), None);
        let json = write(&model, &text, None);
        let shape = read(&json, "config.json").unwrap();
        assert_eq!((&shape.model, shape.vocab_size, shape.seq_len), (&model, 256, 16));
        // Each spelling has the same meaning on its own.
        let mut old: Value = serde_json::from_str(&json).unwrap();
        old.as_object_mut().unwrap().remove("rope_parameters");
        assert_eq!(read(&old.to_string(), "config.json").unwrap(), shape);
    }
}

#[test]
fn the_end_of_text_token_is_the_tokenizers_and_null_if_it_has_none() {
    let run = run("softmax");
    let text = run.task.typed().unwrap();
    for (eos, wanted) in [(Some(0), json!(0)), (Some(293), json!(293)), (None, Value::Null)] {
        let config = write(&run.model, &text, eos);
        let config: Value = serde_json::from_str(&config).unwrap();
        for key in ["eos_token_id", "bos_token_id"] {
            assert_eq!(config.get(key), Some(&wanted), "{key}");
        }
        read(&config.to_string(), "config.json").unwrap();
    }
}

#[test]
fn a_model_that_is_not_gpt_neox_gives_the_reason() {
    let mut narrow = run("softmax").model;
    narrow.d_state = 8;
    let mut plain = run("softmax").model;
    plain.language.as_mut().unwrap().rotary = Rotary::None;
    let mut paper = run("softmax").model;
    paper.variant = "paper".to_owned();
    let mut recall = run("softmax").model;
    recall.language = None;
    let shifted = ModelConfig { short_conv: true, ..run("softmax").model };
    let normed = ModelConfig { state_norm: true, ..run("softmax").model };
    let cases = [
        (run("linear").model, "linear"),
        (paper, "variant"),
        (narrow, "width 8"),
        (plain, "rotary"),
        (recall, "dsf wikitext"),
        (shifted, "convolution"),
        (normed, "norm"),
    ];
    for (model, why) in cases {
        let found = mismatch(&model).unwrap();
        assert!(found.contains(why), "{found}");
    }
}
