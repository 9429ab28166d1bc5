//! The presets as a table, and what follows from mixer and flags.

mod refusals;

use super::*;
use crate::mixers::MIXERS;
use crate::model::protocol::GPT_NEOX;

fn run(asked: Asked) -> RunConfig {
    asked.resolve(Task::Wikitext).unwrap()
}

fn preset(preset: Preset) -> Asked {
    Asked {
        preset: Some(preset),
        ..Asked::default()
    }
}

fn text(run: &RunConfig) -> WikitextConfig {
    run.task.typed().unwrap()
}

fn language(run: &RunConfig) -> &LanguageConfig {
    run.model.language.as_ref().unwrap()
}

#[test]
fn the_full_preset_is_pythia_70m_on_wikitext_103() {
    let run = run(preset(Preset::Full));
    let task = text(&run);
    assert_eq!(task.corpus, Corpus::Wikitext103Raw);
    assert_eq!((task.tokenizer.clone(), task.vocab_size), GPT_NEOX);
    assert_eq!((task.seq_len, task.eos_between_articles), (1024, false));
    assert_eq!((task.train_examples, task.test_examples), (None, None));
    let model = &run.model;
    assert_eq!((model.d_model, model.d_state), (512, 512));
    assert_eq!((model.n_heads, model.n_layers), (8, 6));
    assert_eq!(
        (model.layout, model.state_mixer),
        (Layout::Parallel, StateMixer::Mlp)
    );
    assert_eq!(
        (model.variant.as_str(), model.positions),
        ("reference", false)
    );
    assert_eq!((model.embed_dropout, model.attn_dropout), (0.0, 0.0));
    let expected = LanguageConfig {
        mlp_width: 2048,
        rotary: Rotary::Pre,
        rotary_dims: 16,
        init: InitScheme::Pythia,
    };
    assert_eq!(language(&run), &expected);
    let expected = TrainConfig {
        schedule: Schedule::Cosine,
        lr: 1e-3,
        warmup_epochs: 0,
        epochs: 50,
        batch_size: 128,
        weight_decay: 0.1,
        precision: Precision::F32,
        micro_batch: Some(8),
        adam: Some(AdamConfig {
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            clip: Some(1.0),
            decay: Decay::Matrices,
        }),
        stop_above: 1.0,
    };
    assert_eq!(run.train, expected);
    assert_eq!((run.seed, run.protocol), (1234, Protocol::Paper));
}

#[test]
fn the_small_presets_read_the_sample_byte_by_byte() {
    for (preset, sizes, l, batch, lr, windows) in [
        (None, (128, 2, 4, 512), 256, 8, 3e-3, (None, None)),
        (
            Some(Preset::Smoke),
            (32, 1, 2, 64),
            32,
            4,
            3e-3,
            (Some(16), Some(4)),
        ),
    ] {
        let run = run(Asked {
            preset,
            ..Asked::default()
        });
        let (task, model, train) = (text(&run), &run.model, &run.train);
        assert_eq!((task.corpus, task.vocab_size), (Corpus::Sample, 256));
        let of = (
            model.d_model,
            model.n_layers,
            model.n_heads,
            language(&run).mlp_width,
        );
        assert_eq!((of, task.seq_len), (sizes, l));
        assert_eq!((train.batch_size, train.lr), (batch, lr));
        assert_eq!((task.train_examples, task.test_examples), windows);
    }
}

#[test]
fn every_mixer_has_a_run_and_states_are_of_linear_attentions_size() {
    for entry in MIXERS {
        let model = run(Asked {
            mixer: Some(entry.name.to_owned()),
            ..preset(Preset::Full)
        })
        .model;
        let attentions = ["softmax", "linear", "generalized-linear", "normalized"];
        let turned = attentions.iter().any(|name| entry.name.starts_with(name));
        let rotary = model.language.as_ref().unwrap();
        let expected = if turned {
            (Rotary::Pre, 16)
        } else {
            (Rotary::None, 0)
        };
        assert_eq!(
            (rotary.rotary, rotary.rotary_dims),
            expected,
            "{}",
            entry.name
        );
        assert_eq!(model.variant, entry.variants[0]);
        let sizes = (model.d_state, model.n_heads);
        let expected = match (entry.expands, turned, entry.heads) {
            (false, ..) => (1, 1),
            (true, true, _) => (512, 8),
            (true, false, true) => (64, 8),
            (true, false, false) => (64, 1),
        };
        assert_eq!(sizes, expected, "{}", entry.name);
        if let Some(steps) = model.options.get("dt_init") {
            assert_eq!(steps, "mamba");
        }
    }
}

#[test]
fn a_fourth_of_a_head_is_turned_in_pairs() {
    for (width, expected) in [(64, 16), (32, 8), (20, 4), (16, 4), (12, 2), (8, 2), (2, 2)] {
        assert_eq!(turned(width), expected, "{width}");
    }
}

#[test]
fn the_hidden_width_follows_d_unless_it_is_given() {
    let width = |d, mlp_width| {
        language(&run(Asked {
            d,
            mlp_width,
            ..preset(Preset::Smoke)
        }))
        .mlp_width
    };
    assert_eq!(width(None, None), 64);
    assert_eq!(width(Some(64), None), 256);
    assert_eq!(width(Some(64), Some(96)), 96);
}

#[test]
fn at_most_8192_tokens_are_at_once_unless_told_otherwise() {
    let of = |batch_size, micro_batch| {
        run(Asked {
            batch_size: Some(batch_size),
            micro_batch,
            ..preset(Preset::Full)
        })
        .train
        .micro_batch
    };
    assert_eq!(of(128, None), Some(8));
    assert_eq!(of(8, None), None);
    assert_eq!(of(128, Some(2)), Some(2));
    assert_eq!(of(128, Some(128)), None);
}

#[test]
fn a_gpu_computes_text_in_bf16_unless_told_otherwise() {
    let of = |gpu, precision| {
        run(Asked {
            gpu,
            precision,
            ..Asked::default()
        })
        .train
        .precision
    };
    assert_eq!(of(true, None), Precision::Bf16);
    assert_eq!(of(true, Some(Precision::F32)), Precision::F32);
    assert_eq!(of(false, None), Precision::F32);
}

#[test]
fn every_setting_of_text_reaches_the_run() {
    let run = run(Asked {
        corpus: Some(Corpus::Wikitext2),
        tokenizer: Some((Tokenizer::File("0123456789ab".into()), 1024)),
        eos_between_articles: Some(true),
        rotary: Some(Rotary::None),
        init: Some(InitScheme::Hf),
        schedule: Some(Schedule::Linear),
        beta2: Some(0.999),
        clip: Some(0.0),
        decay: Some(Decay::All),
        train_examples: Some(7),
        test_examples: Some(5),
        dropout: Some(0.1),
        attn_dropout: Some(0.2),
        ..Asked::default()
    });
    let task = text(&run);
    assert_eq!(task.corpus, Corpus::Wikitext2);
    assert_eq!(task.tokenizer, Tokenizer::File("0123456789ab".into()));
    assert_eq!((task.vocab_size, task.eos_between_articles), (1024, true));
    assert_eq!(
        (task.train_examples, task.test_examples),
        (Some(7), Some(5))
    );
    let language = language(&run);
    assert_eq!((language.rotary, language.rotary_dims), (Rotary::None, 0));
    assert_eq!(language.init, InitScheme::Hf);
    let adam = run.train.adam.as_ref().unwrap();
    assert_eq!(
        (adam.beta2, adam.clip, adam.decay),
        (0.999, None, Decay::All)
    );
    assert_eq!(run.train.schedule, Schedule::Linear);
    assert_eq!(
        (run.model.embed_dropout, run.model.attn_dropout),
        (0.1, 0.2)
    );
}
