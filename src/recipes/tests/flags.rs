//! Flags as typed, and one set on top of another.

use crate::config::RunConfig;
use crate::error::testing::Fails;
use crate::error::{Error, Result};
use crate::recipes;
use crate::recipes::testing::{flags, parse};
use crate::tasks::mqar::MqarConfig;

/// The one run of MQAR that a line describes.
fn single(line: &str) -> Result<RunConfig> {
    let resolved = flags(line).single(recipes::task("mqar")?)?;
    Ok(resolved.config)
}

#[test]
fn lists_are_separated_by_commas() {
    let given = flags("--d 64,128 --lr 1e-3,paper --sizes 64:4,128:8 --mixer ssd,s6");
    assert_eq!(given.list("d"), ["64", "128"]);
    assert_eq!(given.list("lr"), ["1e-3", "paper"]);
    assert_eq!(given.list("sizes")[1], "128:8");
    assert_eq!(given.list("mixer"), ["ssd", "s6"]);
}

/// Commas separate the settings of a hybrid, and hybrids.
#[test]
fn hybrids_are_a_list_of_their_own() {
    let given =
        flags("--hybrid softmax:every=8,offset=4,linear:every=2 --hybrid sliding-window:every=2,window=16,offset=1");
    let wanted = ["softmax:every=8,offset=4", "linear:every=2", "sliding-window:every=2,window=16,offset=1"];
    assert_eq!(given.list("hybrid"), wanted);
    let flags = flags("--mixer mamba --layers 8 --hybrid attention:every=8,offset=4,linear:every=2 --d 32");
    let plan = crate::sweep::Plan::of(recipes::task("mqar").unwrap(), &flags).unwrap();
    let hybrids: Vec<String> = plan.runs.iter().map(|run| run.model.hybrid.clone().unwrap().to_string()).collect();
    let wanted = ["softmax:every=8,offset=4,variant=reference", "linear:every=2,offset=1,variant=reference"];
    assert_eq!(hybrids, wanted);
}

#[test]
fn a_bad_item_is_refused_with_its_flag_and_what_would_be_right() {
    for (line, flag, value, remedy) in [
        ("--d 64,x", "--d", Some("x"), "64"),
        ("--d 64,,128", "--d", Some(""), "64"),
        ("--d -1", "--d", Some("-1"), "64"),
        ("--n 1.5", "--n", Some("1.5"), "64"),
        ("--lr papr", "--lr", Some("papr"), "`paper`"),
        ("--dropout much", "--dropout", Some("much"), "0."),
        ("--sizes 64", "--sizes", Some("64"), "L:k"),
        ("--hybrid softmax", "--hybrid", Some("softmax"), "NAME:every=K,offset=J"),
        ("--hybrid softmax:every=2,linear:every=1", "--hybrid", Some("softmax:every=2,linear:every=1"), "every=1"),
        ("--option zero", "--option", Some("zero"), "NAME=VALUE"),
        ("--protocol papr", "--protocol", Some("papr"), "paper"),
        ("--seq-len 64 --sizes 64:4", "--seq-len", None, "--sizes"),
    ] {
        let at = Error::misuse(&parse(line).unwrap_err()).refuses(flag);
        assert_eq!(at.value.as_deref(), value, "{line}");
        at.names(&[remedy]);
    }
}

#[test]
fn numbers_out_of_range_reach_the_rule_that_they_break() {
    for (line, flag, names) in [
        ("--lr -1", "--lr", &["2e-3"][..]),
        ("--lr -1e-3", "--lr", &["2e-3"]),
        ("--lr nan", "--lr", &["2e-3"]),
        ("--weight-decay -0.1", "--weight-decay", &["0"]),
        ("--dropout -0.5", "--dropout", &["[0, 1)"]),
        ("--d 0", "--d", &["1 to"]),
        ("--epochs 0", "--epochs", &["1 to"]),
        ("--mixer linnear", "--mixer", &["`linear`"]),
        ("--mixer ssd --variant papr", "--variant", &["ssd", "`paper`"]),
        ("--seq-len 63", "--seq-len", &[]),
        ("--option speed=1", "--option", &["softmax", "kv_heads"]),
    ] {
        single(line).refuses(flag).names(names);
    }
}

#[test]
fn no_flag_at_all_is_the_quick_preset() {
    let quick = recipes::run("mqar", &[("preset", "quick")]);
    assert_eq!(single("").unwrap(), quick.unwrap());
}

#[test]
fn the_full_preset_is_a_cell_of_the_papers_smallest_task() {
    single("--preset paper --lr paper").refuses("--lr");
    let run = single("--preset paper").unwrap();
    let task: MqarConfig = run.task.typed().unwrap();
    assert_eq!((task.vocab_size, task.seq_len, task.kv_pairs), (8192, 64, 4));
    assert_eq!((task.train_examples, task.test_examples), (100_000, 3_000));
    assert_eq!((run.train.batch_size, run.train.epochs), (512, 64));
    assert_eq!(run.train.lr, 2.154_434_690_031_884e-3);
}

#[test]
fn flags_change_the_run_of_their_preset() {
    let line = "--preset smoke --d 32 --sizes 24:4 --seed 5 --seeds 1 --dropout 0";
    let run = single(line).unwrap();
    let task: MqarConfig = run.task.typed().unwrap();
    assert_eq!((run.model.d_model, run.model.d_state, run.seed), (32, 8, 5));
    assert_eq!((task.seq_len, task.kv_pairs, task.vocab_size), (24, 4, 32));
}

#[test]
fn a_list_for_one_run_names_the_command_for_many() {
    for (flag, values) in [
        ("--d", "64,128"),
        ("--mixer", "all"),
        ("--lr", "paper"),
        ("--seeds", "3"),
        ("--protocol", "paper,matched"),
        ("--sizes", "64:4,128:8"),
    ] {
        let line = format!("{flag} {values}");
        let at = single(&line).refuses(flag);
        at.gives(values).names(&[&format!("`dsf sweep --task mqar {line}`")]);
    }
}

#[test]
fn the_upper_flags_win_and_the_rest_stays() {
    let base = flags("--preset paper --d 64 --n 32 --option a=1 --epochs 3");
    let both = flags("--d 128,256 --epochs 5 --preset smoke").over(&base);
    let expected = flags("--preset smoke --d 128,256 --n 32 --option a=1 --epochs 5");
    assert_eq!(both, expected);
}

#[test]
fn flags_that_speak_of_the_same_thing_replace_each_other() {
    for (upper, lower, expected) in [
        ("--sizes 64:4", "--seq-len 32 --kv-pairs 2", "--sizes 64:4"),
        ("--seq-len 32", "--sizes 64:4", "--seq-len 32"),
        ("--kv-pairs 2", "--seq-len 32", "--seq-len 32 --kv-pairs 2"),
        ("--seed 7,9", "--seeds 10", "--seed 7,9"),
        ("--seeds 10", "--seed 7,9", "--seed 7 --seeds 10"),
    ] {
        assert_eq!(flags(upper).over(&flags(lower)), flags(expected), "{upper} over {lower}");
    }
}
