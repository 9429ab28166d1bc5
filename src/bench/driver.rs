//! Measurements in processes of their own, ours and a peer's by turns.

use super::clock::{spread, Spread};
use crate::error::{Error, Result};
use serde_json::Value;
use std::process::{Command, Stdio};

/// Losses of both sides must agree to this, relative.
pub const LOSS_TOLERANCE: f64 = 1e-5;

/// Another program that does the same work.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Program and arguments; the driver adds its own behind them.
    pub command: Vec<String>,
    /// It makes its own weights and data, so that no loss can be compared.
    pub own_data: bool,
}

/// Measurements of one case.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Our report of the last round.
    pub report: Value,
    /// Our median CPU seconds, round by round.
    pub ours: Vec<f64>,
    /// The peer's.
    pub beside: Option<Beside>,
}

/// What a peer came to.
#[derive(Clone, Debug)]
pub struct Beside {
    /// Its report of the last round.
    pub report: Value,
    /// Its median CPU seconds, round by round.
    pub cpu_seconds: Vec<f64>,
    /// Largest relative difference of a loss; absent where the peer has its own data.
    pub loss_difference: Option<f64>,
}

impl Measured {
    /// Our CPU seconds over the rounds.
    pub fn cpu_seconds(&self) -> Spread {
        spread(self.ours.iter().copied())
    }

    /// The peer's CPU seconds over the rounds.
    pub fn peer_cpu_seconds(&self) -> Option<Spread> {
        let beside = self.beside.as_ref()?;
        Some(spread(beside.cpu_seconds.iter().copied()))
    }

    /// The peer's CPU seconds over ours: of the medians, and the extremes of a round.
    pub fn ratio(&self) -> Option<Spread> {
        let theirs = &self.beside.as_ref()?.cpu_seconds;
        let rounds = theirs
            .iter()
            .zip(&self.ours)
            .map(|(peer, ours)| peer / ours);
        Some(Spread {
            median: self.peer_cpu_seconds()?.median / self.cpu_seconds().median,
            ..spread(rounds)
        })
    }
}

/// Runs `dsf bench` with `arguments`, `rounds` times, and by turns with it the peer. Before that the
/// peer repeats an exported step or op, with nothing dropped; `tell` hears of every start.
pub fn measure(
    arguments: &[String],
    peer: Option<&Peer>,
    threads: usize,
    rounds: usize,
    tell: &mut dyn FnMut(&str),
) -> Result<Measured> {
    if !matches!(arguments.first().map(String::as_str), Some("step" | "op")) {
        let given = arguments.join(" ");
        return Err(Error::usage(format!(
            "`{given}` is neither a step nor an op"
        )));
    }
    let folder = tempfile::tempdir().map_err(Error::io("create", "a temporary folder"))?;
    let pair = Pair {
        arguments,
        threads: threads.to_string(),
        file: folder.path().join("work.safetensors").display().to_string(),
    };
    let title = arguments.join(" ");
    let mut beside = None;
    if let Some(peer) = peer {
        tell(&format!(
            "same result?  {title}  and  {}",
            peer.command.join(" ")
        ));
        beside = Some(Beside {
            report: Value::Null,
            cpu_seconds: Vec::new(),
            loss_difference: pair.loss_difference(peer)?,
        });
    }
    let (mut report, mut ours) = (Value::Null, Vec::new());
    for round in 1..=rounds {
        tell(&format!("{round} of {rounds}  {title}"));
        report = pair.ours(&[])?;
        ours.push(number(&report, "cpu_seconds")?);
        if let (Some(peer), Some(beside)) = (peer, &mut beside) {
            tell(&format!("{round} of {rounds}  {}", peer.command.join(" ")));
            let dropout = &report["embed_dropout"];
            beside.report = pair.theirs(peer, &report, dropout)?;
            let seconds = number(&beside.report, "cpu_s_per_step")?;
            beside.cpu_seconds.push(seconds);
        }
    }
    Ok(Measured {
        report,
        ours,
        beside,
    })
}

/// Our side and a peer's.
struct Pair<'a> {
    arguments: &'a [String],
    threads: String,
    /// Where our side puts what the peer loads.
    file: String,
}

impl Pair<'_> {
    fn ours(&self, more: &[&str]) -> Result<Value> {
        let program = std::env::current_exe().map_err(Error::io("find", "this program"))?;
        let mut command = vec![program.display().to_string(), "bench".to_owned()];
        command.extend_from_slice(self.arguments);
        let common = ["--json", "--threads", &self.threads];
        command.extend(common.iter().chain(more).map(|&word| word.to_owned()));
        call(&command)
    }

    /// The peer on what was exported, or on data of its own in the sizes of `report`.
    fn theirs(&self, peer: &Peer, report: &Value, dropout: &Value) -> Result<Value> {
        let mut command = peer.command.clone();
        let mut give = |flag: &str, value: &Value| {
            if !value.is_null() {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                command.extend([flag.to_owned(), value]);
            }
        };
        give("--threads", &report["threads"]);
        for (flag, key) in [
            ("--mixer", "mixer"),
            ("--lr", "lr"),
            ("--wd", "weight_decay"),
        ] {
            give(flag, &report[key]);
        }
        if peer.own_data {
            for (flag, key) in [
                ("--d", "d"),
                ("--n", "n"),
                ("--L", "seq_len"),
                ("--kv", "kv_pairs"),
                ("--batch", "batch_size"),
                ("--vocab", "vocab_size"),
            ] {
                give(flag, &report[key]);
            }
        } else {
            give("--load", &self.file.clone().into());
            give("--dropout", dropout);
        }
        call(&command)
    }

    /// How far apart the losses are when neither side drops anything.
    fn loss_difference(&self, peer: &Peer) -> Result<Option<f64>> {
        if peer.own_data {
            return Ok(None);
        }
        let is_step = self.arguments.first().is_some_and(|word| word == "step");
        let still: &[&str] = if is_step { &["--dropout", "0"] } else { &[] };
        let ours = self.ours(&[&["--export", &self.file], still].concat())?;
        let none = if is_step { 0.into() } else { Value::Null };
        let theirs = self.theirs(peer, &ours, &none)?;
        difference(&losses(&ours), &theirs, &peer.command).map(Some)
    }
}

/// Largest relative difference between our losses and those in the report of a peer.
pub(super) fn difference(ours: &[f64], report: &Value, peer: &[String]) -> Result<f64> {
    let theirs = losses(report);
    let apart = |(a, b): (&f64, f64)| (a - b).abs() / a.abs().max(f64::MIN_POSITIVE);
    let pairs: Vec<f64> = ours.iter().zip(theirs).map(apart).collect();
    if pairs.is_empty() {
        let peer = peer.join(" ");
        return Err(Error::usage(format!(
            "{peer}: its report has no list `losses`"
        )));
    }
    // A NaN must not pass for agreement.
    let worst = |worst: f64, d: &f64| if *d <= worst { worst } else { *d };
    Ok(pairs.iter().fold(0.0, worst))
}

/// What both sides computed, in the same order: losses of a step, sums of an op.
fn losses(report: &Value) -> Vec<f64> {
    match &report["losses"] {
        // JSON has no word for a loss that is no number.
        Value::Array(losses) => losses
            .iter()
            .map(|l| l.as_f64().unwrap_or(f64::NAN))
            .collect(),
        _ => ["checksum", "gradient_checksum"]
            .iter()
            .filter_map(|key| report[key].as_f64())
            .collect(),
    }
}

/// Runs `command` to its end; the last line of its stdout is its report.
pub(super) fn call(command: &[String]) -> Result<Value> {
    let (title, [program, arguments @ ..]) = (command.join(" "), command) else {
        return Err(Error::usage("--peer names no program"));
    };
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
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
    serde_json::from_str(last)
        .map_err(|_| Error::usage(format!("{title}: its last line is no JSON object: {last}")))
}

pub(super) fn number(report: &Value, key: &str) -> Result<f64> {
    let number = report[key].as_f64();
    number.ok_or_else(|| Error::usage(format!("a report has no number `{key}`: {report}")))
}
