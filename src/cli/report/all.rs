//! `dsf report --all`: every figure and table in every format, and a page of all of them.

use super::super::{exit, print, Global};
use super::{rows, traced, ReportArguments};
use crate::error::{refuse, Error, Result};
use crate::files::write_atomic;
use crate::recipes::presets_of;
use crate::report::{self, index, Report, TextTarget, FIGURES, FORMATS};
use crate::store::Store;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Results folder if neither an argument nor DSF_OUT names one.
const RESULTS: &str = "results";

pub(super) fn main(arguments: &ReportArguments, global: &Global) -> Result<u8> {
    let folder = &global.out;
    let default = std::env::var_os("DSF_OUT").map_or_else(|| RESULTS.into(), PathBuf::from);
    let sources = arguments.sources(&default);
    if sources.iter().any(|source| same(source, folder)) {
        refuse!(flag "--all", "writes many files into --out, but {} is the results folder itself: give another --out", folder.display());
    }
    let rows = rows(sources)?;
    let planned = arguments.planned(global)?;
    let mut drawn: Vec<(String, Report)> = Vec::new();
    let mut without = Vec::new();
    for figure in FIGURES {
        if !report::shows(figure, &rows, &arguments.asked.filter) {
            without.push(figure);
            continue;
        }
        let report = report::report(figure, &rows, planned.as_deref(), &presets_of, &arguments.asked)?;
        drawn.push((figure.file(), report));
    }
    drawn.extend(curves(arguments, sources)?.map(|report| ("curves".to_owned(), report)));
    if drawn.is_empty() {
        refuse!("there are no results to draw here; `dsf mqar` makes one, `dsf sweep` a grid of them");
    }
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    for (name, report) in &drawn {
        for format in FORMATS {
            let file = folder.join(format!("{name}.{}", format.extension));
            match format.render(report, TextTarget::default()) {
                Ok(bytes) => write(&file, &bytes, global)?,
                // The other formats may still succeed.
                Err(e) => print::message(&format!("warning: no {}: {e}", file.display())),
            }
        }
    }
    write(&folder.join("index.html"), index(&drawn).as_bytes(), global)?;
    for figure in without {
        let (title, remedy) = (figure.title(), figure.remedy);
        let event = json!({ "event": "without", "schema": 1, "figure": title, "remedy": remedy });
        global.emit(&event, &format!("no results for {title}; {remedy}"))?;
    }
    Ok(exit::DONE)
}

fn same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    real(a) == real(b)
}

/// Returns the training curves of all folders among `sources`; `None` if there are none.
fn curves(arguments: &ReportArguments, sources: &[PathBuf]) -> Result<Option<Report>> {
    let folders: Vec<PathBuf> = sources.iter().filter(|source| source.is_dir()).cloned().collect();
    let curves = traced(&folders, Store::epochs)?;
    let passing = curves.iter().any(|curve| arguments.asked.filter.passes(&curve.run));
    match passing {
        true => report::curves(&curves, &arguments.asked).map(Some),
        false => Ok(None),
    }
}

fn write(file: &Path, bytes: &[u8], global: &Global) -> Result<()> {
    write_atomic(file, bytes)?;
    let event = json!({ "event": "file", "schema": 1, "file": file.display().to_string(), "bytes": bytes.len() });
    global.emit(&event, &file.display().to_string())
}
