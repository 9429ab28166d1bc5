//! `dsf data`: data of the tasks.

pub(super) mod fetch;
mod generate;
mod tokens;

use super::{exit, Global};
use crate::error::Result;
use crate::fetch::{bytes_below, Completeness, FetchedDataset, CATALOGUE};
use crate::tasks::{self, lra, wikitext};
use clap::{Args, Subcommand};
use indicatif::DecimalBytes;
use serde_json::{json, Value};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct DataArguments {
    #[command(subcommand)]
    what: DataAction,
}

#[derive(Subcommand)]
enum DataAction {
    /// Download data to the default folder of `dsf lra` and `dsf wikitext`.
    Fetch(fetch::FetchArguments),
    /// Generate data in the format of the released files.
    Generate(generate::GenerateDataArguments),
    /// List the data sets, their folders and sizes.
    List(ListArguments),
    /// Tokenize texts before the runs that need them.
    Tokens(tokens::TokensArguments),
}

pub(super) fn main(arguments: DataArguments, global: &Global) -> Result<u8> {
    match arguments.what {
        DataAction::Fetch(arguments) => fetch::main(arguments, global),
        DataAction::Generate(arguments) => generate::main(arguments, global),
        DataAction::List(arguments) => list(arguments, global),
        DataAction::Tokens(arguments) => tokens::main(arguments, global),
    }
}

fn event(dataset: &str, state: &str, path: &Path) -> Value {
    json!({ "event": "data", "schema": 1, "dataset": dataset, "state": state, "path": path })
}

#[derive(Args)]
struct ListArguments {
    /// Folder of data [default: dsf/lra and dsf/wikitext in HF_HOME].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

fn list(arguments: ListArguments, global: &Global) -> Result<u8> {
    for holding in holdings(arguments.data_dir.as_deref())? {
        let DatasetStatus { name, state, bytes, folder } = holding;
        let state = match state {
            Completeness::Absent => "absent".to_owned(),
            Completeness::Present => "present".to_owned(),
            Completeness::Lacks(part) => format!("lacks {}", part.display()),
        };
        let mut said = event(name, &state, &folder);
        said["bytes"] = json!(bytes);
        let (size, place) = (DecimalBytes(bytes).to_string(), folder.display());
        let line = format!("{name:16}  {state:7}  {size:>10}  {place}");
        global.emit(&said, &line)?;
    }
    Ok(exit::DONE)
}

/// A dataset of the catalogue, and its state on this machine.
pub(super) struct DatasetStatus {
    pub name: &'static str,
    pub state: Completeness,
    bytes: u64,
    folder: PathBuf,
}

/// Returns the state of every dataset, below `data_dir` or in the default folders of the tasks.
pub(super) fn holdings(data_dir: Option<&Path>) -> Result<Vec<DatasetStatus>> {
    let mut holdings = Vec::new();
    for entry in &CATALOGUE {
        let root = match (data_dir, tasks::find(entry.dataset.task())?.files) {
            (Some(dir), _) => dir.to_owned(),
            (None, Some(files)) => (files.root)()?,
            (None, None) => continue, // tasks without files have no catalogue
        };
        let elsewhere = || found(entry.dataset, &root);
        let (state, bytes, folder) = match (entry.state(&root), elsewhere) {
            (Completeness::Absent, elsewhere) => match elsewhere() {
                Some(folder) => (Completeness::Present, bytes_below(&folder), folder),
                None => (Completeness::Absent, 0, entry.path(&root)),
            },
            (state, _) => (state, entry.bytes(&root), entry.path(&root)),
        };
        holdings.push(DatasetStatus { name: entry.dataset.name(), state, bytes, folder });
    }
    Ok(holdings)
}

/// Finds `dataset` in another form or under another name, at or below `root`.
fn found(dataset: FetchedDataset, root: &Path) -> Option<PathBuf> {
    match dataset {
        FetchedDataset::Lra(dataset) => lra::found(dataset, root),
        FetchedDataset::Wikitext(corpus) => wikitext::found(corpus, root),
        FetchedDataset::GptNeox => wikitext::found_tokenizer(root),
    }
}
