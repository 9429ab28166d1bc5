//! Command line and environment of workers: `dsf worker`, with the flags of the sweep.
//!
//! A child has a process group of its own: Ctrl-C reaches only the parent, which then stops the children. A child ends
//! when its stdin closes, so that a killed parent leaves no orphans.

use super::attempt::Attempt;
use super::local::Options;
use crate::error::{Error, Result};
use crate::store::{Log, Store};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The program, its flags, and the results folder that its children share.
#[derive(Clone, Debug)]
pub struct Program {
    file: PathBuf,
    arguments: Vec<OsString>,
    /// Environment variables set for the children.
    variables: Vec<(&'static str, String)>,
    store: Store,
    /// Time limit of a run.
    limit: Option<Duration>,
    /// Additional time in which a stopped run may write its checkpoint.
    grace: Duration,
}

/// Default of [`Program::grace`].
const GRACE: Duration = Duration::from_secs(60);

impl Program {
    /// Returns this program's own executable with the options of a sweep. Fails if the system does not report the
    /// executable's path, or like [`Self::at`].
    pub fn new(out: &Path, options: &Options) -> Result<Self> {
        let file = std::env::current_exe()
            .map_err(|e| Error::usage(format!("cannot find this program's own file to start workers: {e}")))?;
        Self::at(file, out, options)
    }

    /// Returns the program `file`, which trains into the results folder `out`. Fails if there is no such folder.
    pub fn at(file: PathBuf, out: &Path, options: &Options) -> Result<Self> {
        let threads = (options.threads * options.runs_a_process()).to_string();
        let mut arguments = vec!["worker".into(), flag("out", out), flag("threads", threads.as_ref())];
        let training = &options.training;
        if training.no_cuda_graph {
            arguments.push("--no-cuda-graph".into());
        }
        if let Some(dir) = &training.data_dir {
            arguments.push(flag("data-dir", dir));
        }
        if let Some(span) = training.checkpoint_every {
            let minutes = (span.as_secs_f64() / 60.0).to_string();
            arguments.push(flag("checkpoint-every", minutes.as_ref()));
        }
        Ok(Self {
            file,
            arguments,
            variables: Vec::new(),
            store: Store::existing(out)?,
            limit: options.limits.max_minutes,
            grace: GRACE,
        })
    }

    /// Adds a variable to the environment of every child.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// Starts a child on `device` with the additional arguments `own`; its stderr goes to `stderr`.
    pub(super) fn start(&self, own: &[OsString], device: &str, stderr: impl Into<Stdio>) -> Result<Child> {
        let mut command = Command::new(&self.file);
        command
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .args(own)
            .arg(flag("device", device.as_ref()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0);
        command.spawn().map_err(Error::io("start", &self.file))
    }

    /// Waits until a child has ended.
    pub(super) fn wait(&self, child: &mut Child) -> Result<std::process::ExitStatus> {
        child.wait().map_err(Error::io("wait for", &self.file))
    }

    /// Opens the log of the run `id`.
    pub(super) fn log(&self, id: &str) -> Result<Log> {
        self.store.open_log(id)
    }

    /// Begins an attempt at a run.
    pub(super) fn attempt<'a>(&self, stop: &'a AtomicBool) -> Attempt<'a> {
        Attempt::new(stop, self.limit, self.grace)
    }
}

/// Joins a flag and its value into one argument, since a value may begin with a hyphen.
pub(super) fn flag(name: &str, value: &Path) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value);
    flag
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Program {
        /// A shell script in place of the program.
        pub(in crate::sweep) fn script(script: &str, store: &Store, limit: Option<Duration>) -> Self {
            Self {
                file: "/bin/sh".into(),
                arguments: ["-c".into(), script.into()].into(),
                variables: Vec::new(),
                store: store.clone(),
                limit,
                grace: Duration::from_secs(1),
            }
        }

        /// Replaces the program's file.
        pub(in crate::sweep) fn named(mut self, file: &str) -> Self {
            self.file = file.into();
            self
        }
    }

    #[test]
    fn a_value_that_begins_with_a_hyphen_is_no_flag_of_its_own() {
        assert_eq!(flag("out", Path::new("-x")), "--out=-x");
    }
}
