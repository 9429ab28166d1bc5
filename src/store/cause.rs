//! Causes of failed runs: one of a fixed list, with a message.

use crate::error::{self, Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::ErrorKind;

/// Cause of a run's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Out of memory: of the machine, the job or the GPU.
    Oom,
    /// A computation produced NaN. A NaN loss is no failure: such a run is done, with outcome `diverged`.
    Nan,
    /// The time limit was exceeded.
    Timeout,
    /// The process was killed by a signal.
    Signal,
    /// The program panicked.
    Panic,
    /// Required data are missing.
    MissingData,
    /// Any other cause. Records older than this list have it, too.
    Other,
}

/// Substrings of messages that identify a cause.
#[rustfmt::skip]
static PATTERNS: [(&str, Cause); 7] = [
    ("memory allocation of ", Cause::Oom),
    ("out of memory", Cause::Oom),
    ("OUT_OF_MEMORY", Cause::Oom),
    ("Cannot allocate memory", Cause::Oom),
    ("panicked at ", Cause::Panic),
    ("NaN", Cause::Nan),
    ("not a finite number", Cause::Nan),
];

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 7] =
        [Self::Oom, Self::Nan, Self::Timeout, Self::Signal, Self::Panic, Self::MissingData, Self::Other];
    /// The names of [`Self::ALL`], in its order.
    pub const NAMES: [&'static str; 7] = ["oom", "nan", "timeout", "signal", "panic", "missing-data", "other"];

    /// Name in flags and records.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Finds the cause called `name`.
    pub fn find(name: &str) -> Result<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|cause| cause.name() == name)
            .ok_or_else(|| error::unknown_value("--reason", "reason", name, Self::NAMES))
    }

    /// Infers the cause from the last lines that a program printed, or from a message that a record kept without its
    /// cause.
    pub fn infer(words: &str) -> Self {
        let told = PATTERNS.iter().find(|(part, _)| words.contains(part));
        told.map_or(Self::Other, |(_, cause)| *cause)
    }
}

/// Failure of a run without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Cause, from the fixed list.
    pub cause: Cause,
    /// Message, one sentence.
    pub words: String,
}

impl Failure {
    /// Returns a failure with the given cause.
    pub fn new(cause: Cause, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { cause, words }
    }

    /// Returns the failure of a run that ended with `error`.
    pub fn of(error: &Error) -> Self {
        match error {
            // Candle and its drivers tell the causes of their errors in the message only.
            Error::Tensor(e) => Self::new(Cause::infer(&e.to_string()), e.to_string()),
            Error::Missing(_) => Self::new(Cause::MissingData, error.to_string()),
            Error::Io { source, .. } if source.kind() == ErrorKind::OutOfMemory => {
                Self::new(Cause::Oom, error.to_string())
            }
            _ => Self::new(Cause::Other, error.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Other => f.write_str(&self.words),
            cause => write!(f, "{}: {}", cause.name(), self.words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;

    #[test]
    fn a_cause_is_recorded_by_the_name_that_it_is_typed_by() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), serde_json::json!(cause.name()));
            assert_eq!(Cause::find(cause.name()).unwrap(), cause);
        }
        let unknown = Cause::find("ooom").refuses("--reason");
        unknown.gives("ooom").names(&["`oom`"]);
    }

    #[test]
    fn words_tell_a_cause_where_only_one_makes_them() {
        for (words, cause) in [
            ("memory allocation of 9 bytes failed", Cause::Oom),
            ("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")", Cause::Oom),
            ("thread 'main' panicked at a.rs:1: no way", Cause::Panic),
            ("the disk is full", Cause::Other),
        ] {
            assert_eq!(Cause::infer(words), cause, "{words}");
        }
    }
}
