//! Table of tasks, and the documents that name them.

pub(super) mod testing;
pub(super) mod toy;

use super::*;
use crate::error::testing::Fails;
use crate::store::samples;
use serde_json::json;

#[test]
fn every_task_is_found_by_its_name_and_no_other() {
    for entry in TASKS {
        assert_eq!(find(entry.name).map(|found| found.name).ok(), Some(entry.name));
    }
    find("wikitxt").refuses("--task").names(&["`wikitext`"]);
}

#[test]
fn settings_of_another_type_or_name_are_refused_with_their_place() {
    type Change = fn(&mut TaskConfig);
    let cases: [(Change, &[&str]); 3] = [
        (|task| task.set("dataset", "image"), &["mqar", "`dataset`"]),
        (|task| task.set("seq_len", "long"), &["\"long\""]),
        (|task| *task = TaskConfig::new("sorting", &json!({})), &["sorting", "mqar"]),
    ];
    for (change, names) in cases {
        let mut run = samples::config();
        change(&mut run.task);
        let read = RunConfig::parse(&run.canonical(), "a/config.json");
        read.fails("corrupt").is_at("a/config.json", None).names(names);
    }
}

/// Ids of runs that earlier versions have trained and whose results must be found again.
#[test]
fn the_ids_of_runs_do_not_move() {
    let of = |task, settings: &[(&str, &str)]| crate::recipes::run(task, settings).unwrap().id();
    assert_eq!(of("mqar", &[]), "a9dbd9e2e801");
    // Ten epochs, the preset's number in earlier versions.
    assert_eq!(of("lra", &[("epochs", "10")]), "6e165ebbf0be");
    assert_eq!(of("lra", &[]), "bff3ff997d80");
    // Cosine schedule, the default of earlier versions.
    assert_eq!(of("wikitext", &[("schedule", "cosine")]), "c89e78ce94d7");
}

#[test]
fn default_values_in_a_config_are_not_another_run() {
    let mut run = samples::text_config();
    let id = run.id();
    run.task.set("eos_between_articles", false);
    assert_ne!(run.id(), id);
    let read = RunConfig::parse(&run.canonical(), "here").unwrap();
    assert_eq!(read.id(), id);
}

#[test]
fn every_task_makes_runs_that_train_with_the_fields_that_it_names() {
    for entry in TASKS {
        let run = crate::recipes::run(entry.name, &[("preset", "smoke")]).unwrap();
        let task = run.task.read().unwrap();
        task.check().unwrap();
        assert!(entry.fields.iter().any(|field| run.task.get(field).is_some()));
        assert!(!task.title().is_empty() && !task.label().is_empty());
    }
}
