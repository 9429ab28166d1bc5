//! Tables of models by tasks, with a line of the paper's accuracies below each model's.
//!
//! A place is one model on one task in one setting: the mean over seeds at the learning rate with the best validation
//! accuracy. Runs under different protocols, or with different loss, input, pooling or precision, are in separate
//! tables. So are runs on part of the data, beside which the paper's numbers are never shown. Any other difference from
//! the preset has a footnote and a place of its own.

use super::super::figures::{Printed, TaskColumn};
use super::super::grid::{
    chosen_rate, fact, rate, Baseline, Cell, Content, Distance, Facts, Grid, Line, PrintedNumber, Style,
};
use super::super::presets::{generated, listed, Difference};
use super::super::score::{Score, Status};
use super::super::{Group, SCHEMA};
use super::chance::{chance, CHANCE, MAJORITY};
use super::{in_order, mean_and_std, metric, mixed_in, model_lines, number};
use super::{ModelLine, Place, Selected, Selection};
use crate::store::Field;
use std::collections::{BTreeMap, BTreeSet};

const GENERATED: &str = "‡";
const BEST_INSTEAD: &str = "°";
const PLAIN_SKIP: &str =
    "skips around mixers are plain; code released since scales them by a learnt λ: --lambda-skip true";

/// Settings that put runs into different tables.
#[rustfmt::skip]
const OF_TABLE: [&str; 7] = ["loss", "input", "mask", "lambda_skip", "pool", "dual", "precision"];

/// Protocols in the order of their tables; other protocols come last.
const PROTOCOLS: [&str; 3] = ["reference", "paper", "matched"];

/// The metrics of a place, all at one rate.
const SHOWN: [&str; 3] = ["accuracy", "selected_accuracy", "best_accuracy"];

/// Places of one protocol and one setting.
struct Table<'a> {
    /// Selection that the table shows.
    of: &'a Selection<'a>,
    printed: &'static Printed,
    /// The columns that are shown.
    columns: Vec<&'static TaskColumn>,
    /// Any place of the table, for the settings that they share.
    first: &'a Place<'a>,
    lines: Vec<ModelLine<'a>>,
    footnotes: Vec<&'a [Difference]>,
    /// Lowest and highest accuracy of the majority-class baseline, by column.
    majority: Vec<Option<[f64; 2]>>,
    losses: BTreeSet<&'a str>,
}

pub(in super::super) fn accuracies(of: &Selection, printed: &'static Printed) -> Selected {
    let requested = &of.options.filter.datasets;
    let wanted = |c: &&TaskColumn| requested.is_empty() || requested.iter().any(|name| name == c.name());
    let columns: Vec<&TaskColumn> = printed.columns.iter().filter(wanted).collect();
    let places = of.groups.iter().filter_map(|group| place(group, &columns, of));
    let places = separated(places.collect());
    let mut tables: BTreeMap<_, Vec<&Place>> = BTreeMap::new();
    for place in &places {
        let protocol = place.text("protocol");
        let order = PROTOCOLS.iter().position(|known| *known == protocol);
        let order = (!place.beside, order.is_none(), order, protocol);
        let key = (order, &place.of_table, place.preset);
        tables.entry(key).or_default().push(place);
    }
    let tables: Vec<Table> = tables.values().map(|p| Table::of(p, &columns, printed, of)).collect();
    selected(of, printed, &columns, &tables)
}

/// The place of `group`, if it belongs to one of the columns.
fn place<'a>(group: &'a Group, columns: &[&TaskColumn], of: &Selection) -> Option<Place<'a>> {
    let record = group.record;
    let column = columns.iter().position(|c| c.holds(record))?;
    let whole = columns[column].is_whole(record);
    let mut known = (of.presets)(record);
    known.retain(|(name, _)| !whole || *name == "paper");
    // If there is a validation split, it chooses epoch and rate.
    let by = match record.count("val_examples") {
        0 => "best_accuracy",
        _ => "val_accuracy",
    };
    let of_table = |d: &Difference| OF_TABLE.contains(&d.name);
    Some(Place {
        column,
        beside: whole,
        select: of.options.select,
        generated: columns[column].is_released() && generated(record).is_some(),
        ..Place::of(of, group, known, of_table, metric(by))
    })
}

/// Our numbers at the settings of the preset and on released examples, with the paper's; each of the paper's at least
/// once.
fn printed_numbers(of: &Selection, printed: &Printed, columns: &[&TaskColumn], tables: &[Table]) -> Vec<PrintedNumber> {
    let mut numbers = Vec::new();
    let models = printed.models.iter();
    for model in models.filter(|model| of.options.filter.names(model.mixer)) {
        let tables = tables.iter().filter(|table| table.first.beside);
        let lines = tables.flat_map(|table| {
            let lines = table.lines.iter().filter(|line| line.mixer == model.mixer);
            lines.map(move |line| (table, line))
        });
        let indices = printed.columns.iter().enumerate().filter(|(_, column)| columns.contains(column));
        for (i, column) in indices {
            let found = lines.clone().filter_map(|(table, line)| {
                let index = table.columns.iter().position(|c| *c == column)?;
                let own = |place: &&Place| place.differences.is_empty() && !place.generated;
                let place = line.places[index].filter(own)?;
                Some((table, place.status(of).score()?.mean))
            });
            let what = format!("{} on {}", model.label, column.title);
            numbers.extend(beside(what, model.accuracies[i], found));
        }
        if printed.average && columns.len() == printed.columns.len() {
            let whole =
                lines.clone().filter(|(table, line)| table.averages() && line.own().is_empty() && !line.generated());
            let found = whole.filter_map(|(table, line)| Some((table, line.average(|place| place.status(of))?)));
            let what = format!("{}, average", model.label);
            numbers.extend(beside(what, model.accuracies[columns.len()], found));
        }
    }
    numbers
}

/// A printed number, once beside each number found, or once as absent.
fn beside<'a>(what: String, paper: f64, found: impl Iterator<Item = (&'a Table<'a>, f64)>) -> Vec<PrintedNumber> {
    let number = |what: String, ours: Option<f64>| PrintedNumber { what, paper, ours, by: Distance::Points };
    let found = found.map(|(table, share)| number(format!("{what}, {}", table.title()), Some(100.0 * share)));
    let mut numbers: Vec<PrintedNumber> = found.collect();
    if numbers.is_empty() {
        numbers.push(number(what, None));
    }
    numbers
}

fn selected(of: &Selection, printed: &Printed, columns: &[&TaskColumn], tables: &[Table]) -> Selected {
    let (figure, all_three) = (of.figure, of.all_three());
    let lines = tables.iter().flat_map(|table| &table.lines);
    let cells: Vec<Option<&Place>> = lines.flat_map(|line| line.places.clone()).collect();
    let places = || cells.iter().flatten();
    let scored = || places().filter(|place| place.score("accuracy").is_some());
    let mut before = Vec::new();
    if scored().any(|place| place.generated) {
        before.push(format!("{GENERATED} examples of our own generator"));
    }
    if !all_three && places().any(|place| place.best_instead(of)) {
        before.push(format!("{BEST_INSTEAD} the best test accuracy of any epoch: no validation split to choose by"));
    }
    let asks = all_three || of.options.metric.as_deref() == Some("selected_accuracy");
    let unselected = asks && scored().any(|place| !place.selects());
    let unselected = unselected.then_some("· also where no validation split could choose an epoch");
    let in_percent = |meaning: &str| meaning.replacen("accuracy", "accuracy (%)", 1);
    let what = match &of.options.metric {
        None if all_three => {
            "test accuracy (%) after the last epoch / after the one chosen on validation data / the best".to_owned()
        }
        None => in_percent(metric("selected_accuracy").meaning),
        Some(_) => in_percent(of.metric.meaning),
    };
    let beside = match tables.iter().any(|table| table.first.beside) {
        true => ";\nthe paper's below ours",
        false => "",
    };
    let status = |place: &Option<&Place>| place.map_or(Status::NotRun, |p| p.status(of));
    Selected {
        heading: format!("{}, {}: {what}{beside}", figure.title(), figure.about),
        facts: vec![fact("schema", SCHEMA), number(figure), fact("metric", of.options.metric.clone())],
        grids: tables.iter().map(Table::grid).collect(),
        printed: printed_numbers(of, printed, columns, tables),
        before,
        after: unselected.map(str::to_owned).into_iter().collect(),
        results: cells.iter().map(status).collect(),
    }
}

/// Sorts `places` in the order of lines. If one setting has both generated and released examples, the generated ones
/// get a line and a footnote of their own.
fn separated(mut places: Vec<Place>) -> Vec<Place> {
    fn setting<'a>(p: &Place<'a>) -> (usize, bool, &'static str, [&'a str; 2], [String; 2]) {
        let names = ["mixer", "protocol"].map(|name| p.text(name));
        let differences = [&p.of_table, &p.differences].map(|d| listed(d));
        (p.column, p.beside, p.preset, names, differences)
    }
    let released: BTreeSet<_> = places.iter().filter(|place| !place.generated).map(setting).collect();
    for place in places.iter_mut().filter(|place| place.generated) {
        if released.contains(&setting(place)) {
            place.differences.extend(generated(place.record));
        }
    }
    in_order(places)
}

impl Selection<'_> {
    /// Whether a place shows the metrics of [`SHOWN`] side by side.
    fn all_three(&self) -> bool {
        self.options.side_by_side && self.options.metric.is_none()
    }
}

impl Place<'_> {
    /// Whether a validation split chooses epoch and rate.
    fn selects(&self) -> bool {
        self.by.name == "val_accuracy"
    }

    fn shown(&self, name: &str) -> Status {
        match name {
            "selected_accuracy" if !self.selects() => Status::NotRun,
            name => Status::of(self.runs, self.by, metric(name), self.select),
        }
    }

    /// Result by the requested metric; by default at the epoch chosen on validation data, or at the best test accuracy.
    fn status(&self, of: &Selection) -> Status {
        match &of.options.metric {
            Some(name) => self.shown(name),
            None if self.selects() => self.shown("selected_accuracy"),
            None => self.shown("best_accuracy"),
        }
    }

    fn score(&self, name: &str) -> Option<Score> {
        self.shown(name).score().copied()
    }

    /// Whether the number is the best test accuracy of any epoch because there is no validation split.
    fn best_instead(&self, of: &Selection) -> bool {
        of.options.metric.is_none() && !self.selects() && self.status(of).score().is_some()
    }

    /// Note on the learning rate, unless the only one tried is the preset's.
    fn rate_note(&self) -> Option<String> {
        let lr = self.score("accuracy")?.lr;
        let preset = self.preset_rate.map(rate);
        let preset = preset.map_or(String::new(), |preset| format!(" (preset: {preset})"));
        let choice = match self.selects() {
            true => "by validation accuracy",
            false => "by best test accuracy, for want of a validation split",
        };
        let of_rates = match self.rates {
            1 if self.preset_rate == Some(lr) => return None,
            1 => String::new(),
            many => format!(", the best of {many} {choice}"),
        };
        Some(format!("rate {}{of_rates}{preset}", chosen_rate(lr)))
    }
}

impl<'a> Table<'a> {
    fn of(
        places: &[&'a Place<'a>],
        columns: &[&'static TaskColumn],
        printed: &'static Printed,
        of: &'a Selection,
    ) -> Self {
        let first = places[0];
        // On part of the data, tasks without runs are left out.
        let shown = |i: &usize| first.beside || places.iter().any(|place| place.column == *i);
        let shown: Vec<usize> = (0..columns.len()).filter(shown).collect();
        let majority = |column: &usize| {
            let runs = places.iter().filter(|place| place.column == *column).flat_map(|place| place.runs);
            let shares: Vec<f64> = runs.filter_map(|run| run.number("majority")).collect();
            let lowest = shares.iter().copied().reduce(f64::min)?;
            Some([lowest, shares.iter().copied().reduce(f64::max)?])
        };
        let losses = places.iter().map(|place| place.text("loss"));
        let mixers: Vec<&str> = printed.models.iter().map(|model| model.mixer).collect();
        let lines = model_lines(of, &mixers, places, &shown);
        let mut footnotes: Vec<&[Difference]> = Vec::new();
        for place in lines.iter().flat_map(|line| line.places.iter().flatten()) {
            let note = &place.differences[..];
            if !note.is_empty() && !footnotes.contains(&note) {
                footnotes.push(note);
            }
        }
        Self {
            of,
            printed,
            columns: shown.iter().map(|i| columns[*i]).collect(),
            first,
            lines,
            footnotes,
            majority: shown.iter().map(majority).collect(),
            losses: losses.filter(|loss| !loss.is_empty()).collect(),
        }
    }

    /// Settings that its runs have in common.
    fn title(&self) -> String {
        let first = self.first;
        let mut parts = vec![format!("protocol {}", first.text("protocol"))];
        if !first.beside {
            parts.insert(0, "on part of the data".into());
            if !first.preset.is_empty() {
                parts.push(format!("preset {}", first.preset));
            }
        }
        let said = first.of_table.iter().filter(|d| d.name != "loss");
        parts.extend(self.losses.iter().map(|loss| format!("loss {loss}")));
        parts.extend(said.map(ToString::to_string));
        parts.join(", ")
    }

    /// Whether the table has an average over its columns.
    fn averages(&self) -> bool {
        self.printed.average && self.columns.len() == self.printed.columns.len()
    }

    fn label(&self, mixer: &'a str) -> &'a str {
        let known = self.printed.models.iter().find(|model| model.mixer == mixer);
        known.map_or(mixer, |model| model.label)
    }

    /// Numbers that the paper prints for a model, one per column and the average; `None` on part of the data.
    fn printed(&self, mixer: &str) -> Option<Vec<Option<f64>>> {
        let known = self.printed.models.iter().find(|model| self.first.beside && model.mixer == mixer);
        known.map(|model| self.of_columns(model.accuracies))
    }

    /// Selects the shown columns from `numbers`, which has one number per column of the paper, and the average.
    fn of_columns(&self, numbers: &[f64]) -> Vec<Option<f64>> {
        let index = |c: &&TaskColumn| self.printed.columns.iter().position(|p| p == *c);
        let columns = self.columns.iter();
        let mut shown: Vec<_> = columns.map(|c| index(c).map(|i| numbers[i])).collect();
        if self.averages() {
            shown.push(numbers.last().copied());
        }
        shown
    }

    fn grid(&self) -> Grid {
        let mut lines: Vec<Line> = self.majority().into_iter().collect();
        let random = self.printed.random.filter(|_| self.first.beside);
        lines.extend(random.map(|random| paper("paper: random", None, &self.of_columns(random))));
        for (i, line) in self.lines.iter().enumerate() {
            let label = self.label(line.mixer);
            lines.push(Line::new(label, self.cells(line)));
            // All settings of a model share one line of printed numbers.
            let next = self.lines.get(i + 1);
            if next.is_none_or(|next| next.mixer != line.mixer) {
                let printed = self.printed(line.mixer);
                lines.extend(printed.map(|numbers| paper("paper", Some(label), &numbers)));
            }
        }
        let mut columns: Vec<&str> = self.columns.iter().map(|c| c.title).collect();
        if self.averages() {
            columns.push("average");
        }
        let mut grid = Grid {
            facts: vec![fact("whole", self.first.beside)],
            records: self.records(),
            baselines: self.baselines(),
            place: [format!("protocol {}", self.first.text("protocol")), self.title()],
            ..Grid::new(self.title(), columns, lines, Style::Percent)
        };
        grid.notes.extend(grid.about_seeds());
        grid.notes.extend(self.notes());
        let released = self.first.beside && self.first.text("protocol") == "reference";
        if released && *self.first.record.get("lambda_skip") == Field::Flag(false) {
            grid.notes.push(PLAIN_SKIP.to_owned());
        }
        grid.notes.extend(mixed_in(&self.lines));
        grid
    }

    /// Results of guessing on each task; none for the average.
    fn baselines(&self) -> Vec<Baseline> {
        let of_column = |column: usize| {
            let mut places = self.lines.iter().filter_map(|line| line.places[column]);
            places.find_map(|place| Some(chance(place.record)?.1))
        };
        let chances = (0..self.columns.len()).map(|i| of_column(i).into_iter().collect());
        let majorities = self.majority.iter().map(|range| match range {
            None => Vec::new(),
            Some([low, high]) if low == high => vec![*low],
            Some(range) => range.to_vec(),
        });
        let average = self.averages().then(Vec::<f64>::new);
        let baseline = |name, levels: Vec<Vec<f64>>| Baseline {
            name,
            levels: levels.into_iter().chain(average.clone()).collect(),
        };
        vec![baseline(CHANCE, chances.collect()), baseline(MAJORITY, majorities.collect())]
    }

    fn majority(&self) -> Option<Line> {
        self.majority.iter().flatten().next()?;
        let percent = |share: f64| Style::Percent.number(share);
        let cell = |share: &Option<[f64; 2]>| match share.map(|range| range.map(percent)) {
            None => Cell::result(Status::NotRun),
            Some([low, high]) if low == high => Cell::text(low),
            Some([low, high]) => Cell::text(format!("{low}-{high}")),
        };
        let mut cells: Vec<Cell> = self.majority.iter().map(cell).collect();
        if self.averages() {
            let shares: Option<Vec<[f64; 2]>> = self.majority.iter().copied().collect();
            let shares = shares.filter(|shares| shares.iter().all(|s| s[0] == s[1]));
            let mean = |s: Vec<[f64; 2]>| s.iter().map(|s| s[0]).sum::<f64>() / s.len() as f64;
            let average = shares.map(|shares| Cell::text(percent(mean(shares))));
            cells.push(average.unwrap_or(Cell::result(Status::NotRun)));
        }
        Some(Line::of_baseline(MAJORITY, cells))
    }

    fn cells(&self, line: &ModelLine) -> Vec<Cell> {
        let cell = |place: &Option<&Place>| {
            let Some(place) = place else {
                return Cell::result(Status::NotRun);
            };
            let mut marks = self.dagger(&place.differences);
            if place.generated && place.score("accuracy").is_some() {
                marks += GENERATED;
            }
            if self.of.all_three() {
                let three = SHOWN.map(|name| place.shown(name));
                return Cell::from(Content::Results(three)).marked(marks);
            }
            if place.best_instead(self.of) {
                marks += BEST_INSTEAD;
            }
            Cell::result(place.status(self.of)).marked(marks)
        };
        let mut cells: Vec<Cell> = line.places.iter().map(cell).collect();
        if self.averages() {
            cells.push(self.average(line));
        }
        cells
    }

    fn average(&self, line: &ModelLine) -> Cell {
        let Some(average) = line.average(|place| place.status(self.of)) else {
            return Cell::result(Status::NotRun);
        };
        let mut marks = self.dagger(line.own());
        if line.generated() {
            marks += GENERATED;
        }
        let mut places = line.places.iter().flatten();
        if places.any(|place| place.best_instead(self.of)) {
            marks += BEST_INSTEAD;
        }
        Cell::from(Content::Value(average)).marked(marks)
    }

    /// Mark of the footnote about `differences`.
    fn dagger(&self, differences: &[Difference]) -> String {
        let index = self.footnotes.iter().position(|note| *note == differences);
        match index {
            None => String::new(),
            Some(_) if self.footnotes.len() == 1 => "†".into(),
            Some(index) => format!("†{}", index + 1),
        }
    }

    /// Footnotes and notes on learning rates.
    fn notes(&self) -> Vec<String> {
        let footnote = |differences: &&[Difference]| {
            let settings: Vec<String> = differences.iter().map(Difference::explained).collect();
            format!("{} {}", self.dagger(differences), settings.join(", "))
        };
        let mut notes: Vec<String> = self.footnotes.iter().map(footnote).collect();
        for line in &self.lines {
            for (place, column) in line.places.iter().zip(&self.columns) {
                let Some((place, note)) = place.and_then(|p| Some((p, p.rate_note()?))) else {
                    continue;
                };
                let (label, dagger) = (self.label(line.mixer), self.dagger(&place.differences));
                notes.push(format!("{label}{dagger} on {}: {note}", column.title));
            }
        }
        notes
    }

    /// Records of all lines: one per column, and one for the average.
    fn records(&self) -> Vec<Facts> {
        let each = self.lines.iter().flat_map(|line| {
            let columns = 0..self.columns.len();
            let average = self.averages().then_some(None);
            let all = columns.map(Some).chain(average);
            all.map(move |column| self.record(line, column))
        });
        each.collect()
    }

    /// Record of a line in a column, or of its average.
    fn record(&self, line: &ModelLine, column: Option<usize>) -> Facts {
        let first = self.first;
        let losses: Vec<&str> = self.losses.iter().copied().collect();
        let place = column.and_then(|column| line.places[column]);
        let status = place.map_or(Status::NotRun, |place| place.shown("accuracy"));
        let averaged = |name: &str| line.average(|place| place.shown(name));
        let (differences, generated, status_name) = match column {
            Some(_) => {
                let differences = place.map_or(&[][..], |place| &place.differences);
                (differences, place.map(|p| p.generated), status.name())
            }
            None => {
                let done = averaged("accuracy").map_or("incomplete", |_| "done");
                (line.own(), Some(line.generated()), done)
            }
        };
        let mut record = vec![
            number(self.of.figure),
            fact("data", if first.beside { "whole" } else { "part" }),
            fact("protocol", first.text("protocol")),
            fact("preset", first.preset),
            fact("loss", losses.join(" ")),
            fact("settings", listed(&first.of_table)),
            fact("mixer", line.mixer),
            fact("task", column.map_or("average", |i| self.columns[i].name())),
            fact("differences", listed(differences)),
            fact("generated", generated),
            fact("status", status_name),
        ];
        for name in SHOWN {
            let score = place.and_then(|place| place.score(name));
            let [mean, std] = mean_and_std(name, score.as_ref());
            let mean = match column {
                Some(_) => mean,
                None => fact(name, averaged(name)),
            };
            record.extend([mean, std]);
        }
        let score = status.score();
        let majority = column.and_then(|column| self.majority[column]);
        let paper = self.printed(line.mixer);
        let paper = paper.and_then(|numbers| numbers[column.unwrap_or(self.columns.len())]);
        record.extend([
            fact("seeds", score.map(|s| s.seeds)),
            fact("lr", score.map(|s| s.lr)),
            fact("lr_tried", place.map(|place| place.rates)),
            fact("lr_chosen_by", place.map(|place| place.by.name)),
            fact("majority", majority.map(|m| m[0])),
            fact("majority_highest", majority.map(|m| m[1])),
            fact("paper", paper.map(|percent| (100.0 * percent).round() / 1e4)),
        ]);
        record
    }
}

/// A line of numbers printed in the paper.
fn paper(name: &str, series: Option<&str>, numbers: &[Option<f64>]) -> Line {
    let text = |n: &Option<f64>| n.map_or(Cell::text(""), |n| Cell::from(Content::Printed(n)));
    Line::of_paper(name, series, numbers.iter().map(text).collect())
}

impl ModelLine<'_> {
    /// Mean over all tasks, from 0 to 1; `None` if a task is missing, or two tasks differ from their presets in
    /// different ways.
    fn average(&self, status: impl Fn(&Place) -> Status) -> Option<f64> {
        let places: Option<Vec<&Place>> = self.places.iter().copied().collect();
        let places = places?;
        let own: BTreeSet<_> =
            places.iter().map(|place| &place.differences).filter(|differences| !differences.is_empty()).collect();
        let scores: Option<Vec<f64>> = places.iter().map(|place| Some(status(place).score()?.mean)).collect();
        let scores = scores.filter(|_| own.len() <= 1)?;
        Some(scores.iter().sum::<f64>() / scores.len() as f64)
    }

    /// Differences of a task of the line from its preset; the first task that has any.
    fn own(&self) -> &[Difference] {
        let places = self.places.iter().flatten();
        let mut own = places.map(|place| &place.differences[..]);
        own.find(|differences| !differences.is_empty()).unwrap_or(&[])
    }

    /// Whether any of its examples were generated instead of released.
    fn generated(&self) -> bool {
        self.places.iter().flatten().any(|place| place.generated)
    }
}
