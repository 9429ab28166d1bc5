//! What the subcommands that run many measurements share.

use super::text::{columns, seconds, si};
use crate::bench::{measure, write_csv, Peer, Row, LOSS_TOLERANCE};
use crate::cli::{exit, print, Global};
use crate::error::{Error, Result};
use std::path::Path;

/// Measures case after case and keeps the rows.
pub(super) struct Host<'a> {
    global: &'a Global,
    threads: usize,
    rounds: usize,
    pub rows: Vec<Row>,
}

impl<'a> Host<'a> {
    pub fn new(global: &'a Global, rounds: usize) -> Result<Self> {
        if !(1..=1000).contains(&rounds) {
            return Err(Error::usage(format!(
                "--rounds must be 1 to 1000, not {rounds}"
            )));
        }
        Ok(Self {
            global,
            threads: global.threads()?,
            rounds,
            rows: Vec::new(),
        })
    }

    /// Measures `line`, by turns with a peer that is shown under a name.
    pub fn measure(&mut self, line: &[String], peer: Option<(&str, &Peer)>) -> Result<()> {
        let quiet = self.global.quiet || self.global.json;
        let mut tell = |what: &str| {
            if !quiet {
                print::talk(what);
            }
        };
        let (name, peer) = peer.unzip();
        let measured = measure(line, peer, self.threads, self.rounds, &mut tell)?;
        let row = Row::new(&line.join(" "), name.unwrap_or_default(), &measured);
        if self.global.json {
            print::line(&super::json(&row))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Prints `table` unless JSON was asked for, writes the file, and says whether every peer
    /// computed the same.
    pub fn end(&self, table: &str, csv: Option<&Path>) -> Result<u8> {
        if !self.global.json {
            print::result(table)?;
        }
        if let Some(path) = csv {
            write_csv(path, &self.rows)?;
        }
        let Some(row) = self.rows.iter().find(|row| !row.agrees()) else {
            return Ok(exit::DONE);
        };
        let (case, peer) = (&row.case, &row.peer);
        let difference = row.loss_difference.unwrap_or(f64::NAN);
        print::talk(&format!(
            "error: {case} and {peer}: results differ by {difference:.1e}, allowed is {LOSS_TOLERANCE:.0e}"
        ));
        Ok(exit::CHECK_FAILED)
    }
}

/// The rows for a person.
pub(super) fn table(rows: &[Row]) -> String {
    let peers = rows.iter().any(|row| !row.peer.is_empty());
    let mut head = vec![
        "CPU",
        "min",
        "max",
        "floor",
        "of floor",
        "tokens/s",
        "elements/s",
        "memory",
    ];
    if peers {
        head.extend(["peer CPU", "ratio", "min", "max", "memory", "loss differs"]);
    }
    head.push("case");
    let mut cells = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    let shown = |x: Option<f64>, how: fn(f64) -> String| x.map_or("-".to_owned(), how);
    let percent = |x: f64| format!("{:.0} %", 100.0 * x);
    let megabytes =
        |bytes: Option<u64>| shown(bytes.map(|b| b as f64), |b| format!("{:.0} MB", b / 1e6));
    let times = |x: f64| format!("{x:.2}x");
    for row in rows {
        let mut line = vec![
            seconds(row.cpu_seconds),
            seconds(row.cpu_seconds_min),
            seconds(row.cpu_seconds_max),
            shown(row.floor_seconds, seconds),
            shown(row.fraction_of_floor, percent),
            shown(row.tokens_per_cpu_second, si),
            shown(row.elements_per_cpu_second, si),
            megabytes(row.peak_memory_bytes),
        ];
        if peers {
            line.extend([
                shown(row.peer_cpu_seconds, seconds),
                shown(row.ratio, times),
                shown(row.ratio_min, times),
                shown(row.ratio_max, times),
                megabytes(row.peer_peak_memory_bytes),
                shown(row.loss_difference, |d| format!("{d:.0e}")),
            ]);
        }
        let beside = if row.peer.is_empty() { "" } else { "  |  " };
        line.push(format!("{}{beside}{}", row.case, row.peer));
        cells.push(line);
    }
    columns(&cells) + &machine(rows)
}

fn machine(rows: &[Row]) -> String {
    let Some(row) = rows.last() else {
        return String::new();
    };
    let loads = rows.iter().filter_map(|row| row.load_average);
    let (low, high) = loads.fold((f64::INFINITY, 0f64), |(low, high), l| {
        (low.min(l), high.max(l))
    });
    format!(
        "\nCPU seconds are medians of {} rounds; rates are per CPU second.\n{}, {}, {} threads, load {low:.2} to \
         {high:.2}, commit {}\n",
        row.rounds,
        row.cpu,
        row.instruction_set,
        row.threads.unwrap_or(0),
        row.commit
    )
}
