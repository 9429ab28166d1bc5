//! Compares two sets of results cell by cell, and finds the differences beyond the noise of seeds.
//!
//! A cell is one setting, learning rate included; its seeds are the sample. The p-value of a difference is corrected
//! over all cells (Holm), so that comparing a program with itself finds no difference 19 times in 20.

use super::figures::Figure;
use super::grid::{fact, rate, Cell, Facts, Grid, GridLine, Style};
use super::own_data::OwnData;
use super::score::{GroupStatus, Score};
use super::stats::{holm, resolution, Estimate, Evidence, SeedBlock, Within, ALPHA, FEWEST};
use super::{joined, Coverage, Report, SCHEMA};
use crate::error::{refuse, Result};
use crate::store::{places, Column, Direction, Field, Metric, MetricFormat, Outcome, Record, Role, RunStatus, COLUMNS};
use std::collections::{BTreeMap, BTreeSet};

/// Change of one cell from the first set of results to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Worse beyond noise.
    Worse,
    /// Better beyond noise.
    Better,
    /// Not decided: the interval contains zero.
    WithinNoise,
    /// Different, with too few seeds to estimate the noise.
    FewSeeds,
    /// Only the first set has a number.
    OnlyA,
    /// Only the second set has a number.
    OnlyB,
    /// The same seeds with the same numbers, bit for bit.
    Identical,
}

/// Every change with its printed name, the most important first.
const CHANGES: [(Change, &str); 7] = [
    (Change::Worse, "worse"),
    (Change::Better, "better"),
    (Change::WithinNoise, "within noise"),
    (Change::FewSeeds, "too few seeds"),
    (Change::OnlyA, "only in A"),
    (Change::OnlyB, "only in B"),
    (Change::Identical, "identical"),
];

/// Result of comparing two sets of results.
pub struct Comparison {
    /// Report of all cells.
    pub report: Report,
    /// Number of cells in which the second set is worse beyond noise.
    pub worse: usize,
}

/// The numbers of one setting in both sets.
struct PairedNumbers<'a> {
    record: &'a Record,
    metric: &'static Metric,
    sides: [Side; 2],
    /// Estimate of the difference, and whether it is one over the seeds that both sides have.
    estimate: Option<(Estimate, bool)>,
    /// p-value of the difference, after Holm's correction.
    level: Option<f64>,
}

/// One setting in one set.
#[derive(Default)]
struct Side {
    /// Numbers by seed.
    numbers: BTreeMap<usize, f64>,
    diverged: BTreeSet<usize>,
}

impl Change {
    fn name(self) -> &'static str {
        let known = CHANGES.iter().find(|(change, _)| *change == self);
        known.map_or("", |(_, name)| name)
    }
}

/// Compares `b` with `a`, displayed under `names`, by `metric` or by the default metric of each task.
///
/// # Errors
///
/// A set is empty, the metric is neither better nor worse when larger, or no run has a number.
pub fn compare([a, b]: [&[Record]; 2], names: [&str; 2], metric: Option<&'static Metric>) -> Result<Comparison> {
    for (rows, name) in [(a, names[0]), (b, names[1])] {
        if rows.is_empty() {
            refuse!(path name, "holds no results");
        }
    }
    if let Some(metric) = metric.filter(|metric| metric.better == Direction::Neither) {
        refuse!(flag "--metric" = metric.name, "{} is neither better nor worse: take one of what was learnt, such as accuracy or train_ppl", metric.meaning);
    }
    let own_data = OwnData::of(a.iter().chain(b));
    let [a, b] = &[a, b].map(|rows| own_data.marked(rows));
    let [a, b] = [a, b].map(|rows| joined(rows.iter().collect(), None).0);
    let mut pairs = pairs([&a, &b], metric);
    holm(pairs.iter_mut().filter_map(|pair| pair.level.as_mut()));
    if pairs.is_empty() {
        let number = metric.map_or("a number", |metric| metric.name);
        refuse!("no run of {} or {} has {number}", names[0], names[1]);
    }
    let both: Vec<&Record> = a.iter().chain(&b).copied().collect();
    Ok(Comparison { worse: count(&pairs, Change::Worse), report: drawn(&pairs, names, Coverage::of(&both)) })
}

fn count(pairs: &[PairedNumbers], change: Change) -> usize {
    pairs.iter().filter(|pair| pair.change() == change).count()
}

/// One pair per setting with a number, in the order of tasks, mixers and sizes.
fn pairs<'a>(sets: [&[&'a Record]; 2], requested: Option<&'static Metric>) -> Vec<PairedNumbers<'a>> {
    let settings = order();
    let mut known: BTreeMap<Vec<&Field>, PairedNumbers> = BTreeMap::new();
    for (i, runs) in sets.into_iter().enumerate() {
        for &run in runs {
            let key = settings.iter().map(|place| run.at(*place)).collect();
            let pair = known.entry(key).or_insert_with(|| PairedNumbers {
                record: run,
                metric: requested.unwrap_or_else(|| metric_of(run)),
                sides: Default::default(),
                estimate: None,
                level: None,
            });
            pair.sides[i].add(run, pair.metric);
        }
    }
    let mut pairs: Vec<PairedNumbers> = known.into_values().collect();
    // Settings whose runs failed on both sides have no number to compare.
    pairs.retain(|pair| pair.sides.iter().any(|side| !side.is_empty()));
    pairs.iter_mut().for_each(PairedNumbers::estimate);
    pairs
}

/// Columns of all settings, the most prominent first.
fn order() -> Vec<usize> {
    const FIRST: [&str; 8] = ["task", "dataset", "mixer", "seq_len", "kv_pairs", "d", "n", "lr"];
    let mut all = places(&[Role::Setting, Role::Cell, Role::Rate]);
    let first = |place: &usize| FIRST.iter().position(|name| *name == COLUMNS[*place].name);
    all.sort_by_key(|place| first(place).unwrap_or(FIRST.len()));
    all
}

/// Default metric of the table that shows `run`, or of the grid.
fn metric_of(run: &Record) -> &'static Metric {
    Metric::find(Figure::showing(run).metrics[0]).expect("a test walks the metrics of FIGURES")
}

impl Side {
    fn add(&mut self, run: &Record, metric: &Metric) {
        let seed = run.count(Column::SEED);
        match (run.status(), run.outcome(), run.number(metric.column)) {
            (Some(RunStatus::Done), Some(Outcome::Diverged), _) => {
                self.diverged.insert(seed);
            }
            (Some(RunStatus::Done), _, Some(number)) if number.is_finite() => {
                self.numbers.insert(seed, number);
            }
            _ => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.diverged.is_empty()
    }

    fn status(&self) -> GroupStatus {
        let values: Vec<f64> = self.numbers.values().copied().collect();
        match (&values[..], self.diverged.is_empty()) {
            ([], true) => GroupStatus::NotRun,
            ([], false) => GroupStatus::Diverged,
            (values, _) => GroupStatus::Done(Score::of(values, f64::NAN)),
        }
    }

    fn equals(&self, other: &Self) -> bool {
        let bits =
            |side: &Self| side.numbers.iter().map(|(seed, number)| (*seed, number.to_bits())).collect::<Vec<_>>();
        self.diverged == other.diverged && bits(self) == bits(other)
    }
}

impl PairedNumbers<'_> {
    /// Estimates the difference of means over the seeds that both sides have, or, if these are too few, of independent
    /// samples.
    fn estimate(&mut self) {
        let [a, b] = &self.sides;
        if a.is_empty() || b.is_empty() || a.equals(b) || a.diverged.len() != b.diverged.len() {
            return;
        }
        let least = resolution(self.record, self.metric.shown == MetricFormat::Percent);
        let shared = b.numbers.iter().filter_map(|(seed, b)| Some(b - a.numbers.get(seed)?));
        let paired = SeedBlock { values: shared.collect(), least: least * 2f64.sqrt() };
        let block = |side: &Side, sign: f64| SeedBlock {
            values: side.numbers.values().map(|number| sign * number).collect(),
            least,
        };
        let paired = Estimate::of_enough(&[paired]).map(|estimate| (estimate, true));
        let apart = || Estimate::of_enough(&[block(a, -1.0), block(b, 1.0)]).map(|estimate| (estimate, false));
        self.estimate = paired.or_else(apart);
        self.level = self.estimate.map(|(estimate, _)| estimate.levels(Within(0.0, 0.0))[1]);
    }

    fn change(&self) -> Change {
        let [a, b] = &self.sides;
        let sided = |better| if better { Change::Better } else { Change::Worse };
        match (self.estimate, self.level) {
            _ if b.is_empty() => Change::OnlyA,
            _ if a.is_empty() => Change::OnlyB,
            _ if a.equals(b) => Change::Identical,
            _ if a.diverged.len() != b.diverged.len() => sided(b.diverged.len() < a.diverged.len()),
            (Some((estimate, _)), Some(level)) if level <= ALPHA => {
                sided((estimate.mean > 0.0) == (self.metric.better == Direction::Higher))
            }
            (Some(_), _) => Change::WithinNoise,
            (None, _) => Change::FewSeeds,
        }
    }

    fn style(&self) -> Style {
        match self.metric.shown {
            MetricFormat::Percent => Style::Percent,
            _ => Style::Perplexity,
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let number = |value: f64| match self.style() {
            Style::Percent => format!("{:+.1}", 100.0 * value),
            _ => format!("{value:+.2}"),
        };
        let [a, b] = self.sides.each_ref().map(|side| Cell::result(side.status()));
        let difference = self.estimate.map_or(["-", "-"].map(str::to_owned), |(estimate, _)| {
            let [low, high] = estimate.interval().map(number);
            [number(estimate.mean), format!("{low} to {high}")]
        });
        let [difference, interval] = difference.map(Cell::text);
        vec![a, b, difference, interval, Cell::text(self.change().name())]
    }

    fn facts(&self) -> Facts {
        let settings = places(&[Role::Setting, Role::Cell, Role::Rate]);
        let mut facts: Facts = settings.into_iter().map(|i| fact(COLUMNS[i].name, self.record.at(i).json())).collect();
        facts.push(fact("metric", self.metric.name));
        for (side, name) in self.sides.iter().zip(["a", "b"]) {
            let status = side.status();
            let score = status.score();
            facts.extend([
                fact(&format!("{name}_mean"), score.map(|score| score.mean)),
                fact(&format!("{name}_std"), score.and_then(|score| score.std)),
                fact(&format!("{name}_seeds"), side.numbers.len()),
                fact(&format!("{name}_diverged"), side.diverged.len()),
            ]);
        }
        let (estimate, paired) = self.estimate.unzip();
        let interval = estimate.map(|estimate| estimate.interval());
        facts.extend([
            fact("difference", estimate.map(|estimate| estimate.mean)),
            fact("low", interval.map(|[low, _]| low)),
            fact("high", interval.map(|[_, high]| high)),
            fact("p_holm", self.level),
            fact("paired", paired),
            fact("change", self.change().name()),
        ]);
        facts
    }
}

fn drawn(pairs: &[PairedNumbers], names: [&str; 2], coverage: Coverage) -> Report {
    let key = |pair: &PairedNumbers| (pair.record.text(Column::TASK).to_owned(), pair.metric.name);
    let grids: Vec<Grid> = pairs.chunk_by(|a, b| key(a) == key(b)).map(grid).collect();
    let counts = CHANGES.map(|(change, name)| (count(pairs, change), name));
    let all: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
    let counts: Facts = counts.iter().map(|(count, name)| fact(&name.replace(' ', "_"), *count)).collect();
    let mut notes = vec![
        format!("{}: {}", super::coverage::counted(pairs.len(), "cell"), all.join(", ")),
        format!(
            "beyond noise: a difference of means over seeds whose interval of Student's t does not hold 0, at 5 % after \
             Holm's correction over all cells; it takes {FEWEST} seeds a side"
        ),
    ];
    if count(pairs, Change::Identical) > 0 {
        notes.push("identical cells have no line here; --format csv and json have them".into());
    }
    Report {
        heading: format!("B {} against A {}", names[1], names[0]),
        facts: vec![
            fact("schema", SCHEMA),
            fact("a", names[0]),
            fact("b", names[1]),
            fact("cells", super::grid::object(&counts)),
        ],
        list: "tasks",
        grids,
        printed: Vec::new(),
        notes,
        coverage,
    }
}

/// Grid of the cells of one task, the most important first.
fn grid(pairs: &[PairedNumbers]) -> Grid {
    let settings = order();
    let differ = |place: &usize| {
        let first = pairs[0].record.at(*place);
        pairs.iter().any(|pair| pair.record.at(*place) != first)
    };
    let telling: Vec<usize> = settings.into_iter().filter(differ).collect();
    let name = |pair: &PairedNumbers| -> String {
        let values = telling.iter().map(|place| match (COLUMNS[*place].name, pair.record.at(*place)) {
            ("mixer", value) => value.to_string(),
            ("lr", Field::Real(lr)) => format!("lr={}", rate(*lr)),
            (name, value) => format!("{name}={value}"),
        });
        match telling[..] {
            [] => pairs[0].record.text(Column::MIXER).to_owned(),
            _ => values.collect::<Vec<_>>().join(" "),
        }
    };
    let mut shown: Vec<&PairedNumbers> = pairs.iter().filter(|pair| pair.change() != Change::Identical).collect();
    shown.sort_by_key(|pair| pair.change());
    let lines = shown.iter().map(|pair| GridLine::new(name(pair), pair.cells()));
    let columns = ["A", "B", "B - A", "95 % interval", "change"];
    let task = pairs[0].record.text(Column::TASK).to_uppercase();
    let meaning = match pairs[0].style() {
        Style::Percent => format!("{} (%)", pairs[0].metric.meaning),
        _ => pairs[0].metric.meaning.to_owned(),
    };
    Grid {
        axes: ["cell".into(), String::new()],
        records: pairs.iter().map(PairedNumbers::facts).collect(),
        ..Grid::new(format!("{task}: {meaning}"), columns, lines.collect(), pairs[0].style())
    }
}
