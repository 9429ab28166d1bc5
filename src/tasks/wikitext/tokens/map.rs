//! A file as memory.

#![allow(unsafe_code)] // a map changes when its file does; token files are replaced, never written to

use crate::error::{Error, Result};
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;

/// The bytes of the file at `path`, read where they are looked at.
pub(super) fn map(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(Error::io("read", path))?;
    // SAFETY: this program makes such files under another name and renames them; whoever cuts one
    // while it is used stops the process, which has no state that this could corrupt.
    let map = unsafe { Mmap::map(&file) };
    map.map_err(Error::io("read", path))
}
