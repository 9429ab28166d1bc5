//! What the tests of the loaders of all tasks share.

use std::path::PathBuf;

/// The folder `name` of real data; `None`, and a line that says so, where there is none.
pub(super) fn real(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("DSF_TEST_DATA");
    if dir.is_none() {
        eprintln!("skipped: DSF_TEST_DATA is not set");
    }
    dir.map(|dir| PathBuf::from(dir).join(name))
}
