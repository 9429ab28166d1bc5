//! What is asked of a fetch: which datasets, from where, to where.

use super::Dataset;
use std::path::PathBuf;

/// Which datasets to fetch, from where, to where.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// The datasets.
    pub datasets: Vec<Dataset>,
    /// The data root.
    pub root: PathBuf,
    /// The archive of CIFAR-10.
    pub cifar: ArchiveSource,
    /// The archive of the Long Range Arena.
    pub lra: ArchiveSource,
    /// The hub.
    pub hub: Hub,
    /// Open no socket.
    pub offline: bool,
    /// Fetch even what is there.
    pub force: bool,
    /// Remove an archive once it is unpacked.
    pub delete_archive: bool,
}

/// An archive and what is published about it.
#[derive(Clone, Debug)]
pub struct ArchiveSource {
    /// Its name below `archives/`.
    pub file: &'static str,
    /// http or https.
    pub url: String,
    /// Its length.
    pub bytes: Option<u64>,
    /// Its MD5, in small hexadecimal digits.
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

/// Where the hub is and who asks.
#[derive(Clone, Debug)]
pub struct Hub {
    /// Without a slash at the end.
    pub endpoint: String,
    /// Sent to `endpoint` alone.
    pub token: Option<String>,
    /// Folder of the cache.
    pub cache: PathBuf,
}
