//! Pictures read pixel by pixel: sequential MNIST (Le, Jaitly and Hinton 2015), sequential CIFAR-10 in grayscale, and both with
//! the pixels in one fixed random order, which leaves no neighbours beside each other.

mod digits;
mod idx;
mod shapes;

use super::lra::{self, LraConfig, LraDataset};
use super::{
    Documents, ExampleSizes, ExamplesMade, Generator, Objective, Sources, Splits, Task, TaskEntry, TrainValTest,
};
use crate::config::TaskConfig;
use crate::error::{ensure, refuse, Result};
use crate::ops::rng::Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::Path;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "pixels",
    about: "pictures read pixel by pixel: sequential MNIST and CIFAR",
    examples: &[
        "dsf pixels --mixer s4d",
        "dsf pixels --mixer lru --permuted true",
        "dsf pixels --picture cifar",
        "dsf pixels --preset paper --picture mnist --data-dir DIR --mixer mamba",
    ],
    recipe: include_str!("../../recipes/pixels.toml"),
    fields: &[
        "picture",
        "permuted",
        "data",
        "source_digest",
        "data_seed",
        "vocab_size",
        "seq_len",
        "train_examples",
        "val_examples",
        "test_examples",
    ],
    objective: Objective::Pooled,
    headline: "accuracy",
    files: None,
    read: |config| Ok(Box::new(config.typed::<PixelsConfig>()?)),
};

/// Settings of the task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PixelsConfig {
    /// Kind of picture.
    picture: PictureKind,
    /// Whether the pixels are read in a random order, the same for all pictures and runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    permuted: bool,
    /// Source of the pictures: files, or drawn digits in place of MNIST and drawn shapes in place of CIFAR.
    data: Generator,
    /// Digest of the files that are read; `None` for drawn pictures, and until the files have been looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_digest: Option<String>,
    /// Seed of drawn pictures; without effect for files.
    data_seed: u64,
    /// Number of gray values, V.
    vocab_size: usize,
    /// Number of pixels, L.
    seq_len: usize,
    /// Number of training pictures.
    train_examples: usize,
    /// Number of validation pictures, which select the epoch; 0 without a validation split.
    val_examples: usize,
    /// Number of test pictures.
    test_examples: usize,
}

/// Kind of picture; both have ten classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PictureKind {
    /// Handwritten digits, 28 x 28 pixels.
    Mnist,
    /// CIFAR-10 in grayscale, 32 x 32 pixels.
    Cifar,
}

/// Number of gray values of a pixel.
const GRAYS: usize = 256;
const CLASSES: usize = 10;

impl PictureKind {
    fn name(self) -> &'static str {
        match self {
            Self::Mnist => "mnist",
            Self::Cifar => "cifar",
        }
    }

    /// Side in pixels.
    fn side(self) -> usize {
        match self {
            Self::Mnist => digits::SIDE,
            Self::Cifar => shapes::SIDE,
        }
    }

    /// Scale and shift that centre the gray values at 0, with standard deviation 1.
    fn scalar(self) -> (f64, f64) {
        match self {
            Self::Mnist => (1.0 / (255.0 * 0.3081), -0.1307 / 0.3081),
            Self::Cifar => LraDataset::Image.scalar(),
        }
    }
}

impl PixelsConfig {
    fn examples(&self) -> [usize; 3] {
        [self.train_examples, self.val_examples, self.test_examples]
    }

    /// The images of the Long Range Arena, which are those of CIFAR in grayscale.
    fn of_arena(&self) -> LraConfig {
        LraConfig::of(LraDataset::Image, Generator::Files, self.examples())
    }

    /// Place in a picture of each pixel that is read.
    fn order(&self) -> Option<Vec<usize>> {
        self.permuted.then(|| {
            let mut order: Vec<usize> = (0..self.seq_len).collect();
            Rng::new(0, "pixels/order", 0).shuffle(&mut order);
            order
        })
    }
}

impl Task for PixelsConfig {
    fn config(&self) -> TaskConfig {
        TaskConfig::new(ENTRY.name, self)
    }

    fn sizes(&self) -> ExampleSizes {
        ExampleSizes {
            vocab_size: self.vocab_size,
            seq_len: self.seq_len,
            test_seq_len: self.seq_len,
            documents: 1,
            labels_per_example: 1,
            labels_per_tested_example: 1,
            classes: CLASSES,
            scalar: self.picture.scalar(),
            examples: self.examples(),
        }
    }

    fn check(&self) -> Result<()> {
        let (name, side) = (self.picture.name(), self.picture.side());
        if self.data == Generator::Numpy {
            refuse!(flag "--data" = "numpy", "is a generator of MQAR; pictures take native or files");
        }
        for (flag, size, least) in [
            ("--train-examples", self.train_examples, 1),
            ("--val-examples", self.val_examples, 0),
            ("--test-examples", self.test_examples, 1),
        ] {
            ensure!((least..=10_000_000).contains(&size), flag(flag) = size, "must be {least} to 10000000");
        }
        for (flag, size, fixed) in [("--seq-len", self.seq_len, side * side), ("--vocab-size", self.vocab_size, GRAYS)]
        {
            ensure!(
                size == fixed,
                flag(flag) = size,
                "{name} has {side} x {side} pixels with {GRAYS} gray values, so this is always {fixed}: leave it out"
            );
        }
        Ok(())
    }

    fn load(&self, data_dir: Option<&Path>, made: ExamplesMade) -> Result<Splits> {
        self.check()?;
        let splits = match (self.data, self.picture) {
            (Generator::Files, PictureKind::Cifar) => lra::load(&self.of_arena(), data_dir, made)?,
            (Generator::Files, PictureKind::Mnist) => idx::load(data_dir, self.examples())?,
            (_, PictureKind::Mnist) => drawn(digits::digit, self.data_seed, self.examples()),
            (_, PictureKind::Cifar) => drawn(shapes::shape, self.data_seed, self.examples()),
        };
        let Some(order) = self.order() else { return Ok(Splits::Pooled(splits)) };
        let TrainValTest { train, val, test, .. } = &splits;
        let [train, val, test] = [train, val, test].map(|split| reordered(split, &order));
        Ok(Splits::Pooled(TrainValTest { train, val, test, ..splits }))
    }

    fn title(&self) -> String {
        let order = if self.permuted { ", pixels permuted" } else { "" };
        format!("sequential {}{order}", if self.picture == PictureKind::Mnist { "MNIST" } else { "CIFAR" })
    }

    fn label(&self) -> String {
        let order = if self.permuted { " permuted" } else { "" };
        format!("{}{order}", self.picture.name())
    }

    fn sources(&self, data_dir: Option<&Path>) -> Result<Option<Sources>> {
        match (self.data, self.picture) {
            (Generator::Files, PictureKind::Cifar) => self.of_arena().sources(data_dir),
            (Generator::Files, PictureKind::Mnist) => idx::sources(data_dir).map(Some),
            _ => Ok(None),
        }
    }
}

/// Draws the splits in order: training, validation, test. `picture` returns pixels and label of the picture with a seed
/// and a number, so that threads may draw in any order.
fn drawn(picture: fn(u64, u64) -> (Vec<u8>, u8), seed: u64, examples: [usize; 3]) -> TrainValTest<Documents> {
    let mut first = 0;
    let splits = examples.map(|size| {
        let pictures: Vec<_> = (first..first + size).into_par_iter().map(|i| picture(seed, i as u64)).collect();
        first += size;
        let mut split = Documents::new(1);
        for (pixels, label) in pictures {
            split.push(&[&pixels], label);
        }
        split
    });
    splits.into()
}

/// The pictures with their pixels in another order.
fn reordered(pictures: &Documents, order: &[usize]) -> Documents {
    let mut all = Documents::new(1);
    for i in 0..pictures.len() {
        let pixels = pictures.document(i, 0);
        let moved: Vec<u8> = order.iter().map(|&place| pixels[place]).collect();
        all.push(&[&moved], pictures.label(i));
    }
    all
}

#[cfg(test)]
mod tests;
