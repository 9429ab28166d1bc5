//! The protocols as tables, and what is refused.

use super::*;
use crate::tasks::Generator;

fn request(mixer: &str, protocol: Protocol) -> Request {
    Request {
        protocol,
        mixer: mixer.into(),
        variant: None,
        options: BTreeMap::new(),
        d_model: 64,
        d_state: 32,
        n_heads: 1,
        n_layers: 2,
        task: MqarConfig {
            data: Generator::Native,
            data_seed: 0,
            vocab_size: 8192,
            seq_len: 64,
            kv_pairs: 4,
            train_examples: 100,
            test_examples: 10,
        },
        lr: 1e-3,
        epochs: 64,
        batch_size: None,
        micro_batch: None,
        weight_decay: 0.1,
        precision: Precision::F32,
        dropout: None,
        attn_dropout: None,
        expand: None,
        seed: 123,
    }
}

#[test]
fn the_reference_protocol_is_the_table_of_the_released_configs() {
    let of = |m: &str| request(m, Protocol::Reference).resolve().unwrap();
    for (mixer, layout, state_mixer, positions, batch) in [
        (
            "softmax",
            Layout::Transformer,
            StateMixer::Identity,
            true,
            512,
        ),
        (
            "linear",
            Layout::Transformer,
            StateMixer::Identity,
            true,
            512,
        ),
        (
            "normalized",
            Layout::Transformer,
            StateMixer::Mlp,
            true,
            512,
        ),
        ("s6", Layout::Mamba, StateMixer::None, false, 512),
        ("ssd", Layout::Mamba, StateMixer::None, false, 512),
        (
            "qlstm",
            Layout::Transformer,
            StateMixer::Identity,
            true,
            256,
        ),
        (
            "qlstm-reversed",
            Layout::Transformer,
            StateMixer::Identity,
            true,
            256,
        ),
    ] {
        let run = of(mixer);
        let m = &run.model;
        assert_eq!(
            (m.layout, m.state_mixer, m.positions),
            (layout, state_mixer, positions),
            "{mixer}"
        );
        assert_eq!(
            (run.train.batch_size, m.variant.as_str()),
            (batch, "reference"),
            "{mixer}"
        );
        assert_eq!((m.embed_dropout, m.attn_dropout), (0.1, 0.1), "{mixer}");
    }
    assert_eq!(of("s6").model.options["dt_init"], "zero");
}

#[test]
fn the_paper_protocol_has_one_block_no_dropout_and_positions_for_attention_only() {
    for (mixer, variant, positions) in [
        ("softmax", "paper", true),
        ("s6", "paper", false),
        ("qlstm", "paper", false),
        ("ssd", "reference", false),
    ] {
        let run = request(mixer, Protocol::Paper).resolve().unwrap();
        assert_eq!(
            (run.model.variant.as_str(), run.model.positions),
            (variant, positions),
            "{mixer}"
        );
        assert_eq!(
            (run.model.layout, run.model.state_mixer),
            (Layout::Transformer, StateMixer::Mlp)
        );
        assert_eq!((run.model.embed_dropout, run.train.batch_size), (0.0, 512));
        assert_eq!(run.train.schedule, Schedule::WarmupConstant);
    }
    assert_eq!(
        request("s6", Protocol::Paper)
            .resolve()
            .unwrap()
            .model
            .options["dt_init"],
        "mamba"
    );
}

#[test]
fn the_matched_protocol_gives_every_mixer_the_same_block() {
    for entry in mixers::MIXERS {
        let run = request(entry.name, Protocol::Matched).resolve().unwrap();
        let m = &run.model;
        assert_eq!(
            (m.layout, m.state_mixer, m.positions),
            (Layout::Transformer, StateMixer::Mlp, true)
        );
        assert_eq!((run.train.batch_size, m.embed_dropout), (512, 0.1));
    }
}

#[test]
fn batches_hold_the_papers_32768_tokens() {
    let home = mixers::find("softmax").unwrap().released;
    let batches = [32, 64, 128, 256, 512, 65_536].map(|l| batch_size(l, home));
    assert_eq!(batches, [512, 512, 256, 128, 64, 1]);
}

#[test]
fn a_state_expansion_that_nothing_reads_does_not_make_another_run() {
    let mut wide = request("qlstm", Protocol::Reference);
    let id = wide.resolve().unwrap().id();
    wide.d_state = 256;
    assert_eq!(wide.resolve().unwrap().id(), id);
}

#[test]
fn every_part_of_the_config_changes_the_id_and_field_order_does_not() {
    let base = request("s6", Protocol::Reference).resolve().unwrap();
    let text = base.canonical();
    assert_eq!(RunConfig::parse(&text, "here").unwrap().id(), base.id());
    let changes: [fn(&mut RunConfig); 6] = [
        |c| c.seed += 1,
        |c| c.train.lr *= 2.0,
        |c| c.model.d_state += 1,
        |c| c.protocol = Protocol::Matched,
        |c| drop(c.model.options.insert("dt_init".into(), "mamba".into())),
        |c| c.task.set("data_seed", 1),
    ];
    for change in changes {
        let mut other = base.clone();
        change(&mut other);
        assert_ne!(other.id(), base.id());
    }
}

#[test]
fn wrong_requests_name_the_flag_and_what_would_be_right() {
    let message = |change: fn(&mut Request)| {
        let mut r = request("softmax", Protocol::Reference);
        change(&mut r);
        r.resolve().unwrap_err().to_string()
    };
    let mixer = message(|r| r.mixer = "linnear".into());
    assert!(
        mixer.contains("unknown mixer `linnear`. Did you mean `linear`?"),
        "{mixer}"
    );
    let variant = message(|r| r.variant = Some("papr".into()));
    assert!(variant.contains("Did you mean `paper`?"), "{variant}");
    assert!(message(|r| r.lr = -1.0).contains("--lr must be a positive number"));
    assert!(message(|r| r.lr = f64::NAN).contains("--lr"));
    assert!(message(|r| r.dropout = Some(1.0)).contains("--dropout"));
    assert!(message(|r| r.n_heads = 3).contains("--heads 3 does not divide --d 64"));
    assert!(message(|r| r.batch_size = Some(0)).contains("--batch-size"));
    assert!(message(|r| r.d_model = 0).contains("--d must be"));
    let option = message(|r| drop(r.options.insert("dt_init".into(), "x".into())));
    assert!(option.contains("has no options"), "{option}");
}
