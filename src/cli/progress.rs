//! Progress of downloads, and of the preparation of data files before a run: a bar in a terminal, lines elsewhere.

use super::{check_stop, print};
use crate::config::TaskConfig;
use crate::error::Result;
use crate::fetch::TransferProgress;
use crate::tasks::Watch;
use indicatif::{DecimalBytes, ProgressBar};
use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Progress on stderr, unless quiet.
pub(in crate::cli) struct ProgressDisplay {
    quiet: bool,
    /// Bar of the current download, in a terminal.
    bar: Option<ProgressBar>,
    /// Lines about the current download, without a terminal.
    lines: Option<Lines>,
}

impl ProgressDisplay {
    pub fn new(quiet: bool) -> Self {
        Self { quiet, bar: None, lines: None }
    }
}

impl TransferProgress for ProgressDisplay {
    fn say(&mut self, line: &str) {
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.suspend(|| print::message(line)),
            None => print::message(line),
        }
    }

    fn start(&mut self, what: &str, done: u64, total: Option<u64>) {
        if self.quiet {
            return;
        }
        print::message(what);
        if io::stderr().is_terminal() {
            let template = "{wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
            self.bar = Some(print::bar(template, total).with_position(done));
        } else {
            self.lines = Some(Lines::new(done, total, Instant::now()));
        }
    }

    fn reach(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
        let lines = self.lines.as_mut();
        if let Some(line) = lines.and_then(|lines| lines.reach(done, Instant::now())) {
            print::message(&line);
        }
    }

    fn total(&mut self, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
        if let Some(lines) = &mut self.lines {
            lines.total = Some(total);
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.abandon();
        }
        if let Some(lines) = self.lines.take() {
            print::message(&lines.line());
        }
    }
}

/// Prints a line for every tenth, and at least every half minute.
pub(in crate::cli) struct Lines {
    total: Option<u64>,
    done: u64,
    said: u64,
    at: Instant,
}

impl Lines {
    const SLOW: Duration = Duration::from_secs(30);
    /// Shortest time before a line about a tenth, so that fast downloads print none.
    const FAST: Duration = Duration::from_secs(1);

    fn new(done: u64, total: Option<u64>, at: Instant) -> Self {
        Self { total, done, said: done, at }
    }

    /// Returns the line to print now, if any.
    fn reach(&mut self, done: u64, now: Instant) -> Option<String> {
        self.done = done;
        let since = now.saturating_duration_since(self.at);
        let tenth = self.total.map_or(u64::MAX, |total| (total / 10).max(1));
        let due = done.abs_diff(self.said) >= tenth && since >= Self::FAST;
        if !due && since < Self::SLOW {
            return None;
        }
        (self.said, self.at) = (done, now);
        Some(self.line())
    }

    fn line(&self) -> String {
        let done = DecimalBytes(self.done);
        match self.total {
            Some(total) => {
                let percent = 100 * u128::from(self.done) / u128::from(total.max(1));
                format!("  {done} of {} ({percent} %)", DecimalBytes(total))
            }
            None => format!("  {done}"),
        }
    }
}

/// Creates the data files that `tasks` need and that are missing, each once.
pub(super) fn prepare<'a>(
    tasks: impl IntoIterator<Item = &'a TaskConfig>,
    data_dir: Option<&Path>,
    quiet: bool,
    stop: &AtomicBool,
) -> Result<()> {
    let mut made = HashSet::new();
    for config in tasks {
        let task = config.read()?;
        if let Some(name) = task.prepared().filter(|name| !made.contains(name)) {
            show(&name, quiet, stop, |watch| task.prepare(data_dir, watch))?;
            made.insert(name);
        }
    }
    Ok(())
}

/// Shows the progress of `make`, which creates the token files `name`.
pub(super) fn show(name: &str, quiet: bool, stop: &AtomicBool, make: impl FnOnce(Watch) -> Result<()>) -> Result<()> {
    let mut shown = ProgressDisplay::new(quiet);
    let mut split = None;
    let made = make(&mut |now| {
        if split != Some(now.split) {
            shown.end();
            split = Some(now.split);
            match now.split {
                "" => shown.say(&format!("another process makes the tokens of {name}")),
                split => shown.start(&format!("tokens of {name}, {split}"), 0, Some(now.total)),
            }
        }
        shown.reach(now.done);
        check_stop(stop)
    });
    shown.end();
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_every_tenth_and_every_half_minute() {
        let start = Instant::now();
        let mut lines = Lines::new(0, Some(1_000_000), start);
        let mut at = |done, seconds| lines.reach(done, start + Duration::from_secs(seconds));
        assert_eq!(at(90_000, 2), None);
        assert!(at(100_000, 3).unwrap().contains("(10 %)"));
        assert_eq!(at(500_000, 3), None, "too soon to be read");
        assert_eq!(at(150_000, 20), None);
        assert!(at(160_000, 34).unwrap().contains("(16 %)"));
    }

    #[test]
    fn without_a_length_only_time_counts() {
        let start = Instant::now();
        let mut lines = Lines::new(0, None, start);
        assert_eq!(lines.reach(u64::MAX / 2, start + Duration::from_secs(29)), None);
        let line = lines.reach(3_000_000, start + Duration::from_secs(30));
        assert_eq!(line.unwrap().trim(), "3.00 MB");
    }
}
