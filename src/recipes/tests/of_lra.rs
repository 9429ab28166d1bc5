//! Recipes of the Long Range Arena.

use super::*;
use crate::config::MapInit;

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
        assert!(message.contains("transformer"), "{message}");
    }
}

/// Numbers from the newest released code, which scales residuals.
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
    for dataset in LraDataset::ALL.into_iter().chain([LraDataset::PathX]) {
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
    for dataset in LraDataset::ALL.into_iter().chain(LraDataset::LARGER) {
        let run = lra(&[("dataset", dataset.name())]);
        let task = arena(&run);
        let examples = [task.train_examples, task.val_examples, task.test_examples];
        assert_eq!(examples, dataset.examples());
        let sizes = (task.vocab_size, task.seq_len);
        assert_eq!(sizes, (dataset.vocab_size(), dataset.seq_len()));
    }
}

/// J.2: "the standard datasets". Text has no validation split, and only `matched` makes one.
#[test]
fn protocol_paper_trains_on_all_of_the_standard_datasets() {
    for dataset in LraDataset::ALL {
        let of = |protocol| {
            let named = [("dataset", dataset.name()), ("protocol", protocol)];
            let run = lra(&named);
            let task = arena(&run);
            [task.train_examples, task.val_examples, task.test_examples]
        };
        assert_eq!(of("paper"), dataset.examples(), "{}", dataset.name());
        assert_eq!(of("reference"), dataset.examples(), "{}", dataset.name());
        let expected = match dataset {
            LraDataset::Text => [22_500, 2_500, 25_000],
            _ => dataset.examples(),
        };
        assert_eq!(of("matched"), expected, "{}", dataset.name());
    }
}

#[test]
fn matched_differs_in_nothing_but_the_mixer() {
    for dataset in LraDataset::ALL {
        let of = |mixer: &str| {
            let named = [("dataset", dataset.name()), ("mixer", mixer), ("protocol", "matched")];
            let mut run = lra(&named);
            let model = &mut run.model;
            (model.mixer, model.variant) = (String::new(), String::new());
            model.options.clear();
            (model.expand, model.d_state) = (None, 0);
            // Only attention has positions and heads.
            (model.positions, model.n_heads) = (false, 0);
            model.map_init = MapInit::Released;
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
    for (name, value) in [("kv-pairs", "4"), ("micro-batch", "0"), ("attn-dropout", "1"), ("expand", "2")] {
        let settings = [("dataset", "image"), (name, value)];
        refuses("lra", &settings, &format!("--{name}"));
    }
    let warmup = [("warmup-epochs", "3"), ("protocol", "paper")];
    refuses("lra", &warmup, "--warmup-epochs");
    refuses("mqar", &[("dataset", "image")], "--dataset").names(&["mqar"]);
    refuses("lra", &[("block", "mamba")], "--block").names(&["mamba", "--layout"]);
    refuses("pixels", &[("layout", "parallel")], "--layout").names(&["parallel"]);
}

#[test]
fn a_mixer_reads_the_whole_document_only_where_it_can() {
    let seen = |mixer: &str, all: &str| lra(&[("mixer", mixer), ("bidirectional", all)]);
    // Runs older than the setting keep their ids.
    assert_eq!(seen("softmax", "false"), lra(&[]));
    let said = serde_json::to_string(&lra(&[])).unwrap();
    assert!(!said.contains("bidirectional"), "{said}");
    assert_ne!(seen("softmax", "true").id(), lra(&[]).id());
    assert_eq!(seen("s6", "false"), lra(&[("mixer", "s6")]));
    assert_ne!(seen("s6", "true").id(), seen("s6", "false").id());
    let earlier = [("mixer", "sliding-window"), ("bidirectional", "true")];
    refuses("lra", &earlier, "--bidirectional").names(&["`sliding-window`", "softmax"]);
    refuses("mqar", &[("bidirectional", "true")], "--bidirectional");
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
    assert_eq!((quick.pool, quick.input), (Pool::Max, InputMap::Embedding));
    assert_eq!(quick.dual, Dual::Logits);
}

#[test]
fn the_seed_draws_generated_documents_and_nothing_of_files() {
    let data_seed = |settings: Settings| {
        let run = run("lra", &[&[("seed", "5")], settings].concat()).unwrap();
        (arena(&run).data_seed, Record::planned(&run).may_draw_own_data())
    };
    let generated = [("dataset", "listops"), ("protocol", "matched")];
    assert_eq!(data_seed(&generated), (5, true));
    assert_eq!(data_seed(&generated[..1]), (0, false));
    assert_eq!(data_seed(&[("dataset", "image"), ("protocol", "matched")]), (0, false));
    let zero = [("dataset", "image"), ("protocol", "matched"), ("seed", "0")];
    assert!(!Record::planned(&run("lra", &zero).unwrap()).may_draw_own_data());
}
