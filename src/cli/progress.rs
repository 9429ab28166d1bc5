//! How far a download is: a bar in a terminal, lines elsewhere.

use crate::cli::print;
use crate::fetch::Progress;
use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Told to stderr.
pub(in crate::cli) enum ProgressDisplay {
    Nothing,
    Bar(Option<ProgressBar>),
    Lines(Option<Lines>),
}

impl ProgressDisplay {
    pub fn new(quiet: bool) -> Self {
        if quiet {
            Self::Nothing
        } else if io::stderr().is_terminal() {
            Self::Bar(None)
        } else {
            Self::Lines(None)
        }
    }
}

impl Progress for ProgressDisplay {
    fn say(&mut self, line: &str) {
        match self {
            Self::Nothing => {}
            Self::Bar(Some(bar)) => bar.suspend(|| print::talk(line)),
            Self::Bar(None) | Self::Lines(_) => print::talk(line),
        }
    }

    fn start(&mut self, what: &str, done: u64, total: Option<u64>) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => {
                print::talk(what);
                *bar = Some(begin(done, total));
            }
            Self::Lines(lines) => {
                print::talk(what);
                *lines = Some(Lines::new(done, total, Instant::now()));
            }
        }
    }

    fn reach(&mut self, done: u64) {
        match self {
            Self::Bar(Some(bar)) => bar.set_position(done),
            Self::Lines(Some(lines)) => {
                if let Some(line) = lines.reach(done, Instant::now()) {
                    print::talk(&line);
                }
            }
            _ => {}
        }
    }

    fn total(&mut self, total: u64) {
        match self {
            Self::Bar(Some(bar)) => bar.set_length(total),
            Self::Lines(Some(lines)) => lines.total = Some(total),
            _ => {}
        }
    }

    fn end(&mut self) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => {
                if let Some(bar) = bar.take() {
                    bar.abandon();
                }
            }
            Self::Lines(lines) => {
                if let Some(lines) = lines.take() {
                    print::talk(&lines.line());
                }
            }
        }
    }
}

fn begin(done: u64, total: Option<u64>) -> ProgressBar {
    let template = "{wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template).expect("a template of ours");
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::no_length(),
    };
    bar.with_style(style).with_position(done)
}

/// A line every tenth, or every half minute of a slow one.
pub(in crate::cli) struct Lines {
    total: Option<u64>,
    done: u64,
    said: u64,
    at: Instant,
}

impl Lines {
    const SLOW: Duration = Duration::from_secs(30);
    /// A fast download is over before ten lines could be read.
    const FAST: Duration = Duration::from_secs(1);

    fn new(done: u64, total: Option<u64>, at: Instant) -> Self {
        Self {
            total,
            done,
            said: done,
            at,
        }
    }

    /// The line to say now, if any.
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
        assert_eq!(
            lines.reach(u64::MAX / 2, start + Duration::from_secs(29)),
            None
        );
        let line = lines.reach(3_000_000, start + Duration::from_secs(30));
        assert_eq!(line.unwrap().trim(), "3.00 MB");
    }
}
