//! Errors by kind. The kind decides the exit code of the program; what is at fault (a flag, a file and the place in it)
//! and the reason are fields, so that programs and tests match on them and the sentence may be improved.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::fmt;
use std::path::{Path, PathBuf};

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns an [`Error::Refused`]. The reason is written as in [`format!`]; a flag at fault stands before it, with the
/// value that it has if it has one:
///
/// ```ignore
/// refuse!("there are no batches");
/// refuse!(flag "--prompt", "empty: a text needs at least one token to go on from");
/// refuse!(flag "--threads" = n, "must be 1 to 1024");
/// refuse!(path folder, "holds no runs");
/// ```
macro_rules! refuse {
    (path $path:expr, $($reason:tt)*) => {
        return Err($crate::error::Error::usage_at($path, format!($($reason)*)))
    };
    (flag $flag:literal = $value:expr, $($reason:tt)*) => {
        $crate::error::refuse!(flag ($flag) = $value, $($reason)*)
    };
    (flag ($flag:expr) = $value:expr, $($reason:tt)*) => {
        return Err($crate::error::Error::flag_value(&$flag, &$value, format!($($reason)*)))
    };
    (flag $flag:literal, $($reason:tt)*) => {
        $crate::error::refuse!(flag ($flag), $($reason)*)
    };
    (flag ($flag:expr), $($reason:tt)*) => {
        return Err($crate::error::Error::flag(&$flag, format!($($reason)*)))
    };
    ($($reason:tt)*) => {
        return Err($crate::error::Error::usage(format!($($reason)*)))
    };
}

/// [`refuse!`] unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($refusal:tt)*) => {
        match $holds {
            true => {}
            false => $crate::error::refuse!($($refusal)*),
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
    Refused(Box<Diagnostic>),
    /// Data that the request needs are not there. The reason says where they were looked for and how to get them.
    #[error("{0}")]
    Missing(Box<Diagnostic>),
    /// A file of data that is not understood.
    #[error("{0}")]
    Data(Box<Diagnostic>),
    /// A file that this program wrote and that was damaged or edited since.
    #[error("{0}")]
    Corrupt(Box<Diagnostic>),
    /// The operating system refused a file operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation as a verb: "read", "write", "create".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
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

/// The place of an error and its reason. As text: `PATH, line 3: --flag VALUE: reason`, of which what is unknown is
/// left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file or folder at fault.
    pub path: Option<PathBuf>,
    /// The place in that file, if it is one place.
    pub position: Option<Position>,
    /// The flag at fault with its dashes, or the environment variable.
    pub flag: Option<String>,
    /// The value of the flag, where the fault lies in it.
    pub value: Option<String>,
    /// The fault, what would be right, and the remedy.
    pub reason: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match (&self.path, &self.position) {
            (Some(path), Some(position)) => write!(f, "{}, {position}: ", path.display())?,
            (Some(path), None) => write!(f, "{}: ", path.display())?,
            (None, _) => {}
        }
        match (&self.flag, &self.value) {
            (Some(flag), Some(value)) if flag.starts_with('-') => write!(f, "{flag} {value}: ")?,
            // A variable of the environment.
            (Some(name), Some(value)) => write!(f, "{name}={value}: ")?,
            (Some(flag), None) => write!(f, "{flag}: ")?,
            (None, _) => {}
        }
        f.write_str(&self.reason)
    }
}

impl Diagnostic {
    fn new(reason: impl Into<String>) -> Box<Self> {
        Box::new(Self { reason: reason.into(), ..Self::default() })
    }

    fn at(path: impl AsRef<Path>, position: Option<Position>, reason: impl Into<String>) -> Box<Self> {
        Box::new(Self { path: Some(path.as_ref().to_owned()), position, reason: reason.into(), ..Self::default() })
    }
}

/// A place in a file of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Line of a text, from 1.
    Line(u64),
    /// Row of a table, from 0.
    Row(u64),
    /// Record of a binary file of fixed-size records, from 0.
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
    pub fn usage(reason: impl Into<String>) -> Self {
        Self::Refused(Diagnostic::new(reason))
    }

    /// A refusal of the file or folder `path`, or of what is asked of it.
    pub fn usage_at(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Refused(Diagnostic::at(path, None, reason))
    }

    /// A refusal for a flag: one that is missing, superfluous, or unusable whatever its value.
    pub fn flag(flag: impl fmt::Display, reason: impl Into<String>) -> Self {
        let mut diagnostic = Diagnostic::new(reason);
        diagnostic.flag = Some(flag.to_string());
        Self::Refused(diagnostic)
    }

    /// A refusal for the value of a flag.
    pub fn flag_value(flag: impl fmt::Display, value: impl fmt::Display, reason: impl Into<String>) -> Self {
        let mut diagnostic = Diagnostic::new(reason);
        diagnostic.flag = Some(flag.to_string());
        diagnostic.value = Some(value.to_string());
        Self::Refused(diagnostic)
    }

    /// A command line, or a line of an experiment file, that clap does not understand.
    pub fn misuse(e: &clap::Error) -> Self {
        let text = |kind| match e.get(kind) {
            Some(ContextValue::String(text)) => Some(text.as_str()),
            Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
            _ => None,
        };
        let whole = e.render().to_string();
        let said = whole.lines().map(str::trim);
        let said = said.take_while(|line| !line.starts_with("Usage") && !line.starts_with("For more"));
        let said = said.filter(|line| !line.is_empty());
        let sentence = said.collect::<Vec<_>>().join(" ");
        let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
        // `--d <N>` and `--claims[=<NAME>...]` are the flag with the name of its value.
        let word = text(ContextKind::InvalidArg).and_then(|arg| arg.split([' ', '[', '=']).next());
        let Some(flag) = word.filter(|word| word.starts_with('-')) else {
            return Self::usage(sentence);
        };
        let source = std::error::Error::source(e).map(ToString::to_string);
        let prior = text(ContextKind::PriorArg).filter(|_| e.kind() == ErrorKind::ArgumentConflict);
        let prior = prior.map(|prior| format!("cannot be used with {prior}"));
        let reason = source.or(prior).unwrap_or_else(|| sentence.to_owned());
        match (text(ContextKind::InvalidValue), e.get(ContextKind::ValidValue)) {
            (Some(value), Some(ContextValue::Strings(known))) if !known.is_empty() => {
                unknown_value(flag, "value", value, known.iter().map(String::as_str))
            }
            (Some(value), _) => Self::flag_value(flag, value, reason),
            (None, _) => Self::flag(flag, reason),
        }
    }

    /// Data that are not there, see [`Error::Missing`].
    pub fn missing(reason: impl Into<String>) -> Self {
        Self::Missing(Diagnostic::new(reason))
    }

    /// Data that are not in the file or folder `path`, see [`Error::Missing`].
    pub fn missing_at(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Missing(Diagnostic::at(path, None, reason))
    }

    /// A file of data that is not understood as a whole, see [`Error::Data`].
    pub fn data(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Data(Diagnostic::at(path, None, reason))
    }

    /// A file of data that is not understood at one place, see [`Error::Data`].
    pub fn data_at(path: impl AsRef<Path>, position: Position, reason: impl Into<String>) -> Self {
        Self::Data(Diagnostic::at(path, Some(position), reason))
    }

    /// A damaged or edited file of this program, see [`Error::Corrupt`].
    pub fn corrupt(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Corrupt(Diagnostic::at(path, None, reason))
    }

    /// The error as a refusal of the request: what is at fault and why remain.
    pub fn into_refusal(self) -> Self {
        match self {
            Self::Refused(_) => self,
            other => Self::Refused(Box::new(other.diagnostic())),
        }
    }

    /// The refusal of a request that stands at `position` of the file `path`.
    pub fn in_file(self, path: impl AsRef<Path>, position: Option<Position>) -> Self {
        let mut diagnostic = self.diagnostic();
        if diagnostic.path.is_some() {
            diagnostic = *Diagnostic::new(self.to_string());
        }
        diagnostic.path = Some(path.as_ref().to_owned());
        diagnostic.position = position;
        Self::Refused(Box::new(diagnostic))
    }

    /// The kind as one word, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Missing(_) => "missing",
            Self::Data(_) => "data",
            Self::Corrupt(_) => "corrupt",
            Self::Io { .. } => "io",
            Self::Tensor(_) => "computation",
            Self::Stopped => "stopped",
            Self::Busy(_) => "busy",
        }
    }

    /// The place and the reason, of any kind.
    pub fn diagnostic(&self) -> Diagnostic {
        match self {
            Self::Refused(own) | Self::Missing(own) | Self::Data(own) | Self::Corrupt(own) => (**own).clone(),
            Self::Io { action, path, source } => *Diagnostic::at(path, None, format!("cannot {action} it: {source}")),
            Self::Tensor(_) | Self::Stopped | Self::Busy(_) => *Diagnostic::new(self.to_string()),
        }
    }

    /// For `map_err` on file operations: `fs::read(p).map_err(Error::io("read", p))`.
    pub fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// The exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => exit::REFUSED,
            Self::Missing(_) => exit::NO_DATA,
            Self::Data(_) | Self::Corrupt(_) => exit::BAD_DATA,
            Self::Io { .. } | Self::Tensor(_) => exit::FAILED,
            Self::Stopped => exit::STOPPED,
            Self::Busy(_) => exit::BUSY,
        }
    }
}

/// The refusal of an unknown name: the nearest known one first, then all of them.
pub fn unknown<'a>(kind: &str, given: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    let remedy = known_names(given, known);
    Error::usage(format!("unknown {kind} `{given}`.{remedy}"))
}

/// [`unknown`], of a name that is the value of `flag`.
pub fn unknown_value<'a>(flag: &str, kind: &str, given: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    let remedy = known_names(given, known);
    Error::flag_value(flag, given, format!("unknown {kind}.{remedy}"))
}

/// The known name nearest to `given`, if one is near, and all of them.
fn known_names<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let hint = nearest(given, &known).map_or(String::new(), |k| format!(" Did you mean `{k}`?"));
    format!("{hint} Known: {}", known.join(", "))
}

/// The known name nearest to `given`, if one is near; upper and lower case are alike.
pub fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let given = given.to_lowercase();
    let distances = known.iter().map(|k| (strsim::damerau_levenshtein(&given, &k.to_lowercase()), *k));
    let (distance, k) = distances.min()?;
    (distance <= k.len().max(given.len()) / 2).then_some(k)
}

/// Assertions of tests about an error: its kind, the place of the fault, and names in the reason.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) trait Fails {
        /// Asserts an error of `kind`, as [`Error::kind`] names it, and gives its place and reason.
        fn fails(self, kind: &str) -> Diagnostic;
        /// Asserts a refusal for `flag`, and gives it.
        fn refuses(self, flag: &str) -> Diagnostic;
    }

    impl Fails for Error {
        #[track_caller]
        fn fails(self, kind: &str) -> Diagnostic {
            assert_eq!(self.kind(), kind, "{self:?}");
            self.diagnostic()
        }

        #[track_caller]
        fn refuses(self, flag: &str) -> Diagnostic {
            let at = self.fails("refused");
            assert_eq!(at.flag.as_deref(), Some(flag), "{at:?}");
            at
        }
    }

    impl<T> Fails for Result<T> {
        #[track_caller]
        fn fails(self, kind: &str) -> Diagnostic {
            self.err().expect("an error").fails(kind)
        }

        #[track_caller]
        fn refuses(self, flag: &str) -> Diagnostic {
            self.err().expect("a refusal").refuses(flag)
        }
    }

    impl Diagnostic {
        /// Asserts that the reason names each of `names`: flags, values, commands, files or numbers, never pieces of
        /// prose.
        #[track_caller]
        pub fn names(&self, names: &[&str]) -> &Self {
            for name in names {
                assert!(self.reason.contains(name), "{name}: {self:?}");
            }
            self
        }

        /// Asserts the value of the flag.
        #[track_caller]
        pub fn gives(&self, value: &str) -> &Self {
            assert_eq!(self.value.as_deref(), Some(value), "{self:?}");
            self
        }

        /// Asserts the place: a path that ends with `path`, and the position in that file.
        #[track_caller]
        pub fn is_at(&self, path: impl AsRef<Path>, position: impl Into<Option<Position>>) -> &Self {
            let there = self.path.as_ref().is_some_and(|found| found.ends_with(path));
            assert!(there, "{self:?}");
            assert_eq!(self.position, position.into(), "{self:?}");
            self
        }
    }
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
            (Error::missing("x"), 66),
            (io, 1),
            (candle_core::Error::Msg("x".to_owned()).into(), 1),
            (Error::Busy("x".to_owned()), 69),
            (Error::Stopped, 75),
        ] {
            assert_eq!(error.exit_code(), code, "{error:?}");
        }
    }
}
