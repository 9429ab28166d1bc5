//! `dsf data list`.

use crate::cli::{exit, print, Global};
use crate::error::Result;
use crate::fetch::{bytes_below, Dataset, State, CATALOGUE};
use crate::tasks::{self, lra, wikitext};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct Arguments {
    /// The data root [default: dsf/lra and dsf/wikitext below HF_HOME].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    for entry in &CATALOGUE {
        let root = match (
            &arguments.data_dir,
            tasks::find(entry.dataset.task())?.files,
        ) {
            (Some(dir), _) => dir.clone(),
            (None, Some(files)) => (files.root)()?,
            (None, None) => continue, // a catalogue of tasks without files is empty
        };
        let (name, mut folder) = (entry.dataset.name(), entry.path(&root));
        let (state, bytes) = match entry.state(&root) {
            State::Absent => match found(entry.dataset, &root) {
                Some(elsewhere) => {
                    folder = elsewhere;
                    ("present".to_owned(), bytes_below(&folder))
                }
                None => ("absent".to_owned(), 0),
            },
            State::Present => ("present".to_owned(), entry.bytes(&root)),
            State::Lacks(part) => (format!("lacks {}", part.display()), entry.bytes(&root)),
        };
        let line = if global.json {
            let event = json!({
                "event": "data", "schema": 1, "dataset": name, "state": state,
                "path": folder, "bytes": bytes,
            });
            event.to_string()
        } else {
            let size = indicatif::DecimalBytes(bytes).to_string();
            format!("{name:16}  {state:7}  {size:>10}  {}", folder.display())
        };
        print::line(&line)?;
    }
    Ok(exit::DONE)
}

/// Where `dataset` lies in another form, or by another name, at or below `root`.
fn found(dataset: Dataset, root: &Path) -> Option<PathBuf> {
    match dataset {
        Dataset::Lra(dataset) => lra::found(dataset, root),
        Dataset::Wikitext(corpus) => wikitext::found(corpus, root),
        Dataset::GptNeox => wikitext::found_tokenizer(root),
    }
}
