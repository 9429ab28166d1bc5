//! `dsf bench compare`: one case and a peer, by turns.

use super::rows::{table, Host};
use crate::bench::Peer;
use crate::cli::Global;
use crate::error::{Error, Result};
use clap::Args;

#[derive(Args)]
#[command(
    after_help = "The peer is called with --threads N --load FILE and, for a step, --mixer M \
    --lr X --wd X --dropout P behind its own arguments. FILE is what --export writes. The last line \
    it prints is a JSON object with `cpu_s_per_step` (seconds), `losses` (of each step it made; for \
    an op the sums of magnitudes of output and gradients) and perhaps `peak_bytes`.\n\n\
    dsf bench compare --peer \"python src/bench/peer/step.py --head labelled\" -- step --mixer s6"
)]
pub(super) struct Arguments {
    /// Program and arguments of the peer, split at blanks.
    #[arg(long, value_name = "COMMAND")]
    peer: String,
    /// The peer makes weights and data of its own, from --d --n --L --kv --batch --vocab: no loss is
    /// compared.
    #[arg(long)]
    own_data: bool,
    /// Rounds, each of them ours and then the peer's.
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    /// What is measured, as typed behind `dsf bench`.
    #[arg(last = true, required = true, value_name = "step|op ..")]
    case: Vec<String>,
}

pub(super) fn main(arguments: &Arguments, global: &Global) -> Result<u8> {
    let mut host = Host::new(global, arguments.rounds)?;
    let peer = Peer {
        command: arguments
            .peer
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        own_data: arguments.own_data,
    };
    if peer.command.is_empty() {
        return Err(Error::usage(
            "--peer is empty: name a program and its arguments",
        ));
    }
    host.measure(&arguments.case, Some((&arguments.peer, &peer)))?;
    host.end(&table(&host.rows), None)
}
