//! Peers: other programs that do the same work. The table of our PyTorch scripts, and the protocol for calling a peer.

use super::row::{Details, Measurement, MeasurementKind};
use super::timer::Clock;
use crate::config::RunConfig;
use crate::error::{ensure, refuse, Error, Result};
use candle_core::Tensor;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Devices on which a script is timed.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Cpu,
    Gpu,
    Both,
}

/// Kind, names of ops, mixers or tasks, devices, and script with its arguments. A mixer and an op may have the same
/// name. `--head all` computes logits at every position, like the released code; `--head labelled` only at the labelled
/// positions.
#[rustfmt::skip]
static SCRIPTS: &[(MeasurementKind, &[&str], On, &str)] = &[
    (MeasurementKind::Op, &["selective_scan"], On::Gpu, "scan.py --form mamba"),
    (MeasurementKind::Op, &["selective_scan"], On::Both, "scan.py --form compiled"),
    (MeasurementKind::Op, &["selective_scan"], On::Both, "scan.py --form replay"),
    (MeasurementKind::Op, &["selective_scan"], On::Cpu, "scan.py --form walk"),
    (MeasurementKind::Step, &["s6"], On::Cpu, "step.py --head all --micro 32 --form replay"),
    (MeasurementKind::Step, &["s6"], On::Cpu, "step.py --head all --micro 32 --form loop --warm 0 --steps 1"),
    (MeasurementKind::Step, &["s6"], On::Cpu, "step.py --head labelled --micro 32 --form compiled"),
    (MeasurementKind::Step, &["s6"], On::Gpu, "step.py --head all --form replay"),
    (MeasurementKind::Step, &["s6"], On::Gpu, "step.py --head all --form mamba"),
    (MeasurementKind::Step, &["s6"], On::Gpu, "step.py --head labelled --form compiled"),
    (MeasurementKind::Step, &["s6"], On::Gpu, "step.py --head labelled --form mamba"),
    (MeasurementKind::Step, OTHERS, On::Both, "step.py --head all"),
    (MeasurementKind::Step, OTHERS, On::Both, "step.py --head labelled"),
    (MeasurementKind::Step, &["lra-softmax"], On::Both, "classifier.py"),
    (MeasurementKind::Step, &["lra-mamba"], On::Both, "classifier.py --form compiled"),
    (MeasurementKind::Step, &["pythia"], On::Both, "pythia.py"),
];

const OTHERS: &[&str] = &["ssd", "linear", "normalized", "qlstm", "softmax"];

/// Returns the mixers that our scripts implement.
pub fn mixers_in_pytorch() -> Vec<&'static str> {
    let steps = SCRIPTS.iter().filter(|row| row.3.starts_with("step.py"));
    let mut names: Vec<&str> = Vec::new();
    for name in steps.flat_map(|row| row.1) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

/// Interpreter and folder of the scripts.
#[derive(Clone, Debug)]
pub struct Scripts {
    /// A Python with torch.
    pub python: PathBuf,
    /// The folder of the scripts.
    pub folder: PathBuf,
}

impl Scripts {
    /// Returns the peers of an op, or of steps of a mixer or task.
    pub(super) fn of(&self, kind: MeasurementKind, name: &str, cpu: bool) -> Vec<Peer> {
        let other = if cpu { On::Gpu } else { On::Cpu };
        let fitting = SCRIPTS.iter().filter(|(of, names, on, _)| *of == kind && names.contains(&name) && *on != other);
        fitting.map(|(.., line)| self.peer(line)).collect()
    }

    pub(super) fn peer(&self, line: &str) -> Peer {
        let mut words = line.split(' ');
        let script = self.folder.join(words.next().unwrap_or_default());
        let [python, script] = [&self.python, &script].map(|path| path.display().to_string());
        // -B keeps Python from leaving compiled files beside the scripts.
        let program = [python, "-B".to_owned(), script];
        Peer {
            name: line.to_owned(),
            command: program.into_iter().chain(words.map(str::to_owned)).collect(),
            own_data: false,
        }
    }
}

/// Another program that does the same work.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Name in results.
    pub name: String,
    /// Program and arguments; further arguments are appended.
    pub command: Vec<String>,
    /// Whether it generates its own weights and data, so that losses cannot be compared.
    pub own_data: bool,
}

/// Answer of a peer that measured.
pub(super) struct Answer {
    /// Seconds per step or call.
    pub seconds: f64,
    /// Losses of its steps, or sums of an op; empty for a peer with its own data.
    pub losses: Vec<f64>,
    pub peak_memory_bytes: Option<u64>,
    /// Widest instruction set that it reports.
    pub instruction_set: String,
}

impl Answer {
    /// Records the memory and the instruction set in `row`.
    pub fn describe(&self, row: &mut Measurement) {
        row.peer_peak_memory_bytes = self.peak_memory_bytes;
        row.peer_instruction_set.clone_from(&self.instruction_set);
    }
}

/// Requirement of a peer that is not installed.
pub(super) struct MissingPeer(pub String);

impl Peer {
    /// Parses the command line of a peer, split at spaces.
    pub fn parse(line: &str, own_data: bool) -> Result<Self> {
        let command: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        ensure!(
            !command.is_empty(),
            flag "--peer", "empty: name a program and its arguments");
        Ok(Self { name: line.to_owned(), command, own_data })
    }

    /// Returns the peer with a further argument.
    pub(super) fn with(mut self, argument: &str) -> Self {
        self.name = format!("{} {argument}", self.name);
        self.command.push(argument.to_owned());
        self
    }

    /// Calls the peer on the exported `file`, or on its own data of the same sizes.
    pub(super) fn call(
        &self,
        row: &Measurement,
        details: &Details,
        file: &Path,
    ) -> Result<std::result::Result<Answer, MissingPeer>> {
        let mut command = self.command.clone();
        let mut give = |flag: &str, value: &Value| {
            let value = match value {
                Value::Null => return,
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            command.extend([flag.to_owned(), value]);
        };
        let detail = |name: &str| details.get(name).unwrap_or(&Value::Null);
        let sizes: &[(&str, &str)] = if self.own_data { &SIZES } else { &[] };
        give("--threads", &row.threads.into());
        for (flag, name) in COMMON.iter().chain(sizes) {
            give(flag, detail(name));
        }
        if !self.own_data {
            give("--load", &file.display().to_string().into());
            give("--dropout", detail("embed_dropout"));
        }
        if row.device != "cpu" {
            give("--device", &row.device.clone().into());
            if row.kind == MeasurementKind::Step {
                give("--warm", &4.into());
                give("--steps", &6.into());
            }
        }
        let report = call(&command)?;
        if let Value::String(why) = &report["absent"] {
            return Ok(Err(MissingPeer(why.clone())));
        }
        let losses = numbers(&report["losses"]);
        if losses.is_empty() && !self.own_data {
            refuse!(flag "--peer" = self.command.join(" "), "its report has no list `losses`");
        }
        let key = match row.clock {
            Clock::Cpu => "cpu_s_per_step",
            Clock::Wall => "s_per_step",
        };
        let seconds = report[key].as_f64();
        Ok(Ok(Answer {
            seconds: seconds.ok_or_else(|| Error::usage(format!("a report has no number `{key}`: {report}")))?,
            losses,
            instruction_set: report["instruction_set"].as_str().unwrap_or_default().to_owned(),
            peak_memory_bytes: report["peak_bytes"].as_f64().map(|bytes| bytes as u64),
        }))
    }
}

/// Flags of every peer, and the details that give their values.
const COMMON: [(&str, &str); 3] = [("--mixer", "mixer"), ("--lr", "lr"), ("--wd", "weight_decay")];

/// Flags of a peer that generates its own data.
#[rustfmt::skip]
const SIZES: [(&str, &str); 6] = [
    ("--d", "d"), ("--n", "n"), ("--L", "seq_len"), ("--kv", "kv_pairs"), ("--batch", "batch_size"),
    ("--vocab", "vocab_size"),
];

/// Returns our results in the order in which a peer reports its own: losses of steps, or sums of an op.
pub(super) fn losses(details: &Details) -> Vec<f64> {
    if let Some(losses) = details.get("losses") {
        return numbers(losses);
    }
    ["checksum", "gradient_checksum"].into_iter().filter_map(|key| details.get(key)?.as_f64()).collect()
}

/// Parses a list of numbers. JSON has no NaN, so `null` means NaN.
fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().map_or(&[][..], Vec::as_slice).iter().map(|x| x.as_f64().unwrap_or(f64::NAN)).collect()
}

/// Runs `command`; the last line of its stdout is its report.
pub(super) fn call(command: &[String]) -> Result<Value> {
    let (title, [program, arguments @ ..]) = (command.join(" "), command) else {
        refuse!(flag "--peer", "names no program");
    };
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(Error::io("start", program))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !output.status.success() {
        let said = text(&output.stderr);
        let error = said.lines().find_map(|line| line.strip_prefix("error: "));
        let status = output.status;
        return Err(Error::usage(match error.or(said.lines().last()) {
            Some(why) => format!("{title}: {why}"),
            None => format!("{title}: ended with {status}"),
        }));
    }
    let said = text(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|_| Error::usage(format!("{title}: its last line is no JSON object: {last}")))
}

/// Writes the inputs of a peer: `tensors` to `path`, replacing the file, and the run in the header if they belong to
/// one.
pub(super) fn save(
    path: &Path,
    tensors: impl IntoIterator<Item = (String, Tensor)>,
    run: Option<&RunConfig>,
) -> Result<()> {
    let file = File::create(path).map_err(Error::io("create", path))?;
    let tensors: BTreeMap<String, Tensor> = tensors.into_iter().collect();
    let header = run.map(|run| HashMap::from([("config".to_owned(), run.canonical())]));
    let broken = |e| Error::data(path, format!("cannot be written: {e}"));
    let bytes = safetensors::serialize(tensors, header).map_err(broken)?;
    (&file).write_all(&bytes).map_err(Error::io("write", path))
}
