//! Settings of one of the five tasks.

use crate::tasks::Generator;
use serde::{Deserialize, Serialize};

/// Examples of one task. The sizes are those actually used, so that a run on part of the data is another run than one
/// on all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LraConfig {
    /// Task of the arena.
    pub dataset: LraDataset,
    /// Source of the data: files of the released data, or this program's generator (listops and pathfinder).
    pub data: Generator,
    /// Digest of the files that are read; `None` for generated data, and until the files have been looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_digest: Option<String>,
    /// Number of paddles of each long path of Pathfinder, at any size; `None` for other tasks and for the hard set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contour_length: Option<usize>,
    /// Seed of generated examples; without effect for files.
    pub data_seed: u64,
    /// Number of rows of the token table, V.
    pub vocab_size: usize,
    /// Length of the longest document including its end token, l_max; longer ones are truncated.
    pub seq_len: usize,
    /// Number of training examples.
    pub train_examples: usize,
    /// Number of validation examples, which select the epoch; 0 without a validation split.
    pub val_examples: usize,
    /// Number of test examples.
    pub test_examples: usize,
}

/// Tasks of Table 3, and Pathfinder on larger pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LraDataset {
    /// Nested operations on digits; ten classes.
    Listops,
    /// IMDB reviews, character by character; positive or negative.
    Text,
    /// Pairs of AAN papers, character by character; does one cite the other?
    Retrieval,
    /// CIFAR-10 in grayscale, pixel by pixel; ten classes.
    Image,
    /// Two discs among dashed paths, 32 x 32 pixels; does one path connect them?
    Pathfinder,
    /// Path-X: the same on 128 x 128 pixels.
    #[serde(rename = "path-x")]
    #[value(name = "path-x")]
    PathX,
    /// The same on 256 x 256 pixels.
    #[serde(rename = "path-x-256")]
    #[value(name = "path-x-256")]
    PathX256,
}

impl LraConfig {
    /// Config of `dataset` with these numbers of training, validation and test examples and the official values of all
    /// other settings.
    pub fn of(dataset: LraDataset, data: Generator, examples: [usize; 3]) -> Self {
        let [train_examples, val_examples, test_examples] = examples;
        Self {
            dataset,
            data,
            source_digest: None,
            contour_length: None,
            data_seed: 0,
            vocab_size: dataset.vocab_size(),
            seq_len: dataset.seq_len(),
            train_examples,
            val_examples,
            test_examples,
        }
    }

    /// Number of examples of the training, the validation and the test split.
    pub fn examples(&self) -> [usize; 3] {
        [self.train_examples, self.val_examples, self.test_examples]
    }

    /// Number of paddles of each long path of Pathfinder.
    pub fn contour_length(&self) -> usize {
        self.contour_length.unwrap_or(HARD_CONTOUR)
    }
}

/// Number of paddles of the long paths in Pathfinder's hard set, the one of Table 3.
pub const HARD_CONTOUR: usize = 14;

impl LraDataset {
    /// The tasks of Table 3, in its order.
    pub const ALL: [Self; 5] = [Self::Listops, Self::Text, Self::Retrieval, Self::Image, Self::Pathfinder];
    /// Pathfinder on larger pictures.
    pub const LARGER: [Self; 2] = [Self::PathX, Self::PathX256];

    /// Name as typed and as written in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Listops => "listops",
            Self::Text => "text",
            Self::Retrieval => "retrieval",
            Self::Image => "image",
            Self::Pathfinder => "pathfinder",
            Self::PathX => "path-x",
            Self::PathX256 => "path-x-256",
        }
    }

    /// Whether examples are pictures of paths, of any size.
    pub fn has_paths(self) -> bool {
        matches!(self, Self::Pathfinder | Self::PathX | Self::PathX256)
    }

    /// Side of the pictures in pixels.
    pub fn side(self) -> usize {
        match self {
            Self::PathX => 128,
            Self::PathX256 => 256,
            _ => 32,
        }
    }

    /// Number of classes, C.
    pub fn classes(self) -> usize {
        match self {
            Self::Listops | Self::Image => 10,
            Self::Text | Self::Retrieval | Self::Pathfinder | Self::PathX | Self::PathX256 => 2,
        }
    }

    /// Number of documents per example.
    pub fn documents(self) -> usize {
        if self == Self::Retrieval {
            2
        } else {
            1
        }
    }

    /// Whether examples are pictures: all of one length, with gray values as tokens.
    pub fn is_picture(self) -> bool {
        self == Self::Image || self.has_paths()
    }

    /// Scale and shift of a token t as a number, `scale t + shift`: gray values are centred about 0, other ids
    /// unchanged.
    pub fn scalar(self) -> (f64, f64) {
        match self {
            Self::Listops | Self::Text | Self::Retrieval => (1.0, 0.0),
            Self::Image => (1.0 / 61.0, -122.6 / 61.0),
            Self::Pathfinder | Self::PathX | Self::PathX256 => (2.0 / 255.0, -1.0),
        }
    }

    /// Number of rows of the token table for the whole data.
    pub fn vocab_size(self) -> usize {
        match self {
            Self::Listops => 18,
            Self::Text => 134,
            Self::Retrieval => 98,
            Self::Image | Self::Pathfinder | Self::PathX | Self::PathX256 => 256,
        }
    }

    /// Length of the longest document including its end token.
    pub fn seq_len(self) -> usize {
        match self {
            Self::Listops => 2048,
            Self::Text | Self::Retrieval => 4096,
            Self::Image | Self::Pathfinder | Self::PathX | Self::PathX256 => self.side() * self.side(),
        }
    }

    /// Number of examples of the official splits: training, validation, test. Text has no validation split.
    pub fn examples(self) -> [usize; 3] {
        match self {
            Self::Listops => [96_000, 2_000, 2_000],
            Self::Text => [25_000, 0, 25_000],
            Self::Retrieval => [147_086, 18_090, 17_437],
            Self::Image => [45_000, 5_000, 10_000],
            Self::Pathfinder | Self::PathX | Self::PathX256 => [160_000, 20_000, 20_000],
        }
    }

    /// Whether this program can generate the task.
    pub fn can_be_generated(self) -> bool {
        self == Self::Listops || self.has_paths()
    }
}
