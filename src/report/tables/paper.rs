//! What the paper prints, and of which tasks.

use crate::store::Row;
use crate::tasks::lra::{LraDataset, HARD_CONTOUR};

/// A table as the paper has it.
pub(in super::super) struct Paper {
    pub number: u8,
    /// What it is about.
    pub about: &'static str,
    pub(super) columns: &'static [Column],
    pub(super) models: &'static [Model],
    /// Accuracies of a guess in %, as printed; the last one is the average.
    pub random: Option<&'static [f64]>,
    /// Whether the last of the printed numbers is the average over the columns.
    pub average: bool,
    /// Whether mixers that the paper does not have get rows.
    pub others: bool,
    /// How to get results.
    pub remedy: &'static str,
}

/// A row of the paper.
pub(super) struct Model {
    pub mixer: &'static str,
    pub label: &'static str,
    /// Accuracies in %, as printed.
    pub accuracies: &'static [f64],
}

/// A task of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Arena(LraDataset),
    /// L = 512, k = 64.
    Recall,
}

const S6: [f64; 6] = [38.02, 81.34, 80.50, 65.08, 69.26, 66.84];

/// Three normalisers of normalized attention, on LRA Image and on MQAR with L = 512, k = 64.
pub(in super::super) static NORMALISERS: Paper = Paper {
    number: 2,
    about: "normalisers of normalized attention",
    columns: &[Column::Arena(LraDataset::Image), Column::Recall],
    models: &[
        Model::new("normalized", "normalized, exp", &[35.96, 85.9]),
        Model::new(
            "normalized-softplus",
            "normalized, softplus",
            &[35.27, 84.3],
        ),
        Model::new("normalized-sigmoid", "normalized, sigmoid", &[35.80, 84.7]),
    ],
    random: None,
    average: false,
    others: false,
    remedy: "`dsf sweep experiments/table2.toml` trains what it needs",
};

/// Models on the five tasks of the Long Range Arena.
pub(in super::super) static LONG_RANGE_ARENA: Paper = Paper {
    number: 3,
    about: "Long Range Arena",
    columns: &[
        Column::Arena(LraDataset::Listops),
        Column::Arena(LraDataset::Text),
        Column::Arena(LraDataset::Retrieval),
        Column::Arena(LraDataset::Image),
        Column::Arena(LraDataset::Pathfinder),
    ],
    models: &[
        Model::new(
            "softmax",
            "softmax",
            &[35.72, 63.10, 77.46, 34.22, 69.32, 55.96],
        ),
        Model::new(
            "linear",
            "linear",
            &[16.12, 64.41, 76.44, 37.97, 72.64, 53.52],
        ),
        Model::new(
            "normalized",
            "normalized",
            &[38.24, 64.96, 79.68, 35.96, 71.56, 58.08],
        ),
        Model::new("s6", "s6", &S6),
        Model::new("mamba", "S6 as released (Mamba)", &S6),
    ],
    random: Some(&[10.00, 50.00, 50.00, 10.00, 50.00, 34.00]),
    average: true,
    others: true,
    remedy:
        "`dsf lra --dataset listops` makes one, `dsf sweep experiments/table3.toml` all of them",
};

impl Model {
    const fn new(mixer: &'static str, label: &'static str, accuracies: &'static [f64]) -> Self {
        Self {
            mixer,
            label,
            accuracies,
        }
    }
}

impl Column {
    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Arena(dataset) => dataset.name(),
            Self::Recall => "mqar",
        }
    }

    /// For readers.
    pub fn title(self) -> &'static str {
        match self {
            Self::Arena(LraDataset::Listops) => "ListOps",
            Self::Arena(LraDataset::Text) => "Text",
            Self::Arena(LraDataset::Retrieval) => "Retrieval",
            Self::Arena(LraDataset::Image) => "Image",
            Self::Arena(LraDataset::Pathfinder) => "Pathfinder",
            Self::Recall => "MQAR",
        }
    }

    /// Whether `row` is a run of this task.
    pub fn holds(self, row: &Row) -> bool {
        match self {
            Self::Arena(dataset) => row.task == "lra" && row.dataset == dataset.name(),
            Self::Recall => row.task == "mqar" && (row.seq_len, row.kv_pairs) == (512, 64),
        }
    }

    /// Whether `row` saw as much data as the paper's runs, and as hard. What the data was cannot be told.
    pub fn whole(self, row: &Row) -> bool {
        let (train, test) = (row.train_examples, row.test_examples);
        match self {
            Self::Recall => train >= 100_000 && test >= 3_000 && row.vocab_size >= 8_192,
            Self::Arena(dataset) => {
                let [all, val, tested] = dataset.examples();
                // Without a validation split a tenth of the training examples may serve as one.
                let held_out = if val == 0 {
                    row.val_examples.unwrap_or(0).min(all / 10)
                } else {
                    0
                };
                // Pathfinder's easier levels are other tasks.
                let hard = row
                    .contour_length
                    .is_none_or(|paddles| paddles == HARD_CONTOUR);
                let enough = train + held_out >= all && test >= tested;
                enough && hard && row.seq_len >= dataset.seq_len()
            }
        }
    }

    /// Whether the examples of `row` are of our own making where the paper's were released files.
    pub fn generated(self, row: &Row) -> bool {
        self != Self::Recall && row.data != "files"
    }
}
