use super::*;
use crate::error::testing::Fails;
use crate::model::weights::tests::run;
use crate::tasks::wikitext::WikitextConfig;

/// Model that the text of a `config.json` at `place` describes.
fn read(text: &str, place: &str) -> Result<Pretrained> {
    let file = ConfigFile::parse(text, place)?;
    (Architecture::of(&file)?.read)(&file)
}

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
        ("model_type", json!("bert")),
        ("hidden_act", json!("relu")),
        ("layer_norm_eps", json!(-1)),
        ("use_parallel_residual", json!(false)),
        ("attention_bias", json!(false)),
        ("tie_word_embeddings", json!(1)),
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
    let mut yarn = old();
    yarn["rope_parameters"] = json!({ "rope_type": "yarn" });
    read(&yarn.to_string(), "a/config.json").fails("data").names(&["`rope_type`"]);
    for (key, value) in [("num_attention_heads", json!(7)), ("rotary_pct", json!(0.21))] {
        let mut json = old();
        json[key] = value;
        read(&json.to_string(), "a/config.json").fails("data");
    }
    read("{", "a/config.json").fails("data");
}

/// Sizes of the task of [`run`] with `model`.
fn pretrained(model: ModelConfig) -> Pretrained {
    let text: WikitextConfig = run("softmax").task.typed().unwrap();
    Pretrained { model, vocab_size: text.vocab_size, seq_len: text.seq_len }
}

#[test]
fn a_written_model_is_read_back_unchanged() {
    for (width, dims) in [(16, 2), (16, 8), (98, 2), (98, 46)] {
        let mut model = run("softmax").model;
        (model.d_model, model.d_state) = (width, width);
        model.language.as_mut().unwrap().rotary_dims = dims;
        model.block.rotary_base = Some(500.0).filter(|_| dims == 8);
        let wanted = pretrained(model);
        let (architecture, json) = Architecture::holding(&wanted).unwrap();
        assert_eq!(architecture.class.name, "GPTNeoXForCausalLM");
        assert_eq!(read(&json.to_string(), "config.json").unwrap(), wanted);
        // Each spelling has the same meaning on its own.
        let mut old = json;
        old.as_object_mut().unwrap().remove("rope_parameters");
        assert_eq!(read(&old.to_string(), "config.json").unwrap(), wanted);
    }
}

#[test]
fn initial_values_and_dropout_are_no_part_of_an_architecture() {
    let mut model = ModelConfig { attn_dropout: 0.1, ..run("softmax").model };
    model.language.as_mut().unwrap().init = InitScheme::Hf;
    Architecture::holding(&pretrained(model)).unwrap();
}

#[test]
fn a_model_that_no_architecture_holds_gives_the_difference() {
    let mut narrow = run("softmax").model;
    narrow.d_state = 8;
    let mut plain = run("softmax").model;
    plain.language.as_mut().unwrap().rotary = Rotary::None;
    plain.language.as_mut().unwrap().rotary_dims = 0;
    let mut paper = run("softmax").model;
    paper.variant = "paper".to_owned();
    let shifted = ModelConfig { short_conv: true, ..run("softmax").model };
    let normed = ModelConfig { state_norm: true, ..run("softmax").model };
    let cases = [
        (run("linear").model, "`mixer`"),
        (paper, "`variant`"),
        (narrow, "`d_state`"),
        (plain, "`rotary`"),
        (shifted, "`short_conv`"),
        (normed, "`state_norm`"),
    ];
    for (model, field) in cases {
        let why = Architecture::holding(&pretrained(model)).err().unwrap();
        assert!(why.contains("GPTNeoX") && why.contains(field), "{why}");
    }
}

#[test]
fn bounds_of_steps_are_read_in_every_spelling() {
    let config = |limit: Value| {
        json!({ "model_type": "mamba2", "hidden_size": 8, "num_hidden_layers": 1, "num_heads": 2, "head_dim": 8,
                "n_groups": 1, "vocab_size": 9, "time_step_limit": limit })
    };
    let limit = |value: Value| {
        let found = read(&config(value).to_string(), "config.json")?;
        Ok::<Option<String>, Error>(found.model.options.get("dt_limit").cloned())
    };
    for endless in [json!([0.0, { "__float__": "Infinity" }]), json!([0, "inf"]), Value::Null] {
        assert_eq!(limit(endless).unwrap(), None);
    }
    assert_eq!(limit(json!([0.1, 2])).unwrap().as_deref(), Some("0.1:2"));
    limit(json!([2, 1])).fails("data").names(&["`time_step_limit`"]);
}

#[test]
fn block_types_are_repeated_over_the_layers() {
    let config = |types: Value| {
        json!({ "model_type": "recurrent_gemma", "hidden_size": 8, "num_hidden_layers": 5, "intermediate_size": 16,
                "num_attention_heads": 2, "vocab_size": 9, "block_types": types })
    };
    let attends = |types: Value| read(&config(types).to_string(), "config.json").map(|found| found.model.hybrid);
    let hybrid = attends(json!(["recurrent", "attention"])).unwrap().unwrap();
    assert_eq!((0..5).filter(|&layer| hybrid.has(layer)).collect::<Vec<_>>(), [1, 3]);
    assert!(attends(json!(["recurrent"])).unwrap().is_none());
    attends(json!(["linear"])).fails("data").names(&["`block_types`"]);
}
