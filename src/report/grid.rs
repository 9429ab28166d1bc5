//! A report before it is drawn: grids of cells, and the texts around them.
//!
//! A selection builds a [`Report`] and a renderer draws it; neither depends on the other.

use super::coverage::counted;
use super::score::{GroupStatus, Score, SATURATED};
use super::Coverage;
use crate::store::{Field, Metric, MetricFormat};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Names and values for programs, in order.
pub type Facts = Vec<(String, Value)>;

/// Content of the output of `dsf report`.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the figure, and the meaning of its numbers.
    pub heading: String,
    /// Facts on the whole report, for programs.
    pub facts: Facts,
    /// The name of the list of grids in JSON.
    pub list: &'static str,
    /// The grids, in order.
    pub grids: Vec<Grid>,
    /// Numbers that the paper prints, each with ours.
    pub printed: Vec<PrintedNumber>,
    /// Notes on the marks, and on the runs behind the grids.
    pub notes: Vec<String>,
    /// Counts of the runs behind the report.
    pub coverage: Coverage,
}

impl Report {
    /// Whether each learning rate has its own lines, so that no best rate was chosen.
    pub(super) fn is_of_rates(&self) -> bool {
        self.grids.iter().any(Grid::is_of_epochs)
    }
}

/// A number in a table of the paper, with ours beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct PrintedNumber {
    /// Model and task of the number, and the table of ours that contains it.
    pub what: String,
    /// The paper's number: an accuracy in %, or a perplexity.
    pub paper: f64,
    /// Our number at the preset's settings; none where there is no such run.
    pub ours: Option<f64>,
    /// Number format of both: accuracies are apart in percentage points, perplexities in percent of the paper's.
    pub style: Style,
}

/// A table of lines by columns.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    /// Settings that all its runs have in common.
    pub title: String,
    /// Names of the vertical and the horizontal axis; empty where titles of lines or columns need no name.
    pub axes: [String; 2],
    /// The columns.
    pub columns: Vec<Tick>,
    /// The lines, each with one cell per column.
    pub lines: Vec<GridLine>,
    /// Number format of the cells.
    pub style: Style,
    /// Form of the panel in a picture.
    pub form: PanelForm,
    /// Results of guessing, drawn beside the numbers in a picture.
    pub baselines: Vec<Baseline>,
    /// Names of the column and of the row of panels in which a picture puts the grid.
    pub place: [String; 2],
    /// Notes below the grid: how cells were averaged, which rates are best, how runs differ.
    pub notes: Vec<String>,
    /// Facts common to all records: repeated in front of each record in CSV, and given once in JSON as `settings`.
    pub shared: Facts,
    /// Facts of the grid in JSON.
    pub facts: Facts,
    /// Records for CSV and JSON, with every number unrounded.
    pub records: Vec<Facts>,
}

/// Form of a grid as a panel of a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PanelForm {
    /// Points above the names of the columns, ours beside the paper's.
    #[default]
    Columns,
    /// One curve per line, over columns with numeric titles.
    Lines {
        /// Name of the horizontal axis.
        over: String,
        /// Whether the axis is logarithmic.
        log: bool,
        /// Whether the curve is a step function, constant up to the next number.
        steps: bool,
        /// Whether each curve is named at its end, in place of a legend.
        named: bool,
    },
    /// Coloured cells.
    Heatmap,
    /// No panel: the numbers have several units, and the caption lists them.
    Table,
    /// One point per line, at [`GridLine::across`] and the number of its last column.
    Points {
        /// Name of the horizontal axis.
        over: String,
    },
}

/// A position on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Its title.
    pub title: String,
    /// Its number, if the axis is numeric.
    pub at: Option<f64>,
}

impl<T: Into<String>> From<T> for Tick {
    fn from(title: T) -> Self {
        Self { title: title.into(), at: None }
    }
}

impl From<&Field> for Tick {
    fn from(value: &Field) -> Self {
        Self { title: value.to_string(), at: value.number() }
    }
}

impl Tick {
    /// Returns the tick of a whole number.
    pub fn whole(number: usize) -> Self {
        Self { title: number.to_string(), at: Some(number as f64) }
    }
}

/// Result of guessing.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Name in tables and legends.
    pub name: &'static str,
    /// Levels by column; the lowest and the highest where runs differ.
    pub levels: Vec<Vec<f64>>,
}

/// One line of a grid.
#[derive(Clone, Debug)]
pub struct GridLine {
    /// Its title.
    pub tick: Tick,
    /// Name in the legend of the series that the line belongs to in a picture; none for baselines.
    pub series: Option<String>,
    /// The settings that distinguish it from other lines of its series.
    pub detail: String,
    /// Its horizontal position, in a grid of points.
    pub across: Option<f64>,
    /// Whether it contains the numbers printed in the paper.
    pub printed: bool,
    /// The cells, one per column.
    pub cells: Vec<Cell>,
}

impl GridLine {
    /// Returns a line of our numbers that is a series of its own.
    pub fn new(tick: impl Into<Tick>, cells: Vec<Cell>) -> Self {
        let tick = tick.into();
        Self { series: Some(tick.title.clone()), tick, detail: String::new(), across: None, printed: false, cells }
    }

    /// Returns the line of a baseline, which is shown in tables only.
    pub fn of_baseline(name: impl Into<Tick>, cells: Vec<Cell>) -> Self {
        Self { series: None, ..Self::new(name, cells) }
    }

    /// Returns the numbers that the paper prints for `series`.
    pub fn of_paper(name: &str, series: Option<&str>, cells: Vec<Cell>) -> Self {
        Self { series: series.map(str::to_owned), printed: true, ..Self::new(name, cells) }
    }

    /// Its title.
    pub fn name(&self) -> &str {
        &self.tick.title
    }
}

/// One cell of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Content of the cell.
    pub content: Content,
    /// Marks after the content, explained below the grid.
    pub marks: String,
}

/// Content of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The number of a group of runs, or the reason for its absence.
    Result(GroupStatus),
    /// Numbers of the same runs by several metrics.
    Results([GroupStatus; 3]),
    /// A value without a deviation, such as an average or a baseline.
    Value(f64),
    /// An average of results, and its standard deviation over seeds.
    Mean(f64, f64),
    /// A value with the ends of its interval.
    Between(f64, [f64; 2]),
    /// A value outside what was measured: its place in a picture, and the bound that is known.
    Beyond(f64, String),
    /// A number as the paper prints it, with two decimals; accuracies in percent.
    Printed(f64),
    /// A text, such as a learning rate, or nothing.
    Text(String),
}

/// Number format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Percent, with `>99` above 99 %.
    Saturating,
    /// Percent.
    #[default]
    Percent,
    /// Two decimals as in the paper, and fewer for larger numbers.
    Perplexity,
    /// Nats, with four decimals.
    Loss,
    /// A measured number with four digits; the string is the name of its axis.
    Measured(&'static str),
    /// A number with one decimal, on an axis of powers of two; the string is the name of its axis.
    Doublings(&'static str),
    /// A share of a measured quantity in whole percent; the string is the name of its axis.
    Share(&'static str),
}

/// Largest number of columns in a table of a curve.
const WIDEST: usize = 12;

/// Marks for missing numbers, and their meanings.
const MARKS: [(GroupStatus, &str, &str); 4] = [
    (GroupStatus::NotRun, "·", "not run"),
    (GroupStatus::Failed, "x", "failed"),
    (GroupStatus::Diverged, "div", "diverged at every rate"),
    (GroupStatus::NoNumber, "-", "no number"),
];

impl Cell {
    /// Cell with the number of `status`, or the mark of its absence.
    pub fn result(status: GroupStatus) -> Self {
        Self::from(Content::Result(status))
    }

    /// Cell with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::from(Content::Text(text.into()))
    }

    /// Cell with a value, or a dash without one.
    pub fn value(value: Option<f64>) -> Self {
        value.map_or_else(|| Self::text("-"), |value| Self::from(Content::Value(value)))
    }

    /// Returns the cell with `marks` after its content.
    pub fn marked(self, marks: String) -> Self {
        Self { marks, ..self }
    }

    /// Colour of the cell, from 0 to 1; `None` for a cell without colour.
    pub fn shade(&self, style: Style) -> Option<f64> {
        let coloured =
            style.is_share() && matches!(self.content, Content::Result(_) | Content::Value(_) | Content::Mean(..));
        self.number(style).filter(|_| coloured).map(|(mean, _)| mean)
    }

    /// Its number, and the ends of its band: one standard deviation below and above, or an interval. Accuracies are
    /// from 0 to 1, printed ones included.
    pub fn number(&self, style: Style) -> Option<(f64, Option<[f64; 2]>)> {
        match &self.content {
            Content::Result(status) | Content::Results([status, ..]) => {
                let around = |score: &Score| score.std.map(|std| [score.mean - std, score.mean + std]);
                status.score().map(|score| (score.mean, around(score)))
            }
            Content::Value(value) | Content::Beyond(value, _) => Some((*value, None)),
            Content::Mean(mean, std) => Some((*mean, Some([mean - std, mean + std]))),
            Content::Between(value, ends) => Some((*value, Some(*ends))),
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
    /// Returns a grid whose lines and columns need no axis names, without notes, facts and records.
    pub fn new(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = impl Into<Tick>>,
        lines: Vec<GridLine>,
        style: Style,
    ) -> Self {
        Self {
            title: title.into(),
            columns: columns.into_iter().map(Into::into).collect(),
            lines,
            style,
            ..Self::default()
        }
    }

    /// Whether its lines are curves over epochs.
    pub(super) fn is_of_epochs(&self) -> bool {
        matches!(self.form, PanelForm::Lines { log: false, steps: false, .. })
    }

    /// Title of the column of titles: the names of both axes.
    pub fn corner(&self) -> String {
        let names: Vec<&str> = self.axes.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        names.join(" \\ ")
    }

    /// Every result in the grid.
    pub fn results(&self) -> impl Iterator<Item = GroupStatus> + '_ {
        let cells = self.lines.iter().flat_map(|line| &line.cells);
        cells.flat_map(|cell| match &cell.content {
            Content::Result(status) => vec![*status],
            Content::Results(three) => three.to_vec(),
            // No variant is left to a wildcard: a new one must say whether it holds results.
            Content::Value(_) | Content::Mean(..) | Content::Between(..) => Vec::new(),
            Content::Beyond(..) | Content::Printed(_) | Content::Text(_) => Vec::new(),
        })
    }

    /// Seeds of the cell with the most.
    pub fn seeds(&self) -> usize {
        let results = self.results();
        let seeds = results.filter_map(|status| Some(status.score()?.seeds));
        seeds.max().unwrap_or(0)
    }

    /// Whether some cells have fewer seeds than others.
    pub fn has_cells_of_fewer_seeds(&self) -> bool {
        let seeds = self.seeds();
        self.results().any(|status| status.score().is_some_and(|score| score.seeds < seeds))
    }

    /// Note that cells are means over seeds; `None` if none is. A cell with fewer has their number in parentheses.
    pub fn about_seeds(&self) -> Option<String> {
        mean_over_seeds(self.results(), "")
    }

    /// The grid with few enough columns for a page: of a linear axis, the columns at powers of two and the last.
    pub fn abridged(&self) -> Cow<'_, Self> {
        let linear = matches!(self.form, PanelForm::Lines { log: false, .. });
        let last = self.columns.len();
        if !linear || last <= WIDEST {
            return Cow::Borrowed(self);
        }
        let keep = |i: &usize| (i + 1).is_power_of_two() || i + 1 == last;
        let mut short = self.clone();
        short.columns = (0..last).filter(keep).map(|i| self.columns[i].clone()).collect();
        for (line, whole) in short.lines.iter_mut().zip(&self.lines) {
            line.cells = (0..last).filter(keep).map(|i| whole.cells[i].clone()).collect();
        }
        let shown = format!("{} of {last} columns are shown; CSV and JSON contain all", short.columns.len());
        short.notes.push(shown);
        Cow::Owned(short)
    }

    /// Text of `cell` without its marks, in a grid whose cells have up to `seeds` seeds.
    pub fn label(&self, cell: &Cell, seeds: usize) -> String {
        match &cell.content {
            Content::Result(status) => self.style.result(status, seeds),
            Content::Results(three) if three[0].score().is_some() => {
                let each = three.map(|status| self.style.result(&status, seeds));
                each.join(" / ")
            }
            Content::Results(three) => self.style.result(&three[0], seeds),
            Content::Value(value) => self.style.number(*value),
            Content::Mean(mean, std) => format!("{}±{}", self.style.number(*mean), self.style.number(*std)),
            Content::Between(value, ends) => {
                let [low, high] = ends.map(|end| self.style.number(end));
                format!("{} ({low}-{high})", self.style.number(*value))
            }
            Content::Printed(value) => format!("{value:.2}"),
            Content::Beyond(_, text) | Content::Text(text) => text.clone(),
        }
    }
}

impl Style {
    /// Whether numbers are shares from 0 to 1, written in percent.
    pub fn is_share(self) -> bool {
        matches!(self, Self::Saturating | Self::Percent | Self::Share(_))
    }

    /// Name of an axis of such numbers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Saturating | Self::Percent => "accuracy (%)",
            Self::Perplexity => "perplexity",
            Self::Loss => "loss (nats)",
            Self::Measured(name) | Self::Doublings(name) | Self::Share(name) => name,
        }
    }

    /// Number format of `metric`.
    pub(super) fn of(metric: &Metric) -> Self {
        match metric.shown {
            MetricFormat::Percent => Self::Saturating,
            MetricFormat::Perplexity => Self::Perplexity,
            _ => Self::Loss,
        }
    }

    /// The mean with its deviation, and the number of seeds if other cells have more; without a mean its mark.
    fn result(self, status: &GroupStatus, seeds: usize) -> String {
        let Some(score) = status.score() else {
            let mark = MARKS.iter().find(|(marked, ..)| marked == status);
            return mark.map_or("", |(_, mark, _)| *mark).to_owned();
        };
        let mean = match self {
            Self::Saturating if score.mean > SATURATED => ">99".into(),
            _ => self.number(score.mean),
        };
        let std = score.std.map(|std| format!("±{}", self.number(std)));
        let fewer = (score.seeds < seeds).then(|| format!(" ({})", score.seeds));
        mean + &[std, fewer].map(Option::unwrap_or_default).concat()
    }

    /// Formats a number without its deviation.
    pub fn number(self, value: f64) -> String {
        match (self, value) {
            (Self::Saturating | Self::Percent, share) => format!("{:.1}", 100.0 * share),
            (Self::Share(_), share) => format!("{:.0}", 100.0 * share),
            (Self::Loss, loss) => format!("{loss:.4}"),
            (Self::Measured(_), value) => measured(value),
            (Self::Doublings(_), value) => format!("{value:.1}").trim_end_matches(".0").to_owned(),
            (_, ppl) if ppl < 100.0 => format!("{ppl:.2}"),
            (_, ppl) if ppl < 1000.0 => format!("{ppl:.1}"),
            (_, ppl) if ppl < 1e6 => format!("{ppl:.0}"),
            (_, ppl) => format!("{ppl:.1e}"),
        }
    }
}

/// Formats a number with four digits and no trailing zeros; below 1e-3 and from 1e6 with two, in scientific notation.
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

/// Note that `results` are means over seeds, drawn with `bands`; `None` if none is.
pub(super) fn mean_over_seeds(results: impl Iterator<Item = GroupStatus>, bands: &str) -> Option<String> {
    let seeds: Vec<usize> = results.filter_map(|status| Some(status.score()?.seeds)).collect();
    let most = *seeds.iter().max()?;
    let up_to = if seeds.iter().all(|count| *count == most) { "" } else { "up to " };
    (most > 1).then(|| format!("mean ± std{bands} over {up_to}{most} seeds"))
}

/// Note on the best learning rates, with the number of cells that each is best in; `None` without a number.
pub(super) fn rates_won(results: impl Iterator<Item = GroupStatus>) -> Option<String> {
    let mut won: Vec<f64> = results.filter_map(|status| Some(status.score()?.lr)).collect();
    won.sort_by(f64::total_cmp);
    let wins: Vec<String> = won
        .chunk_by(|a, b| a.total_cmp(b).is_eq())
        .map(|cells| format!("{} ({})", chosen_rate(cells[0]), counted(cells.len(), "cell")))
        .collect();
    let plural = if wins.len() == 1 { "" } else { "s" };
    (!wins.is_empty()).then(|| format!("best rate{plural}: {}", wins.join(", ")))
}

/// Legend of the marks among `results`; `None` if there are none.
pub(super) fn legend(results: &[GroupStatus]) -> Option<String> {
    let used = MARKS.iter().filter(|(mark, ..)| results.contains(mark));
    let words: Vec<String> = used.map(|(_, mark, word)| format!("{mark} {word}")).collect();
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

/// [`rate`], or a text for a cross-fitted result whose halves of the seeds have different rates.
pub(super) fn chosen_rate(lr: f64) -> String {
    match lr.is_nan() {
        true => "one per half of the seeds".into(),
        false => rate(lr),
    }
}

/// A fact of [`Facts`]: a name and its value.
pub(super) fn fact(name: &str, value: impl Into<Value>) -> (String, Value) {
    (name.to_owned(), value.into())
}

/// Facts as a JSON object.
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
