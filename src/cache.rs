//! Folders of downloaded data, beside the cache of Hugging Face and moved by the same variables.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Default data root of the Long Range Arena, used without `--data-dir`.
///
/// # Errors
///
/// Fails if no home folder is known and no variable names another place.
pub fn lra() -> Result<PathBuf> {
    Ok(home()?.join("dsf").join("lra"))
}

/// Default data root of WikiText, used without `--data-dir`. Token files are always kept there.
///
/// # Errors
///
/// Fails as [`lra`] does.
pub fn wikitext() -> Result<PathBuf> {
    Ok(home()?.join("dsf").join("wikitext"))
}

/// Folder of the digests of files that tasks have read, see [`crate::tasks::Sources`].
///
/// # Errors
///
/// Fails as [`lra`] does.
pub fn digests() -> Result<PathBuf> {
    Ok(home()?.join("dsf").join("digests"))
}

/// Cache of the Hugging Face hub, which Python's libraries share.
///
/// # Errors
///
/// Fails as [`lra`] does.
pub fn hub() -> Result<PathBuf> {
    match variable("HF_HUB_CACHE") {
        Some(folder) => Ok(folder.into()),
        None => Ok(home()?.join("hub")),
    }
}

/// Home folder of Hugging Face, which also holds the user's token.
///
/// # Errors
///
/// Fails as [`lra`] does.
pub fn home() -> Result<PathBuf> {
    home_from(variable).ok_or_else(|| {
        Error::flag("--data-dir", "no home folder is known: say by this flag or by HF_HOME where data lies")
    })
}

/// Adds advice to `error` if it is about a file below [`home`] that may not be created or written.
pub fn with_remedy(error: Error) -> Error {
    let denied = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
    match error {
        Error::Io { action, path, source } if action != "read" && denied.contains(&source.kind()) => Error::Io {
            action,
            path,
            source: io::Error::new(
                source.kind(),
                format!(
                    "{source}; set HF_HOME to a folder that can be written to, where token files, tokenizers and \
                     downloads are kept"
                ),
            ),
        },
        other => other,
    }
}

fn home_from(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = variable("HF_HOME").map(PathBuf::from);
    let cache = || variable("XDG_CACHE_HOME").map(PathBuf::from);
    let usual = || std::env::home_dir().map(|home| home.join(".cache"));
    named.or_else(|| Some(cache().or_else(usual)?.join("huggingface")))
}

/// Value of an environment variable that is set and not empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;

    #[test]
    fn a_folder_that_must_not_be_written_to_is_refused_with_what_helps() {
        let of = |action, kind: ErrorKind| {
            let error = Error::io(action, "/home/a/tokens")(kind.into());
            let at = with_remedy(error).fails("io");
            at.is_at("/home/a/tokens", None);
            at
        };
        for (action, kind) in [
            ("create", ErrorKind::PermissionDenied),
            ("open", ErrorKind::ReadOnlyFilesystem),
            ("write", ErrorKind::PermissionDenied),
        ] {
            of(action, kind).names(&["HF_HOME"]);
        }
        for (action, kind) in [("read", ErrorKind::PermissionDenied), ("write", ErrorKind::StorageFull)] {
            let at = of(action, kind);
            assert!(!at.reason.contains("HF_HOME"), "{at:?}");
        }
    }

    fn home_with(set: &[(&str, &str)]) -> Option<PathBuf> {
        let value = |name: &str| Some(set.iter().find(|(n, _)| *n == name)?.1.into());
        home_from(value)
    }

    #[test]
    fn hf_home_comes_before_xdg_cache_home_and_that_before_the_home_folder() {
        let xdg = ("XDG_CACHE_HOME", "/x");
        let both = home_with(&[xdg, ("HF_HOME", "/h")]);
        assert_eq!(both, Some(PathBuf::from("/h")));
        assert_eq!(home_with(&[xdg]), Some(PathBuf::from("/x/huggingface")));
        let usual = std::env::home_dir().map(|home| home.join(".cache").join("huggingface"));
        assert_eq!(home_with(&[]), usual);
    }
}
