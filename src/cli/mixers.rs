//! `dsf mixers`: the registry as a table, or everything about the given mixers.

use super::print::{self, columns, Align};
use super::{exit, Global};
use crate::config::whole;
use crate::error::Result;
use crate::mixers::{self, Entry, MIXERS};
use crate::nn::Params;
use crate::recipes;
use candle_core::DType;
use clap::Args;
use serde_json::{json, Value};

#[derive(Args)]
pub(super) struct MixersArguments {
    /// Mixers to describe in detail [default: list all mixers].
    names: Vec<String>,
    /// Model width d.
    #[arg(long, alias = "d-model", default_value_t = 64, value_parser = whole::<u32>(1..=65_536))]
    d: u32,
    /// State expansion n.
    #[arg(long, alias = "d-state", default_value_t = 64, value_parser = whole::<u32>(1..=65_536))]
    n: u32,
    /// Sequence length L, which sets the size of a key-value cache.
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(1..=u64::MAX))]
    seq_len: u32,
    /// List all columns, in lines of up to 290 characters.
    #[arg(long)]
    wide: bool,
}

pub(super) fn main(arguments: &MixersArguments, global: &Global) -> Result<u8> {
    let named: Vec<&Entry> = arguments.names.iter().map(|name| mixers::find(name)).collect::<Result<_>>()?;
    let listed = if named.is_empty() { MIXERS.iter().collect() } else { named.clone() };
    let rows: Vec<MixerRow> = listed.iter().map(|entry| MixerRow::of(entry, arguments)).collect::<Result<_>>()?;
    if global.json {
        let events: String = rows.iter().map(|row| format!("{}\n", row.event())).collect();
        print::result(&events)?;
        return Ok(exit::DONE);
    }
    if !named.is_empty() {
        let pages: Vec<String> = rows.iter().map(MixerRow::page).collect();
        print::result(&pages.join("\n"))?;
    } else {
        let shown = if arguments.wide { 0..7 } else { 0..4 };
        let header = MixerRow::HEADER[shown.clone()].iter().map(|s| s.to_string());
        let mut table = vec![header.collect::<Vec<_>>()];
        let mut family = None;
        for row in &rows {
            if family.replace(row.entry.family) != Some(row.entry.family) {
                table.push(vec![row.entry.family.name().to_owned()]);
            }
            let mut fields = row.fields();
            if !arguments.wide {
                fields[3] = row.of_first_variant().to_owned();
            }
            let mut fields = fields[shown.clone()].to_vec();
            fields[0].insert_str(0, "  ");
            table.push(fields);
        }
        print::result(&columns(&table, Align::Left))?;
    }
    let MixersArguments { d, n, seq_len, .. } = arguments;
    let more = match (named.is_empty(), arguments.wide) {
        (true, false) => "\n`dsf mixers NAME` says all of one; --wide adds variants, source and equation.",
        _ => "",
    };
    print::line(format!(
        "\nParameters and state per layer, at d = {d}, n = {n}, one head; state in numbers\n\
         kept per sequence while decoding L = {seq_len} tokens.{more}"
    ))?;
    Ok(exit::DONE)
}

/// A mixer, and the sizes of one layer in its first variant.
struct MixerRow {
    entry: &'static Entry,
    parameters: usize,
    state: usize,
}

impl MixerRow {
    const HEADER: [&str; 7] = ["mixer", "parameters", "state", "finite DSF", "variants", "source", "equation"];

    fn of(entry: &'static Entry, arguments: &MixersArguments) -> Result<Self> {
        let (d, n) = (arguments.d.to_string(), arguments.n.to_string());
        let sizes = [("d", d.as_str()), ("n", &n), ("layers", "1")];
        let model = [&[("preset", "paper"), ("mixer", entry.name)], &sizes[..]].concat();
        let model = recipes::run("mqar", &model)?.model;
        let params = Params::without_values(DType::F32);
        let mixer = entry.build(&model, &params)?;
        Ok(Self { entry, parameters: params.count(), state: mixer.state_size(arguments.seq_len as usize) })
    }

    fn fields(&self) -> [String; 7] {
        let entry = self.entry;
        [
            entry.name.to_owned(),
            self.parameters.to_string(),
            self.state.to_string(),
            entry.dsf.to_owned(),
            entry.variants.join(", "),
            entry.cite.to_owned(),
            entry.equation.to_owned(),
        ]
    }

    /// Matrices of the first variant, whose sizes the row shows.
    fn of_first_variant(&self) -> &str {
        let all = self.entry.dsf;
        all.split_once(" (variant ").map_or(all, |(first, _)| first)
    }

    /// Returns a page about the mixer for people.
    fn page(&self) -> String {
        let Self { entry, parameters, state } = self;
        let mut page = format!(
            "{}\n  equation    {}\n  source      {}\n  family      {}\n  finite DSF  {}\n  variants    {}: protocols \
             `reference` and `matched` train the first,\n              `paper` the one of that name where there is \
             one\n  parameters  {parameters}, state {state}\n",
            entry.name,
            entry.equation,
            entry.cite,
            entry.family.name(),
            entry.dsf,
            entry.variants.join(", "),
        );
        for option in entry.options {
            page += &format!("  --option {}=..  {}\n", option.name, option.help);
        }
        page
    }

    fn event(&self) -> Value {
        let entry = self.entry;
        let options: Vec<Value> =
            entry.options.iter().map(|option| json!({ "name": option.name, "help": option.help })).collect();
        json!({
            "event": "mixer", "schema": 1, "mixer": entry.name, "family": entry.family.name(),
            "parameters": self.parameters, "state": self.state, "dsf": entry.dsf,
            "variants": entry.variants, "source": entry.cite, "equation": entry.equation, "options": options,
        })
    }
}
