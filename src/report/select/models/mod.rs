//! Tables of models, ours beside the paper's: the accuracies of several tasks, or the perplexities of one.
//!
//! A place is one model on one task in one setting: the mean over seeds at the best learning rate. Runs on other data,
//! under another protocol or with other settings of training are in tables of their own, and the paper's numbers are
//! only shown beside runs of its size on its data. Any other difference from the preset makes a line of its own.

mod gap;
mod table;

use super::super::figures::{PaperTable, TaskColumn, CORPORA, PER_WORD};
use super::super::grid::{chosen_rate, fact, rate, PrintedNumber};
use super::super::presets::{generated, listed, Nearest, PresetDifference, SIZES, TOKENIZER};
use super::super::score::{distinct_rates, GroupStatus, Score};
use super::super::{mixed, Figure, RunGroup, SCHEMA};
use super::{metric, Selected, Selection};
use crate::store::{Column, Metric, Record, RunStatus};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use table::{Table, BEST_INSTEAD, GENERATED};

/// One model on one task in one setting.
struct ModelPlace<'a> {
    of: &'a Selection<'a>,
    paper: &'static PaperTable,
    record: &'a Record,
    runs: &'a [&'a Record],
    /// Index of its task among those that are shown.
    task: usize,
    /// Whether the paper's numbers may be shown in its table.
    beside: bool,
    /// The nearest preset; empty for a mixer that this version does not know.
    preset: &'static str,
    preset_rate: Option<f64>,
    /// Differences that put it into a separate table.
    of_table: Vec<PresetDifference>,
    /// Differences that put it on a separate line.
    differences: Vec<PresetDifference>,
    /// Whether its examples were generated, where the paper's were released files.
    generated: bool,
    /// Metric by which learning rates are chosen.
    by: &'static Metric,
    /// Number of learning rates at which a run has finished.
    rates: usize,
}

/// One setting of a model.
struct ModelLine<'a> {
    mixer: &'a str,
    /// Places by task.
    places: Vec<Option<&'a ModelPlace<'a>>>,
}

pub(in super::super) fn models(of: &Selection, paper: &'static PaperTable) -> Selected {
    let requested = &of.options.filter.datasets;
    let wanted = |task: &&TaskColumn| requested.is_empty() || requested.iter().any(|name| name == task.name);
    let tasks: Vec<&TaskColumn> = paper.tasks.iter().filter(wanted).collect();
    let places = of.groups.iter().filter_map(|group| ModelPlace::of(of, paper, &tasks, group));
    let places = separated(places.collect());
    let mut tables: BTreeMap<_, Vec<&ModelPlace>> = BTreeMap::new();
    for place in &places {
        tables.entry(place.table()).or_default().push(place);
    }
    let tables: Vec<Table> = tables.values().map(|places| Table::of(places, &tasks)).collect();
    let lines: Vec<&ModelLine> = tables.iter().flat_map(|table| &table.lines).collect();
    let shown: Vec<Option<&ModelPlace>> = lines.iter().flat_map(|line| line.places.clone()).collect();
    let beside = tables.iter().any(|table| table.first.beside);
    let (about, [before, after]) = match paper.style.is_share() {
        true => about_accuracies(of, &lines, beside),
        false => about_perplexities(of, &shown),
    };
    let by = match paper.style.is_share() {
        true => of.options.metric.as_deref(),
        false => Some(of.metric.name),
    };
    Selected {
        heading: format!("{}, {}: {about}", of.figure.title(), of.figure.about),
        facts: vec![fact("schema", SCHEMA), number(of.figure), fact("metric", by)],
        grids: tables.iter().map(Table::grid).collect(),
        printed: printed_numbers(of, paper, &tasks, &tables),
        before,
        after,
        results: shown
            .iter()
            .map(|place| place.map_or(GroupStatus::NotRun, |place| place.status(place.main())))
            // Tables of perplexities explain this mark themselves.
            .filter(|status| paper.style.is_share() || *status != GroupStatus::NoNumber)
            .collect(),
    }
}

/// Subject of tables of accuracies, and the notes before and after the legend.
fn about_accuracies(of: &Selection, lines: &[&ModelLine], beside: bool) -> (String, [Vec<String>; 2]) {
    let all_three = of.all_three();
    let places = || lines.iter().flat_map(|line| line.present());
    let scored = || places().filter(|place| place.score("accuracy").is_some());
    let mut before = Vec::new();
    if scored().any(|place| place.generated) {
        before.push(format!("{GENERATED} examples from our own generator"));
    }
    // Side by side only averages are marked: each cell has both accuracies.
    let marked = |line: &ModelLine| match all_three {
        true => line.average(None).is_some() && line.present().any(ModelPlace::is_best_instead),
        false => line.present().any(ModelPlace::is_best_instead),
    };
    if lines.iter().any(|line| marked(line)) {
        before.push(format!(
            "{BEST_INSTEAD} best test accuracy of any epoch, for lack of a validation split to choose an epoch"
        ));
    }
    let asks = all_three || of.options.metric.as_deref() == Some("selected_accuracy");
    let unselected = asks && scored().any(|place| !place.has_split());
    let unselected = unselected.then(|| "· also without a validation split to choose an epoch".to_owned());
    let lacking = places().filter(|place| place.status(place.main()) == GroupStatus::NoNumber);
    let lacking = lacking.map(|place| format!("{} finished without {}", place.text(Column::MIXER), place.main()));
    let lacking: BTreeSet<String> = lacking.collect();
    let about = match &of.options.metric {
        None if all_three => {
            "test accuracy (%) after the last epoch / after the epoch chosen on validation data / best of any epoch"
                .to_owned()
        }
        None => super::in_percent(metric("selected_accuracy")),
        Some(_) => super::in_percent(of.metric),
    };
    let paper = if beside { ";\nthe paper's numbers are below ours" } else { "" };
    (about + paper, [before, unselected.into_iter().chain(lacking).collect()])
}

/// Subject of tables of perplexities, and the notes before and after the legend.
fn about_perplexities(of: &Selection, shown: &[Option<&ModelPlace>]) -> (String, [Vec<String>; 2]) {
    let by = of.metric.name;
    let read_off = if by.starts_with("test_") { ",\nchosen on the test split" } else { "" };
    let before = [
        "train: the paper's number, logged in the last epoch; it measures the fit to the training split",
        "eval: of a hundredth of the training windows; eval, val and test use the final weights",
        "best val: the lowest validation perplexity after any epoch",
        "all are per token, except test/word; published results are per word of the test split",
    ];
    let lacks = |place: &&ModelPlace| {
        place.paper.metrics.iter().any(|(metric, _)| place.status(metric) == GroupStatus::NoNumber)
    };
    let lacking = "- not measured; test/word needs a test on the whole split".to_owned();
    let after = shown.iter().flatten().any(lacks).then_some(lacking);
    let about = format!("perplexity (lower is better) at the rate with the lowest {by}{read_off}");
    (about, [before.map(String::from).into(), after.into_iter().collect()])
}

/// Our numbers at the settings of the preset and on released examples, with the paper's; each of the paper's at least
/// once.
fn printed_numbers(
    of: &Selection,
    paper: &'static PaperTable,
    tasks: &[&TaskColumn],
    tables: &[Table],
) -> Vec<PrintedNumber> {
    let beside: Vec<&Table> = tables.iter().filter(|table| table.first.beside).collect();
    let mut numbers = Vec::new();
    for model in paper.models.iter().filter(|model| of.options.filter.names(model.mixer)) {
        for (i, printed) in model.numbers.iter().enumerate() {
            let what = match paper.tasks.get(i) {
                _ if !paper.style.is_share() => model.label.to_owned(),
                Some(task) if tasks.contains(&task) => format!("{} on {}", model.label, task.title),
                None if tasks.len() == paper.tasks.len() => format!("{}, average", model.label),
                _ => continue,
            };
            let number = |what, ours| PrintedNumber { what, paper: *printed, ours, style: paper.style };
            let before = numbers.len();
            for table in &beside {
                let column = table.columns.iter().find(|column| table.index(column) == Some(i));
                for line in table.lines.iter().filter(|line| line.mixer == model.mixer) {
                    if let Some(ours) = column.and_then(|column| table.comparable(line, column)) {
                        let what = match paper.style.is_share() {
                            true => format!("{what}, {}", table.title()),
                            false => format!("{} in {}", table.label(line), table.title()),
                        };
                        numbers.push(number(what, Some(ours)));
                    }
                }
            }
            if numbers.len() == before {
                numbers.push(number(what, None));
            }
        }
    }
    numbers
}

/// Sorts `places` in the order of lines: by number and text of their differences from the presets. If one setting has
/// both generated and released examples, the generated ones get a line and a footnote of their own.
fn separated(mut places: Vec<ModelPlace>) -> Vec<ModelPlace> {
    fn setting<'a>(p: &ModelPlace<'a>) -> (usize, bool, &'static str, [&'a str; 2], [String; 2]) {
        let names = [Column::MIXER, Column::PROTOCOL].map(|column| p.text(column));
        let differences = [&p.of_table, &p.differences].map(|d| listed(d));
        (p.task, p.beside, p.preset, names, differences)
    }
    let released: BTreeSet<_> = places.iter().filter(|place| !place.generated).map(setting).collect();
    for place in places.iter_mut().filter(|place| place.generated) {
        if released.contains(&setting(place)) {
            place.differences.extend(generated(place.record));
        }
    }
    places.sort_by_cached_key(|p| (p.differences.len(), listed(&p.differences), p.generated));
    places
}

/// Differences that exclude the paper's perplexities.
fn sizes(differences: &[PresetDifference]) -> impl Iterator<Item = String> + '_ {
    differences.iter().filter(|d| SIZES.contains(&d.name)).map(PresetDifference::to_string)
}

impl<'a> ModelPlace<'a> {
    /// Returns the place of `group`, compared with the nearest of its presets, if it belongs to one of the `tasks`.
    fn of(of: &'a Selection, paper: &'static PaperTable, tasks: &[&TaskColumn], group: &'a RunGroup) -> Option<Self> {
        let (record, shares) = (group.record, paper.style.is_share());
        let task = tasks.iter().position(|task| task.holds(record))?;
        let whole = tasks[task].is_whole(record);
        let mut known = (of.presets)(record);
        known.retain(|(name, _)| !(shares && whole) || *name == "paper");
        let nearest = Nearest::of(record, known);
        let (mut of_table, differences): (Vec<PresetDifference>, _) =
            nearest.differences.into_iter().partition(|difference| (paper.separate)(difference.name));
        of_table.extend(of.other_files(record));
        let mut place = Self {
            of,
            paper,
            record,
            runs: &group.runs,
            task,
            beside: whole,
            preset: nearest.preset,
            preset_rate: nearest.lr,
            of_table,
            differences,
            generated: tasks[task].released.is_some() && generated(record).is_some(),
            // If there is a validation split, it chooses epoch and rate.
            by: match record.count(Column::VAL_EXAMPLES) {
                _ if !shares => of.metric,
                0 => metric("best_accuracy"),
                _ => metric("val_accuracy"),
            },
            rates: distinct_rates(group.runs.iter().copied().filter(|run| run.status() == Some(RunStatus::Done))).len(),
        };
        place.beside &= shares || place.elsewhere().is_empty();
        Some(place)
    }

    fn text(&self, column: Column) -> &'a str {
        self.record.text(column)
    }

    /// Sort key of its table.
    fn table(&self) -> impl Ord + use<'_, 'a> {
        let mut ranked: Vec<(usize, &str)> = Vec::new();
        for (column, listed) in self.paper.order {
            let value = self.text(*column);
            ranked.push((listed.iter().position(|listed| *listed == value).unwrap_or(listed.len()), value));
        }
        if !self.paper.style.is_share() {
            ranked.push((self.of_table.len(), ""));
        }
        let names = [self.preset, self.text(Column::PROTOCOL), self.text(Column::PRECISION)];
        (!self.beside, ranked, &self.of_table, names)
    }

    /// Reasons why the paper's perplexities cannot be shown in its table; empty if they can.
    fn elsewhere(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let [corpus, tokenizer] = [Column::DATASET, Column::TOKENIZER].map(|column| self.text(column));
        if !CORPORA.contains(&corpus) {
            reasons.push(format!("corpus {corpus}"));
        }
        if tokenizer != TOKENIZER {
            reasons.push(format!("tokenizer {tokenizer}"));
        }
        match self.preset {
            "paper" | "" => reasons.extend(sizes(&self.of_table)),
            other => reasons.push(format!("preset {other}")),
        }
        reasons
    }

    /// Whether a validation split chooses epoch and rate.
    fn has_split(&self) -> bool {
        self.by.name == "val_accuracy"
    }

    /// Result by the metric called `name`.
    fn status(&self, name: &str) -> GroupStatus {
        let (shown, choice) = (metric(name), self.of.options.select);
        match name {
            "selected_accuracy" if !self.has_split() => GroupStatus::NotRun,
            _ => GroupStatus::of(self.runs, self.by, shown, choice),
        }
    }

    fn score(&self, name: &str) -> Option<Score> {
        self.status(name).score().copied()
    }

    /// Its main metric: the requested one, by default the accuracy at the epoch chosen on validation data, or the best
    /// without such data.
    fn main(&self) -> &'static str {
        match self.of.options.metric {
            None if self.has_split() => "selected_accuracy",
            None if self.paper.style.is_share() => "best_accuracy",
            _ => self.of.metric.name,
        }
    }

    /// Whether the number is the best test accuracy of any epoch because there is no validation split.
    fn is_best_instead(&self) -> bool {
        let by_default = self.of.options.metric.is_none() && self.paper.style.is_share();
        by_default && !self.has_split() && self.score(self.main()).is_some()
    }

    /// Result by the metric called `name`. A perplexity per word worse than a uniform guess among all words counts as
    /// no number.
    fn plausible(&self, name: &str) -> GroupStatus {
        match self.status(name) {
            GroupStatus::Done(score) if name == PER_WORD && score.mean > self.words() => GroupStatus::NoNumber,
            status => status,
        }
    }

    /// Vocabulary size of the corpus in words (Merity et al. 2017).
    fn words(&self) -> f64 {
        match self.text(Column::DATASET).starts_with("wikitext-2") {
            true => 33_278.0,
            false => 267_735.0,
        }
    }

    /// Note on the learning rate, unless the only one tried is the preset's.
    fn rate_note(&self) -> Option<String> {
        let lr = self.score("accuracy")?.lr;
        let preset = self.preset_rate.map(rate);
        let preset = preset.map_or(String::new(), |preset| format!(" (preset: {preset})"));
        let choice = match self.has_split() {
            true => "by validation accuracy",
            false => "by best test accuracy, for lack of a validation split",
        };
        let of_rates = match self.rates {
            1 if self.preset_rate == Some(lr) => return None,
            1 => String::new(),
            many => format!(", the best of {many} {choice}"),
        };
        Some(format!("rate {}{of_rates}{preset}", chosen_rate(lr)))
    }
}

impl Selection<'_> {
    /// Whether a cell shows three accuracies side by side.
    fn all_three(&self) -> bool {
        self.options.side_by_side && self.options.metric.is_none()
    }
}

impl<'a> ModelLine<'a> {
    /// The lines of a table with `tasks`: the models that the paper lists, then other models with runs, by name. A
    /// model has one line for its preset's settings and one for every further setting of a task.
    fn all(places: &[&'a ModelPlace<'a>], tasks: &[usize]) -> Vec<Self> {
        let (of, paper) = (places[0].of, places[0].paper);
        let listed = paper.models.iter().map(|model| model.mixer);
        let run: BTreeSet<&str> = places.iter().map(|place| place.text(Column::MIXER)).collect();
        let others = run.into_iter().filter(|name| listed.clone().all(|listed| listed != *name));
        let mut lines = Vec::new();
        for mixer in listed.clone().filter(|name| of.options.filter.names(name)).chain(others) {
            let of_task = |task: &usize| -> Vec<&ModelPlace> {
                places.iter().copied().filter(|p| p.text(Column::MIXER) == mixer && p.task == *task).collect()
            };
            let by_task: Vec<Vec<&ModelPlace>> = tasks.iter().map(of_task).collect();
            let longest = by_task.iter().map(Vec::len).max().unwrap_or(0);
            lines.extend((0..longest.max(usize::from(places[0].beside))).map(|i| {
                let places = by_task.iter().map(|places| places.get(i).copied()).collect();
                Self { mixer, places }
            }));
        }
        lines
    }

    fn present(&self) -> impl Iterator<Item = &'a ModelPlace<'a>> + Clone + '_ {
        self.places.iter().flatten().copied()
    }

    /// Mean over all tasks by `metric`, or by the main metric of each, from 0 to 1; `None` if a task is missing, or two
    /// tasks differ from their presets in different ways.
    fn average(&self, metric: Option<&str>) -> Option<f64> {
        let own: BTreeSet<_> = self.present().map(|place| &place.differences).filter(|d| !d.is_empty()).collect();
        let mean = |place: &Option<&ModelPlace>| place.and_then(|p| Some(p.score(metric.unwrap_or(p.main()))?.mean));
        let scores: Option<Vec<f64>> = self.places.iter().map(mean).collect();
        let scores = scores.filter(|_| own.len() <= 1)?;
        Some(scores.iter().sum::<f64>() / scores.len() as f64)
    }

    /// Differences of a task of the line from its preset; the first task that has any.
    fn differences(&self) -> &'a [PresetDifference] {
        let mut all = self.present().map(|place| &place.differences[..]);
        all.find(|differences| !differences.is_empty()).unwrap_or(&[])
    }
}

/// Warnings about settings in which the runs of a table should agree and do not.
fn mixed_in(lines: &[ModelLine]) -> Vec<String> {
    let places = || lines.iter().flat_map(ModelLine::present);
    let mut warnings = mixed::warnings(places().flat_map(|place| place.runs.iter().copied()));
    warnings.extend(mixed::sizes(places().map(|place| &place.differences[..])));
    warnings
}

/// The number of a table, for programs.
fn number(figure: &Figure) -> (String, Value) {
    fact("table", figure.number.parse::<u64>().ok())
}
