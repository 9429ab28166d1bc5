//! Before a run: the files that its task makes of downloads are made, with a word on how far that is.

use super::progress::ProgressDisplay;
use super::raised;
use crate::config::TaskConfig;
use crate::error::{Error, Result};
use crate::fetch::Progress;
use crate::tasks::Task;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Makes the files that `tasks` need and that are not there yet, each once.
pub(super) fn prepare<'a>(
    tasks: impl IntoIterator<Item = &'a TaskConfig>,
    data_dir: Option<&Path>,
    quiet: bool,
    stop: &AtomicBool,
) -> Result<()> {
    let mut made = HashSet::new();
    for config in tasks {
        let task = config.read()?;
        if let Some(name) = task.prepared().filter(|name| !made.contains(name)) {
            make(&*task, &name, data_dir, quiet, stop)?;
            made.insert(name);
        }
    }
    Ok(())
}

fn make(
    task: &dyn Task,
    name: &str,
    data_dir: Option<&Path>,
    quiet: bool,
    stop: &AtomicBool,
) -> Result<()> {
    let mut shown = ProgressDisplay::new(quiet);
    let mut split = None;
    let made = task.prepare(data_dir, &mut |now| {
        if split != Some(now.split) {
            shown.end();
            split = Some(now.split);
            match now.split {
                "" => shown.say(&format!("another process makes the tokens of {name}")),
                split => shown.start(&format!("tokens of {name}, {split}"), 0, Some(now.total)),
            }
        }
        shown.reach(now.done);
        match raised(stop) {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    });
    shown.end();
    made
}
