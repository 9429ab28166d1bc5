//! Pretrained models by their names on the Hugging Face hub.

use super::data::fetch::{hub, offline, PAUSE};
use super::progress::ProgressDisplay;
use super::stop_flag;
use crate::error::Result;
use crate::fetch::{fetch_pretrained, FetchContext, PretrainedName};
use std::path::{Path, PathBuf};

/// Folder of the model that `path` names, OWNER/NAME or OWNER/NAME@REVISION, which is downloaded unless it is in the
/// cache; `None` if `path` is no such name. Nothing is printed meanwhile if it is `quiet`.
pub(super) fn pretrained(path: &Path, quiet: bool) -> Result<Option<PathBuf>> {
    let Some(name) = path.to_str().and_then(PretrainedName::parse) else {
        return Ok(None);
    };
    let stop = stop_flag()?;
    let mut progress = ProgressDisplay::new(quiet);
    let mut context = FetchContext { progress: &mut progress, stop: &stop, pause: PAUSE };
    fetch_pretrained(&name, &hub()?, offline(), &mut context).map(Some)
}
