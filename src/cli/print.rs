//! Writing to the two streams without a panic when the reader is gone.

use crate::error::{Error, Result};
use std::io::{self, Write};

/// A result, on stdout. A reader that has seen enough (`| head`) is no error.
pub(super) fn result(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Error::io("write", "stdout")(e)),
        _ => Ok(()),
    }
}

/// [`result`], with an end of line.
pub(super) fn line(text: &str) -> Result<()> {
    result(&format!("{text}\n"))
}

/// Talk, on stderr; nobody is obliged to listen.
pub(super) fn talk(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}
