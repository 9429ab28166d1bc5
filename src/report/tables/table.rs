//! Runs of one protocol and one setting as models by tasks.

use super::super::difference::{listed, Difference};
use super::super::{Filter, Metric};
use super::paper::{Column, Model, Paper};
use super::place::Place;
use super::setting::Setting;
use std::collections::{BTreeMap, BTreeSet};

/// In the order in which tables are shown; a protocol that is not among them comes last.
const PROTOCOLS: [&str; 3] = ["reference", "paper", "matched"];

/// Models by tasks.
pub(super) struct Table {
    /// Whether its runs saw all of the data.
    pub whole: bool,
    pub protocol: String,
    /// Which preset its runs are compared with.
    pub preset: &'static str,
    /// What all its runs have otherwise than the preset.
    pub settings: Vec<Difference>,
    /// Losses of its runs: of classifiers, one.
    pub losses: BTreeSet<String>,
    pub columns: Vec<Column>,
    /// What the commonest answer scores, lowest and highest, by column.
    pub majority: Vec<Option<[f64; 2]>>,
    pub lines: Vec<Line>,
    /// Differences by footnote.
    pub footnotes: Vec<Vec<Difference>>,
}

/// One model.
pub(super) struct Line {
    pub mixer: String,
    pub label: String,
    /// What the paper prints, by column; none on part of the data.
    pub paper: Vec<Option<f64>>,
    /// The average that the paper prints.
    pub paper_average: Option<f64>,
    /// By column.
    pub places: Vec<Option<Place>>,
}

/// All tables of `settings`, those of all the data first.
pub(super) fn tables(
    settings: &[Setting],
    paper: &'static Paper,
    columns: &[Column],
    filter: &Filter,
) -> Vec<Table> {
    let mut groups: BTreeMap<_, Vec<&Setting>> = BTreeMap::new();
    for setting in settings {
        let protocol = setting.row.text("protocol");
        let order = PROTOCOLS.iter().position(|p| *p == protocol);
        let place = (!setting.whole, order.is_none(), order, protocol);
        let key = (place, &setting.of_table, setting.preset);
        groups.entry(key).or_default().push(setting);
    }
    let table = |group: &Vec<&Setting>| Table::of(group, paper, columns, filter);
    groups.values().map(table).collect()
}

impl Table {
    fn of(group: &[&Setting], paper: &'static Paper, columns: &[Column], filter: &Filter) -> Self {
        let whole = group[0].whole;
        // On part of the data a task without runs is of no interest.
        let shown = |c: &&Column| whole || group.iter().any(|s| s.column == **c);
        let columns: Vec<Column> = columns.iter().filter(shown).copied().collect();
        let losses = group.iter().map(|s| s.row.text("loss").to_owned());
        let mut table = Self {
            whole,
            protocol: group[0].row.text("protocol").to_owned(),
            preset: group[0].preset,
            settings: group[0].of_table.clone(),
            losses: losses.filter(|loss| !loss.is_empty()).collect(),
            majority: columns.iter().map(|c| majority(group, *c)).collect(),
            columns,
            lines: Vec::new(),
            footnotes: Vec::new(),
        };
        for model in models(group, paper, filter) {
            table.add(group, paper, &model);
        }
        let lines = table
            .lines
            .iter()
            .flat_map(|line| line.places.iter().flatten());
        for place in lines.filter(|place| !place.differences.is_empty()) {
            if !table.footnotes.contains(&place.differences) {
                table.footnotes.push(place.differences.clone());
            }
        }
        table
    }

    /// A line for the presets' settings of a model, and one for every further setting of a task.
    fn add(&mut self, group: &[&Setting], paper: &Paper, (mixer, model): &(&str, Option<&Model>)) {
        let of = |column: &Column| {
            let runs = group.iter().copied();
            places(runs.filter(|s| s.row.text("mixer") == *mixer && s.column == *column))
        };
        let mut places: Vec<_> = self.columns.iter().map(|c| of(c).into_iter()).collect();
        loop {
            let next: Vec<Option<Place>> = places.iter_mut().map(Iterator::next).collect();
            let first = !self.lines.iter().any(|line| line.mixer == *mixer);
            let empty = next.iter().all(Option::is_none);
            if empty && !(first && self.whole) {
                return;
            }
            let model = model.filter(|_| self.whole);
            let printed = |column: &Column| {
                let index = paper.columns.iter().position(|c| c == column)?;
                model.map(|model| model.accuracies[index])
            };
            self.lines.push(Line {
                mixer: (*mixer).to_owned(),
                label: label(paper, mixer),
                paper: self.columns.iter().map(printed).collect(),
                paper_average: model
                    .filter(|_| self.averages(paper))
                    .and_then(|model| model.accuracies.last().copied()),
                places: next,
            });
        }
    }

    /// Whether there is an average over its columns.
    pub fn averages(&self, paper: &Paper) -> bool {
        paper.average && self.columns.len() == paper.columns.len()
    }

    /// The number of the footnote of a place, from 1.
    pub fn footnote(&self, place: &Place) -> Option<usize> {
        let index = self.footnotes.iter().position(|d| *d == place.differences);
        index.map(|index| index + 1)
    }

    /// What its runs have in common.
    pub fn title(&self) -> String {
        let mut parts = vec![format!("protocol {}", self.protocol)];
        if !self.whole {
            parts.insert(0, "on part of the data".into());
            if !self.preset.is_empty() {
                parts.push(format!("preset {}", self.preset));
            }
        }
        let said = |d: &&Difference| d.name != "loss";
        parts.extend(self.losses.iter().map(|loss| format!("loss {loss}")));
        parts.extend(self.settings.iter().filter(said).map(|d| format!("{d}")));
        parts.join(", ")
    }
}

impl Line {
    /// Mean over all tasks, 0 to 1; `None` where one is missing, or two have settings of their own.
    pub fn average(&self, metric: Option<Metric>) -> Option<f64> {
        let places: Option<Vec<&Place>> = self.places.iter().map(Option::as_ref).collect();
        let places = places?;
        let own = places
            .iter()
            .map(|p| &p.differences)
            .filter(|d| !d.is_empty());
        let own: BTreeSet<_> = own.collect();
        let scores: Option<Vec<f64>> = places.iter().map(|p| Some(p.score(metric)?.mean)).collect();
        let scores = scores.filter(|_| own.len() <= 1)?;
        Some(scores.iter().sum::<f64>() / scores.len() as f64)
    }
}

/// The models of the paper, and of others those that there are runs of, by name.
fn models<'a>(
    group: &[&'a Setting],
    paper: &'static Paper,
    filter: &Filter,
) -> Vec<(&'a str, Option<&'static Model>)> {
    let wanted =
        |m: &&Model| filter.mixers.is_empty() || filter.mixers.iter().any(|f| f == m.mixer);
    let known = paper.models.iter().filter(wanted);
    let mut models: Vec<(&str, Option<&Model>)> = known.map(|m| (m.mixer, Some(m))).collect();
    let others: BTreeSet<&str> = group.iter().map(|s| s.row.text("mixer")).collect();
    let others = others
        .into_iter()
        .filter(|name| paper.model(name).is_none());
    models.extend(others.map(|name| (name, None)));
    models
}

fn label(paper: &Paper, mixer: &str) -> String {
    let known = paper.model(mixer);
    known.map_or(mixer, |model| model.label).to_owned()
}

impl Paper {
    fn model(&self, mixer: &str) -> Option<&'static Model> {
        self.models.iter().find(|model| model.mixer == mixer)
    }
}

/// One place a setting: the preset's first, then by how much and in what they differ. Examples of our own
/// making and released ones share no place.
fn places<'a>(runs: impl Iterator<Item = &'a Setting<'a>>) -> Vec<Place> {
    let mut groups: BTreeMap<_, Vec<&Setting>> = BTreeMap::new();
    for run in runs {
        let generated = run.column.generated(run.row);
        let key = (run.of_cell.len(), listed(&run.of_cell), generated);
        groups.entry(key).or_default().push(run);
    }
    let released: BTreeSet<_> = groups
        .keys()
        .filter(|k| !k.2)
        .map(|k| k.1.clone())
        .collect();
    let place = |((_, differing, generated), runs): (&(usize, String, bool), &Vec<&Setting>)| {
        let mut differences = runs[0].of_cell.clone();
        if *generated && released.contains(differing) {
            differences.push(Difference {
                name: "data",
                value: runs[0].row.text("data").to_owned(),
                usual: "files".into(),
            });
        }
        Place::of(runs, differences)
    };
    let mut places: Vec<Place> = groups.iter().map(place).collect();
    places.sort_by_key(|place| place.differences.len());
    places
}

fn majority(group: &[&Setting], column: Column) -> Option<[f64; 2]> {
    let runs = group.iter().filter(|s| s.column == column);
    let shares: Vec<f64> = runs.filter_map(|s| s.row.number("majority")).collect();
    let lowest = shares.iter().copied().reduce(f64::min)?;
    let highest = shares.iter().copied().reduce(f64::max)?;
    Some([lowest, highest])
}
