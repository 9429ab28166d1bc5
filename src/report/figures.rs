//! Table of everything that can be reported: the figures and tables of the paper (Sieber et al. 2024), and the grid of
//! all other tasks.

use super::grid::Style;
use crate::error::{unknown_value, Error, Result};
use crate::store::{Column, Field, Metric, Record, METRICS};
use crate::tasks::lra::{LraDataset, HARD_CONTOUR};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::collections::BTreeSet;

/// Conditions on the columns of a run: each column must have one of the listed values.
pub type Where = &'static [(Column, &'static [&'static str])];

/// One figure, table or grid that `dsf report` draws.
pub struct Figure {
    /// Number as typed: `2` of `--figure 2` or `--table 2`; empty for the grid, which has no flag.
    pub number: &'static str,
    /// Whether it is a table, a figure or the grid.
    pub series: FigureSeries,
    /// Subject in the paper.
    pub about: &'static str,
    /// Conditions on the selected runs.
    pub runs: Where,
    /// The metrics that `--metric` accepts, the default first.
    pub metrics: &'static [&'static str],
    /// Rule by which the selected runs become grids.
    pub drawn: FigureForm,
    /// Command that produces the results.
    pub remedy: &'static str,
}

/// Series in which a figure is numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureSeries {
    /// Drawn without a flag.
    Grid,
    /// Selected by `--figure`.
    Figure,
    /// Selected by `--table`.
    Table,
}

/// Rule by which the selected runs become grids.
pub enum FigureForm {
    /// Grids of one metric over two axes. A line is named by the first of its columns, and also by the others where
    /// lines of one name differ in them. Runs that differ in any further setting are in separate grids.
    Axes { lines: &'static [&'static str], columns: &'static str },
    /// One point per setting: the metric over another one.
    Points(&'static str),
    /// The share of a setting's runs that have reached the stopping accuracy, over training examples.
    Times,
    /// Expected best accuracy of a setting over the number of learning rates tried.
    Tuning,
    /// The number of pairs that mixers recall, over the size of their state.
    Frontier,
    /// Models by tasks or by metrics, beside the numbers printed in the paper.
    Models(&'static PaperTable),
    /// Mixers by skills, the best first.
    Skills(&'static Skills),
}

/// Tasks that test one skill each.
pub struct Skills {
    /// Names of the tasks, in the order of columns.
    pub names: &'static [&'static str],
    /// Columns in which the settings of the tasks differ, over which scores are averaged.
    pub task: &'static [Column],
    /// Columns beside the learning rate whose best value counts.
    pub tuned: &'static [Column],
}

/// A table of models in the paper: its numbers, and the runs that stand beside them.
pub struct PaperTable {
    /// Number format: accuracies in percent, or perplexities.
    pub style: Style,
    /// The tasks, each with runs of its own.
    pub tasks: &'static [TaskColumn],
    /// Metrics of one task that have a column each, with its title; where there are none, each task has one column.
    pub metrics: &'static [(&'static str, &'static str)],
    pub models: &'static [TableModel],
    /// Accuracies of a random guess in %, as printed; the last one is the average.
    pub random: Option<&'static [f64]>,
    /// Whether the last of the printed numbers is the average over the tasks.
    pub average: bool,
    /// Columns by which tables are ordered, each with the values that come first.
    pub order: Where,
    /// Whether runs that differ in this setting from their preset are in a table of their own; otherwise they have a
    /// line of their own.
    pub separate: fn(&str) -> bool,
}

/// A task of a table.
#[derive(PartialEq)]
pub struct TaskColumn {
    /// Title for readers.
    pub title: &'static str,
    /// Name for programs.
    pub name: &'static str,
    /// Conditions on its runs.
    runs: Where,
    /// Smallest values of these columns for a run to be comparable with the paper's numbers.
    whole: &'static [(Column, usize)],
    /// The dataset of the Long Range Arena whose released files the paper used; runs on generated examples are marked.
    pub released: Option<LraDataset>,
}

/// A model of a table.
pub struct TableModel {
    pub mixer: &'static str,
    pub label: &'static str,
    /// Numbers as printed: accuracies in %, or a perplexity.
    pub numbers: &'static [f64],
}

const LAST_AND_BEST: &[&str] = &["accuracy", "best_accuracy"];
const ACCURACIES: &[&str] = &["accuracy", "best_accuracy", "selected_accuracy"];

/// Names of the paper's corpus.
pub(super) const CORPORA: &[&str] = &["wikitext-103-raw", "wikitext-103"];

/// Perplexity per word, the metric of published results.
pub(super) const PER_WORD: &str = "test_word_ppl";

/// Settings of a mixer alone, in which the lines of one table of perplexities may differ.
#[rustfmt::skip]
const OF_MIXER: &[&str] = &["variant", "options", "n", "heads", "expand", "hybrid", "rotary", "rotary_dims"];

#[rustfmt::skip]
const PERPLEXITIES: &[&str] =
    &["train_ppl", "train_ppl_eval", "val_ppl", "best_val_ppl", "test_ppl", PER_WORD];

/// The mixers of figures 2, 5 and 7.
const FIVE: &[&str] = &["softmax", "linear", "normalized", "s6", "ssd"];

/// The mixer, and the settings that belong to it: lines named by their mixers may differ in them.
#[rustfmt::skip]
pub(super) const MIXERS: &[&str] =
    &["mixer", "variant", "options", "n", "heads", "layout", "state_mixer", "positions", "expand", "hybrid"];

/// The hardest task of MQAR at n = 128.
#[rustfmt::skip]
const HARDEST: Figure = Figure {
    series: FigureSeries::Figure, number: "2",
    about: "five mixers on the hardest task over the embedding width d",
    runs: &[(Column::TASK, &["mqar"]), (Column::MIXER, FIVE), (Column::SEQ_LEN, &["512"]), (Column::KV_PAIRS, &["64"]), (Column::N, &["128"])],
    metrics: LAST_AND_BEST, drawn: FigureForm::Axes { lines: MIXERS, columns: "d" },
    remedy: "`dsf sweep experiments/figure2.toml` trains what it needs",
};

/// The two gates of qLSTM.
#[rustfmt::skip]
const GATES: Figure = Figure {
    number: "3",
    about: "the reversed sigmoid against the plain qLSTM over the embedding width d",
    runs: &[(Column::TASK, &["mqar"]), (Column::MIXER, &["qlstm", "qlstm-reversed"]), (Column::SEQ_LEN, &["64", "128", "256"])],
    remedy: "`dsf sweep experiments/figure3.toml` trains what it needs",
    ..HARDEST
};

/// Recall over the size of the state: the plot of Arora et al. (2023), which the paper does not contain.
#[rustfmt::skip]
const RECALL_MEMORY: Figure = Figure {
    series: FigureSeries::Figure, number: "state",
    about: "accuracy against the size of the state",
    runs: &[(Column::TASK, &["mqar", "induction", "recall", "selective-copying", "lra"])],
    metrics: LAST_AND_BEST, drawn: FigureForm::Points("state_size"),
    remedy: "`dsf sweep --d 64,128 --n 32,64` trains some",
};

/// The six tasks of MAD.
#[rustfmt::skip]
const MAD: Figure = Figure {
    series: FigureSeries::Figure, number: "mad",
    about: "mixers by skill",
    runs: &[(Column::TASK, &["mad"])],
    metrics: &["macro_accuracy", "accuracy", "best_accuracy"],
    drawn: FigureForm::Skills(&Skills {
        names: &["recall", "noisy-recall", "fuzzy-recall", "copying", "compression", "memorization"],
        task: &[
            Column::DATASET, Column::SEQ_LEN, Column::TEST_SEQ_LEN, Column::VOCAB_SIZE, Column::COPY_TOKENS, Column::NOISE,
            Column::TRAIN_EXAMPLES, Column::AUTO_ENCODER,
        ],
        tuned: &[Column::WEIGHT_DECAY],
    }),
    remedy: "`dsf sweep --task mad` trains some",
};

/// Everything that can be drawn, the grid first.
#[rustfmt::skip]
pub static FIGURES: &[Figure] = &[
    Figure {
        series: FigureSeries::Grid, number: "", about: "every task that no table shows",
        runs: &[], metrics: LAST_AND_BEST, drawn: FigureForm::Axes { lines: &["n"], columns: "d" },
        remedy: "`dsf mqar` makes one, `dsf sweep` a grid of them",
    },
    Figure {
        series: FigureSeries::Figure, number: "1",
        about: "linear attention approaches softmax as the state expansion n grows",
        runs: &[
            (Column::TASK, &["mqar"]), (Column::MIXER, &["softmax", "linear"]), (Column::SEQ_LEN, &["256", "512"]), (Column::D, &["512"]),
        ],
        metrics: LAST_AND_BEST, drawn: FigureForm::Axes { lines: MIXERS, columns: "n" },
        remedy: "`dsf sweep experiments/figure1.toml` trains what it needs",
    },
    HARDEST,
    GATES,
    Figure {
        number: "5",
        about: "five mixers on the hardest task over the embedding width d, ten seeds",
        remedy: "`dsf sweep experiments/figure2.toml --seeds 10` trains what it needs",
        ..HARDEST
    },
    Figure {
        number: "6",
        about: "the reversed sigmoid against the plain qLSTM over the embedding width d, ten seeds",
        remedy: "`dsf sweep experiments/figure3.toml --seeds 10` trains what it needs",
        ..GATES
    },
    Figure {
        series: FigureSeries::Figure, number: "7",
        about: "five mixers on four tasks over embedding width d and state expansion n",
        runs: &[(Column::TASK, &["mqar"]), (Column::MIXER, FIVE), (Column::SEQ_LEN, &["64", "128", "256", "512"])],
        metrics: LAST_AND_BEST, drawn: FigureForm::Axes { lines: &["d"], columns: "n" },
        remedy: "`dsf sweep experiments/figure7.toml` trains what it needs",
    },
    RECALL_MEMORY,
    MAD,
    Figure {
        number: "seconds",
        about: "accuracy against the seconds of training and testing",
        drawn: FigureForm::Points("seconds"),
        ..RECALL_MEMORY
    },
    Figure {
        number: "times",
        about: "runs that have reached the accuracy at which training stops, over training examples",
        drawn: FigureForm::Times,
        ..RECALL_MEMORY
    },
    Figure {
        number: "tuning",
        about: "the expected best accuracy by the number of learning rates tried",
        drawn: FigureForm::Tuning,
        ..RECALL_MEMORY
    },
    Figure {
        number: "frontier",
        about: "the number of pairs recalled by half of the seeds, over the size of the state",
        runs: &[(Column::TASK, &["mqar"])],
        drawn: FigureForm::Frontier,
        remedy: "`dsf sweep experiments/frontier-small.toml` trains what it needs",
        ..RECALL_MEMORY
    },
    Figure {
        series: FigureSeries::Table, number: "1", about: "language modelling",
        runs: &[(Column::TASK, &["wikitext"])], metrics: PERPLEXITIES,
        drawn: FigureForm::Models(&PaperTable {
            style: Style::Perplexity,
            tasks: &[WIKITEXT],
            metrics: &[
                ("train_ppl", "train"), ("train_ppl_eval", "eval"), ("val_ppl", "val"), ("best_val_ppl", "best val"),
                ("test_ppl", "test"), (PER_WORD, "test/word"),
            ],
            models: &[
                TableModel { mixer: "linear", label: "linear", numbers: &[17.42] },
                TableModel { mixer: "normalized", label: "normalized", numbers: &[16.43] },
                TableModel { mixer: "softmax", label: "softmax", numbers: &[13.15] },
            ],
            random: None, average: false,
            order: &[(Column::DATASET, CORPORA), (Column::TOKENIZER, &[])],
            separate: |name| !OF_MIXER.contains(&name),
        }),
        remedy: "`dsf wikitext` makes a small one, `dsf sweep experiments/table1.toml` all of them",
    },
    Figure {
        series: FigureSeries::Table, number: "2", about: "normalisers of normalized attention",
        runs: &[
            (Column::TASK, &["lra", "mqar"]),
            (Column::MIXER, &["normalized", "normalized-softplus", "normalized-sigmoid"]),
        ],
        metrics: ACCURACIES,
        drawn: FigureForm::Models(&PaperTable {
            tasks: &[IMAGE, RECALL],
            models: &[
                TableModel { mixer: "normalized", label: "normalized, exp", numbers: &[35.96, 85.9] },
                TableModel { mixer: "normalized-softplus", label: "normalized, softplus", numbers: &[35.27, 84.3] },
                TableModel { mixer: "normalized-sigmoid", label: "normalized, sigmoid", numbers: &[35.80, 84.7] },
            ],
            random: None, average: false,
            ..ARENA
        }),
        remedy: "`dsf sweep experiments/table2.toml` trains what it needs",
    },
    Figure {
        series: FigureSeries::Table, number: "3", about: "Long Range Arena",
        runs: &[(Column::TASK, &["lra"])], metrics: ACCURACIES,
        drawn: FigureForm::Models(&ARENA),
        remedy: "`dsf lra --dataset listops` makes one, `dsf sweep experiments/table3.toml` all of them",
    },
];

/// Table 3, and the rules for all tables of accuracies.
#[rustfmt::skip]
const ARENA: PaperTable = PaperTable {
    style: Style::Percent,
    tasks: &[LISTOPS, TEXT, RETRIEVAL, IMAGE, PATHFINDER],
    metrics: &[],
    models: &[
        TableModel { mixer: "softmax", label: "softmax", numbers: &[35.72, 63.10, 77.46, 34.22, 69.32, 55.96] },
        TableModel { mixer: "linear", label: "linear", numbers: &[16.12, 64.41, 76.44, 37.97, 72.64, 53.52] },
        TableModel { mixer: "normalized", label: "normalized", numbers: &[38.24, 64.96, 79.68, 35.96, 71.56, 58.08] },
        TableModel { mixer: "s6", label: "s6", numbers: &S6 },
        TableModel { mixer: "mamba", label: "S6 as released (Mamba)", numbers: &S6 },
    ],
    random: Some(&[10.00, 50.00, 50.00, 10.00, 50.00, 34.00]), average: true,
    order: &[(Column::PROTOCOL, &["reference", "paper", "matched"])],
    separate: |name| ["loss", "input", "mask", "lambda_skip", "pool", "dual", "precision"].contains(&name),
};

/// Accuracies of the row "S6", which the full Mamba layer produced; `s6` is the block of the paper's text.
const S6: [f64; 6] = [38.02, 81.34, 80.50, 65.08, 69.26, 66.84];

#[rustfmt::skip]
const LISTOPS: TaskColumn = TaskColumn {
    title: "ListOps", name: "listops", runs: &[(Column::DATASET, &["listops"])], whole: &[],
    released: Some(LraDataset::Listops),
};
#[rustfmt::skip]
const TEXT: TaskColumn = TaskColumn {
    title: "Text", name: "text", runs: &[(Column::DATASET, &["text"])], released: Some(LraDataset::Text), ..LISTOPS
};
#[rustfmt::skip]
const RETRIEVAL: TaskColumn = TaskColumn {
    title: "Retrieval", name: "retrieval", runs: &[(Column::DATASET, &["retrieval"])],
    released: Some(LraDataset::Retrieval), ..LISTOPS
};
#[rustfmt::skip]
const IMAGE: TaskColumn = TaskColumn {
    title: "Image", name: "image", runs: &[(Column::DATASET, &["image"])], released: Some(LraDataset::Image), ..LISTOPS
};
#[rustfmt::skip]
const PATHFINDER: TaskColumn = TaskColumn {
    title: "Pathfinder", name: "pathfinder", runs: &[(Column::DATASET, &["pathfinder"])],
    released: Some(LraDataset::Pathfinder), ..LISTOPS
};

/// MQAR with L = 512 and k = 64.
#[rustfmt::skip]
const RECALL: TaskColumn = TaskColumn {
    title: "MQAR", name: "mqar",
    runs: &[(Column::TASK, &["mqar"]), (Column::SEQ_LEN, &["512"]), (Column::KV_PAIRS, &["64"])],
    whole: &[(Column::TRAIN_EXAMPLES, 100_000), (Column::TEST_EXAMPLES, 3_000), (Column::VOCAB_SIZE, 8_192)],
    released: None,
};

/// WikiText; the paper's numbers are of the corpora [`CORPORA`].
const WIKITEXT: TaskColumn = TaskColumn { title: "", name: "wikitext", runs: &[], whole: &[], released: None };

/// Whether `run` satisfies the conditions `runs`.
pub(super) fn holds(runs: Where, run: &Record) -> bool {
    runs.iter().all(|(column, values)| {
        let found = run.get(*column);
        values.iter().any(|value| match found {
            Field::Text(text) => **text == **value,
            Field::Count(count) => value.parse() == Ok(*count),
            _ => false,
        })
    })
}

impl TaskColumn {
    /// Whether `run`, which belongs to the figure, is of this task.
    pub(super) fn holds(&self, run: &Record) -> bool {
        holds(self.runs, run)
    }

    /// Whether `run` was trained and tested on as many and as hard examples as the paper's runs. The data themselves
    /// cannot be compared.
    pub(super) fn is_whole(&self, run: &Record) -> bool {
        let at_least = |(column, least): &(Column, usize)| run.count(*column) >= *least;
        let Some(dataset) = self.released else {
            return self.whole.iter().all(at_least);
        };
        let [train, val, test] = dataset.examples();
        // Without a validation split, protocol matched holds out a tenth of the training examples.
        let held_out = match (val, run.text(Column::PROTOCOL)) {
            (0, "matched") => run.count(Column::VAL_EXAMPLES).min(train / 10),
            _ => 0,
        };
        let hard = [0, HARD_CONTOUR].contains(&run.count(Column::CONTOUR_LENGTH));
        let sizes = [(Column::TEST_EXAMPLES, test), (Column::SEQ_LEN, dataset.seq_len())];
        run.count(Column::TRAIN_EXAMPLES) + held_out >= train && hard && sizes.iter().all(at_least)
    }
}

impl Figure {
    /// Finds the figure `number` of `series`.
    ///
    /// # Errors
    ///
    /// There is no such figure.
    pub fn find(series: FigureSeries, number: &str) -> Result<&'static Self> {
        let (flag, kind) = match series {
            FigureSeries::Table => ("--table", "table"),
            FigureSeries::Grid | FigureSeries::Figure => ("--figure", "figure"),
        };
        let mut all = FIGURES.iter().filter(|figure| figure.series == series);
        let found = all.clone().find(|figure| figure.number == number);
        found.ok_or_else(|| unknown_value(flag, kind, number, all.by_ref().map(|f| f.number)))
    }

    /// Title within a sentence.
    pub fn title(&self) -> String {
        self.named("the grid of accuracies", "Figure ", "Table ")
    }

    /// Stem of its file names.
    pub fn file(&self) -> String {
        self.named("grid", "figure-", "table-")
    }

    /// Flag that selects it, with a leading space.
    pub fn flag(&self) -> String {
        self.named("", " --figure ", " --table ")
    }

    fn named(&self, grid: &str, figure: &str, table: &str) -> String {
        match self.series {
            FigureSeries::Grid => grid.into(),
            FigureSeries::Figure => format!("{figure}{}", self.number),
            FigureSeries::Table => format!("{table}{}", self.number),
        }
    }

    /// Whether it shows `run`. The grid shows every task that no table claims.
    pub(super) fn holds(&self, run: &Record) -> bool {
        if self.series == FigureSeries::Grid {
            return !FIGURES.iter().any(|figure| figure.claims(run));
        }
        let of_column = match &self.drawn {
            FigureForm::Models(table) => table.tasks.iter().any(|task| task.holds(run)),
            FigureForm::Times => run.number(Column::STOP_ABOVE).is_some(),
            FigureForm::Axes { .. }
            | FigureForm::Points(_)
            | FigureForm::Tuning
            | FigureForm::Frontier
            | FigureForm::Skills(_) => true,
        };
        of_column && holds(self.runs, run)
    }

    /// Whether it is the table of a task, and shows `run`.
    pub(super) fn claims(&self, run: &Record) -> bool {
        let of_one_task = matches!(self.runs, [(Column::TASK, [_])]);
        self.series == FigureSeries::Table && of_one_task && self.holds(run)
    }

    /// The table that claims `run`, or the grid.
    pub fn showing(run: &Record) -> &'static Self {
        let claiming = FIGURES.iter().find(|figure| figure.claims(run));
        claiming.unwrap_or(&FIGURES[0])
    }

    /// The metric called `name`, or the default.
    ///
    /// # Errors
    ///
    /// The figure does not have the metric.
    pub(super) fn metric(&self, name: Option<&str>) -> Result<&'static Metric> {
        let name = name.unwrap_or(self.metrics[0]);
        if let Some(metric) = Metric::find(name).filter(|m| self.metrics.contains(&m.name)) {
            return Ok(metric);
        }
        let having: BTreeSet<String> =
            FIGURES.iter().filter(|f| f.metrics.contains(&name)).map(|f| format!("`dsf report{}`", f.flag())).collect();
        let meaning = Metric::find(name).map_or("unknown", |metric| metric.meaning);
        let mut wanted = format!("no number of {} ({meaning}); take {}", self.title(), self.metrics.join(", "));
        if !having.is_empty() {
            let having: Vec<String> = having.into_iter().collect();
            wanted += &format!(", or {}, which has it", having.join(" or "));
        }
        Err(Error::flag_value("--metric", name, wanted))
    }
}

/// Parser of the metrics that any figure shows, accepted with underscores as in a summary or with hyphens as in flags.
pub(super) fn metrics() -> impl TypedValueParser<Value = String> {
    let shown = |metric: &&Metric| FIGURES.iter().any(|f| f.metrics.contains(&metric.name));
    let metrics = METRICS.iter().filter(shown).map(|metric| {
        let value = PossibleValue::new(metric.name).help(metric.meaning);
        value.alias(metric.name.replace('_', "-"))
    });
    PossibleValuesParser::new(metrics).map(|typed| typed.replace('-', "_"))
}

/// Names of the tasks with a column in a table, in their order.
pub(super) fn datasets() -> Vec<&'static str> {
    let columns = FIGURES.iter().flat_map(|figure| match &figure.drawn {
        FigureForm::Models(table) if table.average => table.tasks,
        _ => &[],
    });
    columns.map(|task| task.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;

    #[test]
    fn every_row_names_columns_and_metrics_that_there_are() {
        for figure in FIGURES {
            for name in figure.metrics {
                assert!(Metric::find(name).is_some(), "{name}");
            }
            if let FigureForm::Axes { lines, columns } = &figure.drawn {
                for column in lines.iter().chain([columns]) {
                    assert!(Column::find(column).is_some(), "{column}");
                }
            }
            if let FigureForm::Points(metric) = &figure.drawn {
                assert!(Metric::find(metric).is_some(), "{metric}");
            }
            if let FigureForm::Models(table) = &figure.drawn {
                for task in table.tasks {
                    let released = task.released.map(LraDataset::name);
                    assert!(released.is_none_or(|name| name == task.name), "{}", task.title);
                }
                let numbers = table.tasks.len() + usize::from(table.average);
                for model in table.models {
                    assert_eq!(model.numbers.len(), numbers, "{}", model.label);
                }
            }
        }
    }

    #[test]
    fn figures_one_two_three_five_six_and_seven_and_three_tables_can_be_drawn() {
        for number in ["1", "2", "3", "5", "6", "7"] {
            assert!(Figure::find(FigureSeries::Figure, number).is_ok(), "{number}");
        }
        for number in ["1", "2", "3"] {
            assert!(Figure::find(FigureSeries::Table, number).is_ok(), "{number}");
        }
        let unknown = Figure::find(FigureSeries::Figure, "4").refuses("--figure");
        unknown.gives("4").names(&["7"]);
    }
}
