//! Parameters of a fetch: datasets, sources and destination.

use super::FetchedDataset;
use std::path::PathBuf;

/// Datasets to fetch, with sources and destination.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Datasets to fetch.
    pub datasets: Vec<FetchedDataset>,
    /// Data root of the task.
    pub root: PathBuf,
    /// Source of CIFAR-10.
    pub cifar: ArchiveSource,
    /// Source of the Long Range Arena's archive.
    pub lra: ArchiveSource,
    /// Source of hub files.
    pub hub: Hub,
    /// Whether to stay offline and open no socket.
    pub offline: bool,
    /// Whether to fetch datasets again that are complete.
    pub force: bool,
    /// Whether to remove an archive once it is unpacked.
    pub delete_archive: bool,
}

/// Archive and the published facts about it.
#[derive(Clone, Debug)]
pub struct ArchiveSource {
    /// File name below `archives/`.
    pub file: &'static str,
    /// Address, http or https.
    pub url: String,
    /// Published length in bytes.
    pub bytes: Option<u64>,
    /// Published MD5, in lower-case hexadecimal digits.
    pub md5: Option<String>,
}

impl ArchiveSource {
    /// CIFAR-10 in binary form, from its authors.
    pub fn cifar() -> Self {
        Self {
            file: "cifar-10-binary.tar.gz",
            url: "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz".to_owned(),
            bytes: Some(170_052_171),
            md5: Some("c32a1d4ab5d03f1284b67883e8d87530".to_owned()),
        }
    }

    /// The Long Range Arena, for whose archive neither length nor checksum is published.
    pub fn lra() -> Self {
        Self {
            file: "lra_release.gz",
            url: "https://storage.googleapis.com/long-range-arena/lra_release.gz".to_owned(),
            bytes: None,
            md5: None,
        }
    }
}

/// Address, credentials and cache of the hub.
#[derive(Clone, Debug)]
pub struct Hub {
    /// Address without a trailing slash.
    pub endpoint: String,
    /// Access token, sent only to `endpoint`.
    pub token: Option<String>,
    /// Folder of the cache.
    pub cache: PathBuf,
}
