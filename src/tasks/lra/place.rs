//! Where the files of a task lie below the folder that was given.

use crate::error::{Error, Result};
use crate::tasks::lra::LraDataset;
use std::path::{Path, PathBuf};

/// The folder of the released code, then the folders of the published archives, the usual one first.
fn folders(dataset: LraDataset) -> (&'static str, &'static [&'static str]) {
    match dataset {
        LraDataset::Listops => ("listops", &["listops-1000"]),
        LraDataset::Text => ("imdb", &["plain_text", "aclImdb"]),
        LraDataset::Retrieval => ("aan", &["tsv_data"]),
        LraDataset::Image => ("cifar", &["cifar-10-batches-bin", "plain_text"]),
        LraDataset::Pathfinder => ("pathfinder", &["pathfinder32"]),
    }
}

/// Every folder in which the files may lie, the likeliest first.
fn candidates(dir: &Path, dataset: LraDataset) -> Vec<PathBuf> {
    let (released, archived) = folders(dataset);
    let near = ["", dataset.name(), released].map(|outer| dir.join(outer));
    let far = ["lra_release", "lra_release/lra_release"].map(|outer| dir.join(outer));
    let outers = near.iter().chain(&far);
    let inner = outers.flat_map(|outer| archived.iter().map(|name| outer.join(name)));
    near.iter().cloned().chain(inner).collect()
}

/// The folder at or below `dir` that holds every one of `names`, files or folders.
pub(super) fn look(dir: &Path, dataset: LraDataset, names: &[&str]) -> Option<PathBuf> {
    let mut folders = candidates(dir, dataset).into_iter();
    folders.find(|folder| names.iter().all(|name| folder.join(name).exists()))
}

/// As [`look`]; none is an error that names the first file missing and how to get it.
pub(super) fn find(dir: &Path, dataset: LraDataset, names: &[&str]) -> Result<PathBuf> {
    look(dir, dataset, names).ok_or_else(|| Error::Missing(missing(dir, dataset, names)))
}

/// The sentence about the first of `names` that is missing.
pub(super) fn missing(dir: &Path, dataset: LraDataset, names: &[&str]) -> String {
    let begun = |folder: &PathBuf| names.first().is_some_and(|n| folder.join(n).exists());
    let begun = candidates(dir, dataset).into_iter().find(begun);
    let place = begun.clone().unwrap_or_else(|| dir.to_owned());
    let absent = names.iter().find(|name| !place.join(name).exists());
    let looked = match begun {
        Some(folder) => folder.display().to_string(),
        None => {
            let usual = dir.join(folders(dataset).1[0]);
            format!("{} nor in {}", dir.display(), usual.display())
        }
    };
    let name = dataset.name();
    let generate = if dataset.can_be_generated() {
        format!("`dsf data generate {name}` makes data of the same kind, ")
    } else {
        String::new()
    };
    format!(
        "{name}: there is no {} in {looked}; `dsf data fetch lra --dataset {name}` gets the data, \
         {generate}and --data-dir DIR names the folder of data that lies elsewhere",
        absent.copied().unwrap_or("file"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NAMES: [&str; 2] = ["basic_train.tsv", "basic_val.tsv"];

    fn with_files_in(folder: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(folder)).unwrap();
        for name in NAMES {
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
            let found = find(dir.path(), LraDataset::Listops, &NAMES).unwrap();
            assert_eq!(found, dir.path().join(folder));
        }
    }

    #[test]
    fn a_folder_without_one_of_the_files_is_passed_over() {
        let dir = with_files_in("listops-1000");
        fs::write(dir.path().join(NAMES[0]), "").unwrap();
        let found = find(dir.path(), LraDataset::Listops, &NAMES).unwrap();
        assert_eq!(found, dir.path().join("listops-1000"));
    }

    #[test]
    fn a_missing_file_is_named_with_what_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        for dataset in LraDataset::ALL {
            let message = find(dir.path(), dataset, &["x.bin"]).unwrap_err();
            let message = message.to_string();
            let fetch = format!("`dsf data fetch lra --dataset {}`", dataset.name());
            for part in ["x.bin", &fetch, "--data-dir DIR"] {
                assert!(message.contains(part), "{message}");
            }
            let generates = message.contains("dsf data generate");
            assert_eq!(generates, dataset.can_be_generated(), "{message}");
        }
    }

    #[test]
    fn of_an_incomplete_set_the_absent_file_is_named() {
        let dir = with_files_in("listops-1000");
        let file = dir.path().join("listops-1000/basic_val.tsv");
        fs::remove_file(&file).unwrap();
        let message = find(dir.path(), LraDataset::Listops, &NAMES).unwrap_err();
        let wanted = format!("no basic_val.tsv in {};", file.parent().unwrap().display());
        assert!(message.to_string().contains(&wanted), "{message}");
    }
}
