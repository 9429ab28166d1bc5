//! Files of the Hugging Face hub, in the cache that Python's libraries share.
//!
//! Addresses, tokens and the layout of the cache come from `hf_hub`. The bytes are fetched by [`download`] instead,
//! since `hf_hub` 0.5 does not check the length and SHA-256 that the hub names, appends the whole file to a partial one
//! if a server ignores ranges, uses the server's names as paths, and can be neither stopped nor timed out.
//! `tests/hubs.rs` demonstrates the second and the third.

use super::catalogue::{CatalogueEntry, DatasetOrigin, Repository};
use super::context::FetchContext;
use super::download::{download, failed, failure, retry, AttemptFailure, Download, PublishedChecksum};
use super::request::{FetchRequest, Hub};
use super::{make_folder, record, with_suffix};
use crate::error::{Error, Result};
use crate::files::remove_if_present;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, Metadata};
use hf_hub::{Cache, CacheRepo, Repo};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

/// Time limit for an answer of the hub.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

impl Repository {
    fn repo(&self) -> Repo {
        let name = self.name.to_owned();
        match self.models {
            true => Repo::model(name),
            false => Repo::dataset(name),
        }
    }

    /// Name of `part` inside the repository.
    fn path(&self, part: &str) -> String {
        match self.folder {
            "" => part.to_owned(),
            folder => format!("{folder}/{part}"),
        }
    }
}

/// Fetches the files of `entry` if it comes from the hub. The caller holds its lock.
pub(super) fn fetch(entry: &CatalogueEntry, request: &FetchRequest, context: &mut FetchContext) -> Result<()> {
    let DatasetOrigin::Hub(repository) = entry.origin else { return Ok(()) };
    let hub = &request.hub;
    let cache = Cache::new(hub.cache.clone()).repo(repository.repo());
    let folder = entry.path(&request.root);
    let mut commit = None;
    let mut files = Vec::new();
    let there = |part: &&&str| !request.force && folder.join(part).is_file();
    for part in entry.parts.iter().filter(|part| !there(part)) {
        let name = repository.path(part);
        let file = match cache.get(&name).filter(|_| !request.force) {
            Some(cached) => cached,
            None if request.offline => {
                let (folder, cache) = (folder.display(), hub.cache.display());
                let of = repository.name;
                let what = format!("{part} of {of} (looked for in {folder} and {cache})");
                return Err(super::offline_without(&what));
            }
            None => get(&repository.repo(), &name, hub, &cache, context)?,
        };
        commit = commit.or_else(|| commit_of(&file, &name));
        files.push((file, folder.join(part)));
    }
    make_folder(&folder)?;
    for (file, target) in files {
        link(&file, &target)?;
    }
    let page = format!("{}/{}", hub.endpoint, repository.repo().url());
    record(entry, &request.root, &page, commit.as_deref(), None)
}

/// Commit in the path `snapshots/COMMIT/NAME` of `file`, where the name may contain folders.
fn commit_of(file: &Path, name: &str) -> Option<String> {
    let below = Path::new(name).components().count();
    Some(file.ancestors().nth(below)?.file_name()?.to_str()?.to_owned())
}

/// Client of the hub.
pub(super) fn api(hub: &Hub) -> Result<Api> {
    ApiBuilder::from_cache(Cache::new(hub.cache.clone()))
        .with_endpoint(hub.endpoint.clone())
        .with_token(hub.token.clone())
        .build()
        .map_err(|e| failed(&hub.endpoint, e.to_string()))
}

/// Downloads one file into the cache and returns its path among the snapshots.
pub(super) fn get(
    repo: &Repo,
    name: &str,
    hub: &Hub,
    cache: &CacheRepo,
    context: &mut FetchContext,
) -> Result<PathBuf> {
    let api = api(hub)?;
    let url = api.repo(repo.clone()).url(name);
    let file = retry(&url, context, |context| request_metadata(&api, &url, context))?;
    let blob = cache.blob_path(&file.etag);
    make_folder(blob.parent().unwrap_or(&hub.cache))?;
    let _lock = context.lock(&blob.with_extension("lock"))?;
    let wanted = Download {
        url: &url,
        target: &blob,
        bytes: Some(file.bytes),
        checksum: match file.etag.len() {
            // Large files are named by their SHA-256, small ones by a hash of git's.
            64 => PublishedChecksum::Sha256(file.etag.to_ascii_lowercase()),
            _ => PublishedChecksum::Unknown,
        },
        token: hub.token.as_deref(),
    };
    download(&wanted, context)?;
    let pointer = cache.pointer_path(&file.commit).join(name);
    make_folder(pointer.parent().unwrap_or(&hub.cache))?;
    point(&pointer, &blob)?;
    cache.create_ref(&file.commit).map_err(Error::io("write", &hub.cache))?;
    Ok(pointer)
}

/// Requests the metadata of the file at `url` once, on a thread, since the client has no timeout and cannot be stopped.
fn request_metadata(api: &Api, url: &str, context: &mut FetchContext) -> Result<Result<HubFile, AttemptFailure>> {
    let (sender, answer) = channel();
    let (api, address) = (api.clone(), url.to_owned());
    std::thread::spawn(move || {
        let _ = sender.send(api.metadata(&address)); // fails after a stop, when the receiver is gone
    });
    let none = |why: &str| AttemptFailure::Permanent(format!("{why}: is this a Hugging Face hub?"));
    Ok(match context.receive(&answer, PATIENCE)? {
        Ok(Ok(metadata)) => HubFile::new(&metadata).map_err(AttemptFailure::Permanent),
        Ok(Err(ApiError::RequestError(e))) => Err(failure(*e)),
        Ok(Err(e)) => Err(none(&e.to_string())),
        Err(RecvTimeoutError::Timeout) => Err(AttemptFailure::Transient("the hub does not answer".to_owned())),
        // The client panics at a redirection without a target.
        Err(RecvTimeoutError::Disconnected) => Err(none("the answer is invalid")),
    })
}

struct HubFile {
    etag: String,
    commit: String,
    bytes: u64,
}

impl HubFile {
    /// Checks that both names, which become parts of a path, are plain and cannot lead out of the cache.
    fn new(metadata: &Metadata) -> Result<Self, String> {
        let plain = |what: &str, text: &str| {
            let letters = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            match text {
                "" => Err(format!("the hub gave no {what}")),
                _ if letters && text.len() <= 128 => Ok(text.to_owned()),
                _ => Err(format!("the hub gave `{text}` as {what}, which is invalid")),
            }
        };
        Ok(Self {
            etag: plain("file", metadata.etag().trim_start_matches("W/"))?,
            commit: plain("commit", metadata.commit_hash())?,
            bytes: metadata.size() as u64,
        })
    }
}

/// Creates the file of a snapshot: a symbolic link to the blob.
fn point(pointer: &Path, blob: &Path) -> Result<()> {
    remove_if_present(pointer)?;
    let absolute = std::path::absolute(blob).map_err(Error::io("find", blob))?;
    std::os::unix::fs::symlink(absolute, pointer).map_err(Error::io("write", pointer))
}

/// Creates a hard link `target` to `file`, or a copy if they are on different disks.
fn link(file: &Path, target: &Path) -> Result<()> {
    let file = fs::canonicalize(file).map_err(Error::io("read", file))?;
    remove_if_present(target)?;
    if fs::hard_link(&file, target).is_ok() {
        return Ok(());
    }
    let unfinished = with_suffix(target, ".unfinished");
    fs::copy(&file, &unfinished).map_err(Error::io("write", &unfinished))?;
    fs::rename(&unfinished, target).map_err(Error::io("write", target))
}
