//! `dsf` without arguments: commands to try, and the runs of the results folder.

use super::print::{columns, Align};
use super::{exit, results, Global};
use crate::error::Result;
use crate::store::Column;
use crate::sweep::estimate::counted;
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Commands for a first session, and what they do.
const FIRST: [(&str, &str); 4] = [
    ("dsf tour", "trains a tiny model, draws it and looks inside it, in under a minute"),
    ("dsf mqar --mixer s6", "trains one model on a recall task; dsf mixers lists the other mixers"),
    ("dsf inspect --mixer s6", "shows a mixer as the linear time-varying system that it is"),
    ("dsf sweep smoke", "trains a grid of 24 tiny models; dsf report then prints their table"),
];

pub(super) fn main(global: &Global) -> Result<u8> {
    let found = counts(global);
    let (runs, tasks) = match &found {
        Ok(counts) => (json!(counts.iter().map(|(_, runs)| runs).sum::<usize>()), counts.as_slice()),
        Err(_) => (Value::Null, &[][..]),
    };
    let tasks: Vec<Value> = tasks.iter().map(|(task, runs)| json!({ "task": task, "runs": runs })).collect();
    let first: Vec<Value> =
        FIRST.iter().map(|(command, about)| json!({ "command": command, "about": about })).collect();
    let event = json!({
        "event": "overview", "schema": 1, "out": global.out.display().to_string(), "runs": runs, "tasks": tasks,
        "problem": found.as_ref().err().map(ToString::to_string), "first": first,
    });
    global.emit(&event, text(&found, global).trim_end())?;
    Ok(exit::DONE)
}

/// Returns the number of finished runs in the results folder by task; none if there is no such folder.
fn counts(global: &Global) -> Result<Vec<(String, usize)>> {
    if !global.out.exists() {
        return Ok(Vec::new());
    }
    let rows = results::read(&global.out)?;
    let mut runs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in &rows {
        runs.entry(row.text(Column::TASK)).or_default().insert(row.run_id());
    }
    Ok(runs.into_iter().map(|(task, ids)| (task.to_owned(), ids.len())).collect())
}

fn text(found: &Result<Vec<(String, usize)>>, global: &Global) -> String {
    let rows: Vec<Vec<String>> =
        FIRST.iter().map(|(command, about)| vec![format!("  {command}"), (*about).to_owned()]).collect();
    let out = global.out.display();
    let state = match found {
        Err(e) => format!("The results folder {out} cannot be read: {e}"),
        Ok(counts) if counts.is_empty() => format!("There are no finished runs in the folder {out} yet."),
        Ok(counts) => {
            let each: Vec<String> =
                counts.iter().map(|(task, runs)| format!("{} of {task}", counted(*runs, "run"))).collect();
            format!("The folder {out} holds {}; dsf report{} shows them.", each.join(", "), global.out_flag())
        }
    };
    format!(
        "dsf trains and compares sequence mixers: attention, state space models and RNNs.\n\nTo begin with:\n{}\n{state}\n\
         dsf --help lists all commands; dsf doctor checks this machine.",
        columns(&rows, Align::Left)
    )
}
