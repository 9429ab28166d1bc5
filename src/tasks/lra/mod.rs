//! Tasks of the Long Range Arena: labelled documents of bytes, from files or generated.

mod config;
pub mod files;
mod image;
mod listops;
mod parts;
mod pathfinder;
mod picture;
mod retrieval;
mod stand_in;
mod text;
mod vocab;

pub use config::{LraConfig, LraDataset, HARD_CONTOUR};
pub use stand_in::write_stand_in;

use super::{
    Documents, ExampleSizes, ExamplesMade, Files, Generator, Objective, Sources, Task, TaskEntry, TrainValTest,
};
use crate::cache;
use crate::config::TaskConfig;
use crate::error::{ensure, refuse, Result};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "lra",
    about: "a task of the Long Range Arena",
    examples: &[
        "dsf lra --mixer mamba",
        "dsf lra --preset quick --dataset listops --mixer linear",
        "dsf lra --dataset image --mixer softmax --explain",
    ],
    recipe: include_str!("../../recipes/lra.toml"),
    fields: &[
        "dataset",
        "data",
        "source_digest",
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
    files: Some(Files {
        root: cache::lra,
        about: "the released files of the Long Range Arena",
        flags: "--dataset NAME[,NAME]",
    }),
    read: |config| Ok(Box::new(config.typed::<LraConfig>()?)),
};

impl Task for LraConfig {
    fn config(&self) -> TaskConfig {
        TaskConfig::new(ENTRY.name, self)
    }

    fn sizes(&self) -> ExampleSizes {
        ExampleSizes {
            vocab_size: self.vocab_size,
            seq_len: self.seq_len,
            test_seq_len: self.seq_len,
            documents: self.dataset.documents(),
            labels_per_example: 1,
            labels_per_tested_example: 1,
            classes: self.dataset.classes(),
            scalar: self.dataset.scalar(),
            examples: self.examples(),
        }
    }

    fn has_one_length(&self) -> bool {
        self.dataset.is_picture()
    }

    fn check(&self) -> Result<()> {
        match (self.data, self.dataset) {
            (Generator::Files, _) => {}
            (Generator::Native, dataset) if dataset.has_paths() => {}
            (Generator::Native, LraDataset::Listops) => listops::check_generated(self)?,
            (Generator::Native, other) => {
                refuse!(flag "--data" = "native", "{} cannot be generated; give --data files", other.name())
            }
            (Generator::Numpy, _) => {
                refuse!(flag "--data" = "numpy", "is a generator of MQAR; the Long Range Arena takes native or files")
            }
        }
        check_sizes(self)
    }

    fn load(&self, data_dir: Option<&Path>, made: ExamplesMade) -> Result<super::Splits> {
        load(self, data_dir, made).map(super::Splits::Pooled)
    }

    fn title(&self) -> String {
        format!("LRA {}", self.dataset.name())
    }

    fn label(&self) -> String {
        self.dataset.name().to_owned()
    }

    fn sources(&self, data_dir: Option<&Path>) -> Result<Option<Sources>> {
        if self.data == Generator::Native {
            return Ok(None);
        }
        let folder = files::find(self.dataset, self.contour_length(), &root(data_dir)?)?;
        let sources = match self.dataset {
            LraDataset::Listops => files::named(&folder, &files::LISTOPS),
            LraDataset::Text => text::sources(&folder)?,
            LraDataset::Retrieval => files::named(&folder, &files::PAIRS),
            LraDataset::Image => image::sources(&folder),
            LraDataset::Pathfinder | LraDataset::PathX | LraDataset::PathX256 => {
                pathfinder::sources(&folder, self.dataset)?
            }
        };
        Ok(Some(sources))
    }
}

/// Splits of one of the five tasks.
pub type LraSplits = TrainValTest<Documents>;

/// Returns the folder below `dir` that holds files of `dataset`, in any form that [`load`] reads. Parquet files of
/// pictures are not considered, because they have the same names as those of the reviews.
pub fn found(dataset: LraDataset, dir: &Path) -> Option<PathBuf> {
    let levels: &[usize] = if dataset.has_paths() { &[14, 9, 6] } else { &[HARD_CONTOUR] };
    let mut found = levels.iter().filter_map(|level| files::find(dataset, *level, dir).ok());
    found.find(|folder| dataset != LraDataset::Image || files::has(folder, &files::BATCHES))
}

fn root(data_dir: Option<&Path>) -> Result<PathBuf> {
    data_dir.map_or_else(cache::lra, |dir| Ok(dir.to_owned()))
}

/// Loads the splits of `config`, generated or from files under `data_dir`; `None` is the folder of `dsf data fetch`. The
/// pictures of Pathfinder are reported to `made` while they are drawn.
pub fn load(config: &LraConfig, data_dir: Option<&Path>, made: ExamplesMade) -> Result<LraSplits> {
    config.check()?;
    if config.data == Generator::Native {
        return match config.dataset {
            LraDataset::Listops => listops::generated(config),
            _ => pathfinder::generated(config, made),
        };
    }
    let dir = &root(data_dir)?;
    match config.dataset {
        LraDataset::Listops => listops::load(config, dir),
        LraDataset::Text => text::load(config, dir),
        LraDataset::Retrieval => retrieval::load(config, dir),
        LraDataset::Image => image::load(config, dir),
        LraDataset::Pathfinder | LraDataset::PathX | LraDataset::PathX256 => pathfinder::load(config, dir),
    }
}

/// Folder of the files of a generated task under a data folder.
pub fn generated_folder(config: &LraConfig) -> PathBuf {
    match config.dataset {
        LraDataset::Listops => "listops".into(),
        _ => pathfinder::folder(config),
    }
}

/// Writes the examples of `config`, which must have passed its check, into `folder` in the format that [`load`] reads.
/// `progress` receives the number of examples finished since its last call.
pub fn write_generated(config: &LraConfig, folder: &Path, progress: &mut dyn FnMut(usize) -> Result<()>) -> Result<()> {
    match config.dataset {
        LraDataset::Listops => listops::write(config, folder, progress),
        _ => pathfinder::write(config, folder, progress),
    }
}

/// Numbers of paddles of long paths: the most fit into 32 x 32 pixels, and a third of the fewest is still a path.
const CONTOURS: RangeInclusive<usize> = 3..=14;

fn check_sizes(config: &LraConfig) -> Result<()> {
    let sizes = [
        ("--train-examples", config.train_examples, 1, 10_000_000),
        ("--val-examples", config.val_examples, 0, 10_000_000),
        ("--test-examples", config.test_examples, 1, 10_000_000),
        ("--vocab-size", config.vocab_size, 4, 256),
    ];
    for (flag, size, least, most) in sizes {
        let fits = (least..=most).contains(&size);
        ensure!(fits, flag(flag) = size, "must be {least} to {most}");
    }
    let (dataset, name, seq_len) = (config.dataset, config.dataset.name(), config.seq_len);
    if let Some(paddles) = config.contour_length {
        ensure!(
            dataset.has_paths(),
            flag "--contour-length", "is a setting of Pathfinder; leave it out with --dataset {name}");
        ensure!(
            CONTOURS.contains(&paddles),
            flag "--contour-length" = paddles, "must be {} to {} paddles; the released levels have 6, 9 and 14", CONTOURS.start(), CONTOURS.end());
    }
    if dataset.is_picture() {
        let side = dataset.side();
        let sizes = [("--seq-len", seq_len, dataset.seq_len()), ("--vocab-size", config.vocab_size, 256)];
        for (flag, size, fixed) in sizes {
            ensure!(
                size == fixed,
                flag(flag) = size,
                "{name} has {side} x {side} pixels with 256 gray values, so this is always {fixed}: leave it out"
            );
        }
    } else {
        let fits = (16..=65_536).contains(&seq_len);
        ensure!(fits, flag "--seq-len" = seq_len, "must be 16 to 65536");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
use tests::testing;
