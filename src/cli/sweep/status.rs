//! `dsf sweep status` and `dsf sweep watch`.

use super::arguments::Typed;
use super::messages::describe;
use crate::cli::print::{self, columns, Align};
use crate::cli::{exit, is_set, stop_flag, Global};
use crate::error::Result;
use crate::store::{Column, LastHeartbeat, Outcome, Store};
use crate::sweep::estimate::{counted, duration};
use crate::sweep::{Overview, RunState, RunWithState};
use serde_json::{json, Value};
use std::io::{self, IsTerminal};
use std::thread::sleep;
use std::time::Duration;

/// Interval between two updates.
const EVERY: Duration = Duration::from_secs(2);
/// Interval at which signals are polled.
const SEEN_WITHIN: Duration = Duration::from_millis(100);
/// Maximum number of rows in one state.
const MOST_ROWS: usize = 40;

pub(super) fn main(typed: &Typed, global: &Global) -> Result<u8> {
    let (store, overview) = look(typed, global)?;
    global.emit(&event(&overview), &text(&overview, &store, global))?;
    Ok(exit::DONE)
}

/// Prints the status until all runs have ended: in place on a terminal, otherwise whenever it changes.
pub(super) fn watch(typed: &Typed, global: &Global) -> Result<u8> {
    let stop = stop_flag()?;
    let in_place = io::stdout().is_terminal() && !global.json;
    let (mut drawn, mut said) = (0, String::new());
    loop {
        let (store, overview) = look(typed, global)?;
        let text = if global.json { event(&overview).to_string() } else { text(&overview, &store, global) };
        if in_place {
            let back = match drawn {
                0 => String::new(),
                lines => format!("\x1b[{lines}A\x1b[J"), // moves up and clears the lines below
            };
            print::line(format!("{back}{text}"))?;
            drawn = lines_on_screen(&text);
        } else if text != said {
            print::line(&text)?;
        }
        said = text;
        if overview.is_over() || !pause(|| is_set(&stop)) {
            return Ok(exit::DONE);
        }
    }
}

/// Waits for the next update; returns false if `stop` came first.
fn pause(stop: impl Fn() -> bool) -> bool {
    let times = EVERY.as_millis() / SEEN_WITHIN.as_millis();
    (0..times).all(|_| {
        sleep(SEEN_WITHIN);
        !stop()
    })
}

/// Number of terminal lines of `text`, with long lines wrapped.
fn lines_on_screen(text: &str) -> usize {
    let width = print::width().unwrap_or(80).max(1);
    text.lines().map(|line| line.chars().count().max(1).div_ceil(width)).sum()
}

fn look(typed: &Typed, global: &Global) -> Result<(Store, Overview)> {
    let store = Store::existing(&global.out)?;
    let asked = typed.asked_or_all(&store, global)?;
    if let Some(e) = asked.unidentified.filter(|_| !global.silent()) {
        print::message(&format!("note: runs on files that are not here count as to be done: {e}"));
    }
    let runs = asked.plan.runs;
    let overview = Overview::of(&runs, &store)?;
    Ok((store, overview))
}

fn is_diverged(state: &RunState) -> bool {
    matches!(state, RunState::Done(result) if result.outcome == Some(Outcome::Diverged))
}

/// Number of runs in each state.
struct StateCounts {
    done: usize,
    diverged: usize,
    running: usize,
    failed: usize,
    begun: usize,
    to_do: usize,
}

impl StateCounts {
    fn of(overview: &Overview) -> Self {
        let named = |name: &str| overview.count(|state| state.name() == name);
        let (done, running, failed) = (named("done"), named("running"), named("failed"));
        Self {
            diverged: overview.count(is_diverged),
            begun: named("begun"),
            to_do: overview.runs.len() - done - running - failed,
            done,
            running,
            failed,
        }
    }
}

fn event(overview: &Overview) -> Value {
    let counts = StateCounts::of(overview);
    let each: Vec<Value> = overview.runs.iter().map(one).collect();
    json!({ "event": "status", "schema": 1, "runs": overview.runs.len(), "done": counts.done,
            "diverged": counts.diverged, "running": counts.running, "failed": counts.failed, "to_do": counts.to_do,
            "begun": counts.begun, "over": overview.is_over(), "left_seconds": overview.left, "each": each })
}

fn one(seen: &RunWithState) -> Value {
    let RunWithState { run, state } = seen;
    let mut one = json!({ "run": run.id(), "status": state.name(), "task": run.task.name(), "mixer": run.model.mixer,
                          "d": run.model.d_model, "n": run.model.d_state, "lr": run.train.lr, "seed": run.seed,
                          "epochs": run.train.epochs });
    match state {
        RunState::ToDo => {}
        RunState::Begun(epochs) => one["epoch"] = json!(epochs),
        RunState::Running(heard) => {
            let beat = &heard.beat;
            one["epoch"] = json!(beat.epoch);
            one["step"] = json!(beat.step);
            one["steps"] = json!(beat.steps);
            one["loss"] = json!(beat.loss);
            one["host"] = json!(beat.host);
            one["pid"] = json!(beat.pid);
            one["since"] = json!(beat.since);
            one["heard_seconds_ago"] = json!(heard.age.as_secs());
        }
        RunState::Failed(failure) => {
            one["reason"] = json!(failure.cause.name());
            one["words"] = json!(failure.words);
        }
        RunState::Done(result) => {
            one["epoch"] = json!(result.metrics.count(Column::EPOCHS_RUN));
            one["outcome"] = json!(result.outcome.map(Outcome::name));
        }
    }
    one
}

fn text(overview: &Overview, store: &Store, global: &Global) -> String {
    let counts = StateCounts::of(overview);
    let mut lines = vec![headline(overview, &counts)];
    lines.extend(rows(overview, "running", |seen| match &seen.state {
        RunState::Running(heard) => Some(vec![progress(heard), place(heard)]),
        _ => None,
    }));
    lines.extend(rows(overview, "failed", |seen| match &seen.state {
        RunState::Failed(failure) => Some(vec![failure.to_string()]),
        _ => None,
    }));
    lines.extend(left(overview, &counts));
    if counts.failed > 0 {
        let log = store.run_folder("RUN").join("worker.log");
        lines.push(format!("logs     {}", log.display()));
        lines.push(format!("next     dsf sweep retry{}", global.out_flag()));
    }
    lines.join("\n")
}

fn headline(overview: &Overview, counts: &StateCounts) -> String {
    let aside = |count: usize, what: &str| match count {
        0 => String::new(),
        count => format!(" ({count} of them {what})"),
    };
    format!(
        "{}: {} done{}, {} running, {} failed, {} to do{}",
        counted(overview.runs.len(), "run"),
        counts.done,
        aside(counts.diverged, "diverged"),
        counts.running,
        counts.failed,
        counts.to_do,
        aside(counts.begun, "begun")
    )
}

/// Returns a row, beginning with `word`, for every run for which `cells` returns cells.
fn rows(overview: &Overview, word: &str, cells: impl Fn(&RunWithState) -> Option<Vec<String>>) -> Vec<String> {
    let row = |seen: &RunWithState| {
        let first = vec![word.to_owned(), seen.run.id(), describe(&seen.run)];
        Some([first, cells(seen)?].concat())
    };
    let rows: Vec<Vec<String>> = overview.runs.iter().filter_map(row).collect();
    let shown = &rows[..rows.len().min(MOST_ROWS)];
    let mut lines: Vec<String> = { columns(shown, Align::Left) }.lines().map(str::to_owned).collect();
    if rows.len() > MOST_ROWS {
        let more = rows.len() - MOST_ROWS;
        lines.push(format!("{word}  and {more} more; --json lists them all"));
    }
    lines
}

fn progress(heard: &LastHeartbeat) -> String {
    let beat = &heard.beat;
    if beat.epochs == 0 {
        return "not yet training".to_owned();
    }
    let loss = beat.loss.filter(|_| beat.step > 0).map_or(String::new(), |loss| format!(", loss {loss:.4}"));
    let (epoch, epochs) = (beat.epoch, beat.epochs);
    format!("epoch {epoch}/{epochs}, step {}/{}{loss}", beat.step, beat.steps)
}

fn place(heard: &LastHeartbeat) -> String {
    let beat = &heard.beat;
    let ago = heard.age.as_secs();
    format!("on {}, pid {}, heard {ago} s ago", beat.host, beat.pid)
}

fn left(overview: &Overview, counts: &StateCounts) -> Option<String> {
    if overview.is_over() {
        return None;
    }
    let workers = counts.running.max(1);
    let by = counted(workers, "worker");
    Some(match overview.left {
        Some(seconds) => {
            let span = duration(seconds / workers as f64);
            format!("left     at most about {span} for {by}, less where a run learns sooner")
        }
        None => "left     not known before a run has trained for a while".to_owned(),
    })
}
