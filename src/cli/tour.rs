//! `dsf tour`: trains, draws and inspects a tiny model by commands that it prints.

use super::{exit, print, single, Global};
use crate::error::{refuse, Result};
use crate::recipes::all_quoted;
use crate::sweep::estimate::duration;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
pub(super) struct TourArguments {
    /// Folder for all files of the tour.
    // Replaces the global flag of the same id, whose default is another folder.
    #[arg(short, long, value_name = "DIR", default_value = "dsf-tour", env = "DSF_OUT")]
    out: PathBuf,
}

/// Task and settings of the run, which learns its task in seconds.
const RUN: &str = "mqar --mixer mamba2 --d 32 --n 16 --seq-len 16 --kv-pairs 2 --vocab-size 32 --train-examples 4000 \
                   --test-examples 500 --lr 1e-2";

/// A command, and an explanation of it in lines of at most 90 characters.
struct TourStep {
    about: &'static [&'static str],
    words: Vec<String>,
}

/// Runs the tour; `execute` executes a command line and returns its exit code.
pub(super) fn main(arguments: &TourArguments, global: &Global, execute: &dyn Fn(&[OsString]) -> u8) -> Result<u8> {
    let Some(out) = arguments.out.to_str() else {
        refuse!(flag "--out" = arguments.out.display(), "is not UTF-8: give a folder whose name can be typed");
    };
    let began = Instant::now();
    let steps = steps(out, global)?;
    for (i, TourStep { about, words }) in steps.iter().enumerate() {
        let (step, command) = (i + 1, all_quoted(words));
        let event = json!({
            "event": "tour", "schema": 1, "step": step, "steps": steps.len(), "about": about.join(" "), "command": command,
        });
        global.emit(&event, &format!("{step}. {}\n\n   $ {command}\n", about.join("\n   ")))?;
        let line: Vec<OsString> = words.iter().chain(&global_flags(global)).map(OsString::from).collect();
        let code = execute(&line);
        if code != exit::DONE {
            return Ok(code);
        }
        if !global.json {
            print::line("")?;
        }
    }
    if !global.json {
        print::line(farewell(out, began.elapsed().as_secs_f64()))?;
    }
    Ok(exit::DONE)
}

/// Returns the commands, which read and write files in the folder `out`.
fn steps(out: &str, global: &Global) -> Result<Vec<TourStep>> {
    let run: Vec<String> = RUN.split_whitespace().map(str::to_owned).collect();
    let id = single::named_by(&run, global)?.id();
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    let (curves, page) = (format!("{out}/curves.svg"), format!("{out}/system.html"));
    let step = |about, words: &[&str]| {
        let words = [&["dsf"], words, &["--out", out]].concat();
        TourStep { about, words: words.into_iter().map(str::to_owned).collect() }
    };
    Ok(vec![
        step(
            &[
                "Train a model with two layers of Mamba-2. It reads key-value pairs, then some of the",
                "keys again, and is to answer each of these with its value.",
            ],
            &run,
        ),
        step(
            &["Print the loss in training and the accuracy on the test set after every epoch."],
            &["report", "--curves"],
        ),
        step(&["Draw these curves as a picture."], &["report", "--curves", "--to", &curves]),
        step(
            &[
                "Look inside the second layer. It is a linear system: h_i = Λ_i h_{i-1} + B_i u_i,",
                "y_i = C_i h_i + D_i u_i, with matrices that depend on the input. The rows of Φ show how",
                "much each output depends on each earlier token, in percent of the largest entry, and",
                "--verify checks that the system computes what the layer computes.",
            ],
            &["inspect", &id, "--layer", "1", "--verify"],
        ),
        step(&["Write both layers as a page with pictures and all numbers."], &["inspect", &id, "--to", &page]),
    ])
}

/// Returns the flags of `dsf tour` that its commands take, too.
fn global_flags(global: &Global) -> Vec<String> {
    let mut flags = vec![format!("--color={}", global.color.name())];
    flags.extend(global.threads.map(|n| format!("--threads={n}")));
    flags.extend(global.json.then(|| "--json".to_owned()));
    flags.extend(global.quiet.then(|| "--quiet".to_owned()));
    flags
}

fn farewell(out: &str, seconds: f64) -> String {
    format!(
        "The tour took {}. Everything that it wrote is in the folder {out}, which you can delete:\n\
         curves.svg, system.html (open it in a browser) and the run.\n\
         Next: dsf mqar --help lists what can be varied, dsf mixers lists the mixers, and\n\
         dsf sweep --help says how to train a grid of models.",
        duration(seconds)
    )
}
