//! `dsf bench all`: the standard cases, and their peers where a Python with torch is given.

use super::rows::{table, Host};
use crate::bench::{self, Peer};
use crate::cli::Global;
use crate::error::{Error, Result};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct Arguments {
    /// Measure only cases whose command line contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// A Python with torch: times the peers by turns with ours.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Folder of the peers' scripts.
    #[arg(long, value_name = "DIR", default_value = "src/bench/peer")]
    peers: PathBuf,
    /// Rounds a case, each of them ours and then the peer's.
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// Also write the table to a CSV file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

pub(super) fn main(arguments: &Arguments, global: &Global) -> Result<u8> {
    let mut host = Host::new(global, arguments.rounds)?;
    let mut cases = bench::all();
    cases.retain(|case| case.line.contains(&arguments.only));
    if cases.is_empty() {
        let only = &arguments.only;
        return Err(Error::usage(format!("--only {only}: no case contains it")));
    }
    for case in &cases {
        let line: Vec<String> = case.line.split_whitespace().map(str::to_owned).collect();
        match &arguments.python {
            Some(python) if !case.peers.is_empty() => {
                for name in case.peers {
                    let script = arguments.peers.join(name.split(' ').next().unwrap_or(name));
                    let words = name.split(' ').skip(1).map(str::to_owned);
                    // -B: leave no compiled files beside the scripts.
                    let [python, script] = [python, &script].map(|p| p.display().to_string());
                    let program = [python, "-B".to_owned(), script];
                    let peer = Peer {
                        command: program.into_iter().chain(words).collect(),
                        own_data: false,
                    };
                    host.measure(&line, Some((name, &peer)))?;
                }
            }
            _ => host.measure(&line, None)?,
        }
    }
    host.end(&table(&host.rows), arguments.csv.as_deref())
}
