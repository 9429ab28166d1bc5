//! `dsf mixers`: the registry as a table.

use super::{exit, print};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::mixers::{Entry, MIXERS};
use crate::nn::Params;
use crate::recipes;
use candle_core::{DType, Device};
use clap::Args;

#[derive(Args)]
pub(super) struct Arguments {
    /// Model width d.
    #[arg(long, default_value_t = 64, value_parser = at_most_8192)]
    d: usize,
    /// State expansion n.
    #[arg(long, default_value_t = 64, value_parser = at_most_8192)]
    n: usize,
    /// Sequence length L, which sets the size of a key-value cache.
    #[arg(long, default_value_t = 64)]
    seq_len: usize,
}

/// The table builds every mixer, so its sizes stay within what a laptop holds.
fn at_most_8192(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(size @ 1..=8192) => Ok(size),
        _ => Err("must be a whole number from 1 to 8192".to_owned()),
    }
}

pub(super) fn main(arguments: Arguments) -> Result<u8> {
    let Arguments { d, n, seq_len } = arguments;
    let header = [
        "mixer",
        "variants",
        "parameters",
        "state",
        "finite DSF",
        "source",
        "equation",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    for entry in MIXERS {
        let (parameters, state) = sizes(entry, &arguments)?;
        rows.push([
            entry.name.to_owned(),
            entry.variants.join(", "),
            parameters.to_string(),
            state.to_string(),
            entry.dsf.to_owned(),
            entry.cite.to_owned(),
            entry.equation.to_owned(),
        ]);
    }
    let widths = [0, 1, 2, 3, 4, 5].map(|column| {
        let width = |row: &[String; 7]| row[column].chars().count();
        rows.iter().map(width).max().unwrap_or(0)
    });
    for row in &rows {
        let padded = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let line: Vec<String> = padded.chain([row[6].clone()]).collect();
        print::line(&line.join("  "))?;
    }
    print::line(&format!(
        "\nPer layer, at d = {d}, n = {n}, one head; state in numbers kept per sequence while \
         decoding L = {seq_len} tokens.\nThe first variant is what the protocols `reference` and \
         `matched` train; `paper` trains the variant of that name where there is one."
    ))?;
    for option in MIXERS
        .iter()
        .flat_map(|e| e.options.iter().map(move |o| (e.name, o)))
    {
        let (mixer, option) = option;
        print::line(&format!(
            "--option {}=..  ({mixer})  {}",
            option.name, option.help
        ))?;
    }
    Ok(exit::DONE)
}

/// Parameters and state of one layer's mixer in its first variant.
fn sizes(entry: &Entry, arguments: &Arguments) -> Result<(usize, usize)> {
    let model = model(entry, arguments)?;
    let params = Params::seeded(0, DType::F32, &Device::Cpu);
    let mixer = entry.build(&model, &params)?;
    Ok((params.count(), mixer.state_size(arguments.seq_len)))
}

fn model(entry: &Entry, arguments: &Arguments) -> Result<ModelConfig> {
    let (d, n) = (arguments.d.to_string(), arguments.n.to_string());
    let settings = [
        ("preset", "full"),
        ("mixer", entry.name),
        ("d", &d),
        ("n", &n),
        ("layers", "1"),
    ];
    Ok(recipes::run("mqar", &settings)?.model)
}
