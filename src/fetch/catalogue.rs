//! Catalogue of the datasets that can be fetched: origin, files and place under a data root.

use crate::tasks::lra::{files, LraDataset};
use crate::tasks::wikitext::{Corpus, GPT_NEOX_FOLDER};
use std::fs;
use std::path::{Path, PathBuf};

/// Dataset of any task that can be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchedDataset {
    /// A task of the Long Range Arena.
    Lra(LraDataset),
    /// A text of the hub.
    Wikitext(Corpus),
    /// The tokenizer of GPT-NeoX.
    GptNeox,
}

impl FetchedDataset {
    /// Name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lra(dataset) => dataset.name(),
            Self::Wikitext(corpus) => corpus.name(),
            Self::GptNeox => "gpt-neox",
        }
    }

    /// Name of the task that uses the dataset and whose data root holds it.
    pub fn task(self) -> &'static str {
        match self {
            Self::Lra(_) => "lra",
            Self::Wikitext(_) | Self::GptNeox => "wikitext",
        }
    }
}

/// Dataset with its origin and files.
pub struct CatalogueEntry {
    /// The dataset.
    pub dataset: FetchedDataset,
    /// Origin of the dataset.
    pub origin: DatasetOrigin,
    /// Folder below the data root.
    pub folder: &'static str,
    /// Files or folders below `folder` that a complete dataset must have.
    pub parts: &'static [&'static str],
    /// Description with the size of the download.
    pub about: &'static str,
    /// Terms of use.
    pub licence: &'static str,
}

/// Origin of datasets. Some datasets share an archive or a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetOrigin {
    /// A repository of the Hugging Face hub.
    Hub(Repository),
    /// The archive of CIFAR-10's authors.
    Cifar,
    /// The archive of the Long Range Arena.
    Lra,
}

/// Repository of the Hugging Face hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Owner and name.
    pub name: &'static str,
    /// Folder of the files in the repository; empty for the top level.
    pub folder: &'static str,
    /// Whether it is a model repository; all others are dataset repositories.
    pub models: bool,
}

const LRA_ABOUT: &str = "in the archive of the Long Range Arena, 7.7 GB with all of its datasets";

/// All entries: tasks in the order of [`LraDataset::ALL`] and [`LraDataset::LARGER`], texts in that of [`Corpus::ALL`], then the tokenizer.
pub const CATALOGUE: [CatalogueEntry; 12] = [
    CatalogueEntry {
        dataset: FetchedDataset::Lra(LraDataset::Listops),
        origin: DatasetOrigin::Lra,
        folder: "lra_release/lra_release/listops-1000",
        parts: &files::LISTOPS,
        about: LRA_ABOUT,
        licence: "synthetic, can be generated without a download; cite Nangia and Bowman 2018",
    },
    CatalogueEntry {
        dataset: FetchedDataset::Lra(LraDataset::Text),
        origin: DatasetOrigin::Hub(Repository { name: "stanfordnlp/imdb", folder: "plain_text", models: false }),
        folder: "text/plain_text",
        parts: &files::PARQUET,
        about: "IMDB reviews from the Hugging Face hub (stanfordnlp/imdb), 42 MB",
        licence: "for research; cite Maas et al. 2011",
    },
    CatalogueEntry {
        dataset: FetchedDataset::Lra(LraDataset::Retrieval),
        origin: DatasetOrigin::Lra,
        folder: "lra_release/lra_release/tsv_data",
        parts: &files::PAIRS,
        about: LRA_ABOUT,
        licence: "texts of the ACL Anthology Network, which the archive contains although its authors \
                  state that they may not redistribute them: for your own research; cite Radev et al. 2013",
    },
    CatalogueEntry {
        dataset: FetchedDataset::Lra(LraDataset::Image),
        origin: DatasetOrigin::Cifar,
        folder: "image/cifar-10-batches-bin",
        parts: &files::BATCHES,
        about: "CIFAR-10 from its authors, 170 MB",
        licence: "for research; cite Krizhevsky 2009",
    },
    pathfinder(LraDataset::Pathfinder, "lra_release/lra_release/pathfinder32/curv_contour_length_14"),
    pathfinder(LraDataset::PathX, "lra_release/lra_release/pathfinder128/curv_contour_length_14"),
    pathfinder(LraDataset::PathX256, "lra_release/lra_release/pathfinder256/curv_contour_length_14"),
    wikitext(
        Corpus::Wikitext103Raw,
        &TWO_SHARDS,
        "WikiText-103 with its rare words, from the Hugging Face hub (Salesforce/wikitext), 315 MB",
    ),
    wikitext(Corpus::Wikitext103, &TWO_SHARDS, "WikiText-103 with <unk> for rare words, from the same place, 315 MB"),
    wikitext(Corpus::Wikitext2Raw, &ONE_SHARD, "WikiText-2 with its rare words, from the same place, 8 MB"),
    wikitext(Corpus::Wikitext2, &ONE_SHARD, "WikiText-2 with <unk> for rare words, from the same place, 8 MB"),
    CatalogueEntry {
        dataset: FetchedDataset::GptNeox,
        origin: DatasetOrigin::Hub(Repository { name: "EleutherAI/gpt-neox-20b", folder: "", models: true }),
        folder: GPT_NEOX_FOLDER,
        parts: &["tokenizer.json"],
        about: "the tokenizer of GPT-NeoX and Pythia, from the Hugging Face hub \
                (EleutherAI/gpt-neox-20b), 2 MB",
        licence: "Apache-2.0; cite Black et al. 2022",
    },
];

const ONE_SHARD: [&str; 3] =
    ["train-00000-of-00001.parquet", "validation-00000-of-00001.parquet", "test-00000-of-00001.parquet"];

const TWO_SHARDS: [&str; 4] = [
    "train-00000-of-00002.parquet",
    "train-00001-of-00002.parquet",
    "validation-00000-of-00001.parquet",
    "test-00000-of-00001.parquet",
];

/// Entry of the hard set of Pathfinder at one size.
const fn pathfinder(dataset: LraDataset, folder: &'static str) -> CatalogueEntry {
    CatalogueEntry {
        dataset: FetchedDataset::Lra(dataset),
        origin: DatasetOrigin::Lra,
        folder,
        parts: &["metadata", "imgs"],
        about: LRA_ABOUT,
        licence: "synthetic, can be generated without a download; cite Linsley et al. 2018",
    }
}

/// Entry of a text whose folder has the same name on the hub and below the data root.
const fn wikitext(corpus: Corpus, parts: &'static [&'static str], about: &'static str) -> CatalogueEntry {
    let Some(folder) = corpus.hub_folder() else { panic!("the hub has no such text") };
    CatalogueEntry {
        dataset: FetchedDataset::Wikitext(corpus),
        origin: DatasetOrigin::Hub(Repository { name: "Salesforce/wikitext", folder, models: false }),
        folder,
        parts,
        about,
        licence: "text of Wikipedia, CC BY-SA 3.0 and GFDL; cite Merity et al. 2016",
    }
}

/// Returns the entry of `dataset`.
///
/// # Panics
///
/// Panics for a corpus that cannot be fetched; the caller has rejected those.
pub fn entry(dataset: FetchedDataset) -> &'static CatalogueEntry {
    let mut entries = CATALOGUE.iter();
    entries.find(|e| e.dataset == dataset).expect("the catalogue holds every dataset that the hub or an archive has")
}

/// Completeness of a dataset under a data root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// The dataset is complete.
    Present,
    /// The folder exists but lacks this part.
    Lacks(PathBuf),
    /// There is no folder.
    Absent,
}

impl CatalogueEntry {
    /// Folder of the dataset under `root`.
    pub fn path(&self, root: &Path) -> PathBuf {
        root.join(self.folder)
    }

    /// Completeness of the dataset under `root`.
    pub fn state(&self, root: &Path) -> Completeness {
        let folder = self.path(root);
        if !folder.exists() {
            return Completeness::Absent;
        }
        let parts = self.parts.iter().map(|part| folder.join(part));
        let there = |part: &PathBuf| match self.origin {
            DatasetOrigin::Hub(_) => part.is_file(),
            _ => part.exists(), // a file or a folder
        };
        match { parts }.find(|part| !there(part)) {
            Some(part) => Completeness::Lacks(part),
            None => Completeness::Present,
        }
    }

    /// Total size in bytes of the files in its folder under `root`.
    pub fn bytes(&self, root: &Path) -> u64 {
        bytes_below(&self.path(root))
    }
}

/// Total size in bytes of all files below `path`. Unreadable ones count as 0, since the number is only listed.
pub fn bytes_below(path: &Path) -> u64 {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|e| bytes_below(&e.path())).sum(),
        Err(_) => fs::metadata(path).map_or(0, |m| m.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_has_every_dataset_once_and_in_order() {
        let lra = LraDataset::ALL.into_iter().chain(LraDataset::LARGER).map(FetchedDataset::Lra).collect::<Vec<_>>();
        let text = Corpus::ALL.map(FetchedDataset::Wikitext);
        let all = [&lra[..], &text[..4], &[FetchedDataset::GptNeox]].concat();
        assert_eq!({ CATALOGUE }.map(|e| e.dataset).to_vec(), all);
    }

    #[test]
    fn a_dataset_is_present_once_its_last_part_is() {
        let root = tempfile::tempdir().unwrap();
        let image = entry(FetchedDataset::Lra(LraDataset::Image));
        assert_eq!(image.state(root.path()), Completeness::Absent);
        let folder = image.path(root.path());
        fs::create_dir_all(&folder).unwrap();
        for part in image.parts {
            let lacks = image.state(root.path());
            assert_eq!(lacks, Completeness::Lacks(folder.join(part)));
            fs::write(folder.join(part), b"abc").unwrap();
        }
        assert_eq!(image.state(root.path()), Completeness::Present);
        assert_eq!(image.bytes(root.path()), 18);
    }
}
