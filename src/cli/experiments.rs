//! `dsf experiments`: the experiments that are part of the program.

use super::print::{self, columns, Align};
use super::{exit, Global};
use crate::error::{unknown, Result};
use crate::sweep::{Shipped, SHIPPED};
use clap::Args;
use serde_json::json;
use std::path::Path;

#[derive(Args)]
pub(super) struct Arguments {
    /// Print the file of one, to begin an own one with.
    name: Option<String>,
}

pub(super) fn main(arguments: &Arguments, global: &Global) -> Result<u8> {
    let text = match &arguments.name {
        Some(name) => {
            let found = Shipped::find(Path::new(name));
            let names = || SHIPPED.iter().map(|shipped| shipped.name);
            let found = found.ok_or_else(|| unknown("experiment", name, names()))?;
            match global.json {
                true => {
                    let mut event = event(found);
                    event["text"] = json!(found.text);
                    format!("{event}\n")
                }
                false => found.text.to_owned(),
            }
        }
        None if global.json => SHIPPED
            .iter()
            .map(|shipped| format!("{}\n", event(shipped)))
            .collect(),
        None => listing(),
    };
    print::result(&text)?;
    Ok(exit::DONE)
}

fn event(shipped: &Shipped) -> serde_json::Value {
    let runs = shipped
        .line("Runs")
        .and_then(|runs| runs.parse::<usize>().ok());
    json!({
        "event": "experiment", "schema": 1, "experiment": shipped.name, "runs": runs,
        "cost": shipped.line("Cost"), "about": shipped.about(),
    })
}

fn listing() -> String {
    let header = ["experiment", "runs", "what it shows"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(SHIPPED.iter().map(|shipped| {
        let about = shipped.about();
        let first = about.split(['.', ':']).next().unwrap_or_default();
        vec![
            shipped.name.to_owned(),
            shipped.line("Runs").unwrap_or_default().to_owned(),
            first.to_owned(),
        ]
    }));
    format!(
        "{}\n`dsf sweep NAME` trains one, with --dry-run it says what that costs;\n`dsf experiments NAME` prints its file.\n",
        columns(&rows, Align::Left)
    )
}
