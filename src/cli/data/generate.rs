//! `dsf data generate`: generated examples as files.

use super::event;
use crate::cache;
use crate::cli::device::use_threads;
use crate::cli::{check_stop, exit, print, stop_flag, Global};
use crate::error::{ensure, refuse, Error, Result};
use crate::store::Staging;
use crate::tasks::lra::{generated_folder, write_generated, write_stand_in, LraConfig, LraDataset};
use crate::tasks::{Generator, Task};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

#[derive(Args)]
pub(super) struct GenerateDataArguments {
    #[command(subcommand)]
    what: GeneratedExample,
}

#[derive(Subcommand)]
enum GeneratedExample {
    /// Nested operations on digits: three files of expressions with their values.
    Listops(Listops),
    /// Two discs among dashed paths, and whether one path connects them: PNG files with labels.
    Pathfinder(Pathfinder),
    /// Pairs of halves of articles, and whether both are of one article: a substitute for pairs of papers.
    Retrieval(Retrieval),
}

#[derive(Args)]
struct Listops {
    /// Training examples.
    #[arg(long, value_name = "N", default_value_t = 96_000)]
    train_examples: usize,
    /// Validation examples.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    val_examples: usize,
    /// Test examples.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    test_examples: usize,
    /// Maximum length with the end token; expressions have a quarter of it to nearly all of it.
    #[arg(long, value_name = "L", default_value_t = 2_048)]
    seq_len: usize,
    #[command(flatten)]
    place: OutputFiles,
}

#[derive(Args)]
struct Pathfinder {
    /// Number of images. A run splits them at random: a tenth each for validation and test.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    examples: usize,
    /// Number of paddles of the long paths, 3 to 14; released levels have 6, 9 and 14 [default: 14].
    #[arg(long, value_name = "N")]
    contour_length: Option<usize>,
    /// Side of the pictures in pixels: 32, 128 as in Path-X, or 256.
    #[arg(long, value_name = "N", default_value_t = 32)]
    side: usize,
    #[command(flatten)]
    place: OutputFiles,
}

#[derive(Args)]
struct Retrieval {
    /// Plain text, such as WikiText, whose articles begin at lines ` = Title = `.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Training pairs.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    train_examples: usize,
    /// Validation pairs.
    #[arg(long, value_name = "N", default_value_t = 200)]
    val_examples: usize,
    /// Test pairs.
    #[arg(long, value_name = "N", default_value_t = 400)]
    test_examples: usize,
    #[command(flatten)]
    place: OutputFiles,
}

/// Folder and names of generated files.
#[derive(Args)]
struct OutputFiles {
    /// Folder of data [default: dsf/lra in HF_HOME].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Seed of the examples.
    #[arg(long, value_name = "S", default_value_t = 0)]
    data_seed: u64,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

impl OutputFiles {
    fn root(&self) -> Result<PathBuf> {
        self.data_dir.clone().map_or_else(cache::lra, Ok)
    }

    /// Returns the flag for a command to be typed.
    fn flag(&self) -> String {
        let dir = self.data_dir.as_ref();
        dir.map_or(String::new(), |dir| format!(" --data-dir {}", dir.display()))
    }

    /// Creates a staging folder for files of `folder`. Fails if one of `known` exists and may not be replaced.
    fn begin(&self, folder: &Path, known: &[&str], stop: &AtomicBool) -> Result<Staging> {
        let refuse_to_replace = || {
            let mut known = known.iter().map(|name| folder.join(name));
            match known.find(|path| !self.force && path.exists()) {
                Some(there) => {
                    refuse!(path there, "exists already; --force replaces it, --data-dir DIR names another place")
                }
                None => Ok(()),
            }
        };
        refuse_to_replace()?;
        let files = Staging::of(folder, || check_stop(stop)).map_err(|e| match self.data_dir {
            Some(_) => e,
            None => cache::with_remedy(e),
        })?;
        // Another process may have written the files meanwhile.
        refuse_to_replace()?;
        Ok(files)
    }
}

pub(super) fn main(arguments: GenerateDataArguments, global: &Global) -> Result<u8> {
    let written = match &arguments.what {
        GeneratedExample::Listops(given) => {
            let sizes = [given.train_examples, given.val_examples, given.test_examples];
            let config =
                LraConfig { seq_len: given.seq_len, ..LraConfig::of(LraDataset::Listops, Generator::Native, sizes) };
            as_released(config, &given.place, global)
        }
        GeneratedExample::Pathfinder(given) => as_released(pictures(given)?, &given.place, global),
        GeneratedExample::Retrieval(given) => pairs(given, global),
    };
    match written {
        Err(Error::Stopped) => {
            print::message("stopped by a signal; nothing was written, the same command begins anew");
            Ok(exit::STOPPED)
        }
        written => written.map(|()| exit::DONE),
    }
}

fn pictures(given: &Pathfinder) -> Result<LraConfig> {
    let n = given.examples;
    ensure!(
        (10..=10_000_000).contains(&n) && n.is_multiple_of(10),
        flag "--examples" = n, "must be a multiple of 10 up to 10000000");
    let sizes = [n - 2 * (n / 10), n / 10, n / 10];
    let dataset = match given.side {
        32 => LraDataset::Pathfinder,
        128 => LraDataset::PathX,
        256 => LraDataset::PathX256,
        other => refuse!(flag "--side" = other, "must be 32, 128 or 256"),
    };
    Ok(LraConfig { contour_length: given.contour_length, ..LraConfig::of(dataset, Generator::Native, sizes) })
}

/// Writes the examples of `config` in the format of the released files.
fn as_released(mut config: LraConfig, place: &OutputFiles, global: &Global) -> Result<()> {
    config.data_seed = place.data_seed;
    config.check()?;
    use_threads(global.threads()?)?;
    let folder = place.root()?.join(generated_folder(&config));
    #[rustfmt::skip]
    let known = ["basic_train.tsv", "basic_val.tsv", "basic_test.tsv", "imgs", "metadata"];
    let examples: usize = config.examples().iter().sum();
    let stop = stop_flag()?;
    let files = place.begin(&folder, &known, &stop)?;
    let template = "{bar:20} {pos}/{len} examples  {eta} left";
    let bar = print::bar_unless(global.silent(), template, Some(examples as u64));
    let mut progress = |more: usize| {
        bar.inc(more as u64);
        check_stop(&stop)
    };
    write_generated(&config, files.path(), &mut progress)?;
    bar.finish_and_clear();
    files.publish()?;
    let uses = format!(" --data files{}{}", place.flag(), other_sizes(&config));
    emit_summary(config.dataset, examples, "examples", &folder, &uses, "", global)
}

/// Returns the flags of a run for sizes that differ from the official ones.
fn other_sizes(config: &LraConfig) -> String {
    let dataset = config.dataset;
    let [train, val, test] = dataset.examples();
    let sizes = [
        ("--train-examples", config.train_examples, train),
        ("--val-examples", config.val_examples, val),
        ("--test-examples", config.test_examples, test),
        ("--seq-len", config.seq_len, dataset.seq_len()),
    ];
    let other = sizes.iter().filter(|(_, size, official)| size != official);
    let sizes = other.map(|(flag, size, _)| format!(" {flag} {size}"));
    let level = config.contour_length.map(|n| format!(" --contour-length {n}"));
    sizes.chain(level).collect()
}

/// Writes pairs of halves of articles as a substitute for the papers, which are not available.
fn pairs(given: &Retrieval, global: &Global) -> Result<()> {
    let place = &given.place;
    let sizes = [
        ("--train-examples", given.train_examples),
        ("--val-examples", given.val_examples),
        ("--test-examples", given.test_examples),
    ];
    if let Some((flag, size)) = sizes.iter().find(|(_, size)| *size > 10_000_000) {
        refuse!(flag(flag) = size, "must be at most 10000000");
    }
    let folder = place.root()?.join("retrieval");
    let stop = stop_flag()?;
    let files = place.begin(&folder, &["new_aan_pairs.train.tsv"], &stop)?;
    let counts = sizes.map(|(_, size)| size);
    write_stand_in(&given.from, files.path(), counts, place.data_seed)?;
    files.publish()?;
    let said = sizes.map(|(flag, size)| format!(" {flag} {size}"));
    let uses = place.flag() + &said.concat();
    let warning = "; they stand in for the task's papers, and what is learnt from them says nothing about those";
    let (dataset, count) = (LraDataset::Retrieval, counts.iter().sum());
    emit_summary(dataset, count, "pairs", &folder, &uses, warning, global)
}

/// Prints a summary of the files and how to use them, with a `warning` for people.
fn emit_summary(
    dataset: LraDataset,
    count: usize,
    what: &str,
    folder: &Path,
    uses: &str,
    warning: &str,
    global: &Global,
) -> Result<()> {
    let name = dataset.name();
    let mut said = event(name, "generated", folder);
    said["examples"] = json!(count);
    let text = format!(
        "{name}: {count} {what} written, {}; use them by `dsf lra --dataset {name}{uses}`{warning}",
        folder.display()
    );
    global.emit(&said, &text)
}
