//! What can go wrong, said in one sentence that names the thing, the place and the remedy.

use std::path::{Path, PathBuf};

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything the library can refuse or fail at. `cli` maps the variants to exit codes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request itself cannot be carried out: a wrong flag, size, name or file content.
    #[error("{0}")]
    Usage(String),
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
    /// A run was interrupted by a signal after its checkpoint was written.
    #[error("stopped by a signal; the same command continues from there")]
    Interrupted,
    /// Another process is working on this run.
    #[error("run {0} is being worked on by another process")]
    Busy(String),
}

impl Error {
    /// A refusal of the request, see [`Error::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
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
    Error::Usage(format!(
        "unknown {kind} `{given}`.{hint} Known: {}",
        known.join(", ")
    ))
}
