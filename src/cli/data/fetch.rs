//! `dsf data fetch`: downloads data.

use super::event;
use crate::cache;
use crate::cli::progress::ProgressDisplay;
use crate::cli::{exit, print, stop_flag, Global};
use crate::error::{ensure, refuse, unknown, Result};
use crate::fetch::{
    self, entry, ArchiveSource, CatalogueEntry, DatasetOrigin, FetchContext, FetchRequest, FetchedDataset, Hub,
    CATALOGUE,
};
use crate::tasks::lra::LraDataset;
use crate::tasks::wikitext::Corpus;
use crate::tasks::{self, TaskEntry, TASKS};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub(super) struct FetchArguments {
    /// Task that needs the data.
    #[arg(value_parser = task())]
    task: &'static TaskEntry,
    /// Datasets of the Long Range Arena to download; without this flag they are listed.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    dataset: Vec<LraDataset>,
    /// WikiText corpora to download; without this flag and --tokenizer they are listed.
    #[arg(long, value_parser = corpus, value_delimiter = ',', value_name = "NAME")]
    corpus: Vec<Corpus>,
    /// Download the tokenizer of GPT-NeoX.
    #[arg(long)]
    tokenizer: bool,
    /// Folder to download to [default: dsf/lra or dsf/wikitext in HF_HOME].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Mirror of the archive with the datasets. For a mirror of the hub, set HF_ENDPOINT.
    #[arg(long)]
    url: Option<String>,
    /// Do not use the network, as with DSF_OFFLINE=1 or HF_HUB_OFFLINE=1.
    #[arg(long)]
    offline: bool,
    /// Download again and replace existing files.
    #[arg(long)]
    force: bool,
    /// Delete the archive after unpacking; without this flag it is kept for other datasets.
    #[arg(long)]
    delete_archive: bool,
}

/// Parser of the tasks that have files to download.
fn task() -> impl TypedValueParser<Value = &'static TaskEntry> {
    let named = TASKS.iter().filter(|task| task.files.is_some()).filter_map(|task| {
        let files = task.files.as_ref()?;
        Some(PossibleValue::new(task.name).help(files.about))
    });
    PossibleValuesParser::new(named).map(|name| tasks::find(&name).expect("it is one of those listed"))
}

/// Parses the name of a corpus that can be downloaded.
fn corpus(name: &str) -> Result<Corpus> {
    let corpora = Corpus::ALL.into_iter();
    let mut there = corpora.filter(|c| CATALOGUE.iter().any(|e| e.dataset == FetchedDataset::Wikitext(*c)));
    let names = there.clone().map(Corpus::name);
    there.find(|c| c.name() == name).ok_or_else(|| unknown("corpus to fetch", name, names))
}

/// Delay before the first retry of a broken download.
pub(in crate::cli) const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn main(arguments: FetchArguments, global: &Global) -> Result<u8> {
    let datasets = wanted(&arguments)?;
    if datasets.is_empty() {
        return catalogue(arguments.task, global);
    }
    let elsewhere = arguments.data_dir.is_some();
    let request = to_request(arguments, datasets)?;
    let stop = stop_flag()?;
    let mut progress = ProgressDisplay::new(global.quiet);
    let mut context = FetchContext { progress: &mut progress, stop: &stop, pause: PAUSE };
    let fetched =
        fetch::fetch(&request, &mut context)
            .map_err(|error| if elsewhere { error } else { cache::with_remedy(error) })?;
    for entry in { CATALOGUE }.iter().filter(|e| request.datasets.contains(&e.dataset)) {
        let state = if fetched.contains(&entry.dataset) { "fetched" } else { "is there already" };
        let (name, folder) = (entry.dataset.name(), entry.path(&request.root));
        let line = format!("{name}: {state}, {}", folder.display());
        global.emit(&event(name, state, &folder), &line)?;
    }
    Ok(exit::DONE)
}

/// Returns the requested datasets, which must all belong to the given task.
fn wanted(arguments: &FetchArguments) -> Result<Vec<FetchedDataset>> {
    let task = arguments.task;
    let datasets = arguments.dataset.iter().map(|d| FetchedDataset::Lra(*d)).map(|dataset| ("--dataset", dataset));
    let corpora = arguments.corpus.iter().map(|c| FetchedDataset::Wikitext(*c)).map(|corpus| ("--corpus", corpus));
    let tokenizer = arguments.tokenizer;
    let tokenizer = tokenizer.then_some(("--tokenizer", FetchedDataset::GptNeox));
    let given: Vec<(&str, FetchedDataset)> = datasets.chain(corpora).chain(tokenizer).collect();
    if let Some((flag, other)) = given.iter().find(|(_, d)| d.task() != task.name) {
        refuse!(flag(flag), "belongs to `dsf data fetch {}`; {} has {}", other.task(), task.name, flags(task));
    }
    let archived = |entry: &&CatalogueEntry| !matches!(entry.origin, DatasetOrigin::Hub(_));
    if arguments.delete_archive && !of_task(task).any(|entry| archived(&entry)) {
        refuse!(flag "--delete-archive", "{} has no archives; leave it out", task.name);
    }
    Ok(given.into_iter().map(|(_, dataset)| dataset).collect())
}

/// Returns the catalogue entries of `task`.
fn of_task(task: &TaskEntry) -> impl Iterator<Item = &'static CatalogueEntry> + use<'_> {
    { CATALOGUE }.iter().filter(|entry| entry.dataset.task() == task.name)
}

/// Returns the flags that select among them.
fn flags(task: &TaskEntry) -> &'static str {
    task.files.map_or("nothing to fetch", |files| files.flags)
}

/// Prints the catalogue, one line per entry.
fn catalogue(task: &TaskEntry, global: &Global) -> Result<u8> {
    for entry in of_task(task) {
        let (name, about, licence) = (entry.dataset.name(), entry.about, entry.licence);
        let event = json!({ "event": "catalogue", "schema": 1, "dataset": name, "about": about, "licence": licence });
        global.emit(&event, &format!("{name:16}  {about}; {licence}"))?;
    }
    if global.json {
        return Ok(exit::DONE);
    }
    print::line(format!("\nChoose by {}; `dsf data list` says what is there already.", flags(task)))?;
    Ok(exit::DONE)
}

fn to_request(arguments: FetchArguments, datasets: Vec<FetchedDataset>) -> Result<FetchRequest> {
    let (mut cifar, mut lra) = (ArchiveSource::cifar(), ArchiveSource::lra());
    if let Some(url) = arguments.url {
        match mirrored(&datasets)? {
            DatasetOrigin::Cifar => cifar.url = address("--url", url)?,
            _ => lra.url = address("--url", url)?,
        }
    }
    let files = arguments.task.files.expect("only tasks with files are offered");
    Ok(FetchRequest {
        root: arguments.data_dir.map_or_else(files.root, Ok)?,
        cifar,
        lra,
        hub: hub()?,
        offline: arguments.offline || offline(),
        force: arguments.force,
        delete_archive: arguments.delete_archive,
        datasets,
    })
}

/// Returns the hub that the environment names.
pub(in crate::cli) fn hub() -> Result<Hub> {
    let endpoint = variable("HF_ENDPOINT").unwrap_or("https://huggingface.co".to_owned());
    let endpoint = address("HF_ENDPOINT", endpoint)?;
    Ok(Hub { endpoint: endpoint.trim_end_matches('/').to_owned(), token: token()?, cache: cache::hub()? })
}

/// Whether the environment forbids downloads.
pub(in crate::cli) fn offline() -> bool {
    set("DSF_OFFLINE") || set("HF_HUB_OFFLINE")
}

/// Returns the single archive that contains `datasets`.
fn mirrored(datasets: &[FetchedDataset]) -> Result<DatasetOrigin> {
    let origin = entry(datasets[0]).origin;
    if datasets.iter().any(|d| entry(*d).origin != origin) {
        refuse!(flag "--url", "names one archive, but the datasets come from several: fetch them one by one");
    }
    if let DatasetOrigin::Hub(_) = origin {
        refuse!(flag "--url", "is for archives; text comes from a Hugging Face hub, which HF_ENDPOINT names");
    }
    Ok(origin)
}

/// Validates a web address.
fn address(what: &str, url: String) -> Result<String> {
    let web = url.parse::<ureq::http::Uri>().ok().is_some_and(|uri| {
        let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        scheme && uri.host().is_some_and(|host| !host.is_empty())
    });
    ensure!(web, flag(what) = url, "must be an address like https://example.org/file");
    Ok(url)
}

/// Returns HF_TOKEN, or the token that a login has stored beside the cache.
fn token() -> Result<Option<String>> {
    let file = || std::fs::read_to_string(cache::home().ok()?.join("token")).ok();
    let token = variable("HF_TOKEN").or_else(file).map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
    match token {
        Some(token) if !token.bytes().all(|b| b.is_ascii_graphic()) => {
            refuse!(flag "HF_TOKEN", "this variable, or the file `token` in HF_HOME, holds no token: it has blanks or control characters")
        }
        token => Ok(token),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether a variable is true, in the spellings of the Hugging Face hub.
fn set(name: &str) -> bool {
    let value = variable(name).unwrap_or_default().to_lowercase();
    ["1", "true", "yes", "on"].contains(&value.as_str())
}
