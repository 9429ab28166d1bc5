//! What a file must come to.

use super::host::Host;
use crate::error::{Error, Result};
use md5::{Digest, Md5};
use sha2::Sha256;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A published sum, in small hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// None is published.
    Unknown,
    /// MD5: enough against damage, not against malice.
    Md5(String),
    /// SHA-256.
    Sha256(String),
}

impl Checksum {
    /// Reads the file once and gives its SHA-256, or the sentence of two sums that differ.
    pub(super) fn verify(&self, path: &Path, host: &mut Host) -> Result<Result<String, String>> {
        let (sha256, md5) = sums(path, matches!(self, Self::Md5(_)), host)?;
        let (name, found, expected) = match self {
            Self::Unknown => return Ok(Ok(sha256)),
            Self::Md5(expected) => ("MD5", &md5, expected),
            Self::Sha256(expected) => ("SHA-256", &sha256, expected),
        };
        if found != expected {
            let sentence = format!("its {name} is {found}, not {expected} as published");
            return Ok(Err(sentence));
        }
        Ok(Ok(sha256))
    }
}

/// SHA-256 and, if wanted, MD5 of a file.
fn sums(path: &Path, with_md5: bool, host: &mut Host) -> Result<(String, String)> {
    let mut file = File::open(path).map_err(Error::io("read", path))?;
    let (mut sha256, mut md5) = (Sha256::new(), Md5::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        host.go_on()?;
        let n = file.read(&mut buffer).map_err(Error::io("read", path))?;
        if n == 0 {
            return Ok((hex(&sha256.finalize()), hex(&md5.finalize())));
        }
        sha256.update(&buffer[..n]);
        if with_md5 {
            md5.update(&buffer[..n]);
        }
    }
}

/// Small hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a string takes everything
        text
    })
}
