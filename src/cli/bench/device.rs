//! `dsf bench --device cuda`: whether a GPU computes what the CPU does, and how fast.

use super::text::{columns, seconds, si};
use crate::bench::{write_csv, DeviceBench, DeviceRow, Kind};
use crate::cli::device::{use_threads, Choice};
use crate::cli::{exit, print, Global};
use crate::error::{Error, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args)]
pub(super) struct Arguments {
    /// Check and time everything on a GPU: cuda, or cuda:1; on the CPU, what --only names.
    #[arg(long, value_name = "DEVICE", required = true)]
    device: Option<Choice>,
    /// Only measurements whose title contains this: `check`, `check small`, `op ssd`, `step s6 512`.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Begin no measurement after so many minutes.
    #[arg(long, value_name = "N", default_value_t = 8.0)]
    minutes: f64,
    /// A Python with torch: measures the peers on the same device.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Folder of the peers' scripts.
    #[arg(long, value_name = "DIR", default_value = "src/bench/peer")]
    peers: PathBuf,
    /// File of the rows; complete after every one of them.
    #[arg(long, value_name = "FILE", default_value = "results/bench-gpu.csv")]
    csv: PathBuf,
}

impl Arguments {
    /// Whether anything beside a subcommand was asked for.
    pub fn given(&self) -> bool {
        self.device.is_some()
    }

    fn bench(&self) -> Result<DeviceBench> {
        let time = Duration::try_from_secs_f64(60.0 * self.minutes);
        let time = time.map_err(|_| {
            let minutes = self.minutes;
            Error::usage(format!("--minutes must be 0 or more, not {minutes}"))
        })?;
        let choice = match self.device {
            Some(Choice::Auto) | None => {
                return Err(Error::usage(
                    "--device auto measures nobody knows what: name cuda, cuda:1 or cpu",
                ));
            }
            Some(Choice::Cpu) if self.only.is_empty() => {
                return Err(Error::usage(
                    "--device cpu would take hours for what is meant for a GPU: add --only TEXT",
                ));
            }
            Some(choice) => choice,
        };
        let (device, name) = choice.open()?;
        let mut bench = DeviceBench::new(device, name);
        bench.only.clone_from(&self.only);
        bench.time = time;
        bench.python = self.python.clone().map(|file| (file, self.peers.clone()));
        if bench.count() == 0 {
            let only = &self.only;
            return Err(Error::usage(format!(
                "--only {only}: no measurement contains it"
            )));
        }
        Ok(bench)
    }
}

pub(super) fn main(arguments: &Arguments, global: &Global) -> Result<u8> {
    use_threads(global.threads()?);
    let bench = arguments.bench()?;
    make_folder(&arguments.csv)?;
    let (count, quiet) = (bench.count(), global.quiet || global.json);
    let (mut number, mut rows) = (0, Vec::new());
    let mut begun = |title: &str| {
        number += 1;
        if !quiet {
            print::talk(&format!("{number} of {count}  {title}"));
        }
    };
    let left_out = bench.run(&mut begun, &mut |row| {
        if global.json {
            print::line(&super::json(&row))?;
        }
        rows.push(row);
        write_csv(&arguments.csv, &rows)
    })?;
    if !global.json {
        print::result(&table(&rows))?;
    }
    Ok(end(&rows, &left_out, arguments))
}

fn make_folder(file: &Path) -> Result<()> {
    match file.parent() {
        Some(folder) => std::fs::create_dir_all(folder).map_err(Error::io("create", folder)),
        None => Ok(()),
    }
}

/// Says what failed and what was left out.
fn end(rows: &[DeviceRow], left_out: &[String], arguments: &Arguments) -> u8 {
    if let Some(first) = left_out.first() {
        let (count, minutes) = (left_out.len(), arguments.minutes);
        print::talk(&format!(
            "{count} left out after {minutes} minutes, from `{first}` on: give more --minutes, or --only"
        ));
    }
    let failed: Vec<&DeviceRow> = rows.iter().filter(|row| row.failed()).collect();
    for row in &failed {
        let (title, note) = (row.title(), &row.note);
        print::talk(&match (row.distance, row.tolerance) {
            (Some(distance), Some(tolerance)) => {
                format!("error: {title}: {distance:.1e} apart, allowed is {tolerance:.0e}; {note}")
            }
            _ => format!("error: {title}: {note}"),
        });
    }
    match failed.is_empty() {
        true => exit::DONE,
        false => exit::CHECK_FAILED,
    }
}

/// The rows for a person: how many checks held, and every time.
fn table(rows: &[DeviceRow]) -> String {
    let is_check = |row: &&DeviceRow| matches!(row.kind, Kind::Check | Kind::Model);
    let checks: Vec<&DeviceRow> = rows.iter().filter(is_check).collect();
    let held = checks.iter().filter(|row| !row.failed()).count();
    let shown = |x: Option<f64>, how: fn(f64) -> String| x.map_or("-".to_owned(), how);
    let percent = |x: f64| format!("{:.0} %", 100.0 * x);
    let head = [
        "time",
        "min",
        "max",
        "floor",
        "of floor",
        "expected",
        "tokens/s",
        "elements/s",
        "peer",
        "ratio",
        "what",
    ];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    for row in rows.iter().filter(|row| !is_check(row)) {
        let what = match row.note.as_str() {
            "" => row.title(),
            note => format!("{}: {note}", row.title()),
        };
        cells.push(vec![
            shown(row.seconds, seconds),
            shown(row.seconds_min, seconds),
            shown(row.seconds_max, seconds),
            shown(row.floor_seconds, seconds),
            shown(row.fraction_of_floor, percent),
            shown(row.predicted, percent),
            shown(row.tokens_per_second, si),
            shown(row.elements_per_second, si),
            shown(row.peer_seconds, seconds),
            shown(row.ratio, |x| format!("{x:.2}x")),
            what,
        ]);
    }
    let mut text = match checks.len() {
        0 => String::new(),
        count => format!("{held} of {count} checks held\n"),
    };
    if cells.len() > 1 {
        text += &columns(&cells);
        text += "\nTimes are medians of rounds of calls in a row; floors are those of an H200.\n";
    }
    text
}
