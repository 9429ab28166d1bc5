//! `dsf sweep`: a grid of runs, planned as a whole and worked off by child processes.

mod conclusion;
mod words;

use super::device::Choice;
use super::{exit, minutes, print, stop_flag, tokens, Global};
use crate::config::RunConfig;
use crate::error::{refuse, Result};
use crate::recipes;
use crate::store::Store;
use crate::sweep::estimate::{self, duration};
use crate::sweep::{run_all, Event, Experiment, Flags, Message, Options, Plan, Process, Skip};
use clap::Args;
use conclusion::conclusion;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use words::{describe, finished};

#[derive(Args)]
pub(super) struct Arguments {
    /// An experiment file; flags given as well take precedence over it.
    experiment: Option<PathBuf>,
    /// The task.
    #[arg(long, default_value = "mqar", value_name = "NAME")]
    task: String,
    #[command(flatten)]
    flags: Flags,
    /// Where to train: auto, cpu, cuda or cuda:1; with --per-gpu, cuda is every GPU.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: Choice,
    /// Runs at a time; they share the threads [default: 1].
    #[arg(short, long, value_name = "N", conflicts_with = "per_gpu")]
    jobs: Option<usize>,
    /// Runs at a time on each GPU, a process each: small models leave most of a GPU idle.
    #[arg(long, value_name = "N")]
    per_gpu: Option<usize>,
    /// On a GPU, record a training step once as a CUDA graph and replay it: saves what launching
    /// costs, which at small d is most of a step.
    #[arg(long)]
    cuda_graph: bool,
    /// Where data that is not generated lies [default: where `dsf data fetch` puts it].
    #[arg(long, value_name = "DIR", env = "DSF_DATA", hide_env_values = true)]
    data_dir: Option<PathBuf>,
    /// Minutes between checkpoints, which a stopped run continues from [default: half a minute, or
    /// more where one takes long to write].
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    checkpoint_every: Option<Duration>,
    /// Try runs again that failed before.
    #[arg(long)]
    retry_failed: bool,
    /// Say what would be trained, what is done, and what it costs; train nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn main(mut arguments: Arguments, global: &Global) -> Result<u8> {
    arguments.flags.gpu = arguments.device.is_gpu();
    let task = recipes::task(&arguments.task)?;
    let plan = match &arguments.experiment {
        Some(file) => Experiment::read(file)?.plan(&arguments.flags)?,
        None => Plan::of(task, &arguments.flags)?,
    };
    let device = arguments.device;
    plan.runs.iter().try_for_each(|run| device.serves(run))?;
    if !(global.quiet || global.json) {
        plan.notes
            .iter()
            .for_each(|note| print::talk(&format!("note: {note}")));
    }
    let (devices, jobs) = arguments.places()?;
    let options = Options {
        jobs,
        retry_failed: arguments.retry_failed,
        threads: (global.threads()? / jobs).max(1),
        devices,
        cuda_graph: arguments.cuda_graph,
        data_dir: arguments.data_dir.clone(),
        checkpoint_every: arguments.checkpoint_every,
    };
    if arguments.dry_run {
        super::device::use_threads(options.threads);
        let (device, _) = arguments.device.open()?;
        let text = estimate::dry_run(&plan, &global.out, &options, &device)?;
        print::result(&text)?;
        return Ok(exit::DONE);
    }
    let data_dir = options.data_dir.as_deref();
    plan.runs
        .iter()
        .try_for_each(|run| run.task.read()?.ready(data_dir))?;
    let store = Store::open(&global.out)?;
    let stop = stop_flag()?;
    let texts = plan.runs.iter().map(|run| &run.task);
    tokens::prepare(texts, data_dir, global.quiet || global.json, &stop)?;
    let worker = Process::new(&global.out, &options)?;
    let mut board = Board::new(&plan, global);
    let tally = run_all(&plan, &store, &worker, &options, &stop, &mut |i, event| {
        board.tell(i, &event)
    });
    board.close();
    let tally = tally?;
    if !(global.json || global.quiet) {
        print::line(&conclusion(&tally, &plan, &store, global))?;
    }
    Ok(if tally.failed > 0 {
        exit::SOME_RUNS_FAILED
    } else {
        exit::DONE
    })
}

impl Arguments {
    /// Devices that the runs share, and how many runs they take at a time.
    fn places(&self) -> Result<(Vec<String>, usize)> {
        let within = |flag: &str, n: usize| match n {
            1..=1024 => Ok(n),
            _ => refuse!("{flag} must be 1 to 1024, not {n}"),
        };
        let Some(each) = self.per_gpu else {
            let jobs = within("--jobs", self.jobs.unwrap_or(1))?;
            return Ok((vec![self.device.name()?], jobs));
        };
        let each = within("--per-gpu", each)?;
        let gpus = self.device.gpus()?;
        let jobs = each * gpus.len();
        Ok((gpus, jobs))
    }
}

/// What a person, or a program reading `--json`, sees of a sweep.
struct Board<'a> {
    runs: &'a [RunConfig],
    json: bool,
    quiet: bool,
    bar: Option<ProgressBar>,
    over: usize,
    trained: usize,
    began: Instant,
    active: BTreeMap<usize, String>,
}

impl<'a> Board<'a> {
    fn new(plan: &'a Plan, global: &Global) -> Self {
        let live = !global.json && !global.quiet && io::stderr().is_terminal();
        let board = Self {
            runs: &plan.runs,
            json: global.json,
            quiet: global.quiet,
            bar: live.then(|| bar(plan.runs.len())),
            over: 0,
            trained: 0,
            began: Instant::now(),
            active: BTreeMap::new(),
        };
        if !(global.json || global.quiet) {
            board.line(&estimate::headline(plan));
        }
        board
    }

    fn tell(&mut self, index: usize, event: &Event) {
        let name = describe(&self.runs[index]);
        match event {
            Event::Launched => {
                self.active.insert(index, name);
            }
            Event::Told(Message::Epoch {
                epoch,
                epochs,
                accuracy,
                loss,
                ..
            }) => {
                let entry = self.runs[index].task.entry();
                let language = entry.is_ok_and(|entry| entry.objective.is_language_model());
                let learnt = if language {
                    format!("train ppl {:.2}", loss.exp())
                } else {
                    format!("{:.1} %", 100.0 * accuracy)
                };
                let now = format!("{name}  epoch {epoch}/{epochs}  {learnt}");
                self.active.insert(index, now);
            }
            Event::Told(Message::Warning { text }) => self.talk(&format!("{name}: {text}")),
            Event::Told(Message::Progress { .. } | Message::Other) => {}
            Event::Finished(row) => self.end(index, "finished", &finished(row)),
            Event::Failed(reason) => self.end(index, "failed", &format!("FAILED: {reason}")),
            Event::Interrupted => self.end(index, "interrupted", "stopped after a checkpoint"),
            Event::Skipped(Skip::Done) => self.skip(index, "done", None),
            Event::Skipped(Skip::Failed) => {
                let note = "failed before; --retry-failed tries again";
                self.skip(index, "failed-before", Some(note));
            }
            Event::Skipped(Skip::Busy) => {
                self.skip(index, "busy", Some("another process is working on it"));
            }
        }
        self.redraw();
    }

    fn end(&mut self, index: usize, status: &str, text: &str) {
        self.active.remove(&index);
        self.over += 1;
        self.trained += 1;
        self.report(index, status, Some(text));
    }

    fn skip(&mut self, index: usize, status: &str, note: Option<&str>) {
        self.active.remove(&index);
        self.over += 1;
        self.report(index, status, note);
    }

    fn report(&self, index: usize, status: &str, text: Option<&str>) {
        let run = &self.runs[index];
        if self.json {
            let event = json!({ "event": "run", "schema": 1, "run": run.id(), "status": status,
                                "text": text, "over": self.over, "of": self.runs.len() });
            // The sweep goes on when its listener has left; the results are in the store.
            let _ = print::line(&event.to_string());
        } else if let Some(text) = text {
            let total = self.runs.len();
            let width = total.to_string().len();
            let (over, id, name) = (self.over, run.id(), describe(run));
            self.talk(&format!("[{over:>width$}/{total}] {id}  {name}  {text}"));
        }
    }

    fn talk(&self, text: &str) {
        if !self.json && !self.quiet {
            self.line(text);
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => print::talk(text),
        }
    }

    fn redraw(&self) {
        let Some(bar) = &self.bar else { return };
        let active: Vec<&str> = self.active.values().map(String::as_str).collect();
        let left = match self.trained {
            0 => String::new(),
            trained => {
                let each = self.began.elapsed().as_secs_f64() / trained as f64;
                let left = each * (self.runs.len() - self.over) as f64;
                format!("  about {} left", duration(left))
            }
        };
        bar.set_position(self.over as u64);
        bar.set_message(format!("{}{left}", active.join(" | ")));
    }

    fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(runs: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} runs  {msg}");
    let bar = ProgressBar::new(runs as u64);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
