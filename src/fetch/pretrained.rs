//! Pretrained models of the Hugging Face hub: config, weights and tokenizer, in the cache that Python's libraries
//! share.

use super::context::FetchContext;
use super::download::{failure, retry, AttemptFailure};
use super::hub::{api, get, PATIENCE};
use super::request::Hub;
use crate::error::{refuse, Error, Result};
use hf_hub::api::sync::{Api, ApiError};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, RecvTimeoutError};

const CONFIG: &str = "config.json";
const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Files that a model may lack.
const OPTIONAL: [&str; 2] = ["tokenizer.json", "tokenizer_config.json"];

/// Model of the hub, at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PretrainedName {
    /// Owner and name, or the name alone.
    pub repository: String,
    /// Branch, tag or commit; `main` by default.
    pub revision: String,
}

impl PretrainedName {
    /// Model called `text`: `OWNER/NAME` or `OWNER/NAME@REVISION`; `None` if that is no such name.
    pub fn parse(text: &str) -> Option<Self> {
        let (repository, revision) = text.split_once('@').unwrap_or((text, "main"));
        let plain = |part: &str| {
            let letters = part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            letters && !part.is_empty() && part.len() <= 96 && !part.starts_with('.')
        };
        let parts: Vec<&str> = repository.split('/').collect();
        let named = parts.len() == 2 && parts.iter().all(|part| plain(part));
        let revised = revision.split('/').all(plain);
        (named && revised).then(|| Self { repository: repository.to_owned(), revision: revision.to_owned() })
    }

    fn repo(&self) -> Repo {
        Repo::with_revision(self.repository.clone(), RepoType::Model, self.revision.clone())
    }
}

/// Folder of the model `name`: from the cache, or downloaded to it. Fails if it is not there under `offline`, if the
/// model has no weights that this program reads, or as [`super::fetch`].
pub fn fetch_pretrained(
    name: &PretrainedName,
    hub: &Hub,
    offline: bool,
    context: &mut FetchContext,
) -> Result<PathBuf> {
    let cache = Cache::new(hub.cache.clone()).repo(name.repo());
    if let Some(folder) = cached(&cache)? {
        return Ok(folder);
    }
    let PretrainedName { repository, revision } = name;
    if offline {
        let what = format!("{repository} at {revision} (looked for in {})", hub.cache.display());
        return Err(super::offline_without(&what));
    }
    super::refuse_bad_proxies(|name| std::env::var(name).ok())?;
    let api = api(hub)?;
    let there = list(&api, name, context)?;
    let has = |file: &str| there.contains(file);
    if !has(CONFIG) || !(has(WHOLE) || has(INDEX)) {
        let pickled = there.iter().find(|file| file.ends_with(".bin"));
        let pickled = pickled
            .map_or(String::new(), |file| format!("; its {file} is pickled, which can run code when it is opened"));
        refuse!("{repository} on the hub has no {CONFIG} with {WHOLE} or {INDEX}{pickled}");
    }
    let load = |file: &str, context: &mut FetchContext| get(&name.repo(), file, hub, &cache, context);
    let config = load(CONFIG, context)?;
    for file in OPTIONAL.into_iter().filter(|file| has(file)) {
        load(file, context)?;
    }
    match has(WHOLE) {
        true => drop(load(WHOLE, context)?),
        false => {
            let index = load(INDEX, context)?;
            for shard in shards(&index)? {
                load(&shard, context)?;
            }
        }
    }
    Ok(config.parent().unwrap_or(&hub.cache).to_owned())
}

/// Folder of a model whose weights are all in the cache.
fn cached(cache: &CacheRepo) -> Result<Option<PathBuf>> {
    let Some(folder) = cache.get(CONFIG).and_then(|file| Some(file.parent()?.to_owned())) else {
        return Ok(None);
    };
    let index = folder.join(INDEX);
    let complete = match index.is_file() {
        true => shards(&index)?.iter().all(|shard| folder.join(shard).is_file()),
        false => folder.join(WHOLE).is_file(),
    };
    Ok(complete.then_some(folder))
}

/// Names of the files that an index lists.
fn shards(index: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(index).map_err(Error::io("read", index))?;
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let files = json["weight_map"].as_object().into_iter().flat_map(|map| map.values());
    let plain = |file: &Value| {
        let file = file.as_str()?;
        (!file.contains(['/', '\\']) && file.ends_with(".safetensors")).then(|| file.to_owned())
    };
    let shards: Option<BTreeSet<String>> = files.map(plain).collect();
    shards
        .filter(|shards| !shards.is_empty())
        .ok_or_else(|| Error::data(index, "lists no .safetensors files of its own folder"))
}

/// Names of the files of a model on the hub.
fn list(api: &Api, name: &PretrainedName, context: &mut FetchContext) -> Result<BTreeSet<String>> {
    let url = format!("{} at {}", name.repository, name.revision);
    retry(&url, context, |context| {
        let (sender, answer) = channel();
        let repo = api.repo(name.repo());
        // The client has no timeout and cannot be stopped.
        std::thread::spawn(move || {
            let _ = sender.send(repo.info()); // fails after a stop, when the receiver is gone
        });
        Ok(match context.receive(&answer, PATIENCE)? {
            Ok(Ok(info)) => Ok(info.siblings.into_iter().map(|file| file.rfilename).collect()),
            Ok(Err(ApiError::RequestError(e))) => Err(failure(*e)),
            Ok(Err(e)) => Err(AttemptFailure::Permanent(e.to_string())),
            Err(RecvTimeoutError::Timeout) => Err(AttemptFailure::Transient("the hub does not answer".to_owned())),
            Err(RecvTimeoutError::Disconnected) => Err(AttemptFailure::Permanent("the answer is invalid".to_owned())),
        })
    })
}
