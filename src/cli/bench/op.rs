//! `dsf bench op`.

use super::text::{lines, machine, seconds, si, spread};
use crate::bench::{op_names, Number, OpBench, OpReport, OpRequest, Pass};
use crate::cli::device::use_threads;
use crate::cli::{exit, print, Global};
use crate::error::Result;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = list())]
pub(super) struct Arguments {
    /// The op.
    #[arg(value_name = "NAME")]
    name: String,
    /// Batch B, length L, width d and, for ops with states, n.
    #[arg(long, value_delimiter = ',', value_name = "B,L,d,n", default_values_t = [8, 512, 128, 64])]
    shape: Vec<usize>,
    /// Heads s, which share d and n evenly; for attention.
    #[arg(long, default_value_t = 1, value_name = "N")]
    heads: usize,
    /// Type of the numbers.
    #[arg(long, value_enum, default_value = "f32")]
    dtype: Number,
    /// Timed calls of each kind, after two that are not.
    #[arg(long, default_value_t = 9, value_name = "N")]
    repeats: usize,
    /// Write the inputs to a safetensors file, for another program to do the same.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

fn list() -> String {
    let names: Vec<(&str, String)> = op_names().map(|(n, about)| (n, about.to_owned())).collect();
    format!("Ops:\n{}", lines(&names))
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    let threads = global.threads()?;
    use_threads(threads);
    let bench = OpBench::new(OpRequest {
        name: arguments.name,
        shape: arguments.shape,
        heads: arguments.heads,
        number: arguments.dtype,
        repeats: arguments.repeats,
    })?;
    let report = bench.measure(threads, arguments.export.as_deref())?;
    print::line(&if global.json {
        super::json(&report)
    } else {
        table(&report)
    })?;
    Ok(exit::DONE)
}

fn table(r: &OpReport) -> String {
    let memory = r.peak_memory_bytes;
    let memory = memory.map_or("-".to_owned(), |m| {
        format!("{:.0} MB at most", m as f64 / 1e6)
    });
    lines(&[
        ("op", format!("{} {:?}, {} heads", r.op, r.shape, r.heads)),
        ("forward", pass(&r.forward)),
        ("both ways", pass(&r.both)),
        ("memory", memory),
        (
            "sums",
            format!(
                "{:.6e} of the output, {:.6e} of the gradients",
                r.checksum, r.gradient_checksum
            ),
        ),
        ("route", r.route.to_owned()),
        ("machine", machine(&r.machine)),
    ])
}

fn pass(pass: &Pass) -> String {
    let time = pass.time;
    format!(
        "CPU {}, wall {}, {} elements a CPU second, {:.0} % of the floor of {}",
        spread(time.cpu_seconds, time.cpu_seconds_min, time.cpu_seconds_max),
        seconds(time.wall_seconds),
        si(pass.elements_per_cpu_second),
        100.0 * pass.fraction_of_floor,
        seconds(pass.floor_seconds)
    )
}
