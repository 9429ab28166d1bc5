//! SHA-256 of what token files are made of.

use crate::error::Result;
use crate::files;
use sha2::{Digest, Sha256};
use std::path::Path;

/// SHA-256 of `bytes` in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// SHA-256 of the file at `path`. `go_on` may give up between its blocks.
pub(super) fn sha256_of(path: &Path, go_on: impl FnMut() -> Result<()>) -> Result<String> {
    files::digest::<Sha256>(path, go_on)
}
