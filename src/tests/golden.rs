//! The golden files of the project, each as `dsf check golden` judges it.

use dsf::golden::{check, files, Verdict};
use std::path::Path;

#[test]
fn every_golden_file_passes() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    let files = files(&dir).unwrap();
    assert_eq!(files.len(), 34, "a fixture came or went");
    let mut failures = Vec::new();
    for file in files {
        match check(&file) {
            Verdict::Pass(worst) => println!("{} {worst:?}", file.display()),
            other => failures.push(format!("{}: {other:?}", file.display())),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
