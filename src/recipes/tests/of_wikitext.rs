//! Recipes of language models on WikiText.

use super::*;

fn wikitext(settings: Settings) -> RunConfig {
    run("wikitext", settings).unwrap()
}

#[test]
fn the_full_preset_is_pythia_70m_on_wikitext_103() {
    let run = wikitext(&[("preset", "paper")]);
    let expected = WikitextConfig {
        corpus: Corpus::Wikitext103Raw,
        tokenizer: Tokenizer::GptNeox,
        vocab_size: 50_304,
        seq_len: 1024,
        source_digest: None,
        eos_between_articles: false,
        train_examples: None,
        test_examples: None,
    };
    assert_eq!(text(&run), expected);
    let model = &run.model;
    assert_eq!((model.d_model, model.d_state), (512, 512));
    assert_eq!((model.n_heads, model.n_layers), (8, 6));
    assert_eq!((model.layout, model.state_mixer), (Layout::Parallel, StateMixer::Mlp));
    assert_eq!((model.variant.as_str(), model.positions), ("reference", false));
    assert_eq!((model.embed_dropout, model.attn_dropout), (0.0, 0.0));
    let expected = LanguageConfig { mlp_width: 2048, rotary: Rotary::Pre, rotary_dims: 16, init: InitScheme::Pythia };
    assert_eq!(language(&run), &expected);
    let expected = TrainConfig {
        schedule: Schedule::WarmupConstant,
        lr: 3e-3,
        warmup_epochs: 0,
        epochs: 50,
        batch_size: 128,
        weight_decay: 0.1,
        precision: Precision::F32,
        micro_batch: Some(8),
        decay: None,
        adam: Some(AdamConfig { beta1: 0.9, beta2: 0.95, eps: 1e-8, clip: Some(1.0), decay: Decay::Matrices }),
        stop_above: 1.0,
    };
    assert_eq!(run.train, expected);
    assert_eq!((run.seed, run.protocol), (1234, Protocol::Paper));
}

#[test]
fn the_small_presets_read_the_sample_byte_by_byte() {
    for (settings, sizes, seq_len, batch, lr, windows) in [
        (&[][..], (128, 2, 4, 512), 256, 8, 3e-3, (None, None)),
        (&[("preset", "smoke")], (32, 1, 2, 64), 32, 4, 3e-3, (Some(16), Some(4))),
    ] {
        let run = wikitext(settings);
        let (task, model, train) = (text(&run), &run.model, &run.train);
        assert_eq!((task.corpus, task.vocab_size), (Corpus::Sample, 256));
        let of = (model.d_model, model.n_layers, model.n_heads, language(&run).mlp_width);
        assert_eq!((of, task.seq_len), (sizes, seq_len));
        assert_eq!((train.batch_size, train.lr), (batch, lr));
        assert_eq!((task.train_examples, task.test_examples), windows);
    }
}

#[test]
fn every_mixer_has_a_run_and_states_are_of_linear_attentions_size() {
    for entry in MIXERS {
        let run = wikitext(&[("preset", "paper"), ("mixer", entry.name)]);
        let model = &run.model;
        let attends = entry.family.is_attention();
        // Two of them have other position encodings, and one mixes keys of several positions.
        let turns = attends && !["alibi", "t5-bias", "sinkhorn"].contains(&entry.name);
        assert_eq!(turns, entry.rotary, "{}", entry.name);
        let rotary = (language(&run).rotary, language(&run).rotary_dims);
        let expected = if turns { (Rotary::Pre, 16) } else { (Rotary::None, 0) };
        assert_eq!(rotary, expected, "{}", entry.name);
        assert_eq!(model.variant, entry.variants[0]);
        let expected = match (entry.expands, attends, entry.heads) {
            (false, _, true) => (1, 8),
            (false, _, false) => (1, 1),
            (true, true, _) => (512, 8),
            (true, false, true) => (64, 8),
            (true, false, false) => (64, 1),
        };
        assert_eq!((model.d_state, model.n_heads), expected, "{}", entry.name);
        if let Some(steps) = model.options.get("dt_init") {
            assert_eq!(steps, "mamba");
        }
    }
}

#[test]
fn a_fourth_of_a_head_gets_rotary_positions_in_pairs() {
    for (width, expected) in [(64, 16), (32, 8), (20, 4), (16, 4), (12, 2), (8, 2), (2, 2)] {
        assert_eq!(rules::rotary_dims(width), expected, "{width}");
    }
}

#[test]
fn the_hidden_width_follows_d_unless_it_is_given() {
    let width = |settings: Settings| {
        let smoke = [("preset", "smoke")];
        language(&wikitext(&[&smoke[..], settings].concat())).mlp_width
    };
    assert_eq!(width(&[]), 64);
    assert_eq!(width(&[("d", "64")]), 256);
    assert_eq!(width(&[("d", "64"), ("mlp-width", "96")]), 96);
}

#[test]
fn at_most_8192_tokens_are_at_once_unless_told_otherwise() {
    let of = |batch, micro: Option<&str>| {
        let mut settings = vec![("preset", "paper"), ("batch-size", batch)];
        settings.extend(micro.map(|size| ("micro-batch", size)));
        wikitext(&settings).train.micro_batch
    };
    assert_eq!(of("128", None), Some(8));
    assert_eq!(of("8", None), None);
    assert_eq!(of("128", Some("2")), Some(2));
    assert_eq!(of("128", Some("128")), None);
}

#[test]
fn a_gpu_computes_text_in_bf16_unless_told_otherwise() {
    let of = |gpu, precision: Option<&str>| {
        let mut choice = Choice::of(None, gpu);
        if let Some(name) = precision {
            choice.set("precision", name, "--precision").unwrap();
        }
        let resolved = resolve(task("wikitext").unwrap(), &choice).unwrap();
        resolved.config.train.precision
    };
    assert_eq!(of(true, None), Precision::Bf16);
    assert_eq!(of(true, Some("f32")), Precision::F32);
    assert_eq!(of(false, None), Precision::F32);
}

#[test]
fn every_setting_of_text_reaches_the_run() {
    let run = wikitext(&[
        ("corpus", "wikitext-2"),
        ("tokenizer", "0123456789ab"),
        ("vocab-size", "1024"),
        ("eos-between-articles", "true"),
        ("rotary", "none"),
        ("init", "hf"),
        ("schedule", "linear"),
        ("beta2", "0.999"),
        ("clip", "0"),
        ("decay", "all"),
        ("train-examples", "7"),
        ("test-examples", "5"),
        ("dropout", "0.1"),
        ("attn-dropout", "0.2"),
    ]);
    let task = text(&run);
    assert_eq!(task.corpus, Corpus::Wikitext2);
    assert_eq!(task.tokenizer, Tokenizer::File("0123456789ab".into()));
    assert_eq!((task.vocab_size, task.eos_between_articles), (1024, true));
    assert_eq!((task.train_examples, task.test_examples), (Some(7), Some(5)));
    let language = language(&run);
    assert_eq!((language.rotary, language.rotary_dims), (Rotary::None, 0));
    assert_eq!(language.init, InitScheme::Hf);
    let adam = run.train.adam.as_ref().unwrap();
    assert_eq!((adam.beta2, adam.clip, adam.decay), (0.999, None, Decay::All));
    assert_eq!(run.train.schedule, Schedule::Linear);
    let dropouts = (run.model.embed_dropout, run.model.attn_dropout);
    assert_eq!(dropouts, (0.1, 0.2));
}

#[test]
fn only_the_protocol_of_the_paper_is_there() {
    wikitext(&[("protocol", "paper")]);
    for protocol in ["reference", "matched"] {
        let settings = [("protocol", protocol)];
        refuses("wikitext", &settings, "--protocol").gives(protocol);
    }
}

#[test]
fn flags_of_other_tasks_are_refused_by_name() {
    for (flag, value) in [
        ("kv-pairs", "4"),
        ("data", "native"),
        ("data-seed", "1"),
        ("dataset", "text"),
        ("input", "scalar"),
        ("pool", "last"),
        ("dual", "logits"),
        ("loss", "ce"),
    ] {
        refuses("wikitext", &[(flag, value)], &format!("--{flag}")).names(&["wikitext"]);
    }
}

#[test]
fn flags_of_text_are_refused_by_the_other_tasks() {
    for (flag, value) in [
        ("corpus", "sample"),
        ("tokenizer", "gpt-neox"),
        ("eos-between-articles", "true"),
        ("init", "hf"),
        ("schedule", "cosine"),
        ("beta2", "0.9"),
        ("clip", "1"),
    ] {
        for task in ["mqar", "lra"] {
            refuses(task, &[(flag, value)], &format!("--{flag}")).names(&[task]);
        }
    }
    let wide = [("mlp-width", "64")];
    assert!(run("mqar", &wide).is_ok() && run("lra", &wide).is_ok());
}

#[test]
fn numbers_out_of_range_name_their_flag() {
    for (flag, value, names) in [
        ("clip", "-1", &["0"][..]),
        ("clip", "nan", &["0"]),
        ("beta2", "1", &["[0, 1)"]),
        ("lr", "0", &["2e-3"]),
        ("seq-len", "0", &["1 to"]),
        ("vocab-size", "16777217", &["16777216"]),
        ("heads", "3", &["--d 128"]),
    ] {
        refuses("wikitext", &[(flag, value)], &format!("--{flag}")).names(names);
    }
}
