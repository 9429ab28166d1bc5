//! How much of a dataset a preset takes, and how small a model.

use super::{Preset, Row};
use crate::config::{Input, Pool};
use crate::tasks::lra::LraDataset;
use crate::tasks::Generator;

impl Preset {
    /// Training, validation and test examples. Text has no validation split: where one is to choose
    /// (`selects`), a tenth of its training examples is held out.
    pub(super) fn examples(self, dataset: LraDataset, selects: bool) -> [usize; 3] {
        match (self, dataset) {
            (Self::Full, LraDataset::Text) if selects => [22_500, 2_500, 25_000],
            (Self::Full, _) => dataset.examples(),
            (Self::Quick, LraDataset::Text) => [480, 120, 300],
            (Self::Quick, LraDataset::Image) => [900, 100, 300],
            (Self::Quick, LraDataset::Retrieval) => [2_000, 200, 400],
            (Self::Quick, LraDataset::Pathfinder) => [20_000, 500, 1_000],
            (Self::Quick, _) => [8_000, 500, 1_000],
            (Self::Smoke, LraDataset::Listops) => [200, 40, 40],
            (Self::Smoke, LraDataset::Pathfinder) => [128, 16, 16],
            (Self::Smoke, _) => [200, 50, 50],
        }
    }

    /// Longest documents; shorter ones only where our own generator makes them.
    pub(super) fn seq_len(self, dataset: LraDataset, data: Generator) -> usize {
        match (self, dataset, data) {
            (Self::Quick, LraDataset::Listops, Generator::Native) => 256,
            (Self::Quick, LraDataset::Text | LraDataset::Retrieval, _) => 1_024,
            _ => dataset.seq_len(),
        }
    }

    /// Paddles of Pathfinder's long paths: a quick run takes paths that a small model can follow.
    pub(super) fn contour_length(self, dataset: LraDataset, data: Generator) -> Option<usize> {
        let drawn = dataset == LraDataset::Pathfinder && data == Generator::Native;
        (self == Self::Quick && drawn).then_some(3)
    }

    /// A table of grays tells a disc at once, where a number would first have to be bent.
    pub(super) fn input(self, dataset: LraDataset) -> Option<Input> {
        (self == Self::Quick && dataset == LraDataset::Pathfinder).then_some(Input::Embedding)
    }

    /// The mean, but where what tells lies in a few pixels of a thousand and training is short.
    pub(super) fn pool(self, dataset: LraDataset) -> Pool {
        if self == Self::Quick && dataset == LraDataset::Pathfinder {
            Pool::Max
        } else {
            Pool::Mean
        }
    }

    /// `row` as small as the preset.
    pub(super) fn shrunk(self, row: Row, dataset: LraDataset) -> Row {
        match self {
            Self::Full => row,
            Self::Quick if dataset == LraDataset::Pathfinder => Row {
                layers: 2,
                d: 32,
                n: 16,
                heads: row.heads.min(2),
                mlp: 64,
                attn_dropout: 0.0,
                dropout: 0.0,
                lr: 2e-3,
                batch: 32,
                epochs: 8,
                warmup: 0,
                ..row
            },
            Self::Quick => Row {
                layers: 2,
                d: 64,
                n: 32,
                heads: row.heads.min(4),
                mlp: 128,
                attn_dropout: 0.0,
                dropout: 0.0,
                lr: 1e-3,
                batch: if dataset == LraDataset::Text { 16 } else { 32 },
                epochs: 10,
                warmup: 1,
                ..row
            },
            Self::Smoke => Row {
                layers: 1,
                d: 32,
                n: 16,
                heads: row.heads.min(2),
                mlp: 64,
                lr: 1e-3,
                batch: 16,
                epochs: 2,
                warmup: 0,
                ..row
            },
        }
    }
}
