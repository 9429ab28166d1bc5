//! `dsf mixers`: the registry as a table.

use super::exit;
use super::print::{self, columns, Align};
use crate::error::Result;
use crate::mixers::{Entry, MIXERS};
use crate::nn::Params;
use crate::recipes;
use candle_core::DType;
use clap::Args;

#[derive(Args)]
pub(super) struct Arguments {
    /// Model width d.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    d: u32,
    /// State expansion n.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    n: u32,
    /// Sequence length L, which sets the size of a key-value cache.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    seq_len: u32,
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
    let params = Params::without_values(DType::F32);
    let mixer = entry.build(&model, &params)?;
    Ok((params.count(), mixer.state_size(arguments.seq_len as usize)))
}
