//! The recipes as tables, what follows from mixer and flags, and what is refused.

use super::*;
use crate::config::{
    AdamConfig, Decay, Dual, InitScheme, Input, LanguageConfig, Layout, Loss, Pool, Precision,
    Protocol, Rotary, Schedule, StateMixer, TrainConfig,
};
use crate::mixers::{of_layer, of_model, MIXERS};
use crate::model::Classifier;
use crate::nn::Params;
use crate::tasks::lra::{LraConfig, LraDataset};
use crate::tasks::mqar::MqarConfig;
use crate::tasks::wikitext::{Corpus, Tokenizer, WikitextConfig};
use candle_core::{DType, Device};

type Settings<'a> = &'a [(&'a str, &'a str)];

fn refusal(task: &str, settings: Settings) -> String {
    run(task, settings).unwrap_err().to_string()
}

fn mqar(settings: Settings) -> RunConfig {
    run("mqar", settings).unwrap()
}

fn recall(run: &RunConfig) -> MqarConfig {
    run.task.typed().unwrap()
}

fn arena(run: &RunConfig) -> LraConfig {
    run.task.typed().unwrap()
}

fn text(run: &RunConfig) -> WikitextConfig {
    run.task.typed().unwrap()
}

fn language(run: &RunConfig) -> &LanguageConfig {
    run.model.language.as_ref().unwrap()
}

/// All that is set of the other mixer is part of the run, and what either has no use for is left out of its layers.
#[test]
fn a_hybrid_has_layers_of_two_mixers_with_all_their_settings() {
    let run = |settings| mqar(settings).model;
    let model = run(&[
        ("mixer", "mamba"),
        ("layers", "6"),
        ("hybrid", "attention:every=3,offset=1"),
    ]);
    let hybrid = model.hybrid.clone().unwrap();
    assert_eq!(
        hybrid.to_string(),
        "softmax:every=3,offset=1,variant=reference"
    );
    let layers: Vec<(&str, Option<f64>, usize)> = (0..6)
        .map(|layer| {
            let (entry, model) = of_layer(&model, layer).unwrap();
            assert_eq!((&model.mixer[..], &model.hybrid), (entry.name, &None));
            (entry.name, model.expand, model.n_heads)
        })
        .collect();
    let [s, m] = [("softmax", None, 1), ("mamba", model.expand, 1)];
    assert_eq!(layers, [m, s, m, m, s, m]);
    let counts = of_model(&model).unwrap();
    let counts: Vec<_> = counts
        .iter()
        .map(|(e, _, count)| (e.name, *count))
        .collect();
    assert_eq!(counts, [("mamba", 4), ("softmax", 2)]);
    // Heads of the one, state expansion of the other.
    let model = run(&[
        ("mixer", "rwkv4"),
        ("hybrid", "sliding-window:every=2,offset=1,window=9"),
        ("heads", "2"),
        ("n", "32"),
        ("d", "64"),
    ]);
    assert_eq!(model.hybrid.clone().unwrap().options["window"], "9");
    let sizes = |layer| {
        let (_, model) = of_layer(&model, layer).unwrap();
        (model.d_state, model.n_heads)
    };
    assert_eq!([sizes(0), sizes(1)], [(1, 1), (32, 2)]);
    // Two mixers without a state expansion leave none to be recorded.
    let model = run(&[("mixer", "rwkv4"), ("hybrid", "gru:every=2"), ("n", "32")]);
    assert_eq!(model.d_state, 1);
}

#[test]
fn a_hybrid_that_makes_no_model_is_refused_by_its_flag() {
    for (settings, says) in [
        (
            &[("hybrid", "atention:every=2")][..],
            "--hybrid: unknown mixer",
        ),
        (
            &[("hybrid", "softmax:every=8,offset=4")],
            "give --layers 5 or more",
        ),
        (
            &[("hybrid", "softmax:every=2,variant=x")],
            "--hybrid: unknown variant of softmax",
        ),
        (&[("hybrid", "softmax:every=2,window=9")], "window"),
        (&[("hybrid", "softmax:offset=1")], "no distance of layers"),
        (
            &[("hybrid", "softmax:every=2"), ("heads", "3"), ("d", "64")],
            "--heads 3",
        ),
    ] {
        let error = run("mqar", settings).unwrap_err().to_string();
        assert!(error.contains(says), "{settings:?}: {error}");
    }
}

#[test]
fn what_was_measured_is_told_of_that_run_under_any_seed_and_of_no_other() {
    let plain = mqar(&[("mixer", "s6"), ("seed", "9")]);
    let row = measured(&plain).unwrap();
    assert_eq!((row.mixer.as_str(), row.accuracy), ("s6", 0.273));
    for other in [("lr", "1e-3"), ("preset", "smoke"), ("epochs", "64")] {
        assert!(measured(&mqar(&[("mixer", "s6"), other])).is_none());
    }
}

/// `| mixer | accuracy |` in the guide on sweeps.
#[test]
fn the_guide_tells_what_was_measured_of_each_mixer() {
    let guide = include_str!("../guide/sweeps.md");
    let head = "| mixer | test accuracy | |\n|---|---|---|\n";
    let table = guide.split(head).nth(1).unwrap();
    let told: Vec<(String, String)> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
        })
        .collect();
    let rows = task("mqar").unwrap().layers().measured.iter();
    let known: Vec<(String, String)> = rows
        .map(|row| {
            let percent = format!("{:.1} %", 100.0 * row.accuracy);
            assert!(crate::mixers::find(&row.mixer).is_ok() && preset(&row.preset).is_ok());
            assert_eq!(row.why.is_empty(), row.accuracy > 0.9, "{}", row.mixer);
            (row.mixer.clone(), percent)
        })
        .collect();
    assert_eq!(told, known);
}

#[test]
fn recipes_set_nothing_that_the_settings_do_not_know() {
    for task in TASKS {
        let recipe = task.layers();
        for layer in &recipe.layer {
            for (name, value) in &layer.set {
                let known = SETTINGS
                    .find(name)
                    .unwrap_or_else(|| panic!("{}: {name}", task.name));
                let value = match value.as_str() {
                    Some(text) => known.parse(text).unwrap(),
                    None => value.clone(),
                };
                known
                    .check(&value)
                    .unwrap_or_else(|e| panic!("{}: {}: {e}", task.name, layer.of));
            }
            let facts = [
                "preset",
                "protocol",
                "mixer",
                "family",
                "attention",
                "half-batch",
                "gpu",
                "row",
            ];
            for name in layer.when.keys() {
                let known = facts.contains(&name.as_str()) || SETTINGS.find(name).is_some();
                assert!(known, "{}: {}: {name}", task.name, layer.of);
            }
        }
        let named = recipe
            .sweep
            .keys()
            .chain(&recipe.compare.keep)
            .chain(&recipe.compare.open);
        assert!(
            named.into_iter().all(|name| SETTINGS.find(name).is_some()),
            "{}",
            task.name
        );
        assert!(preset(&recipe.presets.default).is_ok());
    }
}

#[test]
fn every_mixer_has_a_run_of_every_task_preset_and_protocol_that_its_text_describes() {
    for task in TASKS {
        let all = [Protocol::Reference, Protocol::Paper, Protocol::Matched];
        let protocols = match &task.layers().protocols[..] {
            [] => &all,
            some => some,
        };
        for entry in MIXERS {
            for protocol in protocols {
                for preset in ["paper", "quick", "smoke"] {
                    let named = [
                        ("mixer", entry.name),
                        ("protocol", protocol.as_str()),
                        ("preset", preset),
                    ];
                    let run = run(task.name, &named).unwrap();
                    assert_eq!(RunConfig::parse(&run.canonical(), "here").unwrap(), run);
                }
            }
        }
    }
}

#[test]
fn presets_have_the_names_that_help_lists_and_their_aliases() {
    for (alias, name) in [
        ("full", "paper"),
        ("pythia-70m", "paper"),
        ("tiny", "quick"),
    ] {
        assert_eq!(preset(alias).unwrap(), name);
    }
    let message = preset("pape").unwrap_err().to_string();
    assert!(message.contains("Did you mean `paper`?"), "{message}");
}

#[test]
fn the_rates_of_mqar_are_equal_steps_of_the_exponent() {
    for (i, rate) in task("mqar")
        .unwrap()
        .paper_rates()
        .unwrap()
        .iter()
        .enumerate()
    {
        let exact = 10f64.powf(-4.0 + 2.0 * i as f64 / 3.0);
        assert!((rate / exact - 1.0).abs() < 1e-15, "{rate} is not {exact}");
    }
    let rates = task("wikitext").unwrap().paper_rates().unwrap();
    assert_eq!(rates, [3e-4, 1e-3, 3e-3, 1e-2]);
}

#[test]
fn every_value_says_where_it_came_from() {
    let mut choice = Choice::of(Some("paper"), false);
    choice.set("d", "32", "--d").unwrap();
    choice
        .set("option", "dt_init=mamba", "my.toml, line 3, option")
        .unwrap();
    choice.set("mixer", "s6", "my.toml, line 3, mixer").unwrap();
    let resolved = resolve(task("mqar").unwrap(), &choice).unwrap();
    let origin = |name: &str| {
        let found = resolved.explained.iter().find(|row| row.name == name);
        found
            .unwrap_or_else(|| panic!("no {name}"))
            .origin
            .to_string()
    };
    assert_eq!(origin("d"), "--d");
    assert_eq!(origin("mixer"), "my.toml, line 3, mixer");
    assert_eq!(origin("option dt_init"), "my.toml, line 3, option");
    assert_eq!(
        origin("option dt_rank"),
        "the mixer's default under the protocol"
    );
    assert_eq!(origin("layout"), "released block of s6");
    assert_eq!(origin("epochs"), "recipes/mqar.toml, preset paper");
    assert_eq!(
        origin("batch-size"),
        "as many tokens a step at every length"
    );
    assert_eq!(origin("attn-dropout"), "as dropout");
    let config = serde_json::to_value(&resolved.config).unwrap();
    let taker = task("mqar").unwrap().taker();
    for row in &resolved.explained {
        let Some(setting) = SETTINGS.find(&row.name) else {
            continue;
        };
        let pointer = setting.pointer(taker.objective).unwrap();
        let found = config.pointer(&pointer).unwrap_or(&Value::Null);
        assert_eq!(found.as_f64(), row.value.as_f64(), "{}", row.name);
    }
}

#[test]
fn a_mixer_without_released_hyperparameters_is_told_whose_stand_in() {
    let notes = |mixer: &str, protocol: &str| {
        let mut choice = Choice::of(Some("smoke"), false);
        choice.set("mixer", mixer, "").unwrap();
        choice.set("protocol", protocol, "").unwrap();
        resolve(task("lra").unwrap(), &choice).unwrap().notes
    };
    for mixer in [
        "softmax",
        "linear",
        "normalized-softplus",
        "s6",
        "mamba",
        "ssd",
        "rg-lru",
    ] {
        assert!(notes(mixer, "reference").is_empty(), "{mixer}");
    }
    let said = notes("qlstm", "reference").join("");
    assert!(
        said.contains("`qlstm`") && said.contains("of Mamba stand in"),
        "{said}"
    );
    assert!(
        notes("qlstm", "matched").is_empty(),
        "one body for every mixer is a choice"
    );
}

mod of_mqar {
    use super::*;

    #[test]
    fn the_reference_protocol_is_the_table_of_the_released_configs() {
        let full = |mixer| mqar(&[("preset", "paper"), ("mixer", mixer)]);
        use {Layout::Mamba, Layout::Transformer, StateMixer::Identity, StateMixer::Mlp};
        for (mixer, layout, state_mixer, positions, batch) in [
            ("softmax", Transformer, Identity, true, 512),
            ("linear", Transformer, Identity, true, 512),
            ("normalized", Transformer, Mlp, true, 512),
            ("s6", Mamba, StateMixer::None, false, 512),
            ("ssd", Mamba, StateMixer::None, false, 512),
            ("qlstm", Transformer, Identity, true, 256),
            ("qlstm-reversed", Transformer, Identity, true, 256),
        ] {
            let run = full(mixer);
            let m = &run.model;
            let block = (m.layout, m.state_mixer, m.positions);
            assert_eq!(block, (layout, state_mixer, positions), "{mixer}");
            let batch_and_variant = (run.train.batch_size, m.variant.as_str());
            assert_eq!(batch_and_variant, (batch, "reference"), "{mixer}");
            assert_eq!((m.embed_dropout, m.attn_dropout), (0.1, 0.1), "{mixer}");
        }
        assert_eq!(full("s6").model.options["dt_init"], "zero");
    }

    #[test]
    fn the_paper_protocol_has_one_block_no_dropout_and_positions_for_attention_and_rnns() {
        let of = |mixer| mqar(&[("preset", "paper"), ("mixer", mixer), ("protocol", "paper")]);
        for (mixer, variant, positions) in [
            ("softmax", "paper", true),
            ("s6", "paper", false),
            ("qlstm", "paper", true),
            ("rg-lru", "paper", true),
            ("ssd", "paper", false),
        ] {
            let run = of(mixer);
            let m = &run.model;
            assert_eq!(
                (m.variant.as_str(), m.positions),
                (variant, positions),
                "{mixer}"
            );
            assert_eq!(
                (m.layout, m.state_mixer),
                (Layout::Transformer, StateMixer::Mlp)
            );
            assert_eq!((m.embed_dropout, run.train.batch_size), (0.0, 512));
            assert_eq!(run.train.schedule, Schedule::WarmupConstant);
        }
        for mixer in ["s6", "ssd"] {
            assert_eq!(of(mixer).model.options["dt_init"], "mamba", "{mixer}");
        }
    }

    #[test]
    fn the_matched_protocol_gives_every_mixer_the_same_block() {
        for entry in MIXERS {
            let run = mqar(&[
                ("preset", "paper"),
                ("mixer", entry.name),
                ("protocol", "matched"),
            ]);
            let m = &run.model;
            let block = (m.layout, m.state_mixer, m.positions);
            assert_eq!(block, (Layout::Transformer, StateMixer::Mlp, true));
            assert_eq!((run.train.batch_size, m.embed_dropout), (512, 0.1));
        }
    }

    #[test]
    fn batches_hold_the_papers_32768_tokens() {
        let batches = ["32", "64", "128", "256", "512", "32768"].map(|l| {
            let named = [("preset", "paper"), ("vocab-size", "65536"), ("seq-len", l)];
            let few = [("train-examples", "1000")];
            mqar(&[&named[..], &few].concat()).train.batch_size
        });
        assert_eq!(batches, [512, 512, 256, 128, 64, 1]);
    }

    #[test]
    fn a_state_expansion_that_nothing_reads_does_not_make_another_run() {
        let id = |n| mqar(&[("mixer", "qlstm"), ("n", n)]).id();
        assert_eq!(id("32"), id("256"));
    }

    #[test]
    fn every_part_of_the_config_changes_the_id_and_field_order_does_not() {
        let base = mqar(&[("mixer", "s6")]);
        let text = base.canonical();
        assert_eq!(RunConfig::parse(&text, "here").unwrap().id(), base.id());
        for change in [
            ("seed", "124"),
            ("lr", "4e-3"),
            ("n", "33"),
            ("protocol", "matched"),
            ("option", "dt_init=mamba"),
            ("data-seed", "1"),
        ] {
            assert_ne!(
                mqar(&[("mixer", "s6"), change]).id(),
                base.id(),
                "{change:?}"
            );
        }
    }

    #[test]
    fn wrong_settings_name_the_flag_and_what_would_be_right() {
        for (name, value, sentence) in [
            (
                "mixer",
                "linnear",
                "unknown mixer `linnear`. Did you mean `linear`?",
            ),
            ("variant", "papr", "Did you mean `paper`?"),
            ("lr", "-1", "--lr must be a positive number"),
            ("lr", "nan", "--lr must be a positive number"),
            ("lr", "inf", "--lr must be a positive number"),
            ("dropout", "1", "--dropout must be in [0, 1), not 1"),
            ("heads", "3", "--heads 3 does not divide --d 64"),
            ("batch-size", "0", "--batch-size must be 1 to"),
            ("d", "0", "--d must be 1 to"),
            ("option", "dt_init=x", "mixer `softmax` has no options"),
            ("seq-len", "63", "--seq-len 63 is odd"),
            ("expand", "nan", "--expand must be a number"),
            ("pace", "3", "unknown setting `pace`"),
        ] {
            let said = refusal("mqar", &[(name, value)]);
            assert!(said.contains(sentence), "{name} {value}: {said}");
        }
    }

    #[test]
    fn the_full_preset_is_the_papers_smallest_cell() {
        let run = mqar(&[("preset", "paper")]);
        let task = recall(&run);
        assert_eq!(
            (task.vocab_size, task.seq_len, task.kv_pairs),
            (8192, 64, 4)
        );
        assert_eq!((task.train_examples, task.test_examples), (100_000, 3_000));
    }
}

mod of_lra {
    use super::*;

    fn lra(settings: Settings) -> RunConfig {
        run("lra", settings).unwrap()
    }

    fn parameters(run: &RunConfig) -> usize {
        let params = Params::seeded(0, DType::F32, &Device::Cpu);
        Classifier::new(&run.model, &run.task.sizes().unwrap(), &params).unwrap();
        params.count()
    }

    #[test]
    fn a_classifier_of_a_layout_of_language_models_is_refused() {
        for layout in [Layout::Mamba, Layout::Parallel] {
            let mut run = lra(&[]);
            run.model.layout = layout;
            let params = Params::seeded(0, DType::F32, &Device::Cpu);
            let built = Classifier::new(&run.model, &run.task.sizes().unwrap(), &params);
            let message = built.err().unwrap().to_string();
            assert!(message.starts_with("a classifier has the layout transformer"));
        }
    }

    /// Counted from the newest released code, which scales residuals.
    #[test]
    fn released_configs_have_as_many_parameters_as_they_should() {
        for (dataset, mixer, expected) in [
            ("listops", "softmax", 1_787_922),
            ("listops", "linear", 2_150_932),
            ("listops", "normalized", 2_161_252),
            ("text", "softmax", 1_334_790),
            ("text", "linear", 3_059_206),
            ("text", "normalized", 3_063_318),
            ("retrieval", "linear", 1_926_666),
            ("retrieval", "normalized", 1_929_762),
            ("image", "softmax", 347_532),
            ("image", "linear", 347_532),
            ("image", "normalized", 349_596),
            ("pathfinder", "softmax", 263_683),
            ("pathfinder", "linear", 263_683),
            ("pathfinder", "normalized", 3_237_944),
            ("listops", "mamba", 851_348),
            ("text", "mamba", 433_992),
            ("retrieval", "mamba", 3_229_706),
            ("image", "mamba", 1_290_252),
            ("pathfinder", "mamba", 2_040_328),
        ] {
            let named = [("dataset", dataset), ("mixer", mixer)];
            let scaled = lra(&[&named[..], &[("lambda-skip", "true")]].concat());
            assert_eq!(parameters(&scaled), expected, "{dataset} {mixer}");
            let plain = lra(&named);
            assert_eq!(parameters(&plain), expected - plain.model.n_layers);
        }
    }

    #[test]
    fn every_mixer_makes_a_classifier_of_every_dataset_under_every_protocol() {
        for dataset in LraDataset::ALL {
            for entry in MIXERS {
                for protocol in ["reference", "paper", "matched"] {
                    for preset in ["paper", "quick", "smoke"] {
                        let run = lra(&[
                            ("dataset", dataset.name()),
                            ("mixer", entry.name),
                            ("protocol", protocol),
                            ("preset", preset),
                        ]);
                        if preset == "smoke" {
                            parameters(&run);
                        }
                        assert_eq!(RunConfig::parse(&run.canonical(), "here").unwrap(), run);
                    }
                }
            }
        }
    }

    #[test]
    fn the_full_preset_has_the_official_sizes() {
        for dataset in LraDataset::ALL {
            let run = lra(&[("dataset", dataset.name())]);
            let task = arena(&run);
            let examples = [task.train_examples, task.val_examples, task.test_examples];
            assert_eq!(examples, dataset.examples());
            let sizes = (task.vocab_size, task.seq_len);
            assert_eq!(sizes, (dataset.vocab_size(), dataset.seq_len()));
        }
    }

    #[test]
    fn matched_differs_in_nothing_but_the_mixer() {
        for dataset in LraDataset::ALL {
            let of = |mixer: &str| {
                let named = [
                    ("dataset", dataset.name()),
                    ("mixer", mixer),
                    ("protocol", "matched"),
                ];
                let mut run = lra(&named);
                let model = &mut run.model;
                (model.mixer, model.variant) = (String::new(), String::new());
                model.options.clear();
                (model.expand, model.d_state) = (None, 0);
                // attention alone has positions and, of these, heads
                (model.positions, model.n_heads) = (false, 0);
                run
            };
            for mixer in ["linear", "normalized", "s6", "mamba", "rg-lru", "qlstm"] {
                assert_eq!(of(mixer), of("softmax"), "{} {mixer}", dataset.name());
            }
            let classifier = of("s6").model.classifier.unwrap();
            assert!(classifier.mask && classifier.loss == Loss::Ce);
        }
    }

    #[test]
    fn a_step_has_micro_batches_that_fit() {
        let of = |dataset, mixer| lra(&[("dataset", dataset), ("mixer", mixer)]).train;
        let retrieval = of("retrieval", "mamba");
        assert_eq!((retrieval.batch_size, retrieval.micro_batch), (16, Some(4)));
        let text = of("text", "softmax");
        assert_eq!((text.batch_size, text.micro_batch), (4, None));
    }

    #[test]
    fn without_a_dataset_a_small_listops_is_trained() {
        let run = lra(&[]);
        let task = arena(&run);
        assert_eq!(task.dataset, LraDataset::Listops);
        assert!(task.train_examples < 96_000);
    }

    #[test]
    fn what_means_nothing_or_cannot_be_is_refused_by_its_flag() {
        for (setting, start) in [
            (
                ("kv-pairs", "4"),
                "--kv-pairs means nothing to the task lra",
            ),
            (("micro-batch", "0"), "--micro-batch"),
            (("attn-dropout", "1"), "--attn-dropout"),
            (("expand", "2"), "--expand"),
        ] {
            let said = refusal("lra", &[("dataset", "image"), setting]);
            assert!(said.starts_with(start), "{said}");
        }
        let said = refusal("lra", &[("warmup-epochs", "3"), ("protocol", "paper")]);
        assert!(said.starts_with("--warmup-epochs"), "{said}");
        let said = refusal("mqar", &[("dataset", "image")]);
        assert!(said.starts_with("--dataset means nothing"), "{said}");
    }

    #[test]
    fn attention_sees_the_whole_document_only_where_a_mixer_can() {
        let seen = |mixer: &str, all: &str| lra(&[("mixer", mixer), ("bidirectional", all)]);
        // Runs that are older than the choice keep their ids.
        assert_eq!(seen("softmax", "false"), lra(&[]));
        let said = serde_json::to_string(&lra(&[])).unwrap();
        assert!(!said.contains("bidirectional"), "{said}");
        assert_ne!(seen("softmax", "true").id(), lra(&[]).id());
        assert_eq!(
            refusal("lra", &[("mixer", "s6"), ("bidirectional", "true")]),
            "--bidirectional true: mixer `s6` reads a document in order; softmax, linear and normalized attention, \
             taylor and performer can see all of it at once"
        );
        let said = refusal("mqar", &[("bidirectional", "true")]);
        assert!(said.contains("--bidirectional"), "{said}");
    }

    #[test]
    fn a_quick_pathfinder_has_short_paths_unless_it_reads_files() {
        let of = |more: Settings| {
            let named = [("dataset", "pathfinder"), ("mixer", "s6")];
            lra(&[&named[..], more].concat())
        };
        let quick = of(&[("preset", "quick")]);
        assert_eq!(arena(&quick).contour_length(), 3);
        let files = of(&[("preset", "quick"), ("data", "files")]);
        assert_eq!(arena(&files).contour_length(), 14);
        assert_eq!(of(&[]).model.classifier.unwrap().pool, Pool::Mean);
        let quick = quick.model.classifier.unwrap();
        assert_eq!((quick.pool, quick.input), (Pool::Max, Input::Embedding));
        assert_eq!(quick.dual, Dual::Logits);
    }
}

mod of_wikitext {
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
            eos_between_articles: false,
            train_examples: None,
            test_examples: None,
        };
        assert_eq!(text(&run), expected);
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
            lr: 3e-3,
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
        for (settings, sizes, seq_len, batch, lr, windows) in [
            (&[][..], (128, 2, 4, 512), 256, 8, 3e-3, (None, None)),
            (
                &[("preset", "smoke")],
                (32, 1, 2, 64),
                32,
                4,
                3e-3,
                (Some(16), Some(4)),
            ),
        ] {
            let run = wikitext(settings);
            let (task, model, train) = (text(&run), &run.model, &run.train);
            assert_eq!((task.corpus, task.vocab_size), (Corpus::Sample, 256));
            let of = (
                model.d_model,
                model.n_layers,
                model.n_heads,
                language(&run).mlp_width,
            );
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
            // Two of them have positions of their own, and one mixes keys of several places.
            let turns = attends && !["alibi", "t5-bias", "sinkhorn"].contains(&entry.name);
            assert_eq!(turns, entry.rotary, "{}", entry.name);
            let rotary = (language(&run).rotary, language(&run).rotary_dims);
            let expected = if turns {
                (Rotary::Pre, 16)
            } else {
                (Rotary::None, 0)
            };
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
        let dropouts = (run.model.embed_dropout, run.model.attn_dropout);
        assert_eq!(dropouts, (0.1, 0.2));
    }

    #[test]
    fn only_the_protocol_of_the_paper_is_there() {
        wikitext(&[("protocol", "paper")]);
        for protocol in ["reference", "matched"] {
            let message = refusal("wikitext", &[("protocol", protocol)]);
            assert!(message.contains("no code of the experiment"), "{message}");
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
            let expected = format!("--{flag} means nothing to the task wikitext: leave it out");
            assert_eq!(refusal("wikitext", &[(flag, value)]), expected);
        }
    }

    #[test]
    fn flags_of_text_are_refused_by_the_other_tasks() {
        for (flag, value) in [
            ("corpus", "sample"),
            ("tokenizer", "gpt-neox"),
            ("eos-between-articles", "true"),
            ("rotary", "pre"),
            ("init", "hf"),
            ("schedule", "cosine"),
            ("beta2", "0.9"),
            ("clip", "1"),
            ("decay", "all"),
        ] {
            for task in ["mqar", "lra"] {
                let message = refusal(task, &[(flag, value)]);
                let start = format!("--{flag} means nothing to the task {task}");
                assert!(message.starts_with(&start), "{message}");
            }
        }
        let wide = [("mlp-width", "64")];
        assert!(run("mqar", &wide).is_err() && run("lra", &wide).is_ok());
    }

    #[test]
    fn numbers_out_of_range_name_their_flag() {
        for (flag, value, sentence) in [
            ("clip", "-1", "--clip must be a norm"),
            ("clip", "nan", "--clip must be a norm"),
            ("beta2", "1", "--beta2 must be in [0, 1)"),
            ("lr", "0", "--lr must be a positive number"),
            ("seq-len", "0", "--seq-len must be 1 to"),
            ("vocab-size", "65537", "--vocab-size"),
            ("heads", "3", "--heads 3 does not divide --d 128"),
        ] {
            let message = refusal("wikitext", &[(flag, value)]);
            assert!(message.contains(sentence), "{message}");
        }
    }
}

mod presets_of_rows {
    use super::*;

    fn row(task: &str, settings: Settings) -> Record {
        Record::planned(&run(task, settings).unwrap())
    }

    #[test]
    fn a_preset_taken_as_it_is_is_found_again() {
        for (i, preset) in PRESETS.iter().enumerate() {
            for dataset in ["text", "image"] {
                let named = [
                    ("preset", preset.name),
                    ("dataset", dataset),
                    ("mixer", "mamba"),
                ];
                let row = row("lra", &named);
                assert_eq!(presets_of(&row)[i], (preset.name, row));
            }
        }
    }

    #[test]
    fn a_preset_of_text_keeps_corpus_and_precision() {
        let named = [
            ("corpus", "wikitext-2"),
            ("mixer", "linear"),
            ("precision", "bf16"),
        ];
        let row = row("wikitext", &named);
        let presets = presets_of(&row);
        assert_eq!(presets[1], ("quick", row));
        let full = &presets[0].1;
        let sizes = ["d", "seq_len", "vocab_size"].map(|name| full.count(name));
        assert_eq!(sizes, [512, 1024, 50_304]);
        let kept = ["dataset", "precision"].map(|name| full.text(name));
        assert_eq!(kept, ["wikitext-2", "bf16"]);
    }

    #[test]
    fn d_and_n_of_recall_are_left_open() {
        let row = row("mqar", &[]);
        let (_, full) = presets_of(&row).remove(0);
        let sizes = ["d", "n", "vocab_size"].map(|name| full.count(name));
        assert_eq!(sizes, [0, 0, 8192]);
        assert_eq!(full.get("seq_len"), row.get("seq_len"));
    }

    #[test]
    fn what_this_version_does_not_know_has_no_preset() {
        let known = row("lra", &[]);
        assert_eq!(presets_of(&known).len(), 3);
        let unknown: [fn(&mut Record); 5] = [
            |r| r.set("mixer", "telepathy"),
            |r| r.set("dataset", "path-x"),
            |r| r.set("protocol", "mine"),
            |r| r.set("data", "dreamt"),
            |r| r.set("task", "go"),
        ];
        for change in unknown {
            let mut row = known.clone();
            change(&mut row);
            assert_eq!(presets_of(&row), []);
        }
    }
}

#[test]
fn a_config_chosen_again_is_the_same_run() {
    for task in TASKS {
        for protocol in ["reference", "paper", "matched"] {
            for entry in MIXERS {
                let named = [("mixer", entry.name), ("protocol", protocol)];
                let Ok(run) = super::run(task.name, &named) else {
                    continue; // a task without this protocol, or without this mixer
                };
                let again = resolve(task, &Choice::again(&run, "config.json").unwrap()).unwrap();
                assert_eq!(again.config, run, "{} {} {protocol}", task.name, entry.name);
            }
        }
    }
}

#[test]
fn what_is_set_beside_a_config_is_all_that_changes() {
    let run = mqar(&[
        ("preset", "paper"),
        ("mixer", "s6"),
        ("option", "dt_init=mamba"),
    ]);
    let with = |name: &str, text: &str| {
        let mut other = Choice::default();
        other.set(name, text, "--flag").unwrap();
        let chosen = Choice::again(&run, "config.json").unwrap().with(other)?;
        resolve(task("mqar").unwrap(), &chosen).map(|resolved| resolved.config)
    };
    let mut expected = run.clone();
    expected.seed = 7;
    assert_eq!(with("seed", "7").unwrap(), expected);
    let dropped = with("dropout", "0.3").unwrap();
    assert_eq!(
        (dropped.model.embed_dropout, dropped.model.attn_dropout),
        (0.3, 0.3)
    );
    for (name, text) in [("protocol", "paper"), ("mixer", "ssd"), ("preset", "quick")] {
        let sentence = with(name, text).unwrap_err().to_string();
        assert!(
            sentence.contains(&format!("--{name} decides other settings")),
            "{sentence}"
        );
    }
}

/// The run that a command describes, by its words.
fn described(command: &str) -> RunConfig {
    let mut words = command.split(' ').skip(1);
    let task = task(words.next().unwrap()).unwrap();
    let mut choice = Choice::default();
    while let Some(flag) = words.next() {
        let name = flag.strip_prefix("--").unwrap();
        choice.set(name, words.next().unwrap(), flag).unwrap();
    }
    resolve(task, &choice).unwrap().config
}

#[test]
fn the_command_of_a_run_makes_the_run_again() {
    let (presets, protocols) = (
        ["paper", "quick", "smoke"],
        ["reference", "paper", "matched"],
    );
    for task in TASKS {
        for (i, entry) in MIXERS.iter().enumerate() {
            let named = [
                ("preset", presets[i % 3]),
                ("protocol", protocols[i / 3 % 3]),
                ("mixer", entry.name),
                ("seed", "9"),
                ("lr", "0.004"),
            ];
            let Ok(run) = super::run(task.name, &named) else {
                continue; // a task without this protocol, or without this mixer
            };
            let command = command(&run).unwrap();
            assert_eq!(described(&command), run, "{command}");
        }
    }
    let plain = |task| command(&super::run(task, &[]).unwrap()).unwrap();
    assert_eq!(plain("mqar"), "dsf mqar");
    assert_eq!(plain("lra"), "dsf lra");
    let s6 = [
        ("preset", "paper"),
        ("mixer", "s6"),
        ("option", "dt_init=mamba"),
        ("d", "128"),
        ("n", "32"),
        ("lr", "1e-3"),
    ];
    assert_eq!(
        command(&mqar(&s6)).unwrap(),
        "dsf mqar --preset paper --mixer s6 --d 128 --n 32 --lr 0.001 --option dt_init=mamba"
    );
}

#[test]
fn a_state_expansion_that_the_mixer_does_not_have_is_said_to_be_none() {
    let notes = |mixer, n| {
        let mut choice = Choice::default();
        for (name, text) in [("mixer", mixer), ("n", n)] {
            choice.set(name, text, name).unwrap();
        }
        resolve(task("mqar").unwrap(), &choice).unwrap().notes
    };
    let said = "a mixer without a state expansion takes no --n: it is 1 in its runs";
    assert_eq!(notes("gru", "32"), [said]);
    assert_eq!((notes("gru", "1").len(), notes("ssd", "32").len()), (0, 0));
}

/// Runs that are older than the choice keep their ids.
#[test]
fn positions_are_learnt_unless_said_and_sinusoidal_ones_ask_for_embeddings() {
    let learnt = mqar(&[("position-embedding", "learnt")]);
    assert_eq!(learnt, mqar(&[]));
    assert!(!serde_json::to_string(&learnt)
        .unwrap()
        .contains("position_embedding"));
    let sinusoidal = mqar(&[("position-embedding", "sinusoidal")]);
    assert_ne!(sinusoidal.id(), learnt.id());
    assert_eq!(
        refusal("mqar", &[("mixer", "s6"), ("position-embedding", "sinusoidal")]),
        "--position-embedding sinusoidal: this model has no embeddings of positions; add --positions true"
    );
    let notes = |kind| {
        let mut choice = Choice::default();
        let longer = [
            ("seq-len", "64"),
            ("kv-pairs", "4"),
            ("test-seq-len", "128"),
        ];
        for (name, text) in longer.into_iter().chain([("position-embedding", kind)]) {
            choice.set(name, text, name).unwrap();
        }
        resolve(task("mqar").unwrap(), &choice).unwrap().notes
    };
    let never = |kind| {
        let mut notes = notes(kind).into_iter();
        notes.any(|note| note.contains("never trained"))
    };
    assert!(never("learnt") && !never("sinusoidal"));
}
