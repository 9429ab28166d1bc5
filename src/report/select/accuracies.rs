//! Models down, tasks across, ours above the paper's.
//!
//! A place is one model on one task in one setting: the best over learning rates by validation accuracy, the
//! mean over seeds. Runs under several protocols, or that differ in loss, input, pooling or precision, are in
//! tables of their own. So are runs on part of the data: the paper's numbers never stand beside those. Any
//! other difference from the preset is said in a footnote, and never shares a place.

use super::super::figures::{holds, Model, Printed, TaskColumn};
use super::super::grid::{fact, rate, Cell, Content, Facts, Grid, Line, Style};
use super::super::presets::{listed, Difference, Nearest};
use super::super::score::{distinct_rates, Score, Status};
use super::super::{Group, SCHEMA};
use super::{Selected, Selection};
use crate::store::{Metric, Record};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const GENERATED: &str = "‡";
const BEST_INSTEAD: &str = "°";

/// Runs that differ in one of these are in different tables.
const OF_TABLE: [&str; 7] = [
    "loss",
    "input",
    "mask",
    "lambda_skip",
    "pool",
    "dual",
    "precision",
];

/// In the order in which tables are shown; a protocol that is not among them comes last.
const PROTOCOLS: [&str; 3] = ["reference", "paper", "matched"];

/// The metrics of a place, all at one rate.
const SHOWN: [&str; 3] = ["accuracy", "selected_accuracy", "best_accuracy"];

/// One model on one task in one setting.
struct Place<'a> {
    record: &'a Record,
    runs: &'a [&'a Record],
    /// Of the columns that are asked for.
    column: usize,
    /// Whether its runs saw all of the data.
    whole: bool,
    /// The preset that it differs least from, of runs on all of the data the whole one.
    preset: &'static str,
    preset_rate: Option<f64>,
    /// What puts it into another table.
    of_table: Vec<Difference>,
    /// What is said below its number.
    differences: Vec<Difference>,
    /// Whether the examples are of our own making where the paper's were released files.
    generated: bool,
    /// Whether there is a validation split, which chooses epoch and rate.
    selects: bool,
    /// In the order of [`SHOWN`].
    statuses: [Status; 3],
    /// Learning rates, ascending.
    rates: Vec<f64>,
}

/// Places of one protocol and one setting.
struct Table<'a> {
    /// What is drawn.
    of: &'a Selection<'a>,
    printed: &'static Printed,
    /// The columns that are shown.
    columns: Vec<&'static TaskColumn>,
    /// Any place.
    first: &'a Place<'a>,
    lines: Vec<ModelLine<'a>>,
    footnotes: Vec<&'a [Difference]>,
    /// Lowest and highest accuracy of the majority-class baseline, by column.
    majority: Vec<Option<[f64; 2]>>,
    losses: BTreeSet<&'a str>,
}

/// One setting of a model.
struct ModelLine<'a> {
    mixer: &'a str,
    /// What the paper prints of it; nothing on part of the data.
    printed: Option<&'static Model>,
    /// By column.
    places: Vec<Option<&'a Place<'a>>>,
}

fn metric(name: &str) -> &'static Metric {
    Metric::find(name).expect("a name of METRICS")
}

pub(in super::super) fn accuracies(of: &Selection, printed: &'static Printed) -> Selected {
    let asked = &of.asked.filter.datasets;
    let wanted = |c: &&TaskColumn| asked.is_empty() || asked.iter().any(|name| name == c.name);
    let columns: Vec<&TaskColumn> = printed.columns.iter().filter(wanted).collect();
    let place = |group| Place::of(group, &columns, of);
    let places = separated(of.groups.iter().filter_map(place).collect());
    let mut tables: BTreeMap<_, Vec<&Place>> = BTreeMap::new();
    for place in &places {
        let protocol = place.record.text("protocol");
        let order = PROTOCOLS.iter().position(|known| *known == protocol);
        let order = (!place.whole, order.is_none(), order, protocol);
        let key = (order, &place.of_table, place.preset);
        tables.entry(key).or_default().push(place);
    }
    let tables = tables.values();
    let tables: Vec<Table> = tables
        .map(|p| Table::of(p, &columns, printed, of))
        .collect();
    selected(of, &tables)
}

fn selected(of: &Selection, tables: &[Table]) -> Selected {
    let (figure, all_three) = (of.figure, of.all_three());
    let lines = tables.iter().flat_map(|table| &table.lines);
    let places: Vec<Option<&Place>> = lines.flat_map(|line| line.places.clone()).collect();
    let scored = |place: &&Place| place.score("accuracy").is_some();
    let mut before = Vec::new();
    if places
        .iter()
        .flatten()
        .copied()
        .filter(scored)
        .any(|p| p.generated)
    {
        before.push(format!("{GENERATED} examples of our own generator"));
    }
    if !all_three && places.iter().flatten().any(|place| place.best_instead(of)) {
        before.push(format!(
            "{BEST_INSTEAD} the best test accuracy of any epoch: no validation split to choose by"
        ));
    }
    let mut after = Vec::new();
    let asks = all_three || of.asked.metric.as_deref() == Some("selected_accuracy");
    if asks
        && places
            .iter()
            .flatten()
            .copied()
            .filter(scored)
            .any(|p| !p.selects)
    {
        after.push("· also where no validation split could choose an epoch".into());
    }
    let status = |place: &Option<&Place>| place.map_or(Status::NotRun, |p| p.status(of));
    let what = match &of.asked.metric {
        None if all_three => {
            "test accuracy (%) after the last epoch / after the one chosen on validation data / the best"
                .to_owned()
        }
        None => metric("selected_accuracy").meaning.replacen("accuracy", "accuracy (%)", 1),
        Some(_) => of.metric.meaning.replacen("accuracy", "accuracy (%)", 1),
    };
    let beside = if tables.iter().any(|table| table.first.whole) {
        ";\nthe paper's below ours"
    } else {
        ""
    };
    Selected {
        heading: format!("{}, {}: {what}{beside}", figure.title(), figure.about),
        facts: vec![
            fact("schema", SCHEMA),
            fact("table", number(figure.number)),
            fact("metric", of.asked.metric.clone()),
        ],
        grids: tables.iter().map(Table::grid).collect(),
        before,
        after,
        results: places.iter().map(status).collect(),
    }
}

/// The number of a table, for programs.
pub(super) fn number(number: &str) -> Value {
    number.parse::<u64>().map_or(Value::Null, Value::from)
}

/// In the order of lines. Of examples of our own making and released ones in one setting, the former have
/// a line and a footnote of their own.
fn separated(mut places: Vec<Place>) -> Vec<Place> {
    let setting = |p: &Place| {
        let names = ["mixer", "protocol"].map(|name| p.record.text(name));
        let differences = [&p.of_table, &p.differences].map(|d| listed(d));
        format!(
            "{} {} {} {names:?} {differences:?}",
            p.column, p.whole, p.preset
        )
    };
    let released = places.iter().filter(|place| !place.generated);
    let released: BTreeSet<String> = released.map(setting).collect();
    for place in places.iter_mut().filter(|place| place.generated) {
        if released.contains(&setting(place)) {
            place.differences.push(Difference {
                name: "data",
                value: place.record.text("data").to_owned(),
                preset: "files".into(),
            });
        }
    }
    places.sort_by_cached_key(|p| (p.differences.len(), listed(&p.differences), p.generated));
    places
}

impl Selection<'_> {
    /// Whether a place shows the metrics of [`SHOWN`] side by side.
    fn all_three(&self) -> bool {
        self.asked.side_by_side && self.asked.metric.is_none()
    }
}

impl<'a> Place<'a> {
    fn of(group: &'a Group, columns: &[&TaskColumn], of: &Selection) -> Option<Self> {
        let record = group.record;
        let column = columns.iter().position(|c| holds(c.runs, record))?;
        let whole = columns[column].is_whole(record);
        let mut known = (of.presets)(record);
        known.retain(|(name, _)| !whole || *name == "full");
        let nearest = Nearest::of(record, known);
        let of_table = |d: &Difference| OF_TABLE.contains(&d.name);
        let (of_table, differences) = nearest.differences.into_iter().partition(of_table);
        let selects = record.count("val_examples") > 0;
        let by = metric(if selects {
            "val_accuracy"
        } else {
            "best_accuracy"
        });
        Some(Self {
            record,
            runs: &group.runs,
            column,
            whole,
            preset: nearest.preset,
            preset_rate: nearest.lr,
            of_table,
            differences,
            generated: columns[column].released && record.text("data") != "files",
            selects,
            statuses: SHOWN.map(|shown| match shown {
                "selected_accuracy" if !selects => Status::NotRun,
                _ => Status::of(&group.runs, by, metric(shown)),
            }),
            rates: distinct_rates(group.runs.iter().copied()),
        })
    }

    fn shown(&self, name: &str) -> Status {
        let index = SHOWN.iter().position(|shown| *shown == name);
        index.map_or(Status::NotRun, |index| self.statuses[index])
    }

    /// By the metric that was asked for; else of the epoch chosen on validation data, or the best.
    fn status(&self, of: &Selection) -> Status {
        match &of.asked.metric {
            Some(name) => self.shown(name),
            None if self.selects => self.shown("selected_accuracy"),
            None => self.shown("best_accuracy"),
        }
    }

    fn score(&self, name: &str) -> Option<Score> {
        self.shown(name).score().copied()
    }

    /// Whether the number was read off the test split's best epoch for want of a validation split.
    fn best_instead(&self, of: &Selection) -> bool {
        of.asked.metric.is_none() && !self.selects && self.status(of).score().is_some()
    }

    /// A word on the rate, where there was a choice or it is not the preset's.
    fn rate_note(&self) -> Option<String> {
        let lr = self.score("accuracy")?.lr;
        let preset = self.preset_rate.map(rate);
        let preset = preset.map_or(String::new(), |preset| format!(" (preset: {preset})"));
        let choice = if self.selects {
            "by validation accuracy"
        } else {
            "by best test accuracy, for want of a validation split"
        };
        match self.rates.len() {
            1 if self.preset_rate == Some(lr) => None,
            1 => Some(format!("rate {}{preset}", rate(lr))),
            many => Some(format!(
                "rate {}, the best of {many} {choice}{preset}",
                rate(lr)
            )),
        }
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
        // On part of the data a task without runs is of no interest.
        let shown = |i: &usize| first.whole || places.iter().any(|place| place.column == *i);
        let shown: Vec<usize> = (0..columns.len()).filter(shown).collect();
        let majority = |column: &usize| {
            let runs = places.iter().filter(|place| place.column == *column);
            let runs = runs.flat_map(|place| place.runs);
            let shares: Vec<f64> = runs.filter_map(|run| run.number("majority")).collect();
            let lowest = shares.iter().copied().reduce(f64::min)?;
            Some([lowest, shares.iter().copied().reduce(f64::max)?])
        };
        let losses = places.iter().map(|place| place.record.text("loss"));
        let mut table = Self {
            of,
            printed,
            columns: shown.iter().map(|i| columns[*i]).collect(),
            first,
            lines: Vec::new(),
            footnotes: Vec::new(),
            majority: shown.iter().map(majority).collect(),
            losses: losses.filter(|loss| !loss.is_empty()).collect(),
        };
        for (mixer, model) in table.models(places) {
            table.add(mixer, model, places, &shown);
        }
        let placed = table
            .lines
            .iter()
            .flat_map(|line| line.places.iter().flatten());
        for place in placed.filter(|place| !place.differences.is_empty()) {
            if !table.footnotes.contains(&&place.differences[..]) {
                table.footnotes.push(&place.differences);
            }
        }
        table
    }

    /// The models of the paper, and of others those that there are runs of, by name.
    fn models(&self, places: &[&'a Place<'a>]) -> Vec<(&'a str, Option<&'static Model>)> {
        let known = self.printed.models.iter();
        let known = known.filter(|model| self.of.asked.filter.names(model.mixer));
        let mut models: Vec<(&str, Option<&Model>)> = known.map(|m| (m.mixer, Some(m))).collect();
        let others: BTreeSet<&str> = places.iter().map(|p| p.record.text("mixer")).collect();
        let new = |name: &&str| !self.printed.models.iter().any(|m| m.mixer == *name);
        models.extend(others.into_iter().filter(new).map(|name| (name, None)));
        models
    }

    /// A line for the presets' settings of a model, and one for every further setting of a task.
    fn add(
        &mut self,
        mixer: &'a str,
        model: Option<&'static Model>,
        places: &[&'a Place<'a>],
        columns: &[usize],
    ) {
        let of = |column: usize| {
            let places = places.iter().copied();
            places.filter(move |p| p.record.text("mixer") == mixer && p.column == column)
        };
        let mut places: Vec<_> = columns.iter().map(|column| of(*column)).collect();
        loop {
            let next: Vec<Option<&Place>> = places.iter_mut().map(Iterator::next).collect();
            let first = !self.lines.iter().any(|line| line.mixer == mixer);
            if next.iter().all(Option::is_none) && !(first && self.first.whole) {
                return;
            }
            self.lines.push(ModelLine {
                mixer,
                printed: model.filter(|_| self.first.whole),
                places: next,
            });
        }
    }

    /// What its runs have in common.
    fn title(&self) -> String {
        let first = self.first;
        let mut parts = vec![format!("protocol {}", first.record.text("protocol"))];
        if !first.whole {
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

    /// Whether there is an average over its columns.
    fn averages(&self) -> bool {
        self.printed.average && self.columns.len() == self.printed.columns.len()
    }

    fn label(&self, mixer: &'a str) -> &'a str {
        let known = self
            .printed
            .models
            .iter()
            .find(|model| model.mixer == mixer);
        known.map_or(mixer, |model| model.label)
    }

    /// What of `numbers`, one a column of the paper and the average, belongs to the columns shown.
    fn of_columns(&self, numbers: &[f64]) -> Vec<Option<f64>> {
        let index = |c: &&TaskColumn| self.printed.columns.iter().position(|p| p.name == c.name);
        let columns = self.columns.iter();
        let mut shown: Vec<_> = columns.map(|c| index(c).map(|i| numbers[i])).collect();
        if self.averages() {
            shown.push(numbers.last().copied());
        }
        shown
    }

    fn grid(&self) -> Grid {
        let mut lines: Vec<Line> = self.majority().into_iter().collect();
        let random = self.printed.random.filter(|_| self.first.whole);
        lines.extend(random.map(|random| self.paper("paper: random", random)));
        for (i, line) in self.lines.iter().enumerate() {
            lines.push(Line {
                name: self.label(line.mixer).to_owned(),
                printed: false,
                cells: self.cells(line),
            });
            // Further settings of a model share what the paper prints.
            let next = self.lines.get(i + 1);
            if next.is_none_or(|next| next.mixer != line.mixer) {
                let printed = line
                    .printed
                    .map(|model| self.paper("paper", model.accuracies));
                lines.extend(printed);
            }
        }
        let mut columns: Vec<String> = self.columns.iter().map(|c| c.title.to_owned()).collect();
        if self.averages() {
            columns.push("average".into());
        }
        let mut grid = Grid {
            title: self.title(),
            corner: String::new(),
            columns,
            lines,
            style: Style::Percent,
            notes: Vec::new(),
            shared: Vec::new(),
            facts: vec![fact("whole", self.first.whole)],
            records: self
                .lines
                .iter()
                .flat_map(|line| self.records(line))
                .collect(),
        };
        grid.notes.extend(grid.about_seeds());
        grid.notes.extend(self.notes());
        grid
    }

    fn paper(&self, name: &str, numbers: &[f64]) -> Line {
        let text = |n: &Option<f64>| Cell::text(n.map_or(String::new(), |n| format!("{n:.2}")));
        Line {
            name: name.to_owned(),
            printed: true,
            cells: self.of_columns(numbers).iter().map(text).collect(),
        }
    }

    fn majority(&self) -> Option<Line> {
        self.majority.iter().flatten().next()?;
        let percent = |share: f64| Style::Percent.number(share);
        let mut cells: Vec<Cell> = self
            .majority
            .iter()
            .map(|share| match share {
                None => Cell::result(Status::NotRun),
                Some([low, high]) if percent(*low) == percent(*high) => Cell::text(percent(*low)),
                Some([low, high]) => Cell::text(format!("{}-{}", percent(*low), percent(*high))),
            })
            .collect();
        if self.averages() {
            let shares: Option<Vec<[f64; 2]>> = self.majority.iter().copied().collect();
            let shares = shares.filter(|shares| shares.iter().all(|s| s[0] == s[1]));
            let mean = |s: Vec<[f64; 2]>| s.iter().map(|s| s[0]).sum::<f64>() / s.len() as f64;
            cells.push(match shares {
                Some(shares) => Cell::text(percent(mean(shares))),
                None => Cell::result(Status::NotRun),
            });
        }
        Some(Line {
            name: "majority".into(),
            printed: false,
            cells,
        })
    }

    fn cells(&self, line: &ModelLine) -> Vec<Cell> {
        let cell = |place: &Option<&Place>| {
            let Some(place) = place else {
                return Cell::result(Status::NotRun);
            };
            let mut marks = self.dagger(place);
            if place.generated && place.score("accuracy").is_some() {
                marks += GENERATED;
            }
            if self.of.all_three() {
                return Cell::from(Content::Results(place.statuses)).marked(marks);
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
        let places = || line.places.iter().flatten();
        let own = places().find(|place| !place.differences.is_empty());
        let mut marks = own.map_or(String::new(), |place| self.dagger(place));
        if places().any(|place| place.generated) {
            marks += GENERATED;
        }
        if places().any(|place| place.best_instead(self.of)) {
            marks += BEST_INSTEAD;
        }
        Cell::from(Content::Value(average)).marked(marks)
    }

    /// The mark of the footnote of a place.
    fn dagger(&self, place: &Place) -> String {
        let footnotes = self.footnotes.iter();
        let index = footnotes
            .clone()
            .position(|note| **note == place.differences);
        index.map_or(String::new(), |index| self.numbered(index))
    }

    fn numbered(&self, footnote: usize) -> String {
        match self.footnotes.len() {
            1 => "†".into(),
            _ => format!("†{}", footnote + 1),
        }
    }

    /// Footnotes and rates.
    fn notes(&self) -> Vec<String> {
        let footnotes = self.footnotes.iter().enumerate();
        let mut notes: Vec<String> = footnotes
            .map(|(i, differences)| {
                let settings: Vec<String> = differences.iter().map(Difference::explained).collect();
                format!("{} {}", self.numbered(i), settings.join(", "))
            })
            .collect();
        for line in &self.lines {
            for (place, column) in line.places.iter().zip(&self.columns) {
                let Some((place, note)) = place.and_then(|p| Some((p, p.rate_note()?))) else {
                    continue;
                };
                let (label, dagger) = (self.label(line.mixer), self.dagger(place));
                notes.push(format!("{label}{dagger} on {}: {note}", column.title));
            }
        }
        notes
    }

    fn records(&self, line: &ModelLine) -> Vec<Facts> {
        let printed = line.printed.map(|model| self.of_columns(model.accuracies));
        let printed = |column: usize| {
            let percent = printed.as_ref().and_then(|printed| printed[column]);
            percent.map(|percent| (100.0 * percent).round() / 1e4)
        };
        let columns = self.columns.iter().enumerate();
        let mut records: Vec<Facts> = columns
            .map(|(i, column)| {
                let mut record = self.front(line, column.name);
                record.extend(of_place(line.places[i]));
                record.extend(baselines(self.majority[i], printed(i)));
                record
            })
            .collect();
        if self.averages() {
            let mut record = self.front(line, "average");
            record.extend(line.of_average());
            record.extend(baselines(None, printed(self.columns.len())));
            records.push(record);
        }
        records
    }

    fn front(&self, line: &ModelLine, task: &str) -> Facts {
        let first = self.first;
        let losses: Vec<&str> = self.losses.iter().copied().collect();
        vec![
            fact("table", number(self.of.figure.number)),
            fact("data", if first.whole { "whole" } else { "part" }),
            fact("protocol", first.record.text("protocol")),
            fact("preset", first.preset),
            fact("loss", losses.join(" ")),
            fact("settings", listed(&first.of_table)),
            fact("mixer", line.mixer),
            fact("task", task),
        ]
    }
}

impl ModelLine<'_> {
    /// Mean over all tasks, 0 to 1; `None` where one is missing, or two have settings of their own.
    fn average(&self, status: impl Fn(&Place) -> Status) -> Option<f64> {
        let places: Option<Vec<&Place>> = self.places.iter().copied().collect();
        let places = places?;
        let own = places.iter().map(|place| &place.differences);
        let own: BTreeSet<_> = own.filter(|differences| !differences.is_empty()).collect();
        let scores = places.iter().map(|place| Some(status(place).score()?.mean));
        let scores: Option<Vec<f64>> = scores.collect();
        let scores = scores.filter(|_| own.len() <= 1)?;
        Some(scores.iter().sum::<f64>() / scores.len() as f64)
    }

    fn of_average(&self) -> Facts {
        let places = || self.places.iter().flatten();
        let mut own = places().map(|place| &place.differences[..]);
        let own = own.find(|differences| !differences.is_empty());
        let done = self.average(|place| place.shown("accuracy")).is_some();
        let mut record = vec![
            fact("differences", listed(own.unwrap_or(&[]))),
            fact("generated", places().any(|place| place.generated)),
            fact("status", if done { "done" } else { "incomplete" }),
        ];
        for name in SHOWN {
            record.push(fact(name, self.average(|place| place.shown(name))));
            record.push(fact(&format!("{name}_std"), Value::Null));
        }
        record.extend(["seeds", "lr", "lr_tried", "lr_chosen_by"].map(|n| fact(n, Value::Null)));
        record
    }
}

fn of_place(place: Option<&Place>) -> Facts {
    let differences = place.map_or(&[][..], |place| &place.differences);
    let status = place.map_or(Status::NotRun, |place| place.shown("accuracy"));
    let mut record = vec![
        fact("differences", listed(differences)),
        fact("generated", place.map(|place| place.generated)),
        fact("status", status.name()),
    ];
    for name in SHOWN {
        let score = place.and_then(|place| place.score(name));
        record.push(fact(name, score.map(|s| s.mean)));
        record.push(fact(&format!("{name}_std"), score.and_then(|s| s.std)));
    }
    let score = status.score();
    let chosen_by = place.map(|place| match place.selects {
        true => "val_accuracy",
        false => "best_accuracy",
    });
    record.extend([
        fact("seeds", score.map(|s| s.seeds)),
        fact("lr", score.map(|s| s.lr)),
        fact("lr_tried", place.map(|place| place.rates.len())),
        fact("lr_chosen_by", chosen_by),
    ]);
    record
}

fn baselines(majority: Option<[f64; 2]>, paper: Option<f64>) -> [(String, Value); 3] {
    [
        fact("majority", majority.map(|m| m[0])),
        fact("majority_highest", majority.map(|m| m[1])),
        fact("paper", paper),
    ]
}
