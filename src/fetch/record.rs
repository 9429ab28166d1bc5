//! What was fetched from where, kept beside the data for a reader who asks years later.

use super::catalogue::Entry;
use super::make_folder;
use crate::error::{Error, Result};
use serde_json::json;
use std::fs;
use std::path::Path;

/// Writes `<root>/fetched/<dataset>.json`.
pub(super) fn write(
    entry: &Entry,
    root: &Path,
    url: &str,
    commit: Option<&str>,
    sha256: Option<String>,
) -> Result<()> {
    let folder = root.join("fetched");
    make_folder(&folder)?;
    let path = folder.join(format!("{}.json", entry.dataset.name()));
    let record = json!({
        "dataset": entry.dataset.name(),
        "url": url,
        "commit": commit,
        "archive_sha256": sha256,
        "licence": entry.licence,
        "at": jiff::Timestamp::now().to_string(),
    });
    fs::write(&path, format!("{record:#}\n")).map_err(Error::io("write", &path))
}
