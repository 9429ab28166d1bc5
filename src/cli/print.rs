//! Output to stdout and stderr that tolerates closed pipes, and its layout.

use crate::error::{Error, Result};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::io::{self, IsTerminal, Write};

/// Prints a result on stdout. A closed pipe (`| head`) is no error, nor is a closed terminal.
pub(super) fn result(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints a [`result`] that may be binary.
pub(super) fn bytes(bytes: &[u8]) -> Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) => result(text),
        Err(_) => raw(bytes),
    }
}

/// Prints a [`result`] byte for byte, with escape sequences.
pub(super) fn raw(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

fn written(written: io::Result<()>) -> Result<()> {
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe || is_hang_up(&e) => Ok(()),
        written => written.map_err(Error::io("write", "stdout")),
    }
}

/// Whether a write to stdout failed because its terminal is gone. For a file the same error is a disk error.
fn is_hang_up(error: &io::Error) -> bool {
    let device = || {
        let found = rustix::fs::fstat(rustix::stdio::stdout());
        found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_char_device())
    };
    error.raw_os_error() == Some(Errno::IO.raw_os_error()) && device()
}

/// Width of the terminal on stdout, if it is one; 80 if the terminal does not report its width.
pub(super) fn width() -> Option<usize> {
    let said = || terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
    io::stdout().is_terminal().then(said)
}

/// Prints a [`result`] and a newline.
pub(super) fn line(text: impl std::fmt::Display) -> Result<()> {
    result(&format!("{text}\n"))
}

/// Prints a message on stderr; errors are ignored.
pub(super) fn message(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints warnings on stderr.
pub(super) fn warnings(texts: &[String]) {
    texts.iter().for_each(|text| message(&format!("warning: {text}")));
}

/// Returns a bar on stderr, shown if that is a terminal. Without `total`, its length is set later.
pub(super) fn bar(template: &str, total: Option<u64>) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a template of ours");
    total.map_or_else(ProgressBar::no_length, ProgressBar::new).with_style(style)
}

/// Returns a [`bar`], hidden if `quiet`.
pub(super) fn bar_unless(quiet: bool, template: &str, total: Option<u64>) -> ProgressBar {
    if quiet {
        ProgressBar::hidden()
    } else {
        bar(template, total)
    }
}

/// Messages during an operation: lines above a bar in a terminal, plain lines elsewhere.
pub(super) enum Console {
    Bar(ProgressBar),
    Plain,
    Quiet,
}

impl Console {
    /// Shows `bar` in a terminal, unless `quiet`.
    pub fn new(quiet: bool, bar: impl FnOnce() -> ProgressBar) -> Self {
        match io::stderr().is_terminal() {
            _ if quiet => Self::Quiet,
            true => Self::Bar(bar()),
            false => Self::Plain,
        }
    }

    pub fn say(&self, text: &str) {
        match self {
            Self::Bar(bar) => bar.println(text),
            Self::Plain => message(text),
            Self::Quiet => {}
        }
    }

    pub fn bar(&self) -> Option<&ProgressBar> {
        match self {
            Self::Bar(bar) => Some(bar),
            Self::Plain | Self::Quiet => None,
        }
    }

    /// Clears the bar.
    pub fn finish(&self) {
        if let Some(bar) = self.bar() {
            bar.finish_and_clear();
        }
    }
}

/// Alignment of the cells of a column.
#[derive(Clone, Copy)]
pub(super) enum Align {
    Left,
    Right,
}

/// Lays out rows of cells in columns; the last column is not padded.
pub(super) fn columns(rows: &[Vec<String>], align: Align) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let padded = |(column, cell): (usize, &String)| match align {
        _ if column + 1 == count => cell.clone(),
        Align::Left => format!("{cell:0$}", widths[column]),
        Align::Right => format!("{cell:>0$}", widths[column]),
    };
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().enumerate().map(padded).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
