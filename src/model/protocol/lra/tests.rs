//! The released configs, by the sizes that follow from them, and what protocols change.

use super::*;
use crate::config::Pool;
use crate::mixers::MIXERS;
use crate::model::protocol::Task;
use crate::model::Classifier;
use crate::nn::Params;
use candle_core::{DType, Device};

fn asked(dataset: LraDataset, mixer: &str) -> Asked {
    Asked {
        dataset: Some(dataset),
        mixer: Some(mixer.to_owned()),
        ..Asked::default()
    }
}

fn run(asked: &Asked) -> RunConfig {
    asked.resolve(Task::Lra).unwrap()
}

fn parameters(run: &RunConfig) -> usize {
    let params = Params::seeded(0, DType::F32, &Device::Cpu);
    Classifier::new(&run.model, &run.task.sizes().unwrap(), &params).unwrap();
    params.count()
}

/// Counted from the newest released code, which scales residuals.
#[test]
fn released_configs_have_as_many_parameters_as_they_should() {
    use LraDataset::{Image, Listops, Pathfinder, Retrieval, Text};
    for (dataset, mixer, expected) in [
        (Listops, "softmax", 1_787_922),
        (Listops, "linear", 2_150_932),
        (Listops, "normalized", 2_161_252),
        (Text, "softmax", 1_334_790),
        (Text, "linear", 3_059_206),
        (Text, "normalized", 3_063_318),
        (Retrieval, "linear", 1_926_666),
        (Retrieval, "normalized", 1_929_762),
        (Image, "softmax", 347_532),
        (Image, "linear", 347_532),
        (Image, "normalized", 349_596),
        (Pathfinder, "softmax", 263_683),
        (Pathfinder, "linear", 263_683),
        (Pathfinder, "normalized", 3_237_944),
        (Listops, "mamba", 851_348),
        (Text, "mamba", 433_992),
        (Retrieval, "mamba", 3_229_706),
        (Image, "mamba", 1_290_252),
        (Pathfinder, "mamba", 2_040_328),
    ] {
        let scaled = Asked {
            lambda_skip: Some(true),
            ..asked(dataset, mixer)
        };
        let found = parameters(&run(&scaled));
        assert_eq!(found, expected, "{} {mixer}", dataset.name());
        let plain = run(&asked(dataset, mixer));
        assert_eq!(parameters(&plain), expected - plain.model.n_layers);
    }
}

#[test]
fn every_mixer_makes_a_classifier_of_every_dataset_under_every_protocol() {
    for dataset in LraDataset::ALL {
        for entry in MIXERS {
            for protocol in [Protocol::Reference, Protocol::Paper, Protocol::Matched] {
                for preset in [Preset::Full, Preset::Quick, Preset::Smoke] {
                    let run = run(&Asked {
                        protocol: Some(protocol),
                        preset: Some(preset),
                        ..asked(dataset, entry.name)
                    });
                    if preset == Preset::Smoke {
                        parameters(&run);
                    }
                    assert_eq!(RunConfig::parse(&run.canonical(), "here").unwrap(), run);
                }
            }
        }
    }
}

#[test]
fn matched_differs_in_nothing_but_the_mixer() {
    for dataset in LraDataset::ALL {
        let of = |mixer: &str| {
            let mut run = run(&Asked {
                protocol: Some(Protocol::Matched),
                ..asked(dataset, mixer)
            });
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
fn a_step_is_made_in_parts_that_fit() {
    let of = |dataset, mixer| run(&asked(dataset, mixer)).train;
    let retrieval = of(LraDataset::Retrieval, "mamba");
    assert_eq!((retrieval.batch_size, retrieval.micro_batch), (16, Some(4)));
    let text = of(LraDataset::Text, "softmax");
    assert_eq!((text.batch_size, text.micro_batch), (4, None));
}

#[test]
fn without_a_dataset_a_small_listops_is_trained() {
    let run = run(&Asked::default());
    let task: LraConfig = run.task.typed().unwrap();
    assert_eq!(task.dataset, LraDataset::Listops);
    assert!(task.train_examples < 96_000);
}

#[test]
fn what_means_nothing_or_cannot_be_is_refused_by_its_flag() {
    let image = || asked(LraDataset::Image, "softmax");
    let refused = |asked: Asked, flag: &str| {
        let message = asked.resolve(Task::Lra).unwrap_err().to_string();
        assert!(message.starts_with(flag), "{message}");
    };
    refused(
        Asked {
            kv_pairs: Some(4),
            ..image()
        },
        "--kv-pairs means nothing to the task lra",
    );
    refused(
        Asked {
            micro_batch: Some(0),
            ..image()
        },
        "--micro-batch",
    );
    refused(
        Asked {
            attn_dropout: Some(1.0),
            ..image()
        },
        "--attn-dropout",
    );
    refused(
        Asked {
            expand: Some(2.0),
            ..image()
        },
        "--expand",
    );
    refused(
        Asked {
            warmup_epochs: Some(3),
            protocol: Some(Protocol::Paper),
            ..image()
        },
        "--warmup-epochs",
    );
    let mqar = image().resolve(Task::Mqar).unwrap_err().to_string();
    assert!(mqar.starts_with("--dataset means nothing"), "{mqar}");
}

#[test]
fn a_quick_pathfinder_has_short_paths_unless_it_reads_files() {
    let of = |data| {
        let run = run(&Asked {
            preset: Some(Preset::Quick),
            data,
            ..asked(LraDataset::Pathfinder, "s6")
        });
        let task: LraConfig = run.task.typed().unwrap();
        (task.contour_length(), run.model.classifier)
    };
    assert_eq!(of(None).0, 3);
    assert_eq!(of(Some(Generator::Files)).0, 14);
    let full = run(&asked(LraDataset::Pathfinder, "s6"));
    assert_eq!(full.model.classifier.unwrap().pool, Pool::Mean);
    let quick = of(None).1.unwrap();
    assert_eq!((quick.pool, quick.input), (Pool::Max, Input::Embedding));
}
