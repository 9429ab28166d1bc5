//! Locations of the files of a text and of its tokenizer: below the user's folder, and below the folder of downloads
//! and token files.

use super::{Corpus, Tokenizer, WikitextConfig};
use crate::cache;
use crate::error::{refuse, Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Names of the splits in messages and of their files.
pub(super) const SPLITS: [&str; 3] = ["train", "val", "test"];

/// Folders in which files are looked up and stored.
pub(super) struct Folders {
    /// Folder of `--data-dir`.
    pub(super) data_dir: Option<PathBuf>,
    /// Data root of downloads.
    pub(super) root: PathBuf,
    /// Cache of the hub.
    pub(super) hub: PathBuf,
}

impl Folders {
    /// Takes the folders from the environment and from `--data-dir`.
    pub(super) fn new(data_dir: Option<&Path>) -> Result<Self> {
        Ok(Self { data_dir: data_dir.map(Path::to_owned), root: cache::wikitext()?, hub: cache::hub()? })
    }

    /// Folder in and below which the corpus is looked up.
    pub(super) fn folder(&self) -> &Path {
        self.data_dir.as_deref().unwrap_or(&self.root)
    }

    /// Returns the files of the splits of `corpus`, which must not be [`Corpus::Sample`]. Splits that are not `wanted`
    /// may be missing.
    pub(super) fn sources(&self, corpus: Corpus, wanted: [bool; 3]) -> Result<[Vec<PathBuf>; 3]> {
        if corpus == Corpus::Text && self.data_dir.is_none() {
            refuse!(flag "--corpus" = "text", "needs --data-dir DIR, the folder of train.txt, valid.txt and test.txt");
        }
        find(corpus, self.folder(), wanted)
    }

    /// Path of the stored copy of `tokenizer`'s file.
    pub(super) fn kept(&self, tokenizer: &Tokenizer) -> PathBuf {
        self.root.join("tokenizers").join(format!("{tokenizer}.json"))
    }

    /// Paths at which the file of `tokenizer` may lie, the likeliest first.
    pub(super) fn tokenizer_files(&self, tokenizer: &Tokenizer) -> Vec<PathBuf> {
        const FILE: &str = "tokenizer.json";
        let fetched = |root: &Path| root.join(GPT_NEOX_FOLDER).join(FILE);
        let mut files = vec![self.kept(tokenizer)];
        if let Some(dir) = &self.data_dir {
            files.extend([dir.join(FILE), fetched(dir)]);
            files.extend(dir.parent().map(fetched));
        }
        files.push(fetched(&self.root));
        if *tokenizer == Tokenizer::GptNeox {
            let snapshots = self.hub.join("models--EleutherAI--gpt-neox-20b/snapshots");
            let commits = fs::read_dir(snapshots).into_iter().flatten().flatten();
            let mut kept: Vec<PathBuf> = commits.map(|c| c.path().join(FILE)).collect();
            kept.sort();
            files.extend(kept);
        }
        files
    }

    /// Folder of the token files of `config`, made from files with the digest `digest`.
    pub(super) fn tokens(&self, config: &WikitextConfig, digest: &str) -> PathBuf {
        let (corpus, tokenizer) = (config.corpus.name(), &config.tokenizer);
        let eos = if config.eos_between_articles { "-eos" } else { "" };
        let name = format!("{corpus}-{tokenizer}{eos}-{digest}");
        self.root.join("tokens").join(name)
    }
}

/// Folder of GPT-NeoX's file from `dsf data fetch wikitext --tokenizer`, below the data root.
pub const GPT_NEOX_FOLDER: &str = "gpt-neox-20b-tokenizer";

/// Returns the files of each split, in order, from the first folder at or below `dir` that has all of them, or else
/// from the first that has those `wanted`.
fn find(corpus: Corpus, dir: &Path, wanted: [bool; 3]) -> Result<[Vec<PathBuf>; 3]> {
    let looked: Vec<CorpusFiles> =
        candidates(corpus, dir).into_iter().map(|folder| CorpusFiles::look(corpus, folder)).collect();
    let whole = looked.iter().find(|found| found.splits() == 3);
    if let Some(found) = whole.or_else(|| looked.iter().find(|found| found.has(wanted))) {
        return Ok(found.files.clone());
    }
    // Reversed because `max_by_key` returns the last maximum, and the first folder is wanted.
    let fullest = looked.iter().rev().max_by_key(|found| found.splits());
    Err(missing(corpus, dir, wanted, fullest))
}

/// Same as [`find`], restricted to the folders below `dir` that are named after the corpus.
pub(super) fn below(corpus: Corpus, dir: &Path) -> Option<[Vec<PathBuf>; 3]> {
    let folders = candidates(corpus, dir).into_iter().skip(1);
    let mut looked = folders.map(|folder| CorpusFiles::look(corpus, folder));
    looked.find(|found| found.splits() == 3).map(|found| found.files)
}

/// All folders that may hold the files, the likeliest first.
fn candidates(corpus: Corpus, dir: &Path) -> Vec<PathBuf> {
    let mut folders = vec![dir.to_owned()];
    if let Some(config) = corpus.hub_folder() {
        folders.extend([config, corpus.name()].map(|name| dir.join(name)));
        folders.push(dir.join(corpus.name()).join(config));
    }
    folders
}

/// Files found in one folder.
struct CorpusFiles {
    folder: PathBuf,
    /// Files of each split; empty if there are none or a shard is missing.
    files: [Vec<PathBuf>; 3],
    /// First shard that is missing.
    lacks: Option<String>,
}

impl CorpusFiles {
    fn look(corpus: Corpus, folder: PathBuf) -> Self {
        let mut lacks = None;
        let files = [0, 1, 2].map(|split| {
            let plain = plain_names(corpus, split).into_iter();
            if let Some(path) = { plain }.map(|n| folder.join(n)).find(|p| p.is_file()) {
                return vec![path];
            }
            shards(&folder, split).unwrap_or_else(|missing| {
                lacks.get_or_insert(missing);
                Vec::new()
            })
        });
        Self { folder, files, lacks }
    }

    fn has(&self, wanted: [bool; 3]) -> bool {
        self.files.iter().zip(wanted).all(|(files, wanted)| !wanted || !files.is_empty())
    }

    fn splits(&self) -> usize {
        self.files.iter().filter(|files| !files.is_empty()).count()
    }
}

/// File names of a split as plain text.
fn plain_names(corpus: Corpus, split: usize) -> Vec<String> {
    let stem = ["train", "valid", "test"][split];
    let mut names = vec![format!("{stem}.txt")];
    if split == 1 {
        names.push("validation.txt".to_owned());
    }
    let endings: &[&str] = match corpus {
        Corpus::Wikitext103Raw | Corpus::Wikitext2Raw => &["raw"],
        Corpus::Wikitext103 | Corpus::Wikitext2 => &["tokens"],
        Corpus::Text | Corpus::Sample => &["raw", "tokens"],
    };
    names.extend(endings.iter().map(|ending| format!("wiki.{stem}.{ending}")));
    names
}

/// Stems of the hub's Parquet files of a split.
const STEMS: [&str; 3] = ["train", "validation", "test"];

/// Returns `train-00000-of-00002.parquet` and so on, or the name of the first missing one as error.
fn shards(folder: &Path, split: usize) -> Result<Vec<PathBuf>, String> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let names = entries.flatten().map(|entry| entry.file_name());
    let parts: BTreeMap<usize, usize> = names.filter_map(|name| part(name.to_str()?, STEMS[split])).collect();
    let Some(n) = parts.values().max() else { return Ok(Vec::new()) };
    let name = |i: usize| format!("{}-{i:05}-of-{n:05}.parquet", STEMS[split]);
    let absent = (0..*n).map(name).find(|name| !folder.join(name).is_file());
    match absent {
        Some(name) => Err(name),
        None => Ok((0..*n).map(|i| folder.join(name(i))).collect()),
    }
}

/// Shard number and number of shards in `name`: `train-00001-of-00002.parquet` gives (1, 2).
fn part(name: &str, stem: &str) -> Option<(usize, usize)> {
    let (at, of) = name.strip_prefix(stem)?.strip_prefix('-')?.strip_suffix(".parquet")?.split_once("-of-")?;
    Some((at.parse().ok()?, of.parse().ok()?))
}

/// Error about the first missing file, and how to get it.
fn missing(corpus: Corpus, dir: &Path, wanted: [bool; 3], fullest: Option<&CorpusFiles>) -> Error {
    let name = corpus.name();
    let begun = fullest.filter(|found| found.splits() > 0 || found.lacks.is_some());
    let what = match begun {
        Some(found) => {
            let split = (0..3).find(|split| wanted[*split] && found.files[*split].is_empty()).unwrap_or(0);
            let file = found.lacks.clone().unwrap_or_else(|| plain_names(corpus, split).swap_remove(0));
            let called = ["training", "validation", "test"][split];
            format!("{file}, the {called} split of {name}, is missing from this folder")
        }
        None => {
            let others = candidates(corpus, dir).into_iter().skip(1);
            let others: Vec<String> = others.map(|f| format!(" nor in {}", f.display())).collect();
            format!("no train.txt and no train-00000-of-0000N.parquet of {name} here{}", others.concat())
        }
    };
    let reason = match corpus.hub_folder() {
        Some(_) => format!(
            "{what}: download the corpus with `dsf data fetch wikitext --corpus {name}`, or give the folder of an \
             existing one with --data-dir DIR"
        ),
        None => {
            format!("{what}: give the folder of train.txt, valid.txt and test.txt with --data-dir DIR")
        }
    };
    Error::missing_at(begun.map_or(dir, |found| &found.folder), reason)
}

#[cfg(test)]
mod tests;
