//! `dsf data generate`: ListOps and Pathfinder of our own as files.

use super::place::Place;
use super::stand_in;
use crate::cli::device::use_threads;
use crate::cli::{exit, print, raised, stop_flag, Global};
use crate::error::{Error, Result};
use crate::store::Staging;
use crate::tasks::lra::{generated_folder, write_generated, LraConfig, LraDataset};
use crate::tasks::Generator;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Nested operations on digits: three files of expressions and their values.
    Listops(Listops),
    /// Two discs among dashed paths, whether one path joins them: PNG files and their labels.
    Pathfinder(Pathfinder),
    /// Halves of articles, whether both are of one: stands in for pairs of papers.
    Retrieval(stand_in::Arguments),
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
    /// Longest expression with its end token; expressions have a fourth of it to nearly all.
    #[arg(long, value_name = "L", default_value_t = 2_048)]
    seq_len: usize,
    #[command(flatten)]
    place: Place,
}

#[derive(Args)]
struct Pathfinder {
    /// Pictures; a run deals them out by lot, a tenth each to validation and test.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    examples: usize,
    /// Paddles of the long paths, 3 to 14; the released levels have 6, 9 and 14 [default: 14].
    #[arg(long, value_name = "N")]
    contour_length: Option<usize>,
    #[command(flatten)]
    place: Place,
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    let (job, place) = match arguments.what {
        What::Listops(given) => (Job::listops(&given), given.place),
        What::Pathfinder(given) => (Job::pathfinder(&given)?, given.place),
        What::Retrieval(given) => return stand_in::main(given, global),
    };
    job.check()?;
    use_threads(global.threads()?);
    let root = place.root()?;
    let folder = match job.write(&root, place.force, global) {
        Err(Error::Stopped) => {
            print::talk("stopped by a signal; nothing was written, the same command begins anew");
            return Ok(exit::STOPPED);
        }
        written => written?,
    };
    print::line(&job.conclusion(&folder, &place, global.json))?;
    Ok(exit::DONE)
}

/// What is to be made.
struct Job {
    config: LraConfig,
    /// The sizes as a run has to be told, where they are not the official ones.
    sizes: String,
}

impl Job {
    fn listops(given: &Listops) -> Self {
        let config = LraConfig {
            seq_len: given.seq_len,
            data_seed: given.place.data_seed,
            ..LraConfig::of(
                LraDataset::Listops,
                Generator::Native,
                [
                    given.train_examples,
                    given.val_examples,
                    given.test_examples,
                ],
            )
        };
        Self::of(config)
    }

    fn pathfinder(given: &Pathfinder) -> Result<Self> {
        let n = given.examples;
        if !(10..=10_000_000).contains(&n) || !n.is_multiple_of(10) {
            return Err(Error::usage(format!(
                "--examples must be a multiple of 10 up to 10000000, not {n}"
            )));
        }
        let tenth = n / 10;
        let config = LraConfig {
            contour_length: given.contour_length,
            data_seed: given.place.data_seed,
            ..LraConfig::of(
                LraDataset::Pathfinder,
                Generator::Native,
                [n - 2 * tenth, tenth, tenth],
            )
        };
        Ok(Self::of(config))
    }

    fn of(config: LraConfig) -> Self {
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
        let level = config
            .contour_length
            .map(|n| format!(" --contour-length {n}"));
        Self {
            sizes: sizes.chain(level).collect(),
            config,
        }
    }

    fn check(&self) -> Result<()> {
        crate::tasks::Task::check(&self.config)
    }

    fn examples(&self) -> usize {
        self.config.examples().iter().sum()
    }

    /// Makes the files below `root` and gives their folder.
    fn write(&self, root: &Path, force: bool, global: &Global) -> Result<PathBuf> {
        let folder = root.join(generated_folder(&self.config));
        let known = [
            "basic_train.tsv",
            "basic_val.tsv",
            "basic_test.tsv",
            "imgs",
            "metadata",
        ];
        if let Some(there) = known.iter().map(|n| folder.join(n)).find(|p| p.exists()) {
            if !force {
                return Err(Error::usage(format!(
                    "{} is there already; --force replaces it, --data-dir DIR names another place",
                    there.display()
                )));
            }
        }
        let files = Staging::of(&folder)?;
        let stop = stop_flag()?;
        let bar = bar(self.examples(), global.quiet || global.json);
        let mut tell = |more: usize| {
            bar.inc(more as u64);
            if raised(&stop) {
                return Err(Error::Stopped);
            }
            Ok(())
        };
        write_generated(&self.config, files.path(), &mut tell)?;
        bar.finish_and_clear();
        files.publish()?;
        Ok(folder)
    }

    fn conclusion(&self, folder: &Path, place: &Place, as_json: bool) -> String {
        let (name, examples) = (self.config.dataset.name(), self.examples());
        if as_json {
            let event = json!({
                "event": "data", "schema": 1, "dataset": name, "state": "generated",
                "path": folder, "examples": examples,
            });
            return event.to_string();
        }
        let dir = place.flag();
        format!(
            "{name}: {examples} examples written, {}; use them by \
             `dsf lra --dataset {name} --data files{dir}{}`",
            folder.display(),
            self.sizes
        )
    }
}

/// On a terminal alone.
fn bar(examples: usize, quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len} examples  {eta} left");
    let bar = ProgressBar::new(examples as u64);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
