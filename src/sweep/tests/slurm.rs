//! Job scripts, compared with reviewed files.

use crate::error::testing::Fails;
use crate::recipes::quoted;
use crate::sweep::slurm::{for_tasks, max_array_size, shards, Array, Site};

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn array() -> Array {
    Array {
        name: "dsf-figure1".to_owned(),
        shards: 8,
        directory: "/scratch/ada/my runs".to_owned(),
        logs: "/scratch/ada/my runs/results/slurm".to_owned(),
        program: "/opt/dsf/dsf".to_owned(),
        typed: words("experiments/figure1.toml --device cuda --lr 1e-3,2e-3 --out it's"),
        report: words("--experiment experiments/figure1.toml it's"),
        site: Site {
            partition: Some("gpu".to_owned()),
            time: Some("4:00:00".to_owned()),
            mem: Some("8G".to_owned()),
            gpus: Some(1),
            cpus: Some(4),
            account: Some("physics".to_owned()),
            sbatch_arg: words("--qos=long --constraint=a100|h100"),
            ..Site::default()
        },
    }
}

#[test]
fn the_script_of_an_array_is_the_one_that_was_read() {
    assert_eq!(array().script().unwrap(), include_str!("array.sh"));
}

#[test]
fn the_script_of_the_report_is_the_one_that_was_read() {
    assert_eq!(array().report_script().unwrap(), include_str!("report.sh"));
}

#[test]
fn nothing_is_asked_of_the_site_that_was_not_typed() {
    let plain = Array { site: Site::default(), typed: Vec::new(), ..array() };
    let script = plain.script().unwrap();
    for absent in ["partition", "account", "--time", "mem", "cpus", "gres", "threads"] {
        assert!(!script.contains(absent), "{absent}: {script}");
    }
    assert!(script.contains("/opt/dsf/dsf sweep --shard"), "{script}");
}

#[test]
fn flags_of_the_scheduler_are_not_passed_on_to_tasks() {
    let typed = words("a.toml --executor slurm --json --mem=8G --d 64 --sbatch-arg --qos=x --time 5 --seeds 3");
    assert_eq!(for_tasks(&typed), words("a.toml --d 64 --seeds 3"));
}

#[test]
fn as_many_shards_as_runs_up_to_what_is_usual_and_what_the_site_allows() {
    let asked = |n| Site { shards: n, ..Site::default() };
    assert_eq!(shards(&asked(None), 5, None).unwrap(), 5);
    assert_eq!(shards(&asked(None), 500, None).unwrap(), 16);
    assert_eq!(shards(&asked(None), 500, Some(4)).unwrap(), 4);
    assert_eq!(shards(&asked(Some(40)), 500, Some(1001)).unwrap(), 40);
    let most = shards(&asked(Some(2000)), 5000, Some(1001)).refuses("--shards");
    most.gives("2000").names(&["1001", "MaxArraySize"]);
    shards(&asked(Some(0)), 5, None).refuses("--shards").gives("0");
}

#[test]
fn the_limit_of_a_site_is_found_among_its_settings() {
    let config = "MailProg                = /bin/mail\nMaxArraySize            = 1001\nMaxDBDMsgs = 2\n";
    assert_eq!(max_array_size(config), Some(1001));
    assert_eq!(max_array_size("MaxArraySizes = 5"), None);
}

#[test]
fn a_word_is_quoted_as_a_shell_needs_it() {
    assert_eq!(quoted("--lr=1e-3"), "--lr=1e-3");
    assert_eq!(quoted(""), "''");
    assert_eq!(quoted("a b$(c)"), "'a b$(c)'");
    assert_eq!(quoted("it's"), r"'it'\''s'");
}

#[test]
fn what_would_end_a_directive_is_refused() {
    let mut broken = array();
    broken.site.account = Some("x\nrm -r y".to_owned());
    broken.script().fails("refused");
}
