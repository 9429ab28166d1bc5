//! Output of a sweep in progress, for people or as JSON.

use super::messages::{describe, finished};
use super::remaining_work::RemainingWork;
use crate::cli::print::{self, Console};
use crate::cli::Global;
use crate::config::RunConfig;
use crate::store::Failure;
use crate::sweep::estimate::{self, duration};
use crate::sweep::{Plan, Skip, SweepEvent, WorkerMessage};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest interval between lines if there is no bar.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Event that workers send several times a second, too often to repeat it for many runs.
const PROGRESS: &str = "progress";

/// Output of a sweep in progress, for people or as JSON.
pub(super) struct Board<'a> {
    runs: &'a [RunConfig],
    json: bool,
    pub console: Console,
    over: usize,
    remaining: RemainingWork,
    began: Instant,
    last_line: Instant,
    active: BTreeMap<usize, String>,
}

impl<'a> Board<'a> {
    pub fn new(plan: &'a Plan, global: &Global) -> Self {
        let bar = || print::bar("{bar:20} {pos}/{len} runs  {msg}", Some(plan.runs.len() as u64));
        let console = Console::new(global.silent(), bar);
        console.say(&estimate::headline(plan));
        Self {
            runs: &plan.runs,
            json: global.json,
            console,
            over: 0,
            remaining: RemainingWork::new(&plan.runs),
            began: Instant::now(),
            last_line: Instant::now(),
            active: BTreeMap::new(),
        }
    }

    pub fn show(&mut self, index: usize, event: &SweepEvent) {
        let name = describe(&self.runs[index]);
        match event {
            SweepEvent::Launched => {
                self.active.insert(index, name);
            }
            SweepEvent::Message(WorkerMessage::Epoch { epoch, epochs, accuracy, loss, .. }) => {
                let entry = self.runs[index].task.entry();
                let language = entry.is_ok_and(|entry| entry.objective.is_language_model());
                let learnt = if language {
                    format!("train ppl {:.2}", loss.exp())
                } else {
                    format!("{:.1} %", 100.0 * accuracy)
                };
                self.remaining.set_done(index, *epoch as f64 / *epochs as f64);
                let now = format!("{name}  epoch {epoch}/{epochs}  {learnt}");
                self.active.insert(index, now);
            }
            SweepEvent::Message(WorkerMessage::Progress { epoch, epochs, step, steps, loss }) => {
                let in_epoch = *step as f64 / *steps as f64;
                let done = *epoch as f64 - 1.0 + in_epoch;
                self.remaining.set_done(index, done / *epochs as f64);
                let now = format!("{name}  epoch {epoch}/{epochs}, step {step}/{steps}  loss {loss:.4}");
                self.active.insert(index, now);
            }
            SweepEvent::Message(WorkerMessage::Line(event)) if self.json && event["event"] != PROGRESS => {
                // Write errors are ignored, as in `report`.
                let _ = print::line(event);
            }
            SweepEvent::Message(WorkerMessage::Warning { text }) => self.console.say(&format!("{name}: {text}")),
            SweepEvent::Message(WorkerMessage::Start | WorkerMessage::Other | WorkerMessage::Line(_)) => {}
            SweepEvent::Again(failure) => {
                self.report(index, "again", Some(&format!("again after {failure}")), Some(failure));
            }
            SweepEvent::Finished(row) => self.end(index, "finished", &finished(row), None),
            SweepEvent::Failed(failure) => {
                self.end(index, "failed", &format!("FAILED: {failure}"), Some(failure));
            }
            SweepEvent::Interrupted => self.end(index, "interrupted", "stopped after a checkpoint", None),
            SweepEvent::Skipped(Skip::Done) => self.skip(index, "done", None),
            SweepEvent::Skipped(Skip::Failed) => {
                self.skip(index, "failed-before", Some("failed before; --retry-failed tries again"));
            }
            SweepEvent::Skipped(Skip::Busy) => {
                self.skip(index, "busy", Some("another process is working on it"));
            }
        }
        self.redraw();
    }

    fn end(&mut self, index: usize, status: &str, text: &str, why: Option<&Failure>) {
        self.active.remove(&index);
        self.over += 1;
        self.remaining.finish(index);
        self.report(index, status, Some(text), why);
    }

    fn skip(&mut self, index: usize, status: &str, note: Option<&str>) {
        self.active.remove(&index);
        self.over += 1;
        self.remaining.skip(index);
        self.report(index, status, note, None);
    }

    fn report(&mut self, index: usize, status: &str, text: Option<&str>, why: Option<&Failure>) {
        self.last_line = Instant::now();
        let run = &self.runs[index];
        if self.json {
            let reason = why.map(|failure| failure.cause.name());
            let event = json!({ "event": "run", "schema": 1, "run": run.id(), "status": status, "text": text,
                                "reason": reason, "over": self.over, "of": self.runs.len() });
            // The sweep continues if the reader of its output has gone; the results are in the store.
            let _ = print::line(event);
        } else if let Some(text) = text {
            let total = self.runs.len();
            let width = total.to_string().len();
            let (over, id, name) = (self.over, run.id(), describe(run));
            self.console.say(&format!("[{over:>width$}/{total}] {id}  {name}  {text}"));
        }
    }

    /// Shows the current state: on the bar, or as a line at intervals.
    fn redraw(&mut self) {
        let active: Vec<&str> = self.active.values().map(String::as_str).collect();
        let left = self.remaining.left(self.began.elapsed().as_secs_f64()).filter(|_| !active.is_empty());
        let left = left.map(|left| format!("  about {} left", duration(left))).unwrap_or_default();
        let now = format!("{}{left}", active.join(" | "));
        let Some(bar) = self.console.bar() else {
            if self.last_line.elapsed() >= HEARTBEAT && !active.is_empty() {
                self.last_line = Instant::now();
                let (over, total) = (self.over, self.runs.len());
                self.console.say(&format!("{over}/{total} runs over; {now}"));
            }
            return;
        };
        bar.set_position(self.over as u64);
        bar.set_message(now);
    }
}
