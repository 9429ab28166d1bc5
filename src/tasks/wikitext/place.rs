//! The folders of a run's text: the user's, and the one where downloads and token files lie.

use super::layout;
use crate::cache;
use crate::error::{Error, Result};
use crate::tasks::wikitext::{Corpus, Tokenizer, WikitextConfig};
use std::fs;
use std::path::{Path, PathBuf};

/// Where files are looked for and kept.
pub(super) struct Place {
    /// `--data-dir`.
    pub(super) data_dir: Option<PathBuf>,
    /// The data root of downloads.
    pub(super) root: PathBuf,
    /// The cache of the hub.
    pub(super) hub: PathBuf,
}

impl Place {
    /// By the environment, and `--data-dir`.
    pub(super) fn new(data_dir: Option<&Path>) -> Result<Self> {
        Ok(Self {
            data_dir: data_dir.map(Path::to_owned),
            root: cache::wikitext()?,
            hub: cache::hub()?,
        })
    }

    /// The folder that the corpus is looked for in and below.
    pub(super) fn folder(&self) -> &Path {
        self.data_dir.as_deref().unwrap_or(&self.root)
    }

    /// The files of the three splits of `corpus`, which is no [`Corpus::Sample`].
    pub(super) fn sources(&self, corpus: Corpus) -> Result<[Vec<PathBuf>; 3]> {
        if corpus == Corpus::Text && self.data_dir.is_none() {
            return Err(Error::usage(
                "--corpus text needs --data-dir DIR, the folder of train.txt, valid.txt and test.txt",
            ));
        }
        layout::find(corpus, self.folder())
    }

    /// Where an adopted copy of `tokenizer`'s file is kept.
    pub(super) fn kept(&self, tokenizer: &Tokenizer) -> PathBuf {
        self.root
            .join("tokenizers")
            .join(format!("{tokenizer}.json"))
    }

    /// Where the file of `tokenizer` may lie, the likeliest place first.
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

    /// The folder of the token files that `name` tells from all others.
    pub(super) fn tokens(&self, config: &WikitextConfig, digest: &str) -> PathBuf {
        let (corpus, tokenizer) = (config.corpus.name(), &config.tokenizer);
        let eos = if config.eos_between_articles {
            "-eos"
        } else {
            ""
        };
        let name = format!("{corpus}-{tokenizer}{eos}-{digest}");
        self.root.join("tokens").join(name)
    }
}

/// Where `dsf data fetch wikitext --tokenizer` puts GPT-NeoX's file, below the data root.
pub(super) const GPT_NEOX_FOLDER: &str = "gpt-neox-20b-tokenizer";
