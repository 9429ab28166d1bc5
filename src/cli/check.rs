//! `dsf check golden DIR`: compares with reference numbers.

use super::{exit, Global};
use crate::error::Result;
use crate::golden::{self, FileVerdict};
use clap::{Args, Subcommand};
use serde_json::{json, Value};
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct CheckArguments {
    #[command(subcommand)]
    what: CheckAction,
}

#[derive(Subcommand)]
enum CheckAction {
    /// Compare this build with inputs, outputs and gradients that other programs computed in f64.
    Golden {
        /// Folder of golden files (.safetensors), or of pretrained models with their logits.
        dir: PathBuf,
    },
}

pub(super) fn main(arguments: CheckArguments, global: &Global) -> Result<u8> {
    let CheckAction::Golden { dir } = arguments.what;
    let files = golden::files(&dir)?;
    let (mut passed, mut failed, mut missing) = (0, 0, 0);
    let name = |file: &PathBuf| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let width = files.iter().map(|f| name(f).chars().count()).max().unwrap_or(0);
    for file in &files {
        let verdict = golden::check(file);
        match &verdict {
            FileVerdict::Pass(_) => passed += 1,
            FileVerdict::NotImplemented => missing += 1,
            FileVerdict::Fail(_) | FileVerdict::Broken(_) => failed += 1,
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

pub(super) fn event(file: &str, verdict: &FileVerdict) -> Value {
    let (state, worst, reason) = match verdict {
        FileVerdict::Pass(worst) => ("pass", Some(worst), None),
        FileVerdict::Fail(worst) => ("fail", Some(worst), None),
        FileVerdict::Broken(reason) => ("fail", None, Some(reason)),
        FileVerdict::NotImplemented => ("not implemented", None, None),
    };
    let worst = worst.map(
        |worst| json!({ "what": worst.what, "error": worst.error, "tolerance": worst.tolerance, "of": worst.count }),
    );
    json!({ "event": "golden", "schema": 1, "file": file, "verdict": state, "worst": worst, "reason": reason })
}

pub(super) fn describe(verdict: &FileVerdict) -> String {
    let numbers = |w: &golden::Worst| {
        format!("worst of {}: {} off by {:.1e}, tolerance {:.1e}", w.count, w.what, w.error, w.tolerance)
    };
    match verdict {
        FileVerdict::Pass(worst) => format!("pass             {}", numbers(worst)),
        FileVerdict::Fail(worst) => format!("FAIL             {}", numbers(worst)),
        FileVerdict::Broken(reason) => format!("FAIL             {reason}"),
        FileVerdict::NotImplemented => {
            "not implemented  no mixer of the registry has golden files named so; `dsf mixers` lists them".to_owned()
        }
    }
}
