//! `dsf sweep`: a grid of runs, planned as a whole and worked off by child processes.

mod words;

use super::device::Choice;
use super::print::{self, Talk};
use super::{exit, progress, stop_flag, Global};
use crate::config::RunConfig;
use crate::error::{refuse, Result};
use crate::recipes;
use crate::store::Store;
use crate::sweep::estimate::{self, duration};
use crate::sweep::{
    run_all, Event, Experiment, Flags, Message, Options, Plan, Process, Skip, Training,
};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use words::{conclusion, describe, finished};

#[derive(Args)]
#[command(mut_arg("data_dir", |arg| arg.help(
    "Where data that is not generated lies [default: where `dsf data fetch` puts it]"
)))]
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
    #[command(flatten)]
    training: Training,
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
    if !global.silent() {
        let notes = plan.notes.iter();
        notes.for_each(|note| print::talk(&format!("note: {note}")));
    }
    let (devices, jobs) = arguments.places()?;
    let options = Options {
        jobs,
        retry_failed: arguments.retry_failed,
        threads: (global.threads()? / jobs).max(1),
        devices,
        training: arguments.training.clone(),
    };
    if !options.training.allow_swap && !arguments.device.is_gpu() {
        estimate::check_room(&plan.runs)?;
    }
    if arguments.dry_run {
        super::device::use_threads(options.threads);
        let (device, _) = arguments.device.open()?;
        let text = estimate::dry_run(&plan, &global.out, &options, &device)?;
        print::result(&text)?;
        return Ok(exit::DONE);
    }
    let data_dir = options.training.data_dir.as_deref();
    plan.runs
        .iter()
        .try_for_each(|run| run.task.read()?.ready(data_dir))?;
    let store = Store::open(&global.out)?;
    let stop = stop_flag()?;
    let texts = plan.runs.iter().map(|run| &run.task);
    progress::prepare(texts, data_dir, global.silent(), &stop)?;
    let worker = Process::new(&global.out, &options)?;
    let mut board = Board::new(&plan, global);
    let tally = run_all(&plan, &store, &worker, &options, &stop, &mut |i, event| {
        board.tell(i, &event)
    });
    board.talk.finish();
    let tally = tally?;
    if tally.done_before > 0 {
        // A kill between a result and the summary may have lost its row.
        let tasks = plan.tasks();
        let mut tasks = tasks.into_iter();
        tasks.try_for_each(|task| store.refresh_summary(task))?;
    }
    if !global.silent() {
        print::line(conclusion(&tally, &plan, &store, global))?;
    }
    Ok(match tally.failed + tally.failed_before {
        0 if tally.busy == 0 => exit::DONE,
        0 => exit::BUSY,
        _ => exit::SOME_RUNS_FAILED,
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

/// Where nobody watches a bar, a sweep says at least this often what it is at.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// What a person, or a program reading `--json`, sees of a sweep.
struct Board<'a> {
    runs: &'a [RunConfig],
    json: bool,
    talk: Talk,
    over: usize,
    trained: usize,
    began: Instant,
    /// When a line was last said.
    said: Instant,
    active: BTreeMap<usize, String>,
}

impl<'a> Board<'a> {
    fn new(plan: &'a Plan, global: &Global) -> Self {
        let bar = || {
            let template = "{bar:20} {pos}/{len} runs  {msg}";
            print::bar(template, Some(plan.runs.len() as u64))
        };
        let talk = Talk::new(global.silent(), bar);
        talk.say(&estimate::headline(plan));
        Self {
            runs: &plan.runs,
            json: global.json,
            talk,
            over: 0,
            trained: 0,
            began: Instant::now(),
            said: Instant::now(),
            active: BTreeMap::new(),
        }
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
            Event::Told(Message::Progress {
                epoch,
                epochs,
                step,
                steps,
                loss,
            }) => {
                let now =
                    format!("{name}  epoch {epoch}/{epochs}, step {step}/{steps}  loss {loss:.4}");
                self.active.insert(index, now);
            }
            Event::Told(Message::Warning { text }) => self.talk.say(&format!("{name}: {text}")),
            Event::Told(Message::Other) => {}
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

    fn report(&mut self, index: usize, status: &str, text: Option<&str>) {
        self.said = Instant::now();
        let run = &self.runs[index];
        if self.json {
            let event = json!({ "event": "run", "schema": 1, "run": run.id(), "status": status,
                                "text": text, "over": self.over, "of": self.runs.len() });
            // The sweep goes on when its listener has left; the results are in the store.
            let _ = print::line(event);
        } else if let Some(text) = text {
            let total = self.runs.len();
            let width = total.to_string().len();
            let (over, id, name) = (self.over, run.id(), describe(run));
            self.talk
                .say(&format!("[{over:>width$}/{total}] {id}  {name}  {text}"));
        }
    }

    /// What is going on: on the bar, or where there is none as a line now and then.
    fn redraw(&mut self) {
        let active: Vec<&str> = self.active.values().map(String::as_str).collect();
        let left = match self.trained {
            0 => String::new(),
            trained => {
                let each = self.began.elapsed().as_secs_f64() / trained as f64;
                let left = each * (self.runs.len() - self.over) as f64;
                format!("  about {} left", duration(left))
            }
        };
        let now = format!("{}{left}", active.join(" | "));
        let Some(bar) = self.talk.bar() else {
            if self.said.elapsed() >= HEARTBEAT && !active.is_empty() {
                self.said = Instant::now();
                let (over, total) = (self.over, self.runs.len());
                self.talk.say(&format!("{over}/{total} runs over; {now}"));
            }
            return;
        };
        bar.set_position(self.over as u64);
        bar.set_message(now);
    }
}
