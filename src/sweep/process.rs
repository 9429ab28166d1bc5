//! Workers as child processes: `dsf worker` reads the config on stdin and writes events to stdout.

use super::attempt::{messages, ProcessExit, WorkerHandle};
use super::program::{flag, Program};
use super::worker::{Ending, Job, Worker, WorkerMessage};
use crate::error::Result;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// Starts one child process per run.
#[derive(Clone, Debug)]
pub struct Process(Program);

impl Process {
    /// Returns a worker that starts `program`.
    pub fn new(program: Program) -> Self {
        Self(program)
    }
}

impl Worker for Process {
    fn work(&self, job: &Job, stop: &AtomicBool, on: &mut dyn FnMut(WorkerMessage)) -> Result<Ending> {
        let mut log = self.0.log(&job.run.id())?;
        let smaller = job.micro_batch.map(|n| flag("micro-batch", n.to_string().as_ref()));
        let mut child = self.0.start(smaller.as_slice(), job.device, log.writer()?)?;
        let messages = child.stdout.take().map(read_messages);
        let mut stdin = child.stdin.take();
        if let Some(stdin) = &mut stdin {
            // Writing fails if the child has already died; its exit code then describes the failure.
            let _ = writeln!(stdin, "{}", job.run.canonical());
        }
        let mut attempt = self.0.attempt(stop);
        let mut hand = ChildHandle { child: &mut child, stdin };
        if let Some(messages) = messages {
            attempt.follow(&messages, on, &mut hand);
        }
        let end = ProcessExit::from(self.0.wait(&mut child)?);
        Ok(attempt.ending(end, &log.read()?))
    }
}

/// A child process that trains a single run.
struct ChildHandle<'a> {
    child: &'a mut Child,
    stdin: Option<ChildStdin>,
}

impl WorkerHandle for ChildHandle<'_> {
    fn stop(&mut self) {
        self.stdin = None;
    }

    fn kill(&mut self) {
        let _ = self.child.kill(); // fails only if it has just ended
    }
}

fn read_messages(stdout: impl Read + Send + 'static) -> Receiver<WorkerMessage> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
        let mut messages = lines.filter_map(|line| serde_json::from_slice(&line).ok()).flat_map(messages);
        // Ends when the receiver is dropped.
        let _ = messages.try_for_each(|message| sender.send(message));
    });
    receiver
}
