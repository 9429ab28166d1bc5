//! The presets as a table, what follows from mixer and flags, and what is refused.

use super::*;
use crate::config::{Dual, Generator, Input, Loss, LraDataset, Pool};
use crate::mixers::MIXERS;
use crate::model::protocol::{Task, GPT_NEOX};

fn run(asked: Asked) -> RunConfig {
    asked.resolve(Task::Wikitext).unwrap()
}

fn refusal(asked: Asked) -> String {
    asked.resolve(Task::Wikitext).unwrap_err().to_string()
}

fn preset(preset: Preset) -> Asked {
    Asked {
        preset: Some(preset),
        ..Asked::default()
    }
}

fn text(run: &RunConfig) -> &WikitextConfig {
    match &run.task {
        TaskConfig::Wikitext(text) => text,
        _ => panic!("not a text"),
    }
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

#[test]
fn only_the_protocol_of_the_paper_is_there() {
    run(Asked {
        protocol: Some(Protocol::Paper),
        ..Asked::default()
    });
    for protocol in [Protocol::Reference, Protocol::Matched] {
        let message = refusal(Asked {
            protocol: Some(protocol),
            ..Asked::default()
        });
        assert!(message.contains("no code of the experiment"), "{message}");
    }
}

#[test]
fn flags_of_other_tasks_are_refused_by_name() {
    let strange: [(&str, fn(&mut Asked)); 8] = [
        ("--kv-pairs", |a| a.kv_pairs = Some(4)),
        ("--data", |a| a.data = Some(Generator::Native)),
        ("--data-seed", |a| a.data_seed = Some(1)),
        ("--dataset", |a| a.dataset = Some(LraDataset::Text)),
        ("--input", |a| a.input = Some(Input::Scalar)),
        ("--pool", |a| a.pool = Some(Pool::Last)),
        ("--dual", |a| a.dual = Some(Dual::Logits)),
        ("--loss", |a| a.loss = Some(Loss::Ce)),
    ];
    for (flag, set) in strange {
        let mut asked = Asked::default();
        set(&mut asked);
        let expected = format!("{flag} means nothing to the task wikitext: leave it out");
        assert_eq!(refusal(asked), expected);
    }
}

#[test]
fn flags_of_text_are_refused_by_the_other_tasks() {
    let of_text: [(&str, fn(&mut Asked)); 9] = [
        ("--corpus", |a| a.corpus = Some(Corpus::Sample)),
        ("--tokenizer", |a| a.tokenizer = Some(GPT_NEOX)),
        ("--eos-between-articles", |a| {
            a.eos_between_articles = Some(true)
        }),
        ("--rotary", |a| a.rotary = Some(Rotary::Pre)),
        ("--init", |a| a.init = Some(InitScheme::Hf)),
        ("--schedule", |a| a.schedule = Some(Schedule::Cosine)),
        ("--beta2", |a| a.beta2 = Some(0.9)),
        ("--clip", |a| a.clip = Some(1.0)),
        ("--decay", |a| a.decay = Some(Decay::All)),
    ];
    for (flag, set) in of_text {
        for task in [Task::Mqar, Task::Lra] {
            let mut asked = Asked::default();
            set(&mut asked);
            let message = asked.resolve(task).unwrap_err().to_string();
            let start = format!("{flag} means nothing to the task {}", task.name());
            assert!(message.starts_with(&start), "{message}");
        }
    }
    let wide = Asked {
        mlp_width: Some(64),
        ..Asked::default()
    };
    assert!(wide.resolve(Task::Mqar).is_err() && wide.resolve(Task::Lra).is_ok());
}

#[test]
fn numbers_out_of_range_name_their_flag() {
    let wrong: [(&str, fn(&mut Asked)); 7] = [
        ("--clip must be a norm", |a| a.clip = Some(-1.0)),
        ("--clip must be a norm", |a| a.clip = Some(f64::NAN)),
        ("--beta2 must be in [0, 1)", |a| a.beta2 = Some(1.0)),
        ("--lr must be a positive number", |a| a.lr = Some(0.0)),
        ("--seq-len must be 1 to", |a| a.seq_len = Some(0)),
        ("--vocab-size must be 1 to 65536", |a| {
            a.vocab_size = Some(65_537)
        }),
        ("--heads 3 does not divide --d 128", |a| a.heads = Some(3)),
    ];
    for (sentence, set) in wrong {
        let mut asked = Asked::default();
        set(&mut asked);
        let message = refusal(asked);
        assert!(message.contains(sentence), "{message}");
    }
}
