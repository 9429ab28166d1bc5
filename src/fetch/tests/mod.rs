//! Tests against a server on loopback; none of them needs a network.

mod archives;
mod downloads;
mod hubs;
mod refusals;
mod server;

use super::catalogue::entry;
use super::context::{FetchContext, TransferProgress};
use super::{fetch, ArchiveSource, FetchRequest, FetchedDataset, Hub};
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use crate::error::Result;
use crate::tasks::lra::LraDataset;
use server::Server;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Records of all progress reports. Once a download has reached byte `stop_at`, the stop flag is set.
#[derive(Default)]
struct Listener {
    said: Vec<String>,
    begun: Vec<String>,
    stop: AtomicBool,
    stop_at: Option<u64>,
}

struct Recorder<'a>(&'a mut Vec<String>, &'a mut Vec<String>, &'a AtomicBool, Option<u64>);

impl TransferProgress for Recorder<'_> {
    fn say(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
    fn start(&mut self, what: &str, _: u64, _: Option<u64>) {
        self.1.push(what.to_owned());
    }
    fn total(&mut self, _: u64) {}
    fn reach(&mut self, done: u64) {
        if self.3.is_some_and(|at| done >= at) {
            self.2.store(true, Ordering::Relaxed);
        }
    }
    fn end(&mut self) {}
}

impl Listener {
    /// Calls `work` with a context that reports to this listener.
    fn context<T>(&mut self, work: impl FnOnce(&mut FetchContext) -> T) -> T {
        self.stop.store(false, Ordering::Relaxed);
        let mut recorder = Recorder(&mut self.said, &mut self.begun, &self.stop, self.stop_at);
        let mut context = FetchContext { progress: &mut recorder, stop: &self.stop, pause: Duration::from_millis(1) };
        work(&mut context)
    }

    fn said(&self, needle: &str) -> bool {
        self.said.iter().any(|line| line.contains(needle))
    }
}

/// Temporary data root and hub cache, and a request whose sources are all on the test server.
struct World {
    dir: TempDir,
    request: FetchRequest,
    recorder: Listener,
}

impl From<LraDataset> for FetchedDataset {
    fn from(dataset: LraDataset) -> Self {
        Self::Lra(dataset)
    }
}

impl World {
    fn new<D: Copy + Into<FetchedDataset>>(server: &Server, datasets: &[D]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = |file: &'static str| ArchiveSource { file, url: server.url(file), bytes: None, md5: None };
        let request = FetchRequest {
            datasets: datasets.iter().map(|d| (*d).into()).collect(),
            root: dir.path().join("root"),
            cifar: source("cifar-10-binary.tar.gz"),
            lra: source("lra_release.gz"),
            hub: Hub { endpoint: server.url("hub"), token: Some("secret".to_owned()), cache: dir.path().join("cache") },
            offline: false,
            force: false,
            delete_archive: false,
        };
        let recorder = Listener::default();
        Self { dir, request, recorder }
    }

    fn fetch_all(&mut self) -> Result<Vec<FetchedDataset>> {
        let Self { request, recorder, .. } = self;
        recorder.context(|context| fetch(request, context))
    }

    /// Fetches all requested datasets, and returns those of the Long Range Arena.
    fn fetch(&mut self) -> Result<Vec<LraDataset>> {
        let lra = |dataset| match dataset {
            FetchedDataset::Lra(dataset) => Some(dataset),
            _ => None,
        };
        Ok(self.fetch_all()?.into_iter().filter_map(lra).collect())
    }

    fn fails(&mut self, kind: &str) -> Diagnostic {
        self.fetch().fails(kind)
    }

    fn folder(&self, dataset: impl Into<FetchedDataset>) -> PathBuf {
        entry(dataset.into()).path(&self.request.root)
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Pseudorandom bytes that do not compress.
fn bytes(n: usize) -> Vec<u8> {
    let mut x = 1_u32;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    (0..n).map(|_| next()).collect()
}

/// Sorted names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name();
    let mut names: Vec<String> = entries.map(|e| name(e).into_string().unwrap()).collect();
    names.sort();
    names
}
