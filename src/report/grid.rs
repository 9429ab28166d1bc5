//! A report before it is drawn: grids of cells, and what is said around them.
//!
//! A selection makes a [`Report`], a renderer draws it, and neither knows the other.

use super::coverage::counted;
use super::score::{Score, Status, SATURATED};
use super::Coverage;
use crate::store::{Field, Metric, Shown};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Names and values for programs, in order.
pub type Facts = Vec<(String, Value)>;

/// What `dsf report` prints.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which figure it is, and what its numbers are.
    pub heading: String,
    /// What a program is told of the whole report.
    pub facts: Facts,
    /// The name of the list of grids in JSON.
    pub list: &'static str,
    /// The grids, in order.
    pub grids: Vec<Grid>,
    /// What the paper prints beside them.
    pub printed: Vec<PrintedNumber>,
    /// What the marks mean and what the grids rest on.
    pub notes: Vec<String>,
    /// The runs behind it.
    pub coverage: Coverage,
}

impl Report {
    /// Whether every learning rate has lines of its own, so that none of them won.
    pub(super) fn is_of_rates(&self) -> bool {
        let epochs = |grid: &Grid| matches!(grid.form, Form::Lines { log: false, .. });
        self.grids.iter().any(epochs)
    }
}

/// A number that a table of the paper prints, and ours beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct PrintedNumber {
    /// Of which model on which task, and in which of our tables.
    pub what: String,
    /// The paper's: an accuracy in %, or a perplexity.
    pub paper: f64,
    /// Ours, of the preset's settings; none where there is no such run.
    pub ours: Option<f64>,
    /// How they are set against each other.
    pub by: Distance,
}

/// How far a number is from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// In percentage points.
    Points,
    /// In percent of the paper's.
    Percent,
}

/// Lines by columns.
#[derive(Clone, Debug)]
pub struct Grid {
    /// What all its runs have in common.
    pub title: String,
    /// Names of the axes down and across; empty where lines or columns speak for themselves.
    pub axes: [String; 2],
    /// The columns.
    pub columns: Vec<Tick>,
    /// The lines, each a cell a column.
    pub lines: Vec<Line>,
    /// How its numbers are written.
    pub style: Style,
    /// How it is drawn in a picture.
    pub form: Form,
    /// What a guess comes to, beside its numbers in a picture.
    pub baselines: Vec<Baseline>,
    /// What its title says for a column and for a row of panels.
    pub place: [String; 2],
    /// The lines below it: how its cells were averaged, which rates won, how runs differ.
    pub notes: Vec<String>,
    /// In front of each record of a CSV, and said once in JSON, as `settings`.
    pub shared: Facts,
    /// Of the grid in JSON.
    pub facts: Facts,
    /// For CSV and JSON, with every number unrounded.
    pub records: Vec<Facts>,
}

/// How a grid becomes a panel of a picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Points above the names of its columns, those of the paper beside them.
    Columns,
    /// A line for each of its lines, over columns whose titles are numbers.
    Lines {
        /// What the numbers are.
        over: String,
        /// Whether equal factors are equal distances.
        log: bool,
        /// Whether a number stands until the next one.
        steps: bool,
    },
    /// Its cells in colour.
    Heatmap,
    /// Not at all: numbers of several units, which a caption says.
    Table,
    /// A point for each of its lines, at [`Line::across`] and the number of its last column.
    Points {
        /// The name of the axis across.
        over: String,
    },
}

/// A place on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Its title.
    pub title: String,
    /// Its number, where the axis is one of numbers.
    pub at: Option<f64>,
}

impl<T: Into<String>> From<T> for Tick {
    fn from(title: T) -> Self {
        Self {
            title: title.into(),
            at: None,
        }
    }
}

impl From<&Field> for Tick {
    fn from(value: &Field) -> Self {
        let title = value.to_string();
        let at = match value {
            Field::Count(count) => Some(*count as f64),
            Field::Real(value) => Some(*value),
            Field::Absent | Field::Flag(_) | Field::Text(_) => None,
        };
        Self { title, at }
    }
}

impl Tick {
    /// A whole number.
    pub fn whole(number: usize) -> Self {
        Self {
            title: number.to_string(),
            at: Some(number as f64),
        }
    }
}

/// What a guess comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// As the line of a table and as a legend names it.
    pub name: &'static str,
    /// By column; the lowest and the highest, where runs differ.
    pub levels: Vec<Vec<f64>>,
}

/// One line of a grid.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its title.
    pub tick: Tick,
    /// The series of a picture that it belongs to, by its name in the legend; none for baselines.
    pub series: Option<String>,
    /// The settings that tell it from other lines of its series.
    pub detail: String,
    /// The number at which it stands across, in a grid of points.
    pub across: Option<f64>,
    /// Whether it is what the paper prints.
    pub printed: bool,
    /// A cell a column.
    pub cells: Vec<Cell>,
}

impl Line {
    /// A series of its own, of our numbers.
    pub fn new(tick: impl Into<Tick>, cells: Vec<Cell>) -> Self {
        let tick = tick.into();
        Self {
            series: Some(tick.title.clone()),
            tick,
            detail: String::new(),
            across: None,
            printed: false,
            cells,
        }
    }

    /// Of a baseline: in a table alone.
    pub fn of_baseline(name: impl Into<Tick>, cells: Vec<Cell>) -> Self {
        Self {
            series: None,
            ..Self::new(name, cells)
        }
    }

    /// The numbers that the paper prints of `series`.
    pub fn of_paper(name: &str, series: Option<&str>, cells: Vec<Cell>) -> Self {
        Self {
            series: series.map(str::to_owned),
            printed: true,
            ..Self::new(name, cells)
        }
    }

    /// Its title.
    pub fn name(&self) -> &str {
        &self.tick.title
    }
}

/// One cell of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What is in it.
    pub content: Content,
    /// What hangs behind it and is explained below the grid.
    pub marks: String,
}

/// What is in a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A number of runs, or why there is none.
    Result(Status),
    /// Numbers of the same runs by several metrics.
    Results([Status; 3]),
    /// A value that no spread belongs to, such as an average or a baseline.
    Value(f64),
    /// What the paper prints, with two decimals: accuracies in percent.
    Printed(f64),
    /// A text: a learning rate, nothing.
    Text(String),
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// In percent, and `>99` above 99 %.
    Saturating,
    /// In percent.
    Percent,
    /// With two decimals as in the paper, and the fewer the larger the number is.
    Perplexity,
    /// In nats, with four decimals.
    Loss,
    /// A measured number, by the name of its axis, with four digits.
    Measured(&'static str),
    /// A share of something measured, by the name of its axis, in whole percent.
    Share(&'static str),
}

/// Columns that a table of a curve has at most.
const WIDEST: usize = 12;

/// A mark for a missing number, and what it means.
const MARKS: [(Status, &str, &str); 4] = [
    (Status::NotRun, "·", "not run"),
    (Status::Failed, "x", "failed"),
    (Status::Diverged, "div", "diverged at every rate"),
    (Status::NoNumber, "-", ""),
];

impl Cell {
    /// The number of `status`, or the mark of its absence.
    pub fn result(status: Status) -> Self {
        Self::from(Content::Result(status))
    }

    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::from(Content::Text(text.into()))
    }

    /// With `marks` behind it.
    pub fn marked(self, marks: String) -> Self {
        Self { marks, ..self }
    }

    /// From 0 to 1, what its colour says; `None` for what has none.
    pub fn shade(&self, style: Style) -> Option<f64> {
        match &self.content {
            _ if !style.is_share() => None,
            Content::Result(status) => status.score().map(|score| score.mean),
            Content::Value(value) => Some(*value),
            Content::Results(_) | Content::Printed(_) | Content::Text(_) => None,
        }
    }

    /// Its number and the deviation; accuracies, printed ones as well, from 0 to 1.
    pub fn number(&self, style: Style) -> Option<(f64, Option<f64>)> {
        match &self.content {
            Content::Result(status) | Content::Results([status, ..]) => {
                status.score().map(|score| (score.mean, score.std))
            }
            Content::Value(value) => Some((*value, None)),
            Content::Printed(percent) if style.is_share() => Some((percent / 100.0, None)),
            Content::Printed(value) => Some((*value, None)),
            Content::Text(_) => None,
        }
    }
}

impl From<Content> for Cell {
    fn from(content: Content) -> Self {
        let marks = String::new();
        Self { content, marks }
    }
}

impl Grid {
    /// A grid whose lines and columns speak for themselves, with nothing said below it or for programs.
    pub fn new(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = impl Into<Tick>>,
        lines: Vec<Line>,
        style: Style,
    ) -> Self {
        Self {
            title: title.into(),
            axes: Default::default(),
            columns: columns.into_iter().map(Into::into).collect(),
            lines,
            style,
            form: Form::Columns,
            baselines: Vec::new(),
            place: Default::default(),
            notes: Vec::new(),
            shared: Vec::new(),
            facts: Vec::new(),
            records: Vec::new(),
        }
    }

    /// The title of the columns of titles: the names of both axes.
    pub fn corner(&self) -> String {
        let names = self.axes.iter().map(String::as_str);
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        names.join(" \\ ")
    }

    /// Every result in it.
    pub fn results(&self) -> impl Iterator<Item = Status> + '_ {
        let cells = self.lines.iter().flat_map(|line| &line.cells);
        cells.flat_map(|cell| match &cell.content {
            Content::Result(status) => vec![*status],
            Content::Results(three) => three.to_vec(),
            Content::Value(_) | Content::Printed(_) | Content::Text(_) => Vec::new(),
        })
    }

    /// Seeds of the fullest cell.
    pub fn seeds(&self) -> usize {
        let results = self.results();
        let seeds = results.filter_map(|status| Some(status.score()?.seeds));
        seeds.max().unwrap_or(0)
    }

    /// That cells are means over seeds, if any is.
    pub fn about_seeds(&self) -> Option<String> {
        let seeds = self.seeds();
        (seeds > 1).then(|| format!("mean ± std over {seeds} seeds"))
    }

    /// With few enough columns for a page: of the epochs of a curve the powers of two and the last.
    pub fn abridged(&self) -> Cow<'_, Self> {
        let linear = matches!(self.form, Form::Lines { log: false, .. });
        let last = self.columns.len();
        if !linear || last <= WIDEST {
            return Cow::Borrowed(self);
        }
        let keep = |i: &usize| (i + 1).is_power_of_two() || i + 1 == last;
        let mut short = self.clone();
        short.columns = (0..last)
            .filter(keep)
            .map(|i| self.columns[i].clone())
            .collect();
        for (line, whole) in short.lines.iter_mut().zip(&self.lines) {
            line.cells = (0..last)
                .filter(keep)
                .map(|i| whole.cells[i].clone())
                .collect();
        }
        let shown = format!(
            "{} of {last} columns; CSV and JSON have all",
            short.columns.len()
        );
        short.notes.push(shown);
        Cow::Owned(short)
    }

    /// `cell` as written in a grid whose fullest cell has `seeds` seeds, without its marks.
    pub fn label(&self, cell: &Cell, seeds: usize) -> String {
        match &cell.content {
            Content::Result(status) => self.style.result(status, seeds),
            Content::Results(three) if three[0].score().is_some() => {
                let each = three.map(|status| self.style.result(&status, seeds));
                each.join(" / ")
            }
            Content::Results(three) => self.style.result(&three[0], seeds),
            Content::Value(value) => self.style.number(*value),
            Content::Printed(value) => format!("{value:.2}"),
            Content::Text(text) => text.clone(),
        }
    }
}

impl Style {
    /// Whether numbers are shares from 0 to 1, written in percent.
    pub fn is_share(self) -> bool {
        matches!(self, Self::Saturating | Self::Percent | Self::Share(_))
    }

    /// What an axis of such numbers is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Saturating | Self::Percent => "accuracy (%)",
            Self::Perplexity => "perplexity",
            Self::Loss => "loss (nats)",
            Self::Measured(name) | Self::Share(name) => name,
        }
    }

    /// How the numbers of `metric` are written.
    pub(super) fn of(metric: &Metric) -> Self {
        match metric.shown {
            Shown::Percent => Self::Saturating,
            Shown::Perplexity => Self::Perplexity,
            _ => Self::Loss,
        }
    }

    fn result(self, status: &Status, seeds: usize) -> String {
        if let Some(score) = status.score() {
            return self.mean(score) + &self.spread(score, seeds);
        }
        let mark = MARKS.iter().find(|(marked, ..)| marked == status);
        mark.map_or(String::new(), |(_, mark, _)| (*mark).to_owned())
    }

    fn mean(self, score: &Score) -> String {
        match self {
            Self::Saturating if score.mean > SATURATED => ">99".into(),
            _ => self.number(score.mean),
        }
    }

    /// What follows the mean: the deviation, and the seeds if others have more.
    fn spread(self, score: &Score, seeds: usize) -> String {
        let std = score.std.map(|std| format!("±{}", self.number(std)));
        let fewer = (score.seeds < seeds).then(|| format!(" ({})", score.seeds));
        [std, fewer].map(Option::unwrap_or_default).concat()
    }

    /// A number without its spread.
    pub fn number(self, value: f64) -> String {
        match (self, value) {
            (Self::Saturating | Self::Percent, share) => format!("{:.1}", 100.0 * share),
            (Self::Share(_), share) => format!("{:.0}", 100.0 * share),
            (Self::Loss, loss) => format!("{loss:.4}"),
            (Self::Measured(_), value) => measured(value),
            (_, ppl) if ppl < 100.0 => format!("{ppl:.2}"),
            (_, ppl) if ppl < 1000.0 => format!("{ppl:.1}"),
            (_, ppl) if ppl < 1e6 => format!("{ppl:.0}"),
            (_, ppl) => format!("{ppl:.1e}"),
        }
    }
}

/// Four digits, without zeros behind them.
fn measured(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    if !(1e-3..1e6).contains(&size) {
        return format!("{value:.1e}");
    }
    let digits = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Which rates won, best by cell; `None` without a number.
pub(super) fn rates_won(results: impl Iterator<Item = Status>) -> Option<String> {
    let mut won: Vec<f64> = results
        .filter_map(|status| Some(status.score()?.lr))
        .collect();
    won.sort_by(f64::total_cmp);
    let wins: Vec<String> = won
        .chunk_by(|a, b| a.total_cmp(b).is_eq())
        .map(|cells| {
            format!(
                "{} ({})",
                chosen_rate(cells[0]),
                counted(cells.len(), "cell")
            )
        })
        .collect();
    let plural = if wins.len() == 1 { "" } else { "s" };
    (!wins.is_empty()).then(|| format!("best rate{plural}: {}", wins.join(", ")))
}

/// What the marks among `results` mean, as far as there are any.
pub(super) fn legend(results: &[Status]) -> Option<String> {
    let used = MARKS.iter().filter(|(mark, ..)| results.contains(mark));
    let words = used.filter(|(.., word)| !word.is_empty());
    let words: Vec<String> = words
        .map(|(_, mark, word)| format!("{mark} {word}"))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// A learning rate in at most three digits: `1e-3`, `4.64e-4`.
pub(super) fn rate(lr: f64) -> String {
    let text = format!("{lr:.2e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text; // not finite
    };
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}e{exponent}")
}

/// [`rate`], of a result whose halves of seeds may have two of them.
pub(super) fn chosen_rate(lr: f64) -> String {
    match lr.is_nan() {
        true => "one a half of the seeds".into(),
        false => rate(lr),
    }
}

/// A name of [`Facts`] with its value.
pub(super) fn fact(name: &str, value: impl Into<Value>) -> (String, Value) {
    (name.to_owned(), value.into())
}

/// Facts as an object.
pub(super) fn object(facts: &Facts) -> Value {
    Value::Object(facts.iter().cloned().collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_short() {
        let grid = [1e-4, 4.641_588_833_612_772e-4, 2.15e-3, 0.01, 1.0];
        let short = ["1e-4", "4.64e-4", "2.15e-3", "1e-2", "1e0"];
        assert_eq!(grid.map(rate), short);
        assert_eq!(rate(f64::NAN), "NaN");
    }
}
