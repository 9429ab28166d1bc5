//! The tasks of the Long Range Arena: labelled documents of bytes, from files or generated.

mod check;
mod examples;
pub mod generate;
mod image;
mod lines;
mod listops;
mod parquet;
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

pub use check::check;
pub use examples::{Examples, Splits};
pub use retrieval::write_stand_in;

use crate::cache;
use crate::config::{Generator, LraConfig, LraDataset};
use crate::error::Result;
use std::path::{Path, PathBuf};

/// The folder under `dir` in which files of `dataset` lie, in any of the forms that [`load`] reads.
pub fn found(dataset: LraDataset, dir: &Path) -> Option<PathBuf> {
    let forms: &[&[&str]] = match dataset {
        LraDataset::Listops => &[&["basic_train.tsv", "basic_val.tsv", "basic_test.tsv"]],
        LraDataset::Text => &[
            &[
                "train-00000-of-00001.parquet",
                "test-00000-of-00001.parquet",
            ],
            &["train/pos", "train/neg", "test/pos", "test/neg"],
        ],
        LraDataset::Retrieval => &[&[
            "new_aan_pairs.train.tsv",
            "new_aan_pairs.eval.tsv",
            "new_aan_pairs.test.tsv",
        ]],
        LraDataset::Image => &[&["data_batch_1.bin", "test_batch.bin"]],
        LraDataset::Pathfinder => &[
            &["curv_contour_length_14"],
            &["curv_contour_length_9"],
            &["curv_baseline"],
        ],
    };
    forms
        .iter()
        .find_map(|names| place::look(dir, dataset, names))
}

/// Refuses a task whose files are not there, before anything else is done.
pub fn ready(config: &LraConfig, data_dir: Option<&Path>) -> Result<()> {
    if config.data == Generator::Native || found(config.dataset, &root(data_dir)?).is_some() {
        return Ok(());
    }
    // The loaders know best what they miss.
    load(config, data_dir).map(drop)
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
