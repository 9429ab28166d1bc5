//! Tables of the perplexities of language models, ours beside the paper's.
//!
//! A line is one mixer: the mean over seeds at the best learning rate by one perplexity, by default the paper's. Runs
//! on different corpora, or with different tokenizers, sizes or settings, are in separate tables; settings of the mixer
//! alone, such as rotary positions, make a separate line. The paper's numbers are only shown beside runs of its size on
//! its corpus.

use super::super::grid::{
    chosen_rate, fact, object, Baseline, Cell, Content, Distance, Facts, Grid, Line, PrintedNumber, Style,
};
use super::super::presets::{listed, Difference, SIZES, TOKENIZER};
use super::super::score::{distinct_rates, Score, Status};
use super::super::{Group, RateChoice, SCHEMA};
use super::{in_order, mean_and_std, metric, mixed_in, model_lines, number};
use super::{ModelLine, Place, Selected, Selection};
use crate::store::{Direction, Metric, Shown, METRICS};
use std::collections::BTreeMap;

/// Name of the unigram baseline, which uses token frequencies only.
const UNIGRAM: &str = "unigram";

/// Metrics that are shown, with the titles of their columns.
const SHOWN: [(&str, &str); 6] = [
    ("train_ppl", "train"),
    ("train_ppl_eval", "eval"),
    ("val_ppl", "val"),
    ("best_val_ppl", "best val"),
    ("test_ppl", "test"),
    (PER_WORD, "test/word"),
];

/// Perplexity per word, the metric of published results.
const PER_WORD: &str = "test_word_ppl";

/// Settings of a mixer alone, which make a separate line instead of a separate table.
#[rustfmt::skip]
const OF_LINE: [&str; 8] = [
    "variant", "options", "n", "heads", "expand", "hybrid", "rotary", "rotary_dims",
];

/// Names of the paper's corpus.
const CORPORA: [&str; 2] = ["wikitext-103-raw", "wikitext-103"];

/// Perplexities that the paper prints for linear, normalized and softmax attention.
type Printed = &'static [(&'static str, f64)];

struct Table<'a> {
    of: &'a Selection<'a>,
    printed: Printed,
    /// Any place of the table, for the settings that they share.
    first: &'a Place<'a>,
    /// Reasons why the paper's numbers are not in the table; empty if they are.
    elsewhere: Vec<String>,
    lines: Vec<ModelLine<'a>>,
    /// Test perplexity of a unigram model.
    unigram: Option<f64>,
}

/// Share of the gap between linear and softmax attention that normalisation closes, (linear - normalized) / (linear -
/// softmax): the paper's claim as one number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gap {
    /// The share: from 0 to 1 if normalized attention is between the two, below 0 if it is worse than linear.
    Closed(f64),
    /// Not all three have a number.
    Missing,
    /// Linear attention is no worse than softmax.
    None,
}

/// Largest absolute share of a gap that is printed. Beyond it, linear and softmax attention are so close that a share
/// of their gap has no meaning.
const TELLING: f64 = 2.0;

/// All metrics of a language model, as exported.
fn measured() -> impl Iterator<Item = &'static Metric> {
    let per_byte = |metric: &Metric| metric.name.ends_with("_bits_per_byte");
    METRICS.iter().filter(move |metric| {
        metric.better == Direction::Lower && (metric.shown == Shown::Perplexity || per_byte(metric))
    })
}

pub(in super::super) fn perplexities(of: &Selection, printed: Printed) -> Selected {
    let places = of.groups.iter().map(|group| place(group, of));
    let places = in_order(places.collect());
    let mut tables: BTreeMap<_, Vec<&Place>> = BTreeMap::new();
    for place in &places {
        let [dataset, tokenizer, protocol, precision] =
            ["dataset", "tokenizer", "protocol", "precision"].map(|name| place.text(name));
        let corpus = CORPORA.iter().position(|corpus| *corpus == dataset);
        let of_text = (corpus.is_none(), corpus, dataset, tokenizer);
        let differences = (place.of_table.len(), &place.of_table);
        let names = (place.preset, protocol, precision);
        let key = (!place.beside, of_text, differences, names);
        tables.entry(key).or_default().push(place);
    }
    let tables: Vec<Table> = tables.values().map(|places| Table::of(places, printed, of)).collect();
    let lines = || tables.iter().flat_map(|table| &table.lines);
    let (figure, by) = (of.figure, of.metric);
    let read_off = match by.name.starts_with("test_") {
        true => ",\nread off the test split",
        false => "",
    };
    let lacks = |line: &ModelLine| {
        let mut shown = SHOWN.iter();
        shown.any(|(name, _)| line.status(metric(name), by) == Status::NoNumber)
    };
    let lacking = "- no such number, as test/word where not the whole split is tested".to_owned();
    let results = lines().map(|line| line.status(by, by));
    Selected {
        heading: format!(
            "{}, {}: perplexity (lower is better) at the rate of the lowest {}{read_off}",
            figure.title(),
            figure.about,
            by.name
        ),
        facts: vec![fact("schema", SCHEMA), number(figure), fact("metric", by.name)],
        before: [
            "train is the paper's number, as logged in the last epoch: the table ranks fit to that split",
            "eval is of a hundredth of the same windows; it, val and test are under the final weights",
            "best val is the lowest after any epoch",
            "per token of the tokenizer, except test/word; published results are per word of the test split",
        ]
        .map(String::from)
        .into(),
        after: lines().any(lacks).then_some(lacking).into_iter().collect(),
        results: results.filter(|status| *status != Status::NoNumber).collect(),
        grids: tables.iter().map(Table::grid).collect(),
        printed: printed_numbers(of, printed, &tables),
    }
}

/// Our numbers with the paper's; each of the paper's at least once.
fn printed_numbers(of: &Selection, printed: Printed, tables: &[Table]) -> Vec<PrintedNumber> {
    let mut numbers = Vec::new();
    let shown = printed.iter().filter(|(mixer, _)| of.options.filter.names(mixer));
    for (mixer, paper) in shown {
        let number =
            |what: String, ours: Option<f64>| PrintedNumber { what, paper: *paper, ours, by: Distance::Percent };
        let before = numbers.len();
        for table in tables.iter().filter(|table| table.first.beside) {
            let lines = table.lines.iter().filter(|line| line.mixer == *mixer);
            for line in lines.filter(|line| table.paper(line).is_some()) {
                let score = table.score(line, of.figure.metrics[0]);
                let what = format!("{} in {}", line.label(), table.title());
                numbers.extend(score.map(|score| number(what, Some(score.mean))));
            }
        }
        if numbers.len() == before {
            numbers.push(number((*mixer).to_owned(), None));
        }
    }
    numbers
}

fn place<'a>(group: &'a Group, of: &Selection) -> Place<'a> {
    let known = (of.presets)(group.record);
    let of_table = |d: &Difference| !OF_LINE.contains(&d.name);
    let ended = group.runs.iter().copied().filter(|run| run.status().is_some());
    let mut place = Place {
        rates: distinct_rates(ended).len(),
        select: of.options.select,
        ..Place::of(of, group, known, of_table, of.metric)
    };
    place.beside = elsewhere(&place).is_empty();
    place
}

/// Reasons why the paper's numbers cannot be shown in the table of a place; empty if they can.
fn elsewhere(place: &Place) -> Vec<String> {
    let mut reasons = Vec::new();
    let [corpus, tokenizer] = ["dataset", "tokenizer"].map(|name| place.text(name));
    if !CORPORA.contains(&corpus) {
        reasons.push(format!("corpus {corpus}"));
    }
    if tokenizer != TOKENIZER {
        reasons.push(format!("tokenizer {tokenizer}"));
    }
    match place.preset {
        "paper" | "" => reasons.extend(sizes(&place.of_table)),
        other => reasons.push(format!("preset {other}")),
    }
    reasons
}

/// Differences that exclude the paper's numbers.
fn sizes(differences: &[Difference]) -> impl Iterator<Item = String> + '_ {
    let sizes = differences.iter().filter(|d| SIZES.contains(&d.name));
    sizes.map(Difference::to_string)
}

impl ModelLine<'_> {
    /// Result of `shown` at the rate that is best by `by`.
    fn status(&self, shown: &Metric, by: &Metric) -> Status {
        let runs = self.places[0].map_or(&[][..], |place| place.runs);
        let select = self.places[0].map_or(RateChoice::Best, |place| place.select);
        Status::known(runs, by, shown, select)
    }

    /// Differences from the preset.
    fn differences(&self) -> &[Difference] {
        self.places[0].map_or(&[], |place| &place.differences)
    }

    /// Number of learning rates with results.
    fn rates(&self) -> usize {
        self.places[0].map_or(0, |place| place.rates)
    }

    /// The mixer, and its differences from the preset.
    fn label(&self) -> String {
        match self.differences() {
            [] => self.mixer.to_owned(),
            differences => format!("{}, {}", self.mixer, listed(differences)),
        }
    }
}

impl<'a> Table<'a> {
    fn of(places: &[&'a Place<'a>], printed: Printed, of: &'a Selection) -> Self {
        let mixers: Vec<&str> = printed.iter().map(|(mixer, _)| *mixer).collect();
        let mut runs = places.iter().flat_map(|place| place.runs);
        Self {
            of,
            printed,
            first: places[0],
            elsewhere: elsewhere(places[0]),
            lines: model_lines(of, &mixers, places, &[0]),
            unigram: runs.find_map(|run| run.number("unigram_ppl")),
        }
    }

    fn score(&self, line: &ModelLine, name: &str) -> Option<Score> {
        self.status(line, name).score().copied()
    }

    /// Result of a line. A perplexity per word worse than a uniform guess among all words counts as no number.
    fn status(&self, line: &ModelLine, name: &str) -> Status {
        let status = line.status(metric(name), self.of.metric);
        let beyond = |score: &Score| name == PER_WORD && score.mean > self.words();
        match status.score().is_some_and(beyond) {
            true => Status::NoNumber,
            false => status,
        }
    }

    /// Vocabulary size of the corpus in words (Merity et al. 2017).
    fn words(&self) -> f64 {
        match self.first.text("dataset").starts_with("wikitext-2") {
            true => 33_278.0,
            false => 267_735.0,
        }
    }

    /// Settings that its runs have in common.
    fn title(&self) -> String {
        let text = |name| self.first.text(name).to_owned();
        let mut parts = vec![text("dataset"), format!("tokenizer {}", text("tokenizer"))];
        if !self.first.preset.is_empty() {
            parts.push(format!("preset {}", self.first.preset));
        }
        parts.push(text("precision"));
        parts.extend(self.first.of_table.iter().map(Difference::to_string));
        parts.join(", ")
    }

    /// Perplexity that the paper prints for `line`, if the line has the paper's sizes.
    fn paper(&self, line: &ModelLine) -> Option<f64> {
        let printed = self.printed.iter().find(|(mixer, _)| *mixer == line.mixer);
        let same = sizes(line.differences()).next().is_none();
        printed.filter(|_| same).map(|(_, ppl)| *ppl)
    }

    fn grid(&self) -> Grid {
        let mut lines: Vec<Line> = self.lines.iter().map(|line| self.line(line)).collect();
        lines.extend(self.unigram.map(|ppl| {
            let cells = self.row(Cell::text(""), "", &|metric| match metric {
                "test_ppl" => Cell::from(Content::Value(ppl)),
                _ => Cell::text(""),
            });
            Line::of_baseline(UNIGRAM, cells)
        }));
        if self.compares() {
            let percent = |gap: Gap| {
                let share = gap.share().filter(|share| share.abs() <= TELLING);
                let share = share.map(|share| format!("{:.0} %", 100.0 * share));
                share.unwrap_or("-".into())
            };
            let share = |metric: &str| Cell::text(percent(self.gap(metric)));
            let paper = Cell::text(percent(self.paper_gap()));
            lines.push(Line::of_baseline("gap closed", self.row(paper, "", &share)));
        }
        let mut columns = vec!["rate"];
        columns.extend(SHOWN.map(|(_, title)| title));
        if self.first.beside {
            columns.insert(0, "paper");
        }
        let mut gaps: Facts = measured().map(|metric| fact(metric.name, self.gap(metric.name).share())).collect();
        gaps.push(fact("paper", self.paper_gap().share()));
        let mut grid = Grid {
            facts: vec![fact("beside_paper", self.first.beside), fact("gap_closed", object(&gaps))],
            records: self.lines.iter().map(|line| self.record(line)).collect(),
            baselines: self.baselines(&columns),
            place: [self.first.text("protocol").to_owned(), self.title()],
            ..Grid::new(self.title(), columns, lines, Style::Perplexity)
        };
        grid.notes.extend(grid.about_seeds());
        grid.notes.extend(self.notes());
        grid.notes.extend(mixed_in(&self.lines));
        grid
    }

    /// The unigram baseline, drawn at the test perplexity.
    fn baselines(&self, columns: &[&str]) -> Vec<Baseline> {
        let tested = |title: &&str| SHOWN.contains(&("test_ppl", title));
        let level = |title| self.unigram.into_iter().filter(|_| tested(title)).collect();
        let (name, levels) = (UNIGRAM, columns.iter().map(level).collect());
        vec![Baseline { name, levels }]
    }

    fn line(&self, line: &ModelLine) -> Line {
        let paper = self.paper(line);
        let paper = paper.map_or(Cell::text("-"), |ppl| Cell::from(Content::Printed(ppl)));
        let score = SHOWN.iter().find_map(|(name, _)| self.score(line, name));
        let rate = score.map_or(String::new(), |score| chosen_rate(score.lr));
        let shown = |name: &str| Cell::result(self.status(line, name));
        Line::new(line.label(), self.row(paper, &rate, &shown))
    }

    /// The cells of a line, one per column.
    fn row(&self, paper: Cell, rate: &str, shown: &dyn Fn(&str) -> Cell) -> Vec<Cell> {
        let mut cells = vec![Cell::text(rate)];
        cells.extend(SHOWN.iter().map(|(metric, _)| shown(metric)));
        if self.first.beside {
            cells.insert(0, paper);
        }
        cells
    }

    /// The gap in the first setting in which all three attentions have a line, since only equal settings are
    /// comparable.
    fn gap(&self, metric: &str) -> Gap {
        let perplexities = self.attentions().map(|line| Some(self.score(line?, metric)?.mean));
        Gap::of(perplexities)
    }

    /// The gap of the paper's numbers.
    fn paper_gap(&self) -> Gap {
        Gap::of([0, 1, 2].map(|i| Some(self.printed[i].1).filter(|_| self.first.beside)))
    }

    /// Lines of linear, normalized and softmax attention in one setting.
    fn attentions(&self) -> [Option<&ModelLine<'a>>; 3] {
        let lines_of = |i: usize| {
            let mixer = self.printed[i].0;
            self.lines.iter().filter(move |line| line.mixer == mixer)
        };
        let of =
            |differences: &[Difference]| [0, 1, 2].map(|i| lines_of(i).find(|line| line.differences() == differences));
        let mut settings = lines_of(0).map(|line| of(line.differences()));
        let whole = settings.find(|three| three.iter().all(Option::is_some));
        whole.unwrap_or_else(|| of(&[]))
    }

    /// Whether the table shows a gap: beside the paper's numbers, and if at least two of its attentions were trained.
    fn compares(&self) -> bool {
        let trained = |mixer: &str| self.lines.iter().any(|line| line.mixer == mixer);
        let printed = self.printed.iter().filter(|(mixer, _)| trained(mixer));
        self.first.beside || printed.count() > 1
    }

    /// Notes below the grid.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.rates().into_iter().collect();
        let said = |line: &ModelLine| line.status(metric(PER_WORD), self.of.metric).score().is_some();
        let hidden = |line: &&ModelLine| said(line) && self.score(line, PER_WORD).is_none();
        if self.lines.iter().any(|line| hidden(&line)) {
            notes.push(format!("no test/word above {}, which is a guess among the words of the corpus", self.words()));
        }
        if self.compares() {
            notes.extend(self.about_gap());
        }
        if !self.first.beside {
            notes.push(format!("without the paper's numbers, whose runs were others: {}", self.elsewhere.join(", ")));
        }
        notes
    }

    /// Note on the number of learning rates tried; `None` if no line had a choice.
    fn rates(&self) -> Option<String> {
        let tried = self.lines.iter().filter(|line| line.rates() > 0);
        let most = tried.clone().map(|line| line.rates()).max()?;
        if most < 2 {
            return None;
        }
        if tried.clone().all(|line| line.rates() == most) {
            return Some(format!("rate: the best of {most} tried"));
        }
        let each: Vec<String> = tried.map(|line| format!("{} {}", line.label(), line.rates())).collect();
        Some(format!("rates tried: {}", each.join(", ")))
    }

    fn about_gap(&self) -> Vec<String> {
        let mut notes = vec!["gap closed: (linear - normalized) / (linear - softmax)".to_owned()];
        if self.first.beside {
            notes[0] += "; the paper's text says about 25 %";
        }
        let of = |gap: Gap| {
            let shown = SHOWN.iter().filter(|(metric, _)| self.gap(metric) == gap);
            let titles: Vec<&str> = shown.map(|(_, title)| *title).collect();
            titles.join(", ")
        };
        let numberless = |line: &Option<&ModelLine>| {
            line.is_none_or(|line| !SHOWN.iter().any(|(name, _)| self.score(line, name).is_some()))
        };
        let without: Vec<&str> = self
            .printed
            .iter()
            .zip(self.attentions())
            .filter(|(_, line)| numberless(line))
            .map(|((mixer, _), _)| *mixer)
            .collect();
        match (&without[..], of(Gap::Missing)) {
            ([], missing) if missing.is_empty() => {}
            ([], missing) => notes.push(format!("no gap where a number is missing: {missing}")),
            (mixers, _) => notes.push(format!("no gap without a number of {} in one setting", mixers.join(", "))),
        }
        let shown: Vec<&str> = SHOWN
            .iter()
            .filter(|(metric, _)| {
                let share = self.gap(metric).share();
                share.is_some_and(|share| share.abs() > TELLING)
            })
            .map(|(_, title)| *title)
            .collect();
        if !shown.is_empty() {
            notes.push(format!(
                "no share where linear and softmax are so alike that it would be beyond {:.0} %: {}",
                100.0 * TELLING,
                shown.join(", ")
            ));
        }
        let none = of(Gap::None);
        if !none.is_empty() {
            notes.push(format!("no gap to close, linear being no worse than softmax: {none}"));
        }
        notes
    }

    fn record(&self, line: &ModelLine) -> Facts {
        let chosen = line.status(self.of.metric, self.of.metric);
        let score = chosen.score();
        let text = |name: &str| fact(name, self.first.text(name));
        let mut record = vec![
            number(self.of.figure),
            text("dataset"),
            text("tokenizer"),
            fact("preset", self.first.preset),
            text("precision"),
            fact("settings", listed(&self.first.of_table)),
            fact("mixer", line.mixer),
            fact("differences", listed(line.differences())),
            fact("status", chosen.name()),
            fact("seeds", score.map(|score| score.seeds)),
            fact("lr", score.map(|score| score.lr)),
            fact("lr_tried", line.rates()),
            fact("lr_chosen_by", self.of.metric.name),
        ];
        for metric in measured() {
            let score = self.score(line, metric.name);
            record.extend(mean_and_std(metric.name, score.as_ref()));
        }
        // The gaps belong to the table and are recorded on its line of normalized attention.
        let [_, normalized, _] = self.attentions();
        let compared = normalized.is_some_and(|normalized| std::ptr::eq(normalized, line));
        let gap = |metric: &str| self.gap(metric).share().filter(|_| compared);
        record.extend([
            fact("unigram_ppl", self.unigram),
            fact("paper", self.paper(line).filter(|_| self.first.beside)),
            fact("gap_closed_train_ppl", gap("train_ppl")),
            fact("gap_closed_val_ppl", gap("val_ppl")),
        ]);
        record
    }
}

impl Gap {
    /// Gap of the perplexities of linear, normalized and softmax attention.
    fn of(perplexities: [Option<f64>; 3]) -> Self {
        let [Some(linear), Some(normalized), Some(softmax)] = perplexities else {
            return Self::Missing;
        };
        if linear <= softmax {
            return Self::None;
        }
        Self::Closed((linear - normalized) / (linear - softmax))
    }

    fn share(self) -> Option<f64> {
        match self {
            Self::Closed(share) => Some(share),
            Self::Missing | Self::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(linear: f64, normalized: f64, softmax: f64) -> Option<f64> {
        Gap::of([linear, normalized, softmax].map(Some)).share()
    }

    #[test]
    fn the_papers_numbers_close_23_percent_of_the_gap() {
        let paper = share(17.42, 16.43, 13.15).unwrap();
        assert!((paper - 0.99 / 4.27).abs() < 1e-12, "{paper}");
    }

    #[test]
    fn worse_than_linear_is_below_nothing_and_better_than_softmax_above_all() {
        assert_eq!(share(20.0, 22.0, 16.0), Some(-0.5));
        assert_eq!(share(20.0, 14.0, 16.0), Some(1.5));
    }

    #[test]
    fn without_a_gap_or_without_a_number_there_is_no_share() {
        for softmax in [20.0, 21.0] {
            assert_eq!(Gap::of([20.0, 19.0, softmax].map(Some)), Gap::None);
        }
        for missing in 0..3 {
            let mut three = [20.0, 19.0, 16.0].map(Some);
            three[missing] = None;
            assert_eq!(Gap::of(three), Gap::Missing);
        }
    }
}
