//! SHA-256 of what token files are made of.

use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// SHA-256 of `bytes` in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// SHA-256 of the file at `path`. `go_on` may give up between its parts.
pub(super) fn sha256_of(path: &Path, mut go_on: impl FnMut() -> Result<()>) -> Result<String> {
    let mut file = File::open(path).map_err(Error::io("read", path))?;
    let (mut hash, mut part) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        go_on()?;
        match file.read(&mut part).map_err(Error::io("read", path))? {
            0 => return Ok(hex::encode(hash.finalize())),
            n => hash.update(&part[..n]),
        }
    }
}
