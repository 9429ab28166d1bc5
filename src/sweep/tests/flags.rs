//! Flags as typed, and one set on top of another.

use super::{flags, parse};
use crate::config::RunConfig;
use crate::error::Result;
use crate::recipes;
use crate::tasks::mqar::MqarConfig;

fn refusal(line: &str) -> String {
    parse(line).unwrap_err().to_string()
}

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

/// Commas stand within a hybrid and between two.
#[test]
fn hybrids_are_a_list_of_their_own() {
    let given = flags("--hybrid softmax:every=8,offset=4,linear:every=2 --hybrid sliding-window:every=2,window=16,offset=1");
    let wanted = [
        "softmax:every=8,offset=4",
        "linear:every=2",
        "sliding-window:every=2,window=16,offset=1",
    ];
    assert_eq!(given.list("hybrid"), wanted);
    let flags =
        flags("--mixer mamba --layers 8 --hybrid attention:every=8,offset=4,linear:every=2 --d 32");
    let plan = crate::sweep::Plan::of(recipes::task("mqar").unwrap(), &flags).unwrap();
    let hybrids = plan
        .runs
        .iter()
        .map(|run| run.model.hybrid.clone().unwrap().to_string());
    let hybrids: Vec<String> = hybrids.collect();
    let wanted = [
        "softmax:every=8,offset=4,variant=reference",
        "linear:every=2,offset=1,variant=reference",
    ];
    assert_eq!(hybrids, wanted);
}

#[test]
fn a_bad_item_is_refused_with_its_flag_and_what_would_be_right() {
    for (line, flag, remedy) in [
        ("--d 64,x", "--d", "whole number"),
        ("--d 64,,128", "--d", "whole number"),
        ("--d -1", "--d", "whole number"),
        ("--n 1.5", "--n", "whole number"),
        ("--lr papr", "--lr", "`paper`"),
        ("--dropout much", "--dropout", "a number"),
        ("--sizes 64", "--sizes", "L:k"),
        ("--hybrid softmax", "--hybrid", "NAME:every=K,offset=J"),
        (
            "--hybrid softmax:every=2,linear:every=1",
            "--hybrid",
            "needed is 2 or more",
        ),
        ("--option zero", "--option", "NAME=VALUE"),
        ("--protocol papr", "--protocol", "paper"),
        ("--seq-len 64 --sizes 64:4", "--sizes", "cannot be used"),
    ] {
        let message = refusal(line);
        assert!(
            message.contains(flag) && message.contains(remedy),
            "{line}: {message}"
        );
    }
}

#[test]
fn numbers_out_of_range_reach_the_rule_that_they_break() {
    for (line, rule) in [
        ("--lr -1", "--lr must be a positive number"),
        ("--lr -1e-3", "--lr must be a positive number"),
        ("--lr nan", "--lr must be a positive number"),
        ("--weight-decay -0.1", "--weight-decay must be 0 or more"),
        ("--dropout -0.5", "--dropout must be in [0, 1)"),
        ("--d 0", "--d must be 1 to"),
        ("--epochs 0", "--epochs must be 1 to"),
        ("--mixer linnear", "Did you mean `linear`?"),
        (
            "--mixer ssd --variant papr",
            "unknown variant of ssd `papr`",
        ),
        ("--seq-len 63", "--seq-len 63 is odd"),
        ("--option speed=1", "--option speed=1: mixer `softmax`"),
    ] {
        let message = single(line).unwrap_err().to_string();
        assert!(message.contains(rule), "{line}: {message}");
    }
}

#[test]
fn no_flag_at_all_is_the_quick_preset() {
    let quick = recipes::run("mqar", &[("preset", "quick")]);
    assert_eq!(single("").unwrap(), quick.unwrap());
}

#[test]
fn the_full_preset_is_a_cell_of_the_papers_smallest_task() {
    let run = single("--preset paper --lr paper");
    assert!(run.unwrap_err().to_string().contains("--lr paper"));
    let run = single("--preset paper").unwrap();
    let task: MqarConfig = run.task.typed().unwrap();
    assert_eq!(
        (task.vocab_size, task.seq_len, task.kv_pairs),
        (8192, 64, 4)
    );
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
    for (line, hint) in [
        ("--d 64,128", "`dsf sweep --task mqar --d 64,128`"),
        ("--mixer all", "`dsf sweep --task mqar --mixer all`"),
        ("--lr paper", "`dsf sweep --task mqar --lr paper`"),
        ("--seeds 3", "`dsf sweep --task mqar --seeds 3`"),
        ("--protocol paper,matched", "--protocol paper,matched"),
        ("--sizes 64:4,128:8", "--sizes 64:4,128:8"),
    ] {
        let message = single(line).unwrap_err().to_string();
        assert!(message.contains(hint), "{line}: {message}");
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
        assert_eq!(
            flags(upper).over(&flags(lower)),
            flags(expected),
            "{upper} over {lower}"
        );
    }
}
