//! The data of the tasks, downloaded to where their loaders look.
//!
//! Below the data root of the Long Range Arena: `text/plain_text/*.parquet`,
//! `image/cifar-10-batches-bin/*.bin`, `lra_release/lra_release/...`. Below that of WikiText: a folder of
//! Parquet files for each text, `gpt-neox-20b-tokenizer/tokenizer.json`. `archives/` holds locks and what
//! is kept or unfinished, `fetched/` a record of each fetch. A dataset is there once its folder is:
//! folders are unpacked elsewhere and renamed.

mod archive;
mod catalogue;
mod checksum;
mod dataset;
mod download;
mod host;
mod http;
mod hub;
mod lock;
mod part;
mod record;
mod unpack;

#[cfg(test)]
mod tests;

pub use catalogue::{bytes_below, entry, Entry, Origin, Repository, State, CATALOGUE};
pub use dataset::Dataset;
pub use host::{Host, Watch};
pub use hub::Hub;

use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Where an archive is and what is published about it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name below `archives/`.
    pub file: &'static str,
    /// http or https.
    pub url: String,
    /// Its length.
    pub bytes: Option<u64>,
    /// Its MD5, in small hexadecimal digits.
    pub md5: Option<String>,
}

impl Source {
    /// CIFAR-10 in binary form, from its authors.
    pub fn cifar() -> Self {
        Self {
            file: "cifar-10-binary.tar.gz",
            url: "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz".to_owned(),
            bytes: Some(170_052_171),
            md5: Some("c32a1d4ab5d03f1284b67883e8d87530".to_owned()),
        }
    }

    /// The Long Range Arena; nothing is published about its bytes.
    pub fn lra() -> Self {
        Self {
            file: "lra_release.gz",
            url: "https://storage.googleapis.com/long-range-arena/lra_release.gz".to_owned(),
            bytes: None,
            md5: None,
        }
    }
}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Order {
    /// Which datasets.
    pub datasets: Vec<Dataset>,
    /// The data root.
    pub root: PathBuf,
    /// The archive of CIFAR-10.
    pub cifar: Source,
    /// The archive of the Long Range Arena.
    pub lra: Source,
    /// The hub.
    pub hub: Hub,
    /// Open no socket.
    pub offline: bool,
    /// Fetch even what is there.
    pub force: bool,
    /// Remove an archive once it is unpacked.
    pub delete_archive: bool,
}

/// Fetches what is not there yet and gives the datasets that were fetched.
///
/// # Errors
/// [`Error::Refused`] for what is missing offline and for a folder that is there in part,
/// [`Error::Io`] for what the network, a server or the disk refused, [`Error::Stopped`] once
/// the host's flag is up; the same order then continues.
pub fn fetch(order: &Order, host: &mut Host) -> Result<Vec<Dataset>> {
    let mut fetched = Vec::new();
    for place in ["hub.lock", "cifar.lock", "lra.lock"] {
        let wanted: Vec<&Entry> = CATALOGUE
            .iter()
            .filter(|e| lock_name(e.origin) == place && order.datasets.contains(&e.dataset))
            .collect();
        if missing(&wanted, order)?.is_empty() {
            continue;
        }
        let folder = order.root.join(archive::FOLDER);
        make_folder(&folder)?;
        let _lock = lock::take(&folder.join(place), host)?;
        // Another process may have done it in the meantime.
        let wanted = missing(&wanted, order)?;
        match wanted.first().map(|entry| entry.origin) {
            Some(Origin::Cifar) => archive::fetch(&wanted, &order.cifar, order, host)?,
            Some(Origin::Lra) => archive::fetch(&wanted, &order.lra, order, host)?,
            Some(Origin::Hub(_)) | None => {
                for entry in &wanted {
                    hub::fetch(entry, order, host)?;
                }
            }
        }
        fetched.extend(wanted.iter().map(|e| e.dataset));
    }
    Ok(fetched)
}

fn lock_name(origin: Origin) -> &'static str {
    match origin {
        Origin::Hub(_) => "hub.lock",
        Origin::Cifar => "cifar.lock",
        Origin::Lra => "lra.lock",
    }
}

/// Those of `entries` that have to be fetched.
fn missing<'a>(entries: &[&'a Entry], order: &Order) -> Result<Vec<&'a Entry>> {
    let mut missing = Vec::new();
    for entry in entries {
        match entry.state(&order.root) {
            _ if order.force => missing.push(*entry),
            State::Present => {}
            State::Absent => missing.push(*entry),
            // One file after the other: those that are there stay.
            State::Lacks(_) if entry.origin.is_hub() => missing.push(*entry),
            State::Lacks(part) => {
                return Err(Error::usage(format!(
                    "{} is there without {}: move it away, or --force to replace it",
                    entry.path(&order.root).display(),
                    part.display()
                )));
            }
        }
    }
    Ok(missing)
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io("create", folder))
}

fn offline_without(what: &str) -> Error {
    Error::usage(format!(
        "{what} is not there, and nothing is downloaded under --offline, DSF_OFFLINE or \
         HF_HUB_OFFLINE: fetch it once without them"
    ))
}
