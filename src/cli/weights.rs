//! Trained weights by their names as typed: files, folders, runs, and models of the hub.

use super::{hub, Global};
use crate::error::{refuse, Result};
use crate::model::weights::Checkpoint;
use crate::store::Store;
use std::path::{Path, PathBuf};

/// Opens the weights at `path`, or those of the run with that id in the results folder.
pub(super) fn open(path: &Path, global: &Global) -> Result<Checkpoint> {
    Checkpoint::open(&place(path, "--checkpoint", global)?)
}

/// File or folder of the weights that `path`, the value of `flag`, names: itself, a model of the hub in the cache, or
/// the folder of a run in the results folder.
pub(super) fn place(path: &Path, flag: &str, global: &Global) -> Result<PathBuf> {
    if path.exists() {
        return Ok(path.to_owned());
    }
    match hub::pretrained(path, global.quiet) {
        Ok(Some(folder)) => return Ok(folder),
        Ok(None) => {}
        // A folder that has gone looks like a name on the hub.
        Err(e) if path.parent().is_some_and(|parent| parent.is_dir()) => {
            refuse!(
                flag(flag) = path.display(),
                "there is no such file or folder, and as a name on the hub it fails: {e}"
            )
        }
        Err(e) => return Err(e),
    }
    let run = path.to_str().filter(|name| is_id(name));
    let folder = |id: &str| -> Result<Option<PathBuf>> {
        let store = Store::existing(&global.out)?;
        Ok(store.find(id)?.map(|id| store.run_folder(&id)))
    };
    match run.map(folder).transpose()? {
        Some(Some(folder)) => Ok(folder),
        Some(None) => refuse!(
            flag(flag) = path.display(),
            "there is no such run in {}; --out names another results folder",
            global.out.display()
        ),
        None => refuse!(
            flag(flag) = path.display(),
            "there is no such file, folder or run; give what a run of `dsf wikitext` or `dsf wikitext import` left, a folder of Hugging Face, or OWNER/NAME of a model there"
        ),
    }
}

/// Whether `name` looks like a run id, or like the beginning of one.
pub(super) fn is_id(name: &str) -> bool {
    (4..=12).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_hexdigit())
}
