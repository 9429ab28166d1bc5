//! File names of the datasets, and their folders below a given one.

use super::{LraDataset, Sources, HARD_CONTOUR};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// ListOps: training, validation, test.
pub const LISTOPS: [&str; 3] = ["basic_train.tsv", "basic_val.tsv", "basic_test.tsv"];

/// Pairs of papers: training, validation, test.
pub const PAIRS: [&str; 3] = ["new_aan_pairs.train.tsv", "new_aan_pairs.eval.tsv", "new_aan_pairs.test.tsv"];

/// Binary batches of CIFAR-10 in the order of the released code, training batches first.
pub const BATCHES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

/// Parquet files of reviews or pictures on the hub, training first.
pub const PARQUET: [&str; 2] = ["train-00000-of-00001.parquet", "test-00000-of-00001.parquet"];

/// Folders with one file per review.
const REVIEWS: [&str; 4] = ["train/neg", "train/pos", "test/neg", "test/pos"];

/// Folder of a level of Pathfinder, by the number of paddles of its long paths.
pub(super) fn level(contour_length: usize) -> String {
    match contour_length {
        6 => "curv_baseline".to_owned(),
        paddles => format!("curv_contour_length_{paddles}"),
    }
}

/// Folder of the released code, then the folders of the published archives, the usual one first.
fn folders(dataset: LraDataset) -> (&'static str, &'static [&'static str]) {
    match dataset {
        LraDataset::Listops => ("listops", &["listops-1000"]),
        LraDataset::Text => ("imdb", &["plain_text", "aclImdb"]),
        LraDataset::Retrieval => ("aan", &["tsv_data"]),
        LraDataset::Image => ("cifar", &["cifar-10-batches-bin", "plain_text"]),
        LraDataset::Pathfinder => ("pathfinder", &["pathfinder32"]),
        LraDataset::PathX => ("pathfinder", &["pathfinder128"]),
        LraDataset::PathX256 => ("pathfinder", &["pathfinder256"]),
    }
}

/// All folders that may hold the files, the likeliest first.
fn candidates(dir: &Path, dataset: LraDataset) -> Vec<PathBuf> {
    let (released, archived) = folders(dataset);
    let near = ["", dataset.name(), released].map(|outer| dir.join(outer));
    let far = ["lra_release", "lra_release/lra_release"].map(|outer| dir.join(outer));
    let inner = near.iter().chain(&far).flat_map(|outer| archived.iter().map(|name| outer.join(name)));
    near.iter().cloned().chain(inner).collect()
}

/// Returns the folder at or below `dir` that holds all of `names`, files or folders.
fn look(dir: &Path, dataset: LraDataset, names: &[&str]) -> Option<PathBuf> {
    candidates(dir, dataset).into_iter().find(|folder| has(folder, names))
}

pub(super) fn has(folder: &Path, names: &[&str]) -> bool {
    names.iter().all(|name| folder.join(name).exists())
}

pub(super) fn named(folder: &Path, names: &[&str]) -> Sources {
    let mut sources = Sources::default();
    for name in names {
        sources.push(*name, folder.join(name));
    }
    sources
}

/// Returns the folder at or below `dir` that holds the files of `dataset`, in any published form; for Pathfinder the
/// folder of the level. Fails with the first missing file and how to get it.
pub(super) fn find(dataset: LraDataset, contour_length: usize, dir: &Path) -> Result<PathBuf> {
    let level = level(contour_length);
    let forms: &[&[&str]] = match dataset {
        LraDataset::Listops => &[&LISTOPS],
        LraDataset::Text => &[&PARQUET, &REVIEWS],
        LraDataset::Retrieval => &[&PAIRS],
        LraDataset::Image => &[&BATCHES, &PARQUET],
        LraDataset::Pathfinder | LraDataset::PathX | LraDataset::PathX256 => &[&[level.as_str()]],
    };
    let mut found = forms.iter().filter_map(|names| look(dir, dataset, names));
    match (found.next(), dataset) {
        (Some(folder), dataset) if dataset.has_paths() => Ok(folder.join(level)),
        (Some(folder), _) => Ok(folder),
        (None, _) => Err(missing(dir, dataset, contour_length, forms[0])),
    }
}

/// Error about the first of `names` that is missing.
fn missing(dir: &Path, dataset: LraDataset, contour_length: usize, names: &[&str]) -> Error {
    let begun = |folder: &PathBuf| names.first().is_some_and(|n| folder.join(n).exists());
    let begun = candidates(dir, dataset).into_iter().find(begun);
    let place = begun.clone().unwrap_or_else(|| dir.to_owned());
    let absent = names.iter().find(|name| !place.join(name).exists()).copied().unwrap_or("file");
    let name = dataset.name();
    let absent = match begun {
        Some(_) => format!("{absent} of {name} is missing from this folder"),
        None => {
            let usual = dir.join(folders(dataset).1[0]);
            format!("{absent} of {name} is neither in this folder nor in {}", usual.display())
        }
    };
    let generate = if dataset.can_be_generated() {
        let what = match dataset.side() {
            larger @ (128 | 256) => format!("pathfinder --side {larger}"),
            _ => name.to_owned(),
        };
        let level = match contour_length {
            easier if dataset.has_paths() && easier != HARD_CONTOUR => format!(" --contour-length {easier}"),
            _ => String::new(),
        };
        format!("generate data of the same kind with `dsf data generate {what}{level}`, ")
    } else {
        String::new()
    };
    let other_form = match dataset {
        LraDataset::Text => "; folders aclImdb/{train,test}/{neg,pos}/*.txt are read too",
        _ => "",
    };
    let reason = format!(
        "{absent}: download the data with `dsf data fetch lra --dataset {name}`, {generate}or give the folder of existing \
         data with --data-dir DIR{other_form}"
    );
    Error::missing_at(place, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;
    use std::fs;

    fn with_files_in(folder: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(folder)).unwrap();
        for name in LISTOPS {
            fs::write(dir.path().join(folder).join(name), "").unwrap();
        }
        dir
    }

    #[test]
    fn files_are_found_in_every_published_layout() {
        for folder in [
            "",
            "listops",
            "listops-1000",
            "listops/listops-1000",
            "lra_release/listops-1000",
            "lra_release/lra_release/listops-1000",
        ] {
            let dir = with_files_in(folder);
            let found = find(LraDataset::Listops, 14, dir.path()).unwrap();
            assert_eq!(found, dir.path().join(folder));
        }
    }

    #[test]
    fn a_folder_without_one_of_the_files_is_passed_over() {
        let dir = with_files_in("listops-1000");
        fs::write(dir.path().join(LISTOPS[0]), "").unwrap();
        let found = find(LraDataset::Listops, 14, dir.path()).unwrap();
        assert_eq!(found, dir.path().join("listops-1000"));
    }

    #[test]
    fn a_missing_file_is_named_with_what_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let level = level(14);
        let first = [LISTOPS[0], PARQUET[0], PAIRS[0], BATCHES[0], &level];
        for (dataset, first) in LraDataset::ALL.into_iter().zip(first) {
            let at = find(dataset, 14, dir.path()).fails("missing");
            let fetch = format!("`dsf data fetch lra --dataset {}`", dataset.name());
            at.is_at(dir.path(), None).names(&[first, &fetch, "--data-dir DIR"]);
            let generates = at.reason.contains("`dsf data generate");
            assert_eq!(generates, dataset.can_be_generated(), "{at:?}");
        }
    }

    #[test]
    fn of_an_incomplete_set_the_absent_file_is_named() {
        let dir = with_files_in("listops-1000");
        let file = dir.path().join("listops-1000/basic_val.tsv");
        fs::remove_file(&file).unwrap();
        let at = find(LraDataset::Listops, 14, dir.path()).fails("missing");
        at.is_at(file.parent().unwrap(), None).names(&["basic_val.tsv"]);
    }
}
