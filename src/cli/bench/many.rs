//! `dsf bench --device`, `all`, `lengths` and `compare`: lists of measurements.

use super::make_folder_of;
use super::text::{self, si};
use crate::bench::{
    cases, mixers_in_pytorch, read_csv, write_csv, Bench, BenchCase, Machine, Measurement, Peer, Scripts,
};
use crate::cli::device::{use_threads, DeviceChoice};
use crate::cli::print::{self, columns, Align};
use crate::cli::{exit, Global};
use crate::error::{refuse, Error, Result};
use crate::mixers;
use clap::Args;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of every list of measurements.
#[derive(Args)]
struct ListFlags {
    /// Rounds per case, each with one measurement of dsf and one of the peer [default: 3 for `all`, 5 for `compare`,
    /// else 1].
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Start no further measurement after this many minutes [default: 8 for `dsf bench --device`, else no limit].
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// Write the rows to a CSV file, after each measurement [default: results/bench-gpu.csv for `dsf bench --device`,
    /// else none].
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// Flags of lists that are known beforehand.
#[derive(Args)]
struct KnownLists {
    /// Measure only cases whose title contains TEXT, such as `check small`, `op ssd`, `step s6 512` or `--mixer s6`.
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    only: String,
    /// Python with torch; alternates with the PyTorch scripts of --peers on the same device.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Folder of the PyTorch scripts.
    #[arg(long, value_name = "DIR", default_value = "src/bench/peer")]
    peers: PathBuf,
}

impl KnownLists {
    fn scripts(&self) -> Option<Scripts> {
        Some(Scripts { python: self.python.clone()?, folder: self.peers.clone() })
    }

    fn of(&self, mut cases: Vec<BenchCase>, what: &str) -> Result<Vec<BenchCase>> {
        let only = &self.only;
        cases.retain(|case| case.title().contains(only));
        if cases.is_empty() {
            refuse!(flag "--only" = only, "no {what} contains it")
        } else {
            Ok(cases)
        }
    }
}

impl ListFlags {
    /// Returns the benchmark; `rounds` and `minutes` are the defaults of the flags.
    fn bench(&self, machine: Machine, rounds: usize, minutes: Option<f64>) -> Result<Bench> {
        let rounds = self.rounds.unwrap_or(rounds);
        if !(1..=1000).contains(&rounds) {
            refuse!(flag "--rounds" = rounds, "must be 1 to 1000");
        }
        let mut bench = Bench::new(machine);
        bench.rounds = rounds;
        if let Some(minutes) = self.minutes.or(minutes) {
            bench.time = Duration::try_from_secs_f64(60.0 * minutes)
                .map_err(|_| Error::flag_value("--minutes", minutes, "must be 0 or more"))?;
        }
        Ok(bench)
    }

    /// Measures `cases`, prints `table` of all rows, and reports failures and omissions. `before` holds rows of earlier
    /// calls; a new row replaces the one with its title.
    fn run(
        &self,
        bench: &Bench,
        cases: &[BenchCase],
        before: Vec<Measurement>,
        global: &Global,
        table: impl FnOnce(&[Measurement]) -> String,
    ) -> Result<u8> {
        make_folder_of(self.csv.as_deref())?;
        let mut on_progress = |what: &str| {
            if !global.silent() {
                print::message(what);
            }
        };
        let (mut rows, mut measured) = (before, HashSet::new());
        let left_out = bench.run(cases, &mut on_progress, &mut |row| {
            if global.json {
                print::line(text::json(&row))?;
            }
            measured.insert(row.title());
            match rows.iter_mut().find(|old| old.title() == row.title()) {
                Some(old) => *old = row,
                None => rows.push(row),
            }
            match &self.csv {
                Some(path) => write_csv(path, &rows),
                None => Ok(()),
            }
        })?;
        if !global.json {
            print::result(&table(&rows))?;
        }
        if let Some(first) = left_out.first() {
            let (count, minutes) = (left_out.len(), bench.time.as_secs_f64() / 60.0);
            print::message(&format!(
                "{count} left out after {minutes} minutes, from `{first}` on: give more --minutes, or --only"
            ));
        }
        let failed = rows.iter().filter(|row| row.failed() && measured.contains(&row.title()));
        let failed: Vec<String> = failed.map(text::failure).collect();
        failed.iter().for_each(|line| print::message(line));
        Ok(if failed.is_empty() { exit::DONE } else { exit::CHECK_FAILED })
    }
}

#[derive(Args)]
pub(super) struct Device {
    /// Check and time everything on this GPU (cuda, cuda:1), or the cases of --only on the CPU (cpu).
    #[arg(long, value_name = "DEVICE", required = true)]
    device: Option<DeviceChoice>,
    /// Repeat measurements of this commit and machine that are in the CSV file.
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    selection: KnownLists,
    #[command(flatten)]
    run: ListFlags,
}

impl Device {
    pub fn given(&self) -> bool {
        self.device.is_some()
    }

    pub fn main(mut self, global: &Global) -> Result<u8> {
        let choice = match self.device {
            Some(DeviceChoice::Auto) | None => {
                refuse!(flag "--device" = "auto", "leaves open what is measured: name cuda, cuda:1 or cpu");
            }
            Some(DeviceChoice::Cpu) if self.selection.only.is_empty() => {
                refuse!(flag "--device" = "cpu", "would take hours at sizes meant for a GPU: add --only TEXT");
            }
            Some(choice) => choice,
        };
        let threads = global.threads()?;
        use_threads(threads)?;
        let (device, name) = choice.open()?;
        let machine = Machine { device, name, threads };
        let scripts = self.selection.scripts();
        let mut cases = self.selection.of(cases::device(&machine, scripts.as_ref()), "measurement")?;
        let mut bench = self.run.bench(machine, 1, Some(8.0))?;
        bench.keep_going = true;
        let csv = self.run.csv.get_or_insert_with(|| "results/bench-gpu.csv".into());
        let before = read_csv(csv)?;
        if !self.again {
            let held = bench.held(&before);
            let all = cases.len();
            cases.retain(|case| !held.contains(&case.title()));
            let skipped = all - cases.len();
            if skipped > 0 && !global.silent() {
                let held = format!("{skipped} of {all} are in {} since this commit", csv.display());
                print::message(&format!("{held}: --again measures them, too"));
            }
        }
        self.run.run(&bench, &cases, before, global, text::table)
    }
}

#[derive(Args)]
pub(super) struct All {
    #[command(flatten)]
    selection: KnownLists,
    #[command(flatten)]
    run: ListFlags,
}

impl All {
    pub fn main(&self, global: &Global) -> Result<u8> {
        let cases = cases::cpu(self.selection.scripts().as_ref());
        let cases = self.selection.of(cases, "case")?;
        let mut bench = self.run.bench(Machine::cpu(global.threads()?), 3, None)?;
        bench.keep_going = true;
        self.run.run(&bench, &cases, Vec::new(), global, text::table)
    }
}

#[derive(Args)]
pub(super) struct LengthsFlags {
    /// Mixers to time.
    #[arg(long, value_delimiter = ',', value_name = "NAME", default_value = mixers_in_pytorch().join(","))]
    mixer: Vec<String>,
    /// Sequence lengths L.
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "64,256,1024,4096,16384")]
    seq_len: Vec<usize>,
    /// Tokens per step at every length: L times the batch size.
    #[arg(long, value_name = "N", default_value_t = 32_768)]
    tokens: usize,
    /// Number of timed steps, after two warm-up steps.
    #[arg(long, default_value_t = 3, value_name = "K")]
    steps: usize,
    #[command(flatten)]
    run: ListFlags,
}

impl LengthsFlags {
    pub fn main(&self, global: &Global) -> Result<u8> {
        for name in &self.mixer {
            mixers::find(name)?;
        }
        let (lengths, tokens) = (&self.seq_len, self.tokens);
        let fits = |&l: &usize| l >= 4 && l.is_multiple_of(4) && tokens.is_multiple_of(l);
        if lengths.is_empty() || !lengths.iter().all(fits) {
            refuse!(flag "--seq-len", "must list multiples of 4 that divide --tokens {tokens}");
        }
        let cases = cases::lengths(&self.mixer, lengths, tokens, self.steps);
        let bench = self.run.bench(Machine::cpu(global.threads()?), 1, None)?;
        self.run.run(&bench, &cases, Vec::new(), global, |rows| self.grid(rows))
    }

    /// Formats tokens per CPU second, one line per mixer, with the ratio of the fastest to the slowest length.
    fn grid(&self, rows: &[Measurement]) -> String {
        let lengths = self.seq_len.iter().map(|l| format!("L = {l}"));
        let head = std::iter::once("mixer".to_owned()).chain(lengths).chain(["fastest/slowest".to_owned()]);
        let mut cells: Vec<Vec<String>> = vec![head.collect()];
        for (name, rows) in self.mixer.iter().zip(rows.chunks(self.seq_len.len())) {
            let rates: Vec<f64> = rows.iter().filter_map(|r| r.tokens_per_second).collect();
            let fastest = rates.iter().copied().fold(0.0, f64::max);
            let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let rates = rates.iter().map(|&rate| si(rate));
            let ratio = format!("{:.2}", fastest / slowest);
            cells.push(std::iter::once(name.clone()).chain(rates).chain([ratio]).collect());
        }
        format!("tokens per CPU second of a training step\n\n{}", columns(&cells, Align::Right))
    }
}

#[derive(Args)]
#[command(after_help = "The command is called with the additional arguments --threads N --load FILE and, for a step, \
    --mixer M --lr X --wd X --dropout P. FILE is a file as written by --export. The last line of its output must be a JSON \
    object with `cpu_s_per_step` (seconds) and `losses` (one per step; for an op, the sums of the magnitudes of output and \
    gradients), and may contain `peak_bytes` and `instruction_set`.\n\n\
    Example:\n  dsf bench compare --peer \"python src/bench/peer/step.py --head labelled\" -- step --mixer s6")]
pub(super) struct CompareFlags {
    /// Command line of the other program, split at spaces.
    #[arg(long, value_name = "COMMAND")]
    peer: String,
    /// The other program makes its own weights and data, from --d --n --L --kv --batch --vocab; losses are not
    /// compared.
    #[arg(long)]
    own_data: bool,
    #[command(flatten)]
    run: ListFlags,
    /// Case to measure, as after `dsf bench`.
    #[arg(last = true, required = true, value_name = "step|op ..")]
    case: Vec<String>,
}

impl CompareFlags {
    pub fn main(&self, global: &Global) -> Result<u8> {
        let peer = Peer::parse(&self.peer, self.own_data)?;
        let cases = [cases::compared(&self.case, peer)?];
        let bench = self.run.bench(Machine::cpu(global.threads()?), 5, None)?;
        self.run.run(&bench, &cases, Vec::new(), global, text::table)
    }
}
