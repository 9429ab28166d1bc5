//! `dsf mixers`: the registry as a table.

use super::exit;
use super::print::{self, columns, Align};
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
    #[rustfmt::skip]
    let header = ["mixer", "variants", "parameters", "state", "finite DSF", "source", "equation"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for entry in MIXERS {
        let (parameters, state) = sizes(entry, &arguments)?;
        rows.push(vec![
            entry.name.to_owned(),
            entry.variants.join(", "),
            parameters.to_string(),
            state.to_string(),
            entry.dsf.to_owned(),
            entry.cite.to_owned(),
            entry.equation.to_owned(),
        ]);
    }
    print::result(&columns(&rows, Align::Left))?;
    print::line(format!(
        "\nPer layer, at d = {d}, n = {n}, one head; state in numbers kept per sequence while \
         decoding L = {seq_len} tokens.\nThe first variant is what the protocols `reference` and \
         `matched` train; `paper` trains the variant of that name where there is one."
    ))?;
    for entry in MIXERS {
        for option in entry.options {
            let (name, help) = (option.name, option.help);
            print::line(format!("--option {name}=..  ({})  {help}", entry.name))?;
        }
    }
    Ok(exit::DONE)
}

/// Parameters and state of one layer's mixer in its first variant.
fn sizes(entry: &Entry, arguments: &Arguments) -> Result<(usize, usize)> {
    let (d, n) = (arguments.d.to_string(), arguments.n.to_string());
    let sizes = [("d", d.as_str()), ("n", &n), ("layers", "1")];
    let model = [&[("preset", "full"), ("mixer", entry.name)], &sizes[..]].concat();
    let model = recipes::run("mqar", &model)?.model;
    let params = Params::seeded(0, DType::F32, &Device::Cpu);
    let mixer = entry.build(&model, &params)?;
    Ok((params.count(), mixer.state_size(arguments.seq_len)))
}
