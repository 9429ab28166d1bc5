//! Download of the tasks' data to the folders where their loaders expect it.
//!
//! The data root of the Long Range Arena holds `text/plain_text/*.parquet`, `image/cifar-10-batches-bin/*.bin` and
//! `lra_release/lra_release/...`; the data root of WikiText holds a folder of Parquet files for each text and
//! `gpt-neox-20b-tokenizer/tokenizer.json`. In both, `archives/` holds locks, kept archives and unfinished downloads,
//! and `fetched/` a record of each fetch. Folders are unpacked elsewhere and renamed, so that a folder exists only once
//! it is complete.

mod archive;
mod catalogue;
mod context;
mod download;
mod hub;
mod part;
mod pretrained;
mod request;

#[cfg(test)]
mod tests;

pub use catalogue::{
    bytes_below, entry, CatalogueEntry, Completeness, DatasetOrigin, FetchedDataset, Repository, CATALOGUE,
};
pub use context::{FetchContext, TransferProgress};
pub use pretrained::{fetch_pretrained, PretrainedName};
pub use request::{ArchiveSource, FetchRequest, Hub};

use crate::error::{refuse, Error, Result};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Fetches the requested datasets that are missing and returns them. Fails with [`Error::Missing`] for missing data
/// under `offline`, [`Error::Refused`] for an incomplete folder, [`Error::Io`] for failures of the network, a server or
/// the disk, and [`Error::Stopped`] once the stop flag is set. After the last two, the same request resumes.
pub fn fetch(request: &FetchRequest, context: &mut FetchContext) -> Result<Vec<FetchedDataset>> {
    if !request.offline {
        refuse_bad_proxies(|name| std::env::var(name).ok())?;
    }
    let mut fetched = Vec::new();
    for lock in ["hub.lock", "cifar.lock", "lra.lock"] {
        let asked: Vec<&CatalogueEntry> =
            CATALOGUE.iter().filter(|e| lock_name(e.origin) == lock && request.datasets.contains(&e.dataset)).collect();
        if missing(&asked, request)?.is_empty() {
            continue;
        }
        let _lock = context.lock(&request.root.join(archive::FOLDER).join(lock))?;
        // Another process may have fetched them while this one waited for the lock.
        let entries = missing(&asked, request)?;
        match entries.first().map(|entry| entry.origin) {
            Some(DatasetOrigin::Cifar) => archive::fetch(&entries, &request.cifar, request, context)?,
            Some(DatasetOrigin::Lra) => archive::fetch(&entries, &request.lra, request, context)?,
            Some(DatasetOrigin::Hub(_)) | None => {
                for entry in &entries {
                    hub::fetch(entry, request, context)?;
                }
            }
        }
        fetched.extend(entries.iter().map(|e| e.dataset));
    }
    Ok(fetched)
}

/// Rejects malformed proxy variables, which the HTTP client would silently ignore and so bypass the intended proxy.
fn refuse_bad_proxies(variable: impl Fn(&str) -> Option<String>) -> Result<()> {
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"] {
        for name in [name.to_owned(), name.to_lowercase()] {
            let address = variable(&name).filter(|address| !address.is_empty());
            if let Some(address) = address.filter(|address| ureq::Proxy::new(address).is_err()) {
                refuse!(flag(name) = address, "not the address of a proxy such as http://HOST:PORT");
            }
        }
    }
    Ok(())
}

fn lock_name(origin: DatasetOrigin) -> &'static str {
    match origin {
        DatasetOrigin::Hub(_) => "hub.lock",
        DatasetOrigin::Cifar => "cifar.lock",
        DatasetOrigin::Lra => "lra.lock",
    }
}

/// Returns the entries that have to be fetched.
fn missing<'a>(entries: &[&'a CatalogueEntry], request: &FetchRequest) -> Result<Vec<&'a CatalogueEntry>> {
    let mut missing = Vec::new();
    for entry in entries {
        match entry.state(&request.root) {
            _ if request.force => missing.push(*entry),
            Completeness::Present => {}
            Completeness::Absent => missing.push(*entry),
            // Files of the hub are fetched one by one, and existing ones are kept.
            Completeness::Lacks(_) if matches!(entry.origin, DatasetOrigin::Hub(_)) => missing.push(*entry),
            Completeness::Lacks(file) => {
                refuse!(
                    path entry.path(&request.root),
                    "exists already, but lacks {}: move it away, or add --force to replace it",
                    file.display()
                );
            }
        }
    }
    Ok(missing)
}

/// Writes `<root>/fetched/<dataset>.json`, the provenance of a fetched dataset.
fn record(entry: &CatalogueEntry, root: &Path, url: &str, commit: Option<&str>, sha256: Option<&str>) -> Result<()> {
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

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io("create", folder))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn offline_without(what: &str) -> Error {
    Error::missing(format!(
        "{what} is missing, and --offline, DSF_OFFLINE or HF_HUB_OFFLINE forbids downloads: fetch it once \
         without them"
    ))
}
