//! What can go wrong, by kind: each error is one sentence that names the thing, the place and the remedy, and its kind
//! decides the exit code of the program.

use std::fmt;
use std::path::{Path, PathBuf};

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns an [`Error::Refused`] whose sentence is written as in [`format!`].
macro_rules! refuse {
    ($($sentence:tt)*) => {
        return Err($crate::error::Error::usage(format!($($sentence)*)))
    };
}

/// [`refuse!`] unless what it is given holds.
macro_rules! ensure {
    ($holds:expr, $($sentence:tt)*) => {
        match $holds {
            true => {}
            false => $crate::error::refuse!($($sentence)*),
        }
    };
}

pub(crate) use {ensure, refuse};

/// Exit codes of the program; `dsf --help` lists them.
pub mod exit {
    /// Everything that was asked for is done.
    pub const DONE: u8 = 0;
    /// The system, the network or a tensor operation failed.
    pub const FAILED: u8 = 1;
    /// The request cannot be carried out as it was typed.
    pub const REFUSED: u8 = 2;
    /// Some runs of a sweep failed; the others stand.
    pub const SOME_RUNS_FAILED: u8 = 3;
    /// A check did not hold.
    pub const CHECK_FAILED: u8 = 4;
    /// A file of data is not understood, or one of the program's own is damaged: `EX_DATAERR` of sysexits.h.
    pub const BAD_DATA: u8 = 65;
    /// Data are missing: `EX_NOINPUT` of sysexits.h.
    pub const NO_DATA: u8 = 66;
    /// Another process is working on the run: `EX_UNAVAILABLE` of sysexits.h.
    pub const BUSY: u8 = 69;
    /// Stopped by a signal after a checkpoint: `EX_TEMPFAIL` of sysexits.h.
    pub const STOPPED: u8 = 75;
}

/// Everything the library can refuse or fail at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request cannot be carried out: a wrong flag, name or size.
    #[error("{0}")]
    Refused(String),
    /// Data that the request needs are not there. The sentence says where they were looked for and what gets them.
    #[error("{0}")]
    Missing(String),
    /// A file of data that is not understood.
    #[error("{}{}: {reason}", path.display(), position.map(|at| format!(", {at}")).unwrap_or_default())]
    Data {
        /// The file or folder.
        path: PathBuf,
        /// Where in the file, if in one place.
        position: Option<Position>,
        /// What is wrong, what would be right, and the remedy.
        reason: String,
    },
    /// A file that this program wrote and that was damaged or edited since.
    #[error("{}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong and the remedy.
        reason: String,
    },
    /// The operating system refused a file operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: "read", "write", "create".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A tensor operation failed: a bug in this program or memory that ran out.
    #[error("tensor operation failed: {0}")]
    Tensor(#[from] candle_core::Error),
    /// A run was stopped by a signal after its checkpoint was written.
    #[error("stopped by a signal; the same command continues from there")]
    Stopped,
    /// Another process is working on this run.
    #[error("run {0} is being worked on by another process")]
    Busy(String),
}

/// A place in a file of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Of a text, from 1.
    Line(u64),
    /// Of a table, from 0.
    Row(u64),
    /// Of a binary file of fixed-size records, from 0.
    Record(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Row(number) => write!(f, "row {number}"),
            Self::Record(number) => write!(f, "record {number}"),
        }
    }
}

impl Error {
    /// A refusal of the request, see [`Error::Refused`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }

    /// A file of data that is not understood as a whole, see [`Error::Data`].
    pub fn data(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Data {
            path: path.as_ref().to_owned(),
            position: None,
            reason: reason.into(),
        }
    }

    /// A file of data that is not understood at one place, see [`Error::Data`].
    pub fn data_at(path: impl AsRef<Path>, position: Position, reason: impl Into<String>) -> Self {
        Self::Data {
            path: path.as_ref().to_owned(),
            position: Some(position),
            reason: reason.into(),
        }
    }

    /// A damaged or edited file of this program, see [`Error::Corrupt`].
    pub fn corrupt(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.as_ref().to_owned(),
            reason: reason.into(),
        }
    }

    /// For `map_err` on file operations: `fs::read(p).map_err(Error::io("read", p))`.
    pub fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    /// The exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => exit::REFUSED,
            Self::Missing(_) => exit::NO_DATA,
            Self::Data { .. } | Self::Corrupt { .. } => exit::BAD_DATA,
            Self::Io { .. } | Self::Tensor(_) => exit::FAILED,
            Self::Stopped => exit::STOPPED,
            Self::Busy(_) => exit::BUSY,
        }
    }
}

/// The sentence for an unknown name: the nearest known one first, then all of them.
pub fn unknown<'a>(kind: &str, given: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.into_iter().collect();
    let nearest = known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(given, k), *k))
        .min()
        .filter(|(distance, k)| *distance <= k.len().max(given.len()) / 2);
    let hint = nearest.map_or(String::new(), |(_, k)| format!(" Did you mean `{k}`?"));
    Error::usage(format!(
        "unknown {kind} `{given}`.{hint} Known: {}",
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_error_begins_with_the_file_and_the_place_in_it() {
        let whole = Error::data("a/b.tsv", "no column `text`").to_string();
        assert_eq!(whole, "a/b.tsv: no column `text`");
        for (position, said) in [
            (Position::Line(3), "a/b.tsv, line 3: it is bad"),
            (Position::Row(0), "a/b.tsv, row 0: it is bad"),
            (Position::Record(7), "a/b.tsv, record 7: it is bad"),
        ] {
            let error = Error::data_at("a/b.tsv", position, "it is bad");
            assert_eq!(error.to_string(), said);
        }
    }

    #[test]
    fn every_kind_has_the_exit_code_that_the_help_promises() {
        let io = Error::io("read", "x")(std::io::ErrorKind::NotFound.into());
        for (error, code) in [
            (Error::usage("x"), 2),
            (Error::data("x", "y"), 65),
            (Error::corrupt("x", "y"), 65),
            (Error::Missing("x".to_owned()), 66),
            (io, 1),
            (candle_core::Error::Msg("x".to_owned()).into(), 1),
            (Error::Busy("x".to_owned()), 69),
            (Error::Stopped, 75),
        ] {
            assert_eq!(error.exit_code(), code, "{error:?}");
        }
    }
}
