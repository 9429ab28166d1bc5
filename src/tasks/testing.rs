//! What the tests of the loaders of all tasks share.

use super::{Dataset, Splits, Task};
use std::path::PathBuf;

/// The folder `name` of real data; `None`, and a line that says so, where there is none.
pub(super) fn real(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("DSF_TEST_DATA");
    if dir.is_none() {
        eprintln!("skipped: DSF_TEST_DATA is not set");
    }
    dir.map(|dir| PathBuf::from(dir).join(name))
}

/// The training and the test split of a task of labels at positions.
pub(super) fn per_token(task: &dyn Task) -> (Dataset, Dataset) {
    match task.load(None).unwrap() {
        Splits::PerToken { train, test } => (train, test),
        _ => panic!("another objective"),
    }
}

/// What a task says to sizes from which no data can be made.
pub(super) fn refusal(task: &dyn Task) -> String {
    let message = task.check().unwrap_err().to_string();
    assert_eq!(task.load(None).unwrap_err().to_string(), message);
    message
}
