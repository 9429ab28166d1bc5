//! Files of a dataset on the Hugging Face hub, through the cache that Python's libraries share.

use super::catalogue::{Entry, Origin, Repository};
use super::checksum::Checksum;
use super::download::{download, failed, Wanted};
use super::host::Host;
use super::http::{self, Failure};
use super::part::{remove, with_suffix};
use super::{lock, make_folder, record, Order};
use crate::error::{Error, Result};
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, Metadata};
use hf_hub::{Cache, CacheRepo, Repo};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

/// The hub answers within this time or not at all.
const PATIENCE: Duration = Duration::from_secs(60);
/// Times that it is asked again.
const PAUSES: u32 = 3;

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

/// What the hub says about a file.
struct Facts {
    etag: String,
    commit: String,
    bytes: u64,
}

impl Repository {
    fn repo(&self) -> Repo {
        let name = self.name.to_owned();
        if self.models {
            Repo::model(name)
        } else {
            Repo::dataset(name)
        }
    }

    /// Its page below the hub's address.
    fn page(&self) -> String {
        let kind = if self.models { "" } else { "datasets/" };
        format!("{kind}{}", self.name)
    }

    /// The name of `part` inside it.
    fn path(&self, part: &str) -> String {
        match self.folder {
            "" => part.to_owned(),
            folder => format!("{folder}/{part}"),
        }
    }
}

/// Fetches the files of `entry`, where it comes from the hub; its lock is held.
pub(super) fn fetch(entry: &Entry, order: &Order, host: &mut Host) -> Result<()> {
    let Origin::Hub(repository) = entry.origin else {
        return Ok(());
    };
    let hub = &order.hub;
    let cache = Cache::new(hub.cache.clone()).repo(repository.repo());
    let folder = entry.path(&order.root);
    let mut commit = None;
    let mut files = Vec::new();
    let there = |part: &&&str| !order.force && folder.join(part).exists();
    for part in entry.parts.iter().filter(|part| !there(part)) {
        let name = repository.path(part);
        let kept = if order.force { None } else { cache.get(&name) };
        let file = match kept {
            Some(file) => file,
            None if order.offline => {
                let (folder, cache) = (folder.display(), hub.cache.display());
                let of = repository.name;
                let what = format!("{part} of {of} (looked for in {folder} and {cache})");
                return Err(super::offline_without(&what));
            }
            None => get(&repository, &name, hub, &cache, host)?,
        };
        commit = commit.or_else(|| commit_of(&file, &name));
        files.push((file, folder.join(part)));
    }
    make_folder(&folder)?;
    for (file, target) in files {
        link(&file, &target)?;
    }
    let url = format!("{}/{}", hub.endpoint, repository.page());
    record::write(entry, &order.root, &url, commit.as_deref(), None)
}

/// `snapshots/COMMIT/NAME` names the commit, and the name may have folders.
fn commit_of(file: &Path, name: &str) -> Option<String> {
    let below = Path::new(name).components().count();
    let commit = file.ancestors().nth(below)?.file_name()?;
    Some(commit.to_str()?.to_owned())
}

/// Downloads one file into the cache and gives its place among the snapshots.
fn get(
    repository: &Repository,
    name: &str,
    hub: &Hub,
    cache: &CacheRepo,
    host: &mut Host,
) -> Result<PathBuf> {
    let api = ApiBuilder::from_cache(Cache::new(hub.cache.clone()))
        .with_endpoint(hub.endpoint.clone())
        .with_token(hub.token.clone())
        .build()
        .map_err(|e| failed(&hub.endpoint, e.to_string()))?;
    let url = api.repo(repository.repo()).url(name);
    let facts = facts(&api, &url, host)?;
    let blob = cache.blob_path(&facts.etag);
    make_folder(blob.parent().unwrap_or(&hub.cache))?;
    let _lock = lock::take(&blob.with_extension("lock"), host)?;
    let wanted = Wanted {
        url: &url,
        target: &blob,
        bytes: Some(facts.bytes),
        checksum: match facts.etag.len() {
            // Large files are named by their SHA-256, small ones by a hash of git's.
            64 => Checksum::Sha256(facts.etag.to_ascii_lowercase()),
            _ => Checksum::Unknown,
        },
        token: hub.token.as_deref(),
    };
    download(&wanted, host)?;
    let pointer = cache.pointer_path(&facts.commit).join(name);
    make_folder(pointer.parent().unwrap_or(&hub.cache))?;
    point(&pointer, &blob)?;
    let reference = cache.create_ref(&facts.commit);
    reference.map_err(Error::io("write", &hub.cache))?;
    Ok(pointer)
}

/// What the hub says about `url`; asked again where that may help.
fn facts(api: &Api, url: &str, host: &mut Host) -> Result<Facts> {
    let mut pauses = 0;
    loop {
        let reason = match ask(api, url, host)? {
            Ok(facts) => return Ok(facts),
            Err(Failure::Passing(reason)) if pauses < PAUSES => reason,
            Err(Failure::Passing(reason) | Failure::Final(reason)) => {
                return Err(failed(url, reason))
            }
        };
        host.watch.say(&format!("{url}: {reason}; trying again"));
        host.sleep(host.pause * 2_u32.pow(pauses))?;
        pauses += 1;
    }
}

/// Asks once, on a thread of its own: the hub's client waits for ever and cannot be stopped.
fn ask(api: &Api, url: &str, host: &mut Host) -> Result<Result<Facts, Failure>> {
    let (sender, answer) = channel();
    let (api, address) = (api.clone(), url.to_owned());
    std::thread::spawn(move || {
        let _ = sender.send(api.metadata(&address)); // nobody listens after a stop
    });
    Ok(match host.receive(&answer, PATIENCE)? {
        Ok(Ok(metadata)) => Facts::of(&metadata).map_err(Failure::Final),
        Ok(Err(e)) => Err(failure(e)),
        Err(RecvTimeoutError::Timeout) => {
            Err(Failure::Passing("the hub does not answer".to_owned()))
        }
        Err(RecvTimeoutError::Disconnected) => {
            let reason = "the answer makes no sense: is this a Hugging Face hub?";
            Err(Failure::Final(reason.to_owned()))
        }
    })
}

fn failure(error: ApiError) -> Failure {
    match error {
        ApiError::RequestError(e) => http::failure(*e),
        other => Failure::Final(format!("{other}: is this a Hugging Face hub?")),
    }
}

impl Facts {
    /// Both names become parts of a path, so they must not lead anywhere else.
    fn of(metadata: &Metadata) -> Result<Self, String> {
        let plain = |what: &str, text: &str| {
            let letters = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            match text {
                "" => Err(format!("the hub named no {what}")),
                _ if letters && text.len() <= 128 => Ok(text.to_owned()),
                _ => Err(format!("the hub named the {what} `{text}`, which is none")),
            }
        };
        Ok(Self {
            etag: plain("file", metadata.etag().trim_start_matches("W/"))?,
            commit: plain("commit", metadata.commit_hash())?,
            bytes: metadata.size() as u64,
        })
    }
}

/// Makes the snapshot's file: a link to the blob, or where there are none a copy.
fn point(pointer: &Path, blob: &Path) -> Result<()> {
    remove(pointer)?;
    let absolute = std::path::absolute(blob).map_err(Error::io("find", blob))?;
    #[cfg(unix)]
    let made = std::os::unix::fs::symlink(absolute, pointer);
    #[cfg(not(unix))]
    let made = fs::copy(absolute, pointer).map(|_| ());
    made.map_err(Error::io("write", pointer))
}

/// Gives `file` the name `target` as well; on another disk that takes a copy.
fn link(file: &Path, target: &Path) -> Result<()> {
    let file = fs::canonicalize(file).map_err(Error::io("read", file))?;
    remove(target)?;
    if fs::hard_link(&file, target).is_ok() {
        return Ok(());
    }
    let unfinished = with_suffix(target, ".unfinished");
    fs::copy(&file, &unfinished).map_err(Error::io("write", &unfinished))?;
    fs::rename(&unfinished, target).map_err(Error::io("write", target))
}
