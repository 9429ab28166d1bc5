//! Results folders as they are opened.

use crate::error::testing::Fails;
use crate::store::Store;

#[test]
fn a_store_opens_where_nothing_was() {
    let dir = tempfile::tempdir().unwrap();
    Store::open(&dir.path().join("a/b")).unwrap();
    assert!(dir.path().join("a/b/runs").is_dir());
}

#[test]
fn a_store_refuses_a_file_as_its_folder_and_says_what_to_give() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let at = Store::open(file.path()).refuses("--out");
    at.gives(&file.path().display().to_string());
}

#[test]
fn a_store_below_a_file_cannot_be_made() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let below = file.path().join("results");
    let at = Store::open(&below).refuses("--out");
    at.gives(&below.display().to_string());
}

#[test]
fn reading_a_missing_folder_says_so_and_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("none");
    let at = Store::existing(&out).fails("refused");
    at.is_at(&out, None).names(&["--out", "`runs`"]);
    assert!(!out.exists());
}

#[test]
fn a_store_without_runs_has_no_rows() {
    let dir = tempfile::tempdir().unwrap();
    let scan = Store::existing(dir.path()).unwrap().rows(&["mqar"]).unwrap();
    assert!(scan.rows.is_empty() && scan.warnings.is_empty());
}
