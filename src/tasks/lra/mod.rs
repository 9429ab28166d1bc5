//! The tasks of the Long Range Arena: labelled documents of bytes, from files or generated.

mod config;
pub mod generate;
mod image;
mod listops;
mod part;
mod pathfinder;
mod permutation;
mod picture;
mod place;
mod retrieval;
#[cfg(test)]
mod testing;
mod text;
mod vocab;

pub use config::{check, LraConfig, LraDataset, HARD_CONTOUR};
pub use retrieval::write_stand_in;

use super::{Documents, Files, Generator, Objective, Sizes, Task, TaskEntry, TrainValTest};
use crate::cache;
use crate::config::TaskConfig;
use crate::error::Result;
use std::path::{Path, PathBuf};

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "lra",
    about: "one of the five tasks of the Long Range Arena",
    recipe: include_str!("../../recipes/lra.toml"),
    fields: &[
        "dataset",
        "data",
        "contour_length",
        "data_seed",
        "vocab_size",
        "seq_len",
        "train_examples",
        "val_examples",
        "test_examples",
    ],
    objective: Objective::Pooled,
    headline: "accuracy",
    report: " --table 3",
    files: Some(Files {
        root: cache::lra,
        flags: "--dataset NAME[,NAME]",
    }),
    read: |config| Ok(Box::new(config.typed::<LraConfig>()?)),
};

impl From<LraConfig> for TaskConfig {
    fn from(config: LraConfig) -> Self {
        Self::new(ENTRY.name, &config)
    }
}

impl Task for LraConfig {
    fn config(&self) -> TaskConfig {
        self.clone().into()
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            vocab_size: self.vocab_size,
            seq_len: self.seq_len,
            documents: self.dataset.documents(),
            labels_per_example: 1,
            classes: self.dataset.classes(),
            scalar: self.dataset.scalar(),
            examples: [self.train_examples, self.val_examples, self.test_examples],
        }
    }

    fn check(&self) -> Result<()> {
        check(self)
    }

    fn load(&self, data_dir: Option<&Path>) -> Result<super::Splits> {
        load(self, data_dir).map(super::Splits::Pooled)
    }

    fn title(&self) -> String {
        format!("LRA {}", self.dataset.name())
    }

    fn label(&self) -> String {
        self.dataset.name().to_owned()
    }

    fn next(&self, _mixer: &str) -> String {
        format!(
            "--preset quick --mixer all --dataset {}",
            self.dataset.name()
        )
    }

    fn ready(&self, data_dir: Option<&Path>) -> Result<()> {
        ready(self, data_dir)
    }
}

/// The splits of one of the five tasks.
pub type Splits = TrainValTest<Documents>;

/// The folder at or below `dir` in which files of `dataset` lie, in any of the forms that [`load`] reads.
/// Pictures as Parquet are not looked for: their files have the names of the reviews'.
pub fn found(dataset: LraDataset, dir: &Path) -> Option<PathBuf> {
    match dataset {
        LraDataset::Listops => listops::find(dir).ok(),
        LraDataset::Text => text::find(dir).ok()?[0].parent().map(Path::to_owned),
        LraDataset::Retrieval => retrieval::find(dir).ok(),
        LraDataset::Image => match image::find(dir).ok()? {
            image::Edition::Batches(folder) => Some(folder),
            image::Edition::Parquet(_) => None,
        },
        LraDataset::Pathfinder => {
            let mut levels = [14, 9, 6].into_iter();
            levels.find_map(|paddles| pathfinder::find(dir, paddles).ok())
        }
    }
}

/// Refuses a task whose files are not there.
fn ready(config: &LraConfig, data_dir: Option<&Path>) -> Result<()> {
    if config.data == Generator::Native {
        return Ok(());
    }
    let dir = &root(data_dir)?;
    match config.dataset {
        LraDataset::Listops => listops::find(dir).map(drop),
        LraDataset::Text => text::find(dir).map(drop),
        LraDataset::Retrieval => retrieval::find(dir).map(drop),
        LraDataset::Image => image::find(dir).map(drop),
        LraDataset::Pathfinder => pathfinder::find(dir, config.contour_length()).map(drop),
    }
}

fn root(data_dir: Option<&Path>) -> Result<PathBuf> {
    data_dir.map_or_else(cache::lra, |dir| Ok(dir.to_owned()))
}

/// The splits of `config`, generated, or read from files under `data_dir`; `None` is where
/// `dsf data fetch` puts them.
pub fn load(config: &LraConfig, data_dir: Option<&Path>) -> Result<Splits> {
    check(config)?;
    if config.data == Generator::Native {
        return generate::splits(config);
    }
    let dir = &root(data_dir)?;
    match config.dataset {
        LraDataset::Listops => listops::load(config, dir),
        LraDataset::Text => text::load(config, dir),
        LraDataset::Retrieval => retrieval::load(config, dir),
        LraDataset::Image => image::load(config, dir),
        LraDataset::Pathfinder => pathfinder::load(config, dir),
    }
}
