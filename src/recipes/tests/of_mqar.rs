//! Recipes of MQAR.

use super::*;
use crate::config::{Decay, MapInit};
use crate::mixers;

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
        assert_eq!((m.variant.as_str(), m.positions), (variant, positions), "{mixer}");
        assert_eq!((m.layout, m.state_mixer), (Layout::Transformer, StateMixer::Mlp));
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
        let run = mqar(&[("preset", "paper"), ("mixer", entry.name), ("protocol", "matched")]);
        let m = &run.model;
        let block = (m.layout, m.state_mixer, m.positions);
        assert_eq!(block, (Layout::Transformer, StateMixer::Mlp, true));
        assert_eq!((run.train.batch_size, m.embed_dropout), (512, 0.1));
        if let Some(steps) = m.options.get("dt_init") {
            assert_eq!(steps, "mamba", "{}", entry.name);
        }
        assert_eq!(run.train.decay, Some(Decay::Maps));
        assert_eq!(m.n_heads, if entry.multi_head { 4 } else { 1 }, "{}", entry.name);
        let by_authors = entry.authors_init.is_some();
        assert_eq!(m.map_init, if by_authors { MapInit::Authors } else { MapInit::Released }, "{}", entry.name);
    }
    let attention = ["softmax", "linear", "normalized"].map(mixers::find);
    assert!(attention.into_iter().all(|entry| !entry.unwrap().multi_head), "one head in the paper's appendix J.1");
    assert!(mixers::find("mamba2").unwrap().authors_init.is_some());
}

#[test]
fn the_matched_protocol_has_the_blocks_of_lru_and_s5_and_the_heads_of_h3() {
    let options = |mixer, protocol| mqar(&[("mixer", mixer), ("protocol", protocol)]).model.options;
    for (mixer, of_authors) in [
        ("lru", &[("activation", "glu")][..]),
        ("s5", &[("activation", "glu")]),
        ("h3", &[("head_dim", "2"), ("shift", "states")]),
    ] {
        let matched = options(mixer, "matched");
        for (name, value) in of_authors {
            assert_eq!(matched[*name], *value, "{mixer}");
        }
        for protocol in ["reference", "paper"] {
            let options = options(mixer, protocol);
            assert!(!options.contains_key("activation") && !options.contains_key("head_dim"), "{mixer} {protocol}");
        }
    }
    assert_eq!(options("h3", "reference")["shift"], "4");
    let odd = [("mixer", "h3"), ("protocol", "matched"), ("d", "33")];
    refuses("mqar", &odd, "--option").gives("head_dim=2").names(&["--d 33"]);
}

#[test]
fn the_values_of_older_configs_leave_no_trace_in_them() {
    let base = mqar(&[("mixer", "mamba")]);
    assert_eq!(mqar(&[("mixer", "mamba"), ("map-init", "released"), ("decay", "all")]), base);
    assert_eq!(
        mqar(&[("mixer", "s6"), ("map-init", "authors")]),
        mqar(&[("mixer", "s6")]),
        "it has no rule of its authors"
    );
    let without = [("mixer", "mamba"), ("state-norm", "false"), ("short-conv", "false")];
    assert_eq!(mqar(&without), base);
    for change in [
        ("map-init", "authors"),
        ("decay", "maps"),
        ("decay", "matrices"),
        ("state-norm", "true"),
        ("short-conv", "true"),
    ] {
        assert_ne!(mqar(&[("mixer", "mamba"), change]).id(), base.id(), "{change:?}");
    }
}

#[test]
fn a_norm_after_the_state_is_refused_where_there_is_one_or_no_place() {
    for mixer in ["gla", "mamba2", "rwkv7", "lstm", "hyena", "normalized"] {
        let settings = [("mixer", mixer), ("state-norm", "true")];
        refuses("mqar", &settings, "--state-norm").gives("true").names(&[mixer, "retention"]);
    }
    for mixer in ["softmax", "mlstm", "s6"] {
        assert!(mqar(&[("mixer", mixer), ("state-norm", "true")]).model.state_norm, "{mixer}");
    }
    let hybrid = [("mixer", "s6"), ("state-norm", "true"), ("hybrid", "gla:every=2")];
    refuses("mqar", &hybrid, "--state-norm").gives("true").names(&["gla"]);
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
        assert_ne!(mqar(&[("mixer", "s6"), change]).id(), base.id(), "{change:?}");
    }
}

#[test]
fn wrong_settings_name_the_flag_and_what_would_be_right() {
    for (name, value, names) in [
        ("mixer", "linnear", &["`linear`"][..]),
        ("variant", "papr", &["`paper`"]),
        ("lr", "-1.0", &["2e-3"]),
        ("lr", "NaN", &[]),
        ("lr", "inf", &[]),
        ("dropout", "1.0", &["[0, 1)"]),
        ("heads", "3", &["--d 64"]),
        ("batch-size", "0", &["1 to"]),
        ("d", "0", &["1 to"]),
        ("option", "bias=x", &["`qkv`"]),
        ("seq-len", "63", &[]),
        ("expand", "NaN", &[]),
    ] {
        let fault = refuses("mqar", &[(name, value)], &format!("--{name}"));
        fault.gives(value).names(names);
    }
    let unknown = run("mqar", &[("pace", "3")]).fails("refused");
    unknown.names(&["`pace`"]);
}

#[test]
fn the_full_preset_is_a_cell_of_the_papers_smallest_task() {
    let run = mqar(&[("preset", "paper")]);
    let task = recall(&run);
    assert_eq!((task.vocab_size, task.seq_len, task.kv_pairs), (8192, 64, 4));
    assert_eq!((task.train_examples, task.test_examples), (100_000, 3_000));
}

/// `--seed 5` also selects another data set, unless the protocol or the user fixes the data.
#[test]
fn the_seed_draws_the_data_but_under_reference_or_where_the_data_seed_is_typed() {
    let seeds = |settings: Settings| {
        let run = mqar(&[&[("seed", "5")], settings].concat());
        (recall(&run).data_seed, Record::planned(&run).may_draw_own_data())
    };
    assert_eq!(seeds(&[]), (0, false));
    assert_eq!(seeds(&[("protocol", "reference"), ("data-seed", "5")]), (5, false));
    for protocol in ["paper", "matched"] {
        assert_eq!(seeds(&[("protocol", protocol)]), (5, true));
        let typed = seeds(&[("protocol", protocol), ("data-seed", "0")]);
        assert_eq!(typed, (0, false));
    }
    for task in ["induction", "recall", "selective-copying"] {
        let run = super::super::run(task, &[("seed", "5")]).unwrap();
        assert_eq!(run.task.get("data_seed"), Some(&5.into()), "{task}");
        assert!(Record::planned(&run).may_draw_own_data());
    }
}

#[test]
fn the_data_seed_says_where_it_comes_from() {
    let origin = |settings: Settings| {
        let mut choice = Choice::default();
        for (name, text) in settings {
            choice.set(name, text, &format!("--{name}")).unwrap();
        }
        let resolved = resolve(task("mqar").unwrap(), &choice).unwrap();
        let mut rows = resolved.explained.into_iter();
        rows.find(|row| row.name == "data-seed").unwrap().origin.to_string()
    };
    let released = origin(&[]);
    assert!(released.ends_with("the released data, the same for every seed"), "{released}");
    let drawn = origin(&[("protocol", "matched")]);
    assert_eq!(drawn, "as seed: every seed draws its own examples");
    assert_eq!(origin(&[("protocol", "matched"), ("data-seed", "3")]), "--data-seed");
}

/// A config fixes its data: another seed with it keeps the data, another data seed changes them.
#[test]
fn a_config_keeps_its_data_under_another_seed() {
    let run = mqar(&[("protocol", "matched"), ("seed", "5")]);
    let mut beside = Choice::default();
    beside.set("seed", "6", "--seed").unwrap();
    let choice = Choice::again(&run, "a config").unwrap().with(beside).unwrap();
    let other = resolve(task("mqar").unwrap(), &choice).unwrap().config;
    assert_eq!((other.seed, recall(&other).data_seed), (6, 5));
}

#[test]
fn the_command_of_a_run_names_no_data_seed_that_follows_its_seed() {
    let of = |settings: Settings| command(&mqar(settings)).unwrap();
    let own = [("protocol", "matched"), ("seed", "5")];
    assert_eq!(of(&own), "dsf mqar --protocol matched --seed 5");
    let fixed = [("protocol", "matched"), ("seed", "5"), ("data-seed", "0")];
    assert_eq!(of(&fixed), "dsf mqar --protocol matched --data-seed 0 --seed 5");
}

#[test]
fn a_seed_that_numpy_cannot_take_is_refused_where_it_draws_the_data() {
    let beyond = [("data", "numpy"), ("seed", "4294967296")];
    assert!(run("mqar", &beyond).is_ok());
    let drawn = [&beyond[..], &[("protocol", "matched")]].concat();
    refuses("mqar", &drawn, "--data-seed").names(&["--seed"]);
}

#[test]
fn a_validation_set_is_as_large_as_the_test_set_but_under_reference_and_paper() {
    let val = |settings: Settings| recall(&mqar(settings)).val_examples;
    assert_eq!((val(&[]), val(&[("protocol", "paper")])), (0, 0));
    assert_eq!(val(&[("protocol", "matched"), ("test-examples", "70")]), 70);
    assert_eq!(val(&[("val-examples", "50")]), 50);
    // Without a validation set, the run is the same as before validation sets existed.
    let none = mqar(&[("protocol", "matched"), ("val-examples", "0")]);
    assert!(!none.canonical().contains("val_examples"));
    let plain = "dsf mqar --protocol matched";
    assert_eq!(command(&mqar(&[("protocol", "matched")])).unwrap(), plain);
    assert_eq!(command(&none).unwrap(), format!("{plain} --val-examples 0"));
}

/// Sizes that the options of released models do not fit, each with the flag, its value and what the sentence names.
#[test]
fn options_that_the_sizes_do_not_fit_are_refused() {
    const REFUSED: [(&str, &str, &str, &str, &[&str]); 9] = [
        ("mamba2", "block", "groups=3", "groups=3", &["--heads 4"]),
        ("mamba2", "block", "norm_groups=3", "norm_groups=3", &["--d 16"]),
        ("softmax", "reference", "kv_heads=3", "kv_heads=3", &["--heads 4"]),
        ("sliding-window", "reference", "kv_heads=8", "kv_heads=8", &["--heads 4"]),
        ("softmax", "reference", "head_dim=8", "head_dim=8", &["--heads 4", "--n"]),
        ("softmax", "paper", "bias=none", "bias=none", &["paper", "reference"]),
        ("rg-lru", "griffin", "blocks=3", "blocks=3", &["16"]),
        ("rg-lru", "hawk", "width=8", "width=8", &["hawk", "griffin"]),
        ("mlstm", "paper", "gate_cap=none", "gate_cap=none", &["paper", "large"]),
    ];
    let settings = |mixer, variant, option| {
        let heads = if mixer == "rg-lru" { "1" } else { "4" };
        [("mixer", mixer), ("variant", variant), ("option", option), ("d", "16"), ("n", "16"), ("heads", heads)]
    };
    for (mixer, variant, option, value, names) in REFUSED {
        let settings = settings(mixer, variant, option);
        let settings = if mixer == "rg-lru" { &settings[..4] } else { &settings[..] };
        refuses("mqar", settings, "--option").gives(value).names(names);
    }
    let large = settings("mlstm", "large", "value_width=10");
    refuses("mqar", &large, "--heads").gives("4").names(&["value_width 10"]);
    let normed = [&settings("mlstm", "large", "value_width=12")[..], &[("state-norm", "true")]].concat();
    refuses("mqar", &normed, "--state-norm").gives("true").names(&["mlstm", "variant"]);
}

#[test]
fn values_that_options_of_released_models_do_not_take_are_refused() {
    for (mixer, variant, option) in [
        ("mamba", "block", "conv_width=1"),
        ("mamba", "block", "bcdt_norm=layer"),
        ("mamba2", "block", "dt_limit=0.5:0.1"),
        ("mamba2", "block", "dt_limit=0.5"),
        ("mamba2", "block", "norm_eps=0"),
        ("softmax", "reference", "bias=true"),
        ("mlstm", "large", "gate_cap=0"),
        ("rwkv4", "paper", "width=0"),
    ] {
        let settings = [("mixer", mixer), ("variant", variant), ("option", option)];
        refuses("mqar", &settings, "--option").gives(option);
    }
}

/// Explicit defaults leave no trace, so that runs keep their ids.
#[test]
fn options_of_released_models_are_recorded_away_from_their_defaults_only() {
    let options = |mixer, option| mqar(&[("mixer", mixer), ("n", "16"), ("d", "16"), ("option", option)]).model.options;
    for (mixer, default, other) in [
        ("mamba", "conv_bias=true", "conv_bias=false"),
        ("mamba2", "dt_limit=0:inf", "dt_limit=0:1"),
        ("softmax", "bias=all", "bias=none"),
        ("rwkv4", "width=auto", "width=24"),
    ] {
        let (name, value) = other.split_once('=').unwrap();
        assert!(!options(mixer, default).contains_key(name), "{mixer} {default}");
        assert_eq!(options(mixer, other)[name], *value, "{mixer} {other}");
    }
}

/// A block that is named as a whole is what it stands for, in every task; what is set beside it stays.
#[test]
fn a_named_block_stands_for_its_parts() {
    let block = |task: &str, settings: &[(&str, &str)]| crate::recipes::run(task, settings).unwrap().model;
    let own = block("mqar", &[("block", "transformer++"), ("d", "128"), ("n", "128"), ("heads", "4")]);
    assert_eq!((own.layout, own.state_mixer, own.positions), (Layout::Transformer, StateMixer::GatedMlp, false));
    assert_eq!(own.block.to_string(), "norm=rms,eps=0.00001,activation=silu,bias=false");
    assert_eq!((own.rotary_positions(), own.mlp_width), (Some((Rotary::Pre, 32)), Some(352)));
    assert_eq!(own.options.get("bias").map(String::as_str), Some("none"));
    // The parts one by one are the same run.
    let parts = [
        ("option", "bias=none"),
        ("block", "norm=rms,eps=1e-5,activation=silu,bias=false"),
        ("layout", "transformer"),
        ("state-mixer", "gated-mlp"),
        ("positions", "false"),
        ("rotary", "pre"),
        ("mlp-width", "352"),
        ("d", "128"),
        ("n", "128"),
        ("heads", "4"),
    ];
    assert_eq!(block("mqar", &parts), own);
    // A state space model has nothing to rotate.
    let mamba = block("mqar", &[("mixer", "mamba"), ("block", "transformer++")]);
    assert_eq!((mamba.rotary_positions(), mamba.rotary), (None, None));
    let changed = block("mqar", &[("block", "gpt,norm=rms,tie=false"), ("state-mixer", "glu")]);
    assert_eq!((changed.block.to_string().as_str(), changed.state_mixer), ("norm=rms,tie=false", StateMixer::Glu));
    assert!(!changed.is_tied() && changed.positions);
    let classifier = block("lra", &[("preset", "quick"), ("mixer", "linear"), ("block", "griffin")]);
    assert_eq!(classifier.classifier.unwrap().mlp_width, (3 * classifier.d_model).div_ceil(16) * 16);
    let text = block("wikitext", &[("preset", "smoke"), ("block", "transformer++,tie=true")]);
    assert!(text.is_tied() && text.layout == Layout::Transformer);
    assert_eq!(text.language.unwrap().rotary, Rotary::Pre);
}

/// Values that a config has anyway are left out of it, so that they are the run without them.
#[test]
fn a_part_at_its_default_leaves_the_run_as_it_is() {
    let id = |task: &str, settings: &[(&str, &str)]| crate::recipes::run(task, settings).unwrap().id();
    let plain = id("mqar", &[]);
    for (name, value) in
        [("block", "tie=true"), ("mlp-width", "256"), ("rotary", "none"), ("block", "embed-norm=false")]
    {
        assert_eq!(id("mqar", &[(name, value)]), plain, "--{name} {value}");
    }
    assert_eq!(id("wikitext", &[("block", "tie=false")]), id("wikitext", &[]));
    assert_ne!(id("mqar", &[("block", "tie=false")]), plain);
}

#[test]
fn parts_that_a_model_lacks_are_refused() {
    crate::recipes::run("lra", &[("block", "tie=true")]).refuses("--block").names(&["tie"]);
    crate::recipes::run("mqar", &[("mixer", "s6"), ("rotary", "pre")]).refuses("--rotary");
    crate::recipes::run("mqar", &[("rotary", "pre"), ("rotary-dims", "7")]).refuses("--rotary-dims");
    crate::recipes::run("mqar", &[("rotary", "pre"), ("n", "1")]).refuses("--rotary");
    crate::recipes::run("mqar", &[("block", "transformer")]).refuses("--block").names(&["transformer++"]);
}
