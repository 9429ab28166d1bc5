//! `dsf worker --host`: many runs at once, each in a thread with a device of its own. A line of stdin is a [`Request`]; events of runs
//! come on stdout, and behind those of each an [`Ended`]. What goes wrong with a run ends that run alone, unless it takes the process or
//! the device along.

use crate::cli::device::{use_threads, Choice};
use crate::cli::run::{Kept, RunContext};
use crate::cli::{exit, in_thread, print, raised, stop_flag, Global};
use crate::error::{Error, Result};
use crate::gpu;
use crate::store::Store;
use crate::sweep::{Asked, Ended, Request, Training};
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

/// How soon a signal is seen.
const SIGNAL_SEEN_WITHIN: Duration = Duration::from_millis(50);

/// What of the work the tests pretend.
trait Trains: Clone + Send + 'static {
    /// What a run computes with, and no other meanwhile.
    type Device;

    fn open(&self) -> Result<Self::Device>;
    /// The exit code of a run's end.
    fn train(&self, device: &Self::Device, asked: &Asked, stop: &AtomicBool) -> Result<u8>;
    /// Why nothing can be computed in this process any more, if that is so.
    fn close(&self, device: Self::Device) -> Option<String>;
}

/// Trains for the results folder and on the device of the flags.
struct Flags {
    store: Store,
    device: Choice,
    training: Training,
    threads: usize,
}

impl Trains for Arc<Flags> {
    type Device = (Device, String);

    fn open(&self) -> Result<Self::Device> {
        self.device.open()
    }

    fn train(&self, (device, name): &Self::Device, asked: &Asked, stop: &AtomicBool) -> Result<u8> {
        let config = asked.config()?;
        self.device.serves(&config, &self.training)?;
        let context = RunContext {
            store: self.store.clone(),
            device: device.clone(),
            device_name: name.clone(),
            training: &self.training,
            micro_batch: asked.micro_batch,
            threads: self.threads,
            stop,
            kept: Kept::default(),
            alone: false,
        };
        super::train(&config, &context)
    }

    fn close(&self, (device, _): Self::Device) -> Option<String> {
        gpu::close(device).err().map(|e| e.to_string())
    }
}

pub(super) fn main(device: Choice, training: Training, global: &Global) -> Result<u8> {
    let stop = stop_flag()?;
    let threads = global.threads()?;
    // Before there are other threads, which could read the environment while it changes.
    use_threads(threads);
    device.name()?;
    let flags = Arc::new(Flags {
        store: Store::open(&global.out)?,
        device,
        training,
        threads,
    });
    keep_words_of_panics();
    let (sender, inbox) = mpsc::channel();
    let listen = sender.clone();
    thread::spawn(move || {
        let mut lines = io::stdin().lock().lines().map_while(io::Result::ok);
        let told = lines.try_for_each(|line| listen.send(Heard::Line(line)));
        told.and_then(|()| listen.send(Heard::Silence))
    });
    Host::new(flags, sender).serve(&inbox, &stop, &mut super::emit)
}

/// What reaches the main thread.
enum Heard {
    /// A line of stdin.
    Line(String),
    /// Stdin has ended.
    Silence,
    /// A run has.
    Over(String, Done),
}

/// How a run ended.
struct Done {
    code: u8,
    /// What was said last.
    words: String,
    /// Why no run after it has a device in this process, if that is so.
    broken: Option<String>,
}

struct Run {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The main thread's knowledge.
struct Host<T> {
    trains: T,
    /// For the threads of runs.
    sender: Sender<Heard>,
    runs: HashMap<String, Run>,
    /// The exit code, once no more runs are taken.
    end: Option<u8>,
}

impl<T: Trains> Host<T> {
    fn new(trains: T, sender: Sender<Heard>) -> Self {
        Self {
            trains,
            sender,
            runs: HashMap::new(),
            end: None,
        }
    }

    /// Does what is asked until stdin ends or a signal comes, and all runs are over.
    fn serve(
        mut self,
        inbox: &Receiver<Heard>,
        signal: &AtomicBool,
        say: &mut dyn FnMut(&Value) -> Result<()>,
    ) -> Result<u8> {
        loop {
            match inbox.recv_timeout(SIGNAL_SEEN_WITHIN) {
                Ok(Heard::Line(line)) => self.answer(&line, say)?,
                Ok(Heard::Silence) => self.close(exit::DONE),
                Ok(Heard::Over(run, done)) => self.over(run, done, say)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if raised(signal) {
                self.close(exit::STOPPED);
            }
            if let Some(code) = self.end.filter(|_| self.runs.is_empty()) {
                return Ok(code);
            }
        }
    }

    /// Takes no more runs, and has all stop.
    fn close(&mut self, code: u8) {
        self.end.get_or_insert(code);
        for run in self.runs.values() {
            run.stop.store(true, Ordering::Relaxed);
        }
    }

    fn answer(&mut self, line: &str, say: &mut dyn FnMut(&Value) -> Result<()>) -> Result<()> {
        match serde_json::from_str(line) {
            // Whoever asks finds the process gone, and asks another.
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

    /// Who sends what is not understood may wait for an answer for ever: it gets the end of the process.
    fn refuse(&mut self, why: &str) {
        print::talk(&format!("error: stdin: {why}"));
        self.close(exit::REFUSED);
    }

    fn begin(&mut self, asked: Asked, say: &mut dyn FnMut(&Value) -> Result<()>) -> Result<()> {
        let stop = Arc::new(AtomicBool::new(false));
        let name = asked.run.clone();
        let (trains, sender) = (self.trains.clone(), self.sender.clone());
        let raised = Arc::clone(&stop);
        let started = in_thread(move || {
            let done = train_one(&trains, &asked, &raised);
            // The main thread listens until all are over.
            let _ = sender.send(Heard::Over(asked.run.clone(), done));
        });
        match started {
            Ok(thread) => {
                self.runs.insert(name, Run { stop, thread });
                Ok(())
            }
            Err(e) => {
                let words = format!("error: cannot start a thread for the run: {e}\n");
                say(&ended(name, exit::FAILED, words, false))
            }
        }
    }

    fn over(
        &mut self,
        name: String,
        done: Done,
        say: &mut dyn FnMut(&Value) -> Result<()>,
    ) -> Result<()> {
        if let Some(run) = self.runs.remove(&name) {
            // What it kept for its thread is given back by now.
            let _ = run.thread.join();
        }
        let Done {
            code,
            words,
            broken,
        } = done;
        if let Some(why) = &broken {
            // Of the others, those that meet the same error end by it.
            self.end.get_or_insert(exit::FAILED);
            print::talk(&format!("error: the device failed under its runs: {why}"));
        }
        say(&ended(name, code, words, broken.is_some()))
    }
}

fn ended(run: String, code: u8, words: String, last: bool) -> Value {
    let mut event = json!(Ended {
        run,
        code,
        words,
        last,
    });
    event["event"] = "ended".into();
    event["schema"] = 1.into();
    event
}

/// One run in a thread, from its device to its end.
fn train_one<T: Trains>(trains: &T, asked: &Asked, stop: &AtomicBool) -> Done {
    let (trained, broken) = match caught(|| trains.open()) {
        Ok(Ok(device)) => {
            let trained = caught(|| trains.train(&device, asked, stop));
            let broken = caught(|| trains.close(device)).unwrap_or_else(Some);
            (trained, broken)
        }
        // Another process may get what this one does not.
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
    Done {
        code,
        words,
        broken,
    }
}

fn last_words(e: &Error) -> String {
    match e {
        Error::Stopped => format!("{e}\n"),
        e => format!("error: {e}\n"),
    }
}

thread_local! {
    /// Whether the words of a panic are kept, and not printed: stderr is shared by all runs.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
    static KEPT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Has panics in [`caught`] leave their words to it.
fn keep_words_of_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| match KEEPS.get() {
        true => KEPT.set(format!("{info}\n")),
        false => before(info),
    }));
}

/// What `work` returns, or what a panic said in it.
fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    let before = KEEPS.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    KEEPS.set(before);
    result.map_err(|payload| match KEPT.take() {
        // One of another thread, which has printed the place.
        words if words.is_empty() => format!("panicked at another thread:\n{}\n", text(&*payload)),
        words => words,
    })
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("of an unknown kind")
}

#[cfg(test)]
mod tests;
