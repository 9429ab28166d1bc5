//! `dsf experiments`: experiments that are part of the program.

use super::print::{self, columns, Align};
use super::{exit, Global};
use crate::config::SETTINGS;
use crate::error::{unknown, Result};
use crate::recipes::Flags;
use crate::sweep::{Experiment, Shipped, SHIPPED};
use clap::Args;
use serde_json::json;
use std::path::Path;

#[derive(Args)]
pub(super) struct ExperimentsArguments {
    /// Print the file of this experiment, to start your own from.
    name: Option<String>,
}

pub(super) fn main(arguments: &ExperimentsArguments, global: &Global) -> Result<u8> {
    let text = match &arguments.name {
        Some(name) => {
            let found = Shipped::find(Path::new(name));
            let names = || SHIPPED.iter().map(|shipped| shipped.name);
            let found = found.ok_or_else(|| unknown("experiment", name, names()))?;
            if global.json {
                let mut event = event(found)?;
                event["text"] = json!(found.text);
                format!("{event}\n")
            } else {
                found.text.to_owned()
            }
        }
        None if global.json => {
            SHIPPED.iter().map(|shipped| Ok(format!("{}\n", event(shipped)?))).collect::<Result<_>>()?
        }
        None => listing()?,
    };
    print::result(&text)?;
    Ok(exit::DONE)
}

/// Number of runs of an experiment; an experiment with all mixers grows with every new one.
fn runs(shipped: &Shipped) -> Result<usize> {
    Ok(Experiment::parse(shipped.text, shipped.name, SETTINGS)?.plan(&Flags::default())?.runs.len())
}

fn event(shipped: &Shipped) -> Result<serde_json::Value> {
    Ok(json!({
        "event": "experiment", "schema": 1, "experiment": shipped.name, "runs": runs(shipped)?,
        "cost": shipped.line("Cost"), "about": shipped.about(),
    }))
}

fn listing() -> Result<String> {
    let header = ["experiment", "runs", "what it shows"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for shipped in SHIPPED {
        let about = shipped.about();
        // A point within `4.3` ends no sentence.
        let first = about.split(". ").next().unwrap_or_default();
        let first = first.split(':').next().unwrap_or_default().trim_end_matches('.');
        let runs = runs(shipped)?.to_string();
        rows.push(vec![shipped.name.to_owned(), runs, first.to_owned()]);
    }
    Ok(format!(
        "{}\n`dsf sweep NAME` trains one, with --dry-run it says what that costs;\n`dsf experiments NAME` prints its file.\n",
        columns(&rows, Align::Left)
    ))
}
