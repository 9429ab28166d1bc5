//! Before text is learnt: its token files are made, with a word on how far that is.

use super::data::progress::ProgressDisplay;
use super::raised;
use crate::config::{TaskConfig, WikitextConfig};
use crate::error::{Error, Result};
use crate::fetch::Progress;
use crate::tasks::wikitext;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Makes the token files of every task that is a text and has none yet.
pub(super) fn prepare<'a>(
    tasks: impl IntoIterator<Item = &'a TaskConfig>,
    data_dir: Option<&Path>,
    quiet: bool,
    stop: &AtomicBool,
) -> Result<()> {
    let mut made: Vec<&WikitextConfig> = Vec::new();
    for task in tasks {
        let TaskConfig::Wikitext(text) = task else {
            continue;
        };
        if !made.iter().any(|other| same_files(text, other)) {
            made.push(text);
            make(text, data_dir, quiet, stop)?;
        }
    }
    Ok(())
}

fn same_files(a: &WikitextConfig, b: &WikitextConfig) -> bool {
    let key = |text: &WikitextConfig| (text.corpus, text.eos_between_articles);
    key(a) == key(b) && a.tokenizer == b.tokenizer
}

fn make(
    text: &WikitextConfig,
    data_dir: Option<&Path>,
    quiet: bool,
    stop: &AtomicBool,
) -> Result<()> {
    let name = format!("{} ({})", text.corpus.name(), text.tokenizer);
    let mut shown = ProgressDisplay::new(quiet);
    let mut split = None;
    let made = wikitext::prepare(text, data_dir, &mut |now| {
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

/// `task` with as many examples as there are, where only the data know; its token files are there.
pub(super) fn sized(task: &TaskConfig, data_dir: Option<&Path>) -> Result<TaskConfig> {
    match task {
        TaskConfig::Wikitext(text) => wikitext::sized(text, data_dir).map(TaskConfig::Wikitext),
        TaskConfig::Mqar(_) | TaskConfig::Lra(_) => Ok(task.clone()),
    }
}
