//! `dsf worker --host`: many runs at once, each in a thread with a device of its own. Every line on stdin is a
//! [`Request`]; stdout carries the events of the runs, and an [`Ended`] after the last event of each. An error ends
//! only its own run, unless it affects the process or the device.

use crate::cli::device::{use_other_threads, DeviceChoice};
use crate::cli::run::{KeptWeights, RunContext};
use crate::cli::{exit, in_thread, is_set, print, stop_flag, Global};
use crate::error::{Error, Result};
use crate::gpu;
use crate::store::Store;
use crate::sweep::{Ended, Request, TrainRequest, Training};
use candle_core::Device;
use serde_json::{json, Value};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, BufRead};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval at which the signal flag is polled.
const SIGNAL_SEEN_WITHIN: Duration = Duration::from_millis(50);

/// Training, replaced by a stub in tests.
trait Trains: Clone + Send + 'static {
    /// Device of a run, used by that run alone.
    type Device;

    fn open(&self) -> Result<Self::Device>;
    /// Trains a run and returns the exit code for its end.
    fn train(&self, device: &Self::Device, asked: &TrainRequest, stop: &AtomicBool) -> Result<u8>;
    /// Releases a device; returns the reason if the process can no longer compute.
    fn close(&self, device: Self::Device) -> Option<String>;
}

/// Trains into the results folder and on the device given by the flags.
struct FolderTraining {
    store: Store,
    device: DeviceChoice,
    training: Training,
    threads: usize,
}

impl Trains for Arc<FolderTraining> {
    type Device = (Device, String);

    fn open(&self) -> Result<Self::Device> {
        self.device.open()
    }

    fn train(&self, (device, name): &Self::Device, asked: &TrainRequest, stop: &AtomicBool) -> Result<u8> {
        let config = asked.config()?;
        self.device.serves(&self.training)?;
        let context = RunContext {
            store: self.store.clone(),
            device: device.clone(),
            device_name: name.clone(),
            training: &self.training,
            micro_batch: asked.micro_batch,
            threads: self.threads,
            stop,
            kept: KeptWeights::default(),
            alone: false,
        };
        super::train(&config, &context)
    }

    fn close(&self, (device, _): Self::Device) -> Option<String> {
        gpu::close(device).err().map(|e| e.to_string())
    }
}

pub(super) fn main(device: DeviceChoice, training: Training, global: &Global) -> Result<u8> {
    let stop = stop_flag()?;
    let threads = global.threads()?;
    // Environment variables must be set before other threads exist that could read them.
    use_other_threads(threads);
    device.name()?;
    let flags = Arc::new(FolderTraining { store: Store::open(&global.out)?, device, training, threads });
    keep_words_of_panics();
    let (sender, inbox) = mpsc::channel();
    let listen = sender.clone();
    thread::spawn(move || {
        let mut lines = io::stdin().lock().lines().map_while(io::Result::ok);
        let told = lines.try_for_each(|line| listen.send(HostEvent::Line(line)));
        told.and_then(|()| listen.send(HostEvent::StdinClosed))
    });
    MainThread::new(flags, sender).serve(&inbox, &stop, &mut super::emit)
}

/// Messages to the main thread.
enum HostEvent {
    Line(String),
    StdinClosed,
    RunEnded(String, RunEnd),
}

struct RunEnd {
    code: u8,
    /// Last message.
    words: String,
    /// Reason why later runs get no device in this process, if there is one.
    broken: Option<String>,
}

struct HostedRun {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

struct MainThread<T> {
    trains: T,
    /// Cloned for the threads of runs.
    sender: Sender<HostEvent>,
    runs: HashMap<String, HostedRun>,
    /// Exit code, set once no more runs are accepted.
    end: Option<u8>,
}

impl<T: Trains> MainThread<T> {
    fn new(trains: T, sender: Sender<HostEvent>) -> Self {
        Self { trains, sender, runs: HashMap::new(), end: None }
    }

    /// Serves requests until stdin closes or a signal arrives, and all runs have ended.
    fn serve(
        mut self,
        inbox: &Receiver<HostEvent>,
        signal: &AtomicBool,
        say: &mut dyn FnMut(&Value) -> Result<()>,
    ) -> Result<u8> {
        loop {
            match inbox.recv_timeout(SIGNAL_SEEN_WITHIN) {
                Ok(HostEvent::Line(line)) => self.answer(&line, say)?,
                Ok(HostEvent::StdinClosed) => self.close(exit::DONE),
                Ok(HostEvent::RunEnded(run, done)) => self.over(run, done, say)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if is_set(signal) {
                self.close(exit::STOPPED);
            }
            if let Some(code) = self.end.filter(|_| self.runs.is_empty()) {
                return Ok(code);
            }
        }
    }

    /// Accepts no more runs, and stops all runs.
    fn close(&mut self, code: u8) {
        self.end.get_or_insert(code);
        for run in self.runs.values() {
            run.stop.store(true, Ordering::Relaxed);
        }
    }

    fn answer(&mut self, line: &str, say: &mut dyn FnMut(&Value) -> Result<()>) -> Result<()> {
        match serde_json::from_str(line) {
            // The sender notices that the process has ended, and starts another.
            Ok(Request::Train(_)) if self.end.is_some() => {}
            Ok(Request::Train(asked)) if self.runs.contains_key(&asked.run) => {
                self.refuse(&format!("the run {} is at work already", asked.run));
            }
            Ok(Request::Train(asked)) => self.begin(asked, say)?,
            Ok(Request::Stop(run)) => {
                if let Some(run) = self.runs.get(&run) {
                    run.stop.store(true, Ordering::Relaxed);
                }
            }
            Err(e) => self.refuse(&format!("a line is no request ({e})")),
        }
        Ok(())
    }

    /// Ends the process: a sender of malformed requests could otherwise wait forever for an answer.
    fn refuse(&mut self, why: &str) {
        print::message(&format!("error: stdin: {why}"));
        self.close(exit::REFUSED);
    }

    fn begin(&mut self, asked: TrainRequest, say: &mut dyn FnMut(&Value) -> Result<()>) -> Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let name = asked.run.clone();
        let (trains, sender) = (self.trains.clone(), self.sender.clone());
        let raised = Arc::clone(&stop);
        let started = in_thread(move || {
            let done = train_one(&trains, &asked, &raised);
            // The receiver lives until all runs have ended.
            let _ = sender.send(HostEvent::RunEnded(asked.run.clone(), done));
        });
        match started {
            Ok(thread) => {
                self.runs.insert(name, HostedRun { stop, thread });
                Ok(())
            }
            Err(e) => {
                let words = format!("error: cannot start a thread for the run: {e}\n");
                say(&ended(name, exit::FAILED, words, false))
            }
        }
    }

    fn over(&mut self, name: String, done: RunEnd, say: &mut dyn FnMut(&Value) -> Result<()>) -> Result<()> {
        if let Some(run) = self.runs.remove(&name) {
            // Joining the thread releases its resources.
            let _ = run.thread.join();
        }
        let RunEnd { code, words, broken } = done;
        if let Some(why) = &broken {
            // Other runs end by themselves if they meet the same error.
            self.end.get_or_insert(exit::FAILED);
            print::message(&format!("error: the device failed under its runs: {why}"));
        }
        say(&ended(name, code, words, broken.is_some()))
    }
}

fn ended(run: String, code: u8, words: String, last: bool) -> Value {
    let mut event = json!(Ended { run, code, words, last });
    event["event"] = "ended".into();
    event["schema"] = 1.into();
    event
}

/// Opens a device, trains one run on it, and closes it.
fn train_one<T: Trains>(trains: &T, asked: &TrainRequest, stop: &AtomicBool) -> RunEnd {
    let (trained, broken) = match caught(|| trains.open()) {
        Ok(Ok(device)) => {
            let trained = caught(|| trains.train(&device, asked, stop));
            let broken = caught(|| trains.close(device)).unwrap_or_else(Some);
            (trained, broken)
        }
        // Another process may still get a device.
        Ok(Err(e)) => {
            let why = e.to_string();
            (Ok(Err(e)), Some(why))
        }
        Err(panic) => (Err(panic.clone()), Some(panic)),
    };
    let (code, words) = match trained {
        Ok(Ok(code)) => (code, String::new()),
        Ok(Err(e)) => (e.exit_code(), last_words(&e)),
        Err(panic) => (exit::FAILED, panic),
    };
    RunEnd { code, words, broken }
}

fn last_words(e: &Error) -> String {
    match e {
        Error::Stopped => format!("{e}\n"),
        e => format!("error: {e}\n"),
    }
}

thread_local! {
    /// Whether the message of a panic is kept instead of printed: all runs share stderr.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
    static KEPT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Installs a panic hook that hands the messages of panics inside [`caught`] to it.
fn keep_words_of_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| if KEEPS.get() { KEPT.set(format!("{info}\n")) } else { before(info) }));
}

/// Returns the result of `work`, or the message of a panic in it.
fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    let before = KEEPS.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    KEEPS.set(before);
    result.map_err(|payload| match KEPT.take() {
        // The panic was in another thread, whose hook has printed the place.
        words if words.is_empty() => format!("panicked at another thread:\n{}\n", text(&*payload)),
        words => words,
    })
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("of an unknown kind")
}

#[cfg(test)]
mod tests;
