//! `dsf bench decode`: tokens a second and memory of decoding, over the length of the context.

use super::{make_folder_of, text};
use crate::bench::{mixers_in_pytorch, write_csv, Decoding, Machine, MeasurementReport};
use crate::cli::device::use_threads;
use crate::cli::results::ReportOutput;
use crate::cli::{exit, print, Global};
use crate::config::RunConfig;
use crate::error::{unknown_value, Result};
use crate::mixers;
use crate::recipes;
use crate::report::{Cell, Coverage, Facts, Grid, GridLine, PanelForm, Report, Style, Tick};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Names of groups of mixers.
const EVERY: &str = "all";
const RECURRENT: &str = "recurrent";

fn all_names() -> impl Iterator<Item = &'static str> {
    mixers::MIXERS.iter().map(|entry| entry.name)
}

#[derive(Args)]
pub(super) struct DecodeArguments {
    /// Mixers to time; `recurrent` stands for all whose state does not grow with the context, `all` for every one.
    #[arg(long, value_delimiter = ',', value_name = "NAME", default_value = mixers_in_pytorch().join(","))]
    mixer: Vec<String>,
    /// Lengths of the context in tokens.
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "256,1024,4096,16384,65536")]
    context: Vec<usize>,
    /// Sequences that are decoded together.
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,8")]
    batch: Vec<usize>,
    /// Model width d.
    #[arg(long, value_name = "D", default_value = "256")]
    d: String,
    /// Number of blocks.
    #[arg(long, value_name = "N", default_value = "4")]
    layers: String,
    /// Number of heads, in mixers that have several.
    #[arg(long, value_name = "S", default_value = "4")]
    heads: String,
    /// Also write the measurements to a CSV file, after each one, with the build and the processor.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    form: ReportOutput,
}

impl DecodeArguments {
    pub fn main(&self, global: &Global) -> Result<u8> {
        self.form.format(global)?;
        let mut all = Vec::new();
        for config in self.configs()? {
            for context in &self.context {
                all.push(Decoding::new(config.clone(), *context, &self.batch)?);
            }
        }
        make_folder_of(self.csv.as_deref())?;
        let threads = global.threads()?;
        use_threads(threads)?;
        let machine = Machine::cpu(threads);
        let (mut measured, mut rows) = (Vec::new(), Vec::new());
        for decoding in &all {
            decoding.reports(&machine, |batch, report| {
                let (mixer, context) = (&decoding.config.model.mixer, decoding.context);
                if global.json {
                    print::line(text::json(&report))?;
                } else if !global.silent() {
                    print::message(&format!("{mixer}, {batch} x {context}: {}", said(&report)));
                }
                rows.push(report.row.clone());
                measured.push(Measured { batch, context, mixer: mixer.clone(), report });
                self.csv.as_deref().map_or(Ok(()), |path| write_csv(path, &rows))
            })?;
        }
        if !global.json || self.form.has_file() {
            self.form.write(&self.report(&measured), global)?;
        }
        Ok(exit::DONE)
    }

    /// The models of all mixers, each once.
    fn configs(&self) -> Result<Vec<RunConfig>> {
        let mut all: Vec<RunConfig> = Vec::new();
        for name in &self.mixer {
            let names = match name.as_str() {
                EVERY | RECURRENT => all_names().collect(),
                name if mixers::find(name).is_ok() => vec![name],
                name => return Err(unknown_value("--mixer", "mixer", name, all_names().chain([EVERY, RECURRENT]))),
            };
            for mixer in names {
                let config = self.config(mixer)?;
                let is_wanted = name != RECURRENT || Decoding::is_recurrent(&config)?;
                if is_wanted && all.iter().all(|other| other.model.mixer != config.model.mixer) {
                    all.push(config);
                }
            }
        }
        Ok(all)
    }

    fn config(&self, mixer: &str) -> Result<RunConfig> {
        let mut settings = vec![("preset", "smoke"), ("mixer", mixer), ("d", &self.d), ("layers", &self.layers)];
        if mixers::find(mixer)?.heads {
            settings.push(("heads", &self.heads));
        }
        recipes::run("wikitext", &settings)
    }

    /// Two panels for each batch: tokens a second, and bytes of state.
    fn report(&self, measured: &[Measured]) -> Report {
        let mut grids = Vec::new();
        for batch in &self.batch {
            let sequences = if *batch == 1 { "one sequence".to_owned() } else { format!("{batch} sequences at once") };
            type Number = fn(&MeasurementReport) -> Option<f64>;
            let speed: Number = |report| report.row.tokens_per_second;
            let state: Number = |report| report.details.get("state_bytes")?.as_f64();
            for (name, metric, number) in
                [("tokens a second", "tokens_per_second", speed), ("bytes of state", "state_bytes", state)]
            {
                let (mut lines, mut records): (Vec<GridLine>, Vec<Facts>) = Default::default();
                for Measured { context, mixer, report, .. } in measured.iter().filter(|of| of.batch == *batch) {
                    let found = number(report);
                    let cell = Cell::value(found);
                    match lines.iter_mut().find(|line| line.name() == mixer) {
                        Some(line) => line.cells.push(cell),
                        None => lines.push(GridLine::new(mixer.as_str(), vec![cell])),
                    }
                    let facts = [
                        ("mixer", json!(mixer)),
                        ("batch", json!(batch)),
                        ("context", json!(context)),
                        ("metric", json!(metric)),
                        ("value", json!(found)),
                    ];
                    records.push(facts.map(|(name, value)| (name.to_owned(), value)).into());
                }
                let columns = self.context.iter().map(|context| Tick::whole(*context));
                grids.push(Grid {
                    form: PanelForm::Lines {
                        over: "tokens of context".to_owned(),
                        log: true,
                        steps: false,
                        named: false,
                    },
                    axes: ["mixer".to_owned(), "context".to_owned()],
                    place: [name.to_owned(), sequences.clone()],
                    records,
                    ..Grid::new(format!("{name}, {sequences}"), columns, lines, Style::Measured(name))
                });
            }
        }
        let machine = measured.last().map(|of| text::machine_of(&of.report.row));
        Report {
            heading: format!("Decoding after a context: d = {}, layers = {}, random weights", self.d, self.layers),
            facts: vec![("schema".to_owned(), json!(1))],
            list: "panels",
            grids,
            printed: Vec::new(),
            notes: [Some("tokens of all sequences per CPU second, medians of five rounds".to_owned()), machine]
                .into_iter()
                .flatten()
                .collect(),
            coverage: Coverage::default(),
        }
    }
}

/// Decoding of some sequences after a context.
struct Measured {
    batch: usize,
    context: usize,
    mixer: String,
    report: MeasurementReport,
}

/// A measurement in a few words.
fn said(report: &MeasurementReport) -> String {
    match (report.row.tokens_per_second, report.details.get("state_bytes")) {
        (Some(speed), Some(bytes)) => format!("{} tokens a second, {bytes} bytes of state", text::si(speed)),
        _ => report.row.note.clone(),
    }
}
