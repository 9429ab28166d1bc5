//! `dsf check golden DIR`: compares with reference numbers.

use super::{exit, Global};
use crate::error::Result;
use crate::golden::{self, Verdict};
use clap::{Args, Subcommand};
use serde_json::{json, Value};
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Compare this build with inputs, outputs and gradients that other programs computed in f64.
    Golden {
        /// Folder of golden files (.safetensors).
        dir: PathBuf,
    },
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    let Action::Golden { dir } = arguments.what;
    let files = golden::files(&dir)?;
    let (mut passed, mut failed, mut missing) = (0, 0, 0);
    let name = |file: &PathBuf| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let width = files.iter().map(|f| name(f).chars().count()).max().unwrap_or(0);
    for file in &files {
        let verdict = golden::check(file);
        match &verdict {
            Verdict::Pass(_) => passed += 1,
            Verdict::NotImplemented => missing += 1,
            Verdict::Fail(_) | Verdict::Broken(_) => failed += 1,
        }
        let text = format!("{:width$}  {}", name(file), describe(&verdict));
        global.emit(&event(&name(file), &verdict), &text)?;
    }
    let all = json!({ "event": "checked", "schema": 1, "passed": passed, "failed": failed,
                      "not_implemented": missing });
    let text = format!("{passed} passed, {failed} failed, {missing} not implemented");
    global.emit(&all, &text)?;
    // Files without a check count as failures.
    Ok(if failed + missing > 0 { exit::CHECK_FAILED } else { exit::DONE })
}

/// Returns the event for programs.
fn event(file: &str, verdict: &Verdict) -> Value {
    let (state, worst, reason) = match verdict {
        Verdict::Pass(worst) => ("pass", Some(worst), None),
        Verdict::Fail(worst) => ("fail", Some(worst), None),
        Verdict::Broken(reason) => ("fail", None, Some(reason)),
        Verdict::NotImplemented => ("not implemented", None, None),
    };
    let worst = worst.map(
        |worst| json!({ "what": worst.what, "error": worst.error, "tolerance": worst.tolerance, "of": worst.count }),
    );
    json!({ "event": "golden", "schema": 1, "file": file, "verdict": state, "worst": worst, "reason": reason })
}

fn describe(verdict: &Verdict) -> String {
    let numbers = |w: &golden::Worst| {
        format!("worst of {}: {} off by {:.1e}, tolerance {:.1e}", w.count, w.what, w.error, w.tolerance)
    };
    match verdict {
        Verdict::Pass(worst) => format!("pass             {}", numbers(worst)),
        Verdict::Fail(worst) => format!("FAIL             {}", numbers(worst)),
        Verdict::Broken(reason) => format!("FAIL             {reason}"),
        Verdict::NotImplemented => {
            "not implemented  no mixer of the registry has golden files named so; `dsf mixers` lists them".to_owned()
        }
    }
}
