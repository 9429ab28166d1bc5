//! `dsf bench lengths`: the same number of tokens in ever longer sequences.

use super::rows::Host;
use super::text::{columns, si};
use crate::bench::{self, Row};
use crate::cli::Global;
use crate::error::{Error, Result};
use crate::mixers;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct Arguments {
    /// Mixers.
    #[arg(long, value_delimiter = ',', value_name = "NAME",
          default_values = ["s6", "ssd", "linear", "normalized", "qlstm", "softmax"])]
    mixer: Vec<String>,
    /// Sequence lengths L.
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [64, 256, 1024, 4096, 16384])]
    seq_len: Vec<usize>,
    /// Tokens a step at every length: L times the batch.
    #[arg(long, value_name = "N", default_value_t = 32_768)]
    tokens: usize,
    /// Timed steps, after two that are not.
    #[arg(long, default_value_t = 3, value_name = "K")]
    steps: usize,
    /// Rounds a case.
    #[arg(long, default_value_t = 1, value_name = "N")]
    rounds: usize,
    /// Also write the measurements to a CSV file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

pub(super) fn main(arguments: &Arguments, global: &Global) -> Result<u8> {
    let Arguments {
        mixer: names,
        seq_len: lengths,
        tokens,
        steps,
        ..
    } = arguments;
    let longest = lengths.iter().copied().max().unwrap_or(0);
    for name in names {
        mixers::find(name)?;
    }
    if lengths.is_empty()
        || lengths
            .iter()
            .any(|&l| l < 4 || !l.is_multiple_of(4) || tokens % l != 0)
    {
        return Err(Error::usage(format!(
            "--seq-len must list multiples of 4 that divide --tokens {tokens}"
        )));
    }
    let mut host = Host::new(global, arguments.rounds)?;
    for name in names {
        for &length in lengths {
            let case = bench::of_length(name, length, longest, *tokens, *steps);
            let line: Vec<String> = case.line.split(' ').map(str::to_owned).collect();
            host.measure(&line, None)?;
        }
    }
    let grid = grid(names, lengths, &host.rows);
    host.end(&grid, arguments.csv.as_deref())
}

/// Tokens a CPU second, a row a mixer, and how far each is from flat.
fn grid(names: &[String], lengths: &[usize], rows: &[Row]) -> String {
    let head = lengths.iter().map(|l| format!("L = {l}"));
    let head = ["mixer".to_owned()].into_iter().chain(head);
    let mut cells = vec![head
        .chain(["fastest/slowest".to_owned()])
        .collect::<Vec<_>>()];
    for (name, rows) in names.iter().zip(rows.chunks(lengths.len())) {
        let rates: Vec<f64> = rows
            .iter()
            .filter_map(|r| r.tokens_per_cpu_second)
            .collect();
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let shown = rates.iter().map(|&rate| si(rate));
        let row = [name.clone()].into_iter().chain(shown);
        cells.push(row.chain([format!("{:.2}", fastest / slowest)]).collect());
    }
    format!(
        "tokens a CPU second of a training step\n\n{}",
        columns(&cells)
    )
}
