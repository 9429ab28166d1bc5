//! The table of tasks, and the documents that name them.

use super::*;
use crate::store::samples;
use serde_json::json;

#[test]
fn every_task_is_found_by_its_name_and_no_other() {
    for entry in TASKS {
        assert_eq!(
            find(entry.name).map(|found| found.name).ok(),
            Some(entry.name)
        );
    }
    let message = find("wikitxt").err().unwrap().to_string();
    assert!(message.contains("Did you mean `wikitext`?"), "{message}");
}

#[test]
fn settings_of_another_type_or_name_are_refused_with_their_place() {
    let refused = |change: fn(&mut TaskConfig)| {
        let mut run = samples::config();
        change(&mut run.task);
        let message = RunConfig::parse(&run.canonical(), "a/config.json").unwrap_err();
        message.to_string()
    };
    let strange = refused(|task| task.set("dataset", "image"));
    assert!(
        strange.starts_with("a/config.json: not a run config: task mqar: unknown field `dataset`"),
        "{strange}"
    );
    let wrong = refused(|task| task.set("seq_len", "long"));
    assert!(wrong.contains("invalid type: string"), "{wrong}");
    let unknown = refused(|task| *task = TaskConfig::new("sorting", &json!({})));
    assert!(unknown.contains("unknown task `sorting`"), "{unknown}");
}

/// Ids of runs that earlier versions have trained: their results must be found again.
#[test]
fn the_ids_of_runs_do_not_move() {
    use crate::model::protocol::{Asked, Task};
    let of = |task| Asked::default().resolve(task).unwrap().id();
    assert_eq!(of(Task::Mqar), "a9dbd9e2e801");
    assert_eq!(of(Task::Lra), "6e165ebbf0be");
    assert_eq!(of(Task::Wikitext), "c89e78ce94d7");
}
