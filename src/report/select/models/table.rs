//! One table of models as a grid: a line for each setting of a model, and columns of tasks or of metrics.

use super::super::super::figures::{PaperTable, TaskColumn, PER_WORD};
use super::super::super::grid::{chosen_rate, fact, object, Baseline, Cell, Content, Facts, Grid, GridLine};
use super::super::super::presets::{listed, PresetDifference};
use super::super::super::score::GroupStatus;
use super::super::chance::{chance, majorities, CHANCE, MAJORITY};
use super::{mixed_in, number, sizes, ModelLine, ModelPlace};
use crate::store::{Column, Direction, Field, Metric, MetricFormat, METRICS};
use std::collections::BTreeSet;

pub(super) const GENERATED: &str = "‡";
pub(super) const BEST_INSTEAD: &str = "°";
const PLAIN_SKIP: &str =
    "unscaled residual connections; code released later scales them by a learnt λ: --lambda-skip true";

/// Name of the unigram baseline, which uses token frequencies only.
const UNIGRAM: &str = "unigram";

/// The accuracies of a place, all at one rate.
const ACCURACIES: [&str; 3] = ["accuracy", "selected_accuracy", "best_accuracy"];

/// Places with the same data, protocol and settings of training.
pub(super) struct Table<'a> {
    pub paper: &'static PaperTable,
    /// The tasks that are shown.
    pub tasks: Vec<&'static TaskColumn>,
    pub columns: Vec<ModelColumn>,
    /// Any place of the table, for the settings that they share.
    pub first: &'a ModelPlace<'a>,
    pub lines: Vec<ModelLine<'a>>,
    /// Differences from the presets that have a footnote.
    footnotes: Vec<&'a [PresetDifference]>,
}

/// A column of a table of models.
pub(super) struct ModelColumn {
    title: &'static str,
    pub kind: ModelColumnKind,
}

#[derive(Clone, Copy)]
pub(super) enum ModelColumnKind {
    /// The paper's number.
    Paper,
    /// The best learning rate.
    Rate,
    /// A metric on one task, by the task's index; without a metric the main one of each place.
    Number(usize, Option<&'static str>),
    /// The mean over all tasks.
    Average,
}

/// A line in a column.
struct ModelEntry<'a> {
    /// The place; `None` without runs, and for an average.
    place: Option<&'a ModelPlace<'a>>,
    differences: &'a [PresetDifference],
    /// Whether examples were generated instead of released; `None` without runs.
    generated: Option<bool>,
    /// See [`ModelPlace::is_best_instead`].
    best_instead: bool,
}

/// All metrics of a language model, as exported.
fn perplexities() -> impl Iterator<Item = &'static Metric> {
    let per_byte = |metric: &Metric| metric.name.ends_with("_bits_per_byte");
    METRICS.iter().filter(move |metric| {
        metric.better == Direction::Lower && (metric.shown == MetricFormat::Perplexity || per_byte(metric))
    })
}

impl<'a> Table<'a> {
    pub fn of(places: &[&'a ModelPlace<'a>], tasks: &[&'static TaskColumn]) -> Self {
        let (first, paper) = (places[0], places[0].paper);
        // On part of the data, tasks without runs are left out.
        let shown = |i: &usize| first.beside || places.iter().any(|place| place.task == *i);
        let shown: Vec<usize> = (0..tasks.len()).filter(shown).collect();
        let column = |title, kind| ModelColumn { title, kind };
        let mut columns = Vec::new();
        if !paper.metrics.is_empty() {
            columns.extend(first.beside.then(|| column("paper", ModelColumnKind::Paper)));
            columns.push(column("rate", ModelColumnKind::Rate));
            let metrics = paper.metrics.iter();
            columns.extend(metrics.map(|(name, title)| column(title, ModelColumnKind::Number(0, Some(name)))));
        } else {
            let of_task = |(i, task): (usize, &usize)| column(tasks[*task].title, ModelColumnKind::Number(i, None));
            columns.extend(shown.iter().enumerate().map(of_task));
            let average = paper.average && shown.len() == paper.tasks.len();
            columns.extend(average.then(|| column("average", ModelColumnKind::Average)));
        }
        let lines = ModelLine::all(places, &shown);
        let mut footnotes: Vec<&[PresetDifference]> = Vec::new();
        for place in lines.iter().flat_map(ModelLine::present).filter(|_| paper.style.is_share()) {
            let note = &place.differences[..];
            if !note.is_empty() && !footnotes.contains(&note) {
                footnotes.push(note);
            }
        }
        Self { paper, tasks: shown.iter().map(|i| tasks[*i]).collect(), columns, first, lines, footnotes }
    }

    /// Settings that its runs have in common.
    pub fn title(&self) -> String {
        let first = self.first;
        let preset = Some(format!("preset {}", first.preset)).filter(|_| !first.preset.is_empty());
        let mut parts = Vec::new();
        if self.paper.style.is_share() {
            if !first.beside {
                parts.push("on part of the data".to_owned());
            }
            parts.push(self.protocol());
            parts.extend(preset.filter(|_| !first.beside));
            parts.extend(self.losses().iter().map(|loss| format!("loss {loss}")));
        } else {
            parts.push(first.text(Column::DATASET).to_owned());
            parts.push(format!("tokenizer {}", first.text(Column::TOKENIZER)));
            parts.extend(preset);
            parts.push(first.text(Column::PRECISION).to_owned());
        }
        let told = first.of_table.iter().filter(|d| d.name != "loss");
        parts.extend(told.map(PresetDifference::to_string));
        parts.join(", ")
    }

    fn protocol(&self) -> String {
        format!("protocol {}", self.first.text(Column::PROTOCOL))
    }

    /// The losses of classification among its runs.
    fn losses(&self) -> Vec<&str> {
        let losses: BTreeSet<&str> = self.places().map(|place| place.text(Column::LOSS)).collect();
        losses.into_iter().filter(|loss| !loss.is_empty()).collect()
    }

    fn places(&self) -> impl Iterator<Item = &'a ModelPlace<'a>> + '_ {
        self.lines.iter().flat_map(ModelLine::present)
    }

    /// The model of a line; in a table of perplexities with its differences from the preset.
    pub fn label(&self, line: &ModelLine) -> String {
        let known = self.paper.models.iter().find(|model| model.mixer == line.mixer);
        let model = known.map_or(line.mixer, |model| model.label);
        match line.differences() {
            differences if !differences.is_empty() && !self.paper.style.is_share() => {
                format!("{model}, {}", listed(differences))
            }
            _ => model.to_owned(),
        }
    }

    /// Index of the number for `column` among those that the paper prints in a line.
    pub fn index(&self, column: &ModelColumn) -> Option<usize> {
        match column.kind {
            ModelColumnKind::Paper => Some(0),
            ModelColumnKind::Number(i, None) => self.paper.tasks.iter().position(|task| task == self.tasks[i]),
            ModelColumnKind::Average => Some(self.paper.tasks.len()),
            ModelColumnKind::Rate | ModelColumnKind::Number(..) => None,
        }
    }

    /// The printed number for `line` in `column`, if the paper's numbers may be shown beside it.
    fn printed(&self, line: &ModelLine, column: &ModelColumn) -> Option<f64> {
        let same = self.paper.style.is_share() || sizes(line.differences()).next().is_none();
        let known = self.paper.models.iter().find(|model| model.mixer == line.mixer);
        let known = known.filter(|_| same && self.first.beside)?;
        known.numbers.get(self.index(column)?).copied()
    }

    /// Our number for the printed one in `column`, at the settings of the preset and on released examples.
    pub fn comparable(&self, line: &ModelLine<'a>, column: &ModelColumn) -> Option<f64> {
        let entry = self.entry(line, column);
        match self.paper.style.is_share() {
            true if !entry.differences.is_empty() || entry.generated? => None,
            true => Some(100.0 * self.mean(line, column, None)?),
            false => self.printed(line, column).and(self.mean(line, column, Some(self.first.of.figure.metrics[0]))),
        }
    }

    fn entry(&self, line: &ModelLine<'a>, column: &ModelColumn) -> ModelEntry<'a> {
        let place = match column.kind {
            ModelColumnKind::Number(task, _) => line.places[task],
            ModelColumnKind::Paper | ModelColumnKind::Rate => line.places[0],
            ModelColumnKind::Average => {
                return ModelEntry {
                    place: None,
                    differences: line.differences(),
                    generated: Some(line.present().any(|place| place.generated)),
                    best_instead: line.present().any(ModelPlace::is_best_instead),
                }
            }
        };
        ModelEntry {
            place,
            differences: place.map_or(&[], |place| &place.differences),
            generated: place.map(|place| place.generated),
            best_instead: place.is_some_and(|place| !place.of.all_three() && place.is_best_instead()),
        }
    }

    /// Mean of a metric, by default of the main one.
    fn mean(&self, line: &ModelLine<'a>, column: &ModelColumn, metric: Option<&str>) -> Option<f64> {
        match (column.kind, self.entry(line, column).place) {
            (ModelColumnKind::Average, _) => line.average(metric),
            (_, place) => Some(place?.plausible(metric.unwrap_or(place?.main())).score()?.mean),
        }
    }

    /// Result of a line of a table with one task.
    pub fn status(&self, line: &ModelLine, name: &str) -> GroupStatus {
        line.places[0].map_or(GroupStatus::NotRun, |place| place.plausible(name))
    }

    fn row(&self, cell: impl Fn(&ModelColumn) -> Cell) -> Vec<Cell> {
        self.columns.iter().map(cell).collect()
    }

    pub fn grid(&self) -> Grid {
        let shares = self.paper.style.is_share();
        let baselines = self.baselines();
        let mut lines: Vec<GridLine> = Vec::new();
        if shares {
            lines.extend(self.baseline_line(&baselines[1]));
            let random = self.paper.random.filter(|_| self.first.beside);
            lines.extend(random.map(|random| self.paper_line("paper: random", None, |c| Some(random[self.index(c)?]))));
        }
        for (i, line) in self.lines.iter().enumerate() {
            let label = self.label(line);
            lines.push(GridLine::new(label.as_str(), self.row(|column| self.cell(line, column))));
            // All settings of a model share one line of printed numbers.
            let last = self.lines.get(i + 1).is_none_or(|next| next.mixer != line.mixer);
            let listed = self.paper.models.iter().any(|model| model.mixer == line.mixer);
            if shares && last && listed && self.first.beside {
                lines.push(self.paper_line("paper", Some(&label), |column| self.printed(line, column)));
            }
        }
        if !shares {
            lines.extend(self.baseline_line(&baselines[0]));
            lines.extend(self.compares().then(|| self.gap_line()));
        }
        let across = if shares { self.protocol() } else { self.first.text(Column::PROTOCOL).to_owned() };
        let columns = self.columns.iter().map(|column| column.title);
        let mut grid = Grid {
            facts: match shares {
                true => vec![fact("whole", self.first.beside)],
                false => {
                    let mut gaps: Facts =
                        perplexities().map(|metric| fact(metric.name, self.gap(metric.name).share())).collect();
                    gaps.push(fact("paper", self.paper_gap().share()));
                    vec![fact("beside_paper", self.first.beside), fact("gap_closed", object(&gaps))]
                }
            },
            records: self.records(),
            baselines,
            place: [across, self.title()],
            ..Grid::new(self.title(), columns, lines, self.paper.style)
        };
        grid.notes.extend(grid.about_seeds());
        match shares {
            true => grid.notes.extend(self.accuracy_notes()),
            false => grid.notes.extend(self.perplexity_notes()),
        }
        grid.notes.extend(mixed_in(&self.lines));
        grid
    }

    /// A line of numbers printed in the paper.
    fn paper_line(&self, name: &str, series: Option<&str>, number: impl Fn(&ModelColumn) -> Option<f64>) -> GridLine {
        let cell = |column: &ModelColumn| number(column).map_or(Cell::text(""), |n| Cell::from(Content::Printed(n)));
        GridLine::of_paper(name, series, self.row(cell))
    }

    /// Results of guessing.
    fn baselines(&self) -> Vec<Baseline> {
        let names: &[&'static str] = match self.paper.style.is_share() {
            true => &[CHANCE, MAJORITY],
            false => &[UNIGRAM],
        };
        let levels = |name: &str| self.columns.iter().map(|column| self.levels(name, column)).collect();
        names.iter().map(|name| Baseline { name, levels: levels(name) }).collect()
    }

    /// Levels of a baseline in a column; the lowest and the highest where runs differ.
    fn levels(&self, name: &str, column: &ModelColumn) -> Vec<f64> {
        let of_task = |task: usize| self.lines.iter().filter_map(move |line| line.places[task]);
        match (name, column.kind) {
            (CHANCE, ModelColumnKind::Number(task, _)) => {
                of_task(task).find_map(|place| Some(chance(place.record)?.1)).into_iter().collect()
            }
            (MAJORITY, ModelColumnKind::Number(task, _)) => majorities(of_task(task).flat_map(|place| place.runs)),
            (UNIGRAM, ModelColumnKind::Number(_, Some("test_ppl"))) => of_task(0)
                .flat_map(|place| place.runs)
                .find_map(|run| run.number(Column::UNIGRAM_PPL))
                .into_iter()
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The line of a baseline; `None` if it has no level.
    fn baseline_line(&self, baseline: &Baseline) -> Option<GridLine> {
        baseline.levels.iter().find(|levels| !levels.is_empty())?;
        let shares = self.paper.style.is_share();
        let percent = |share: f64| self.paper.style.number(share);
        let cell = |(column, levels): (&ModelColumn, &Vec<f64>)| match (column.kind, &levels[..]) {
            (ModelColumnKind::Average, _) => {
                let tasks = &baseline.levels[..self.tasks.len()];
                let equal = tasks.iter().all(|levels| levels.len() == 1);
                let mean = tasks.iter().flatten().sum::<f64>() / tasks.len() as f64;
                if equal {
                    Cell::text(percent(mean))
                } else {
                    Cell::result(GroupStatus::NotRun)
                }
            }
            (_, [level]) if shares => Cell::text(percent(*level)),
            (_, [level]) => Cell::from(Content::Value(*level)),
            (_, [low, .., high]) => Cell::text(format!("{}-{}", percent(*low), percent(*high))),
            _ if shares => Cell::result(GroupStatus::NotRun),
            _ => Cell::text(""),
        };
        let cells = self.columns.iter().zip(&baseline.levels).map(cell);
        Some(GridLine::of_baseline(baseline.name, cells.collect()))
    }

    fn cell(&self, line: &ModelLine<'a>, column: &ModelColumn) -> Cell {
        let entry = self.entry(line, column);
        let content = match column.kind {
            ModelColumnKind::Paper => {
                Some(self.printed(line, column).map_or(Content::Text("-".into()), Content::Printed))
            }
            ModelColumnKind::Rate => {
                let mut scores = self.paper.metrics.iter().map(|(name, _)| self.status(line, name));
                let lr = scores.find_map(|status| Some(status.score()?.lr));
                Some(Content::Text(lr.map_or(String::new(), chosen_rate)))
            }
            ModelColumnKind::Number(_, metric) => entry.place.map(|place| match metric {
                None if place.of.all_three() => Content::Results(ACCURACIES.map(|name| place.status(name))),
                metric => Content::Result(place.plausible(metric.unwrap_or(place.main()))),
            }),
            ModelColumnKind::Average => line.average(None).map(Content::Value),
        };
        let Some(content) = content else {
            return Cell::result(GroupStatus::NotRun);
        };
        let mut marks = self.dagger(entry.differences);
        if entry.generated == Some(true) && self.mean(line, column, Some("accuracy")).is_some() {
            marks += GENERATED;
        }
        if entry.best_instead {
            marks += BEST_INSTEAD;
        }
        Cell::from(content).marked(marks)
    }

    /// Mark of the footnote about `differences`.
    fn dagger(&self, differences: &[PresetDifference]) -> String {
        let index = self.footnotes.iter().position(|note| *note == differences);
        match index {
            None => String::new(),
            Some(_) if self.footnotes.len() == 1 => "†".into(),
            Some(index) => format!("†{}", index + 1),
        }
    }

    /// Footnotes, and notes on learning rates and skips.
    fn accuracy_notes(&self) -> Vec<String> {
        let footnote = |differences: &&[PresetDifference]| {
            let settings: Vec<String> = differences.iter().map(PresetDifference::explained).collect();
            format!("{} {}", self.dagger(differences), settings.join(", "))
        };
        let mut notes: Vec<String> = self.footnotes.iter().map(footnote).collect();
        for line in &self.lines {
            for (place, task) in line.places.iter().zip(&self.tasks) {
                if let Some((place, note)) = place.and_then(|place| Some((place, place.rate_note()?))) {
                    let dagger = self.dagger(&place.differences);
                    notes.push(format!("{}{dagger} on {}: {note}", self.label(line), task.title));
                }
            }
        }
        let released = self.first.beside && self.first.text(Column::PROTOCOL) == "reference";
        if released && *self.first.record.get(Column::LAMBDA_SKIP) == Field::Flag(false) {
            notes.push(PLAIN_SKIP.to_owned());
        }
        notes
    }

    fn perplexity_notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.rates_note().into_iter().collect();
        let is_hidden = |place: &ModelPlace| place.status(PER_WORD) != place.plausible(PER_WORD);
        if self.places().any(is_hidden) {
            notes.push(format!(
                "test/word is not shown above {}, the perplexity of a uniform guess among the words of the corpus",
                self.first.words()
            ));
        }
        if self.compares() {
            notes.extend(self.about_gap());
        }
        if !self.first.beside {
            let reasons = self.first.elsewhere().join(", ");
            notes.push(format!("the paper's numbers are of other runs and not shown here: {reasons}"));
        }
        notes
    }

    /// Note on the number of learning rates tried; `None` if no line had a choice.
    fn rates_note(&self) -> Option<String> {
        let rates = |line: &ModelLine| line.present().map(|place| place.rates).next().unwrap_or(0);
        let tried = self.lines.iter().filter(|line| rates(line) > 0);
        let most = tried.clone().map(rates).max().filter(|most| *most > 1)?;
        if tried.clone().all(|line| rates(line) == most) {
            return Some(format!("rate: the best of {most} tried"));
        }
        let each: Vec<String> = tried.map(|line| format!("{} {}", self.label(line), rates(line))).collect();
        Some(format!("rates tried: {}", each.join(", ")))
    }

    /// Records of all lines: of accuracies one per task, and one for the average.
    fn records(&self) -> Vec<Facts> {
        let numbers = self
            .columns
            .iter()
            .filter(|column| matches!(column.kind, ModelColumnKind::Number(..) | ModelColumnKind::Average));
        let columns: Vec<&ModelColumn> = match self.paper.metrics {
            [] => numbers.collect(),
            _ => numbers.take(1).collect(),
        };
        let each = self.lines.iter().flat_map(|line| columns.iter().map(|column| self.record(line, column)));
        each.collect()
    }

    /// Record of a line on a task, or of its average.
    fn record(&self, line: &ModelLine<'a>, column: &ModelColumn) -> Facts {
        let (first, shares) = (self.first, self.paper.style.is_share());
        let ModelEntry { place, differences, generated, .. } = self.entry(line, column);
        let status = place.map_or(GroupStatus::NotRun, |place| match shares {
            true => place.status("accuracy"),
            false => place.status(place.main()),
        });
        let score = status.score();
        let text = |column: Column| fact(column.name(), first.text(column));
        let preset = fact("preset", first.preset);
        let data = match shares {
            true => {
                let data = fact("data", if first.beside { "whole" } else { "part" });
                [data, text(Column::PROTOCOL), preset, fact("loss", self.losses().join(" "))]
            }
            false => [text(Column::DATASET), text(Column::TOKENIZER), preset, text(Column::PRECISION)],
        };
        let (task, done) = match column.kind {
            ModelColumnKind::Number(i, _) => (self.tasks[i].name, status.name()),
            _ => ("average", line.average(Some("accuracy")).map_or("incomplete", |_| "done")),
        };
        let rates = place.map(|place| place.rates);
        let chosen = vec![
            fact("seeds", score.map(|score| score.seeds)),
            fact("lr", score.map(|score| score.lr)),
            fact("lr_tried", rates.or((!shares).then_some(0))),
            fact("lr_chosen_by", place.or((!shares).then_some(first)).map(|place| place.by.name)),
        ];
        let metrics: Vec<&str> = match shares {
            true => ACCURACIES.into(),
            false => perplexities().map(|metric| metric.name).collect(),
        };
        let numbers = metrics.into_iter().flat_map(|name| {
            let std = place.and_then(|place| place.plausible(name).score()?.std);
            [fact(name, self.mean(line, column, Some(name))), fact(&format!("{name}_std"), std)]
        });
        let majority = self.levels(MAJORITY, column);
        let unigram: Vec<f64> = self.columns.iter().flat_map(|column| self.levels(UNIGRAM, column)).collect();
        let in_percent = |percent: f64| (100.0 * percent).round() / 1e4;
        let beside = match shares {
            true => vec![
                fact("majority", majority.first().copied()),
                fact("majority_highest", majority.last().copied()),
                fact("paper", self.printed(line, column).map(in_percent)),
            ],
            false => vec![
                fact("unigram_ppl", unigram.first().copied()),
                fact("paper", self.printed(line, &self.columns[0])),
                fact("gap_closed_train_ppl", self.recorded_gap(line, "train_ppl")),
                fact("gap_closed_val_ppl", self.recorded_gap(line, "val_ppl")),
            ],
        };
        let mut record = vec![number(first.of.figure)];
        record.extend(data);
        record.extend([fact("settings", listed(&first.of_table)), fact("mixer", line.mixer)]);
        record.extend(shares.then(|| fact("task", task)));
        record.push(fact("differences", listed(differences)));
        record.extend(shares.then(|| fact("generated", generated)));
        record.push(fact("status", done));
        match shares {
            true => record.extend(numbers.chain(chosen)),
            false => record.extend(chosen.into_iter().chain(numbers)),
        }
        record.extend(beside);
        record
    }
}
