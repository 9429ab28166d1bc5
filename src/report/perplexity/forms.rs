//! What text and Markdown have in common: how numbers and notes are written.

use super::super::cell::{Cell, Score};
use super::super::table::{marks, rate};
use super::super::Metric;
use super::gap::Gap;
use super::line::Line;
use super::table::Table;
use super::{Perplexities, PAPER};

/// What is shown of a run, and the title of its column.
const SHOWN: [(Metric, &str); 6] = [
    (Metric::TrainPpl, "train"),
    (Metric::TrainPplEval, "eval"),
    (Metric::ValPpl, "val"),
    (Metric::BestValPpl, "best val"),
    (Metric::TestPpl, "test"),
    (Metric::TestWordPpl, "test/word"),
];

const MISSING: &str = "-";

/// A table in words.
pub(super) struct Grid {
    pub header: Vec<String>,
    /// A name, and a text a column.
    pub lines: Vec<(String, Vec<String>)>,
}

impl Perplexities {
    /// What the numbers are.
    pub(super) fn heading(&self) -> String {
        let by = self.by.as_str();
        let mut heading = format!(
            "Table 1, language modelling: perplexity (lower is better) at the rate of the lowest {by}"
        );
        if self.by == Metric::TestPpl || self.by == Metric::TestWordPpl {
            heading += ",\nread off the test split";
        }
        heading
    }

    /// What the columns are, what the numbers can be compared with, and what the report rests on.
    pub(super) fn closing(&self) -> Vec<String> {
        let mut closing: Vec<String> = [
            "train is the paper's number, as logged in the last epoch: the table ranks fit to that split",
            "eval is of a hundredth of the same windows; it, val and test are under the final weights",
            "best val is the lowest after any epoch",
            "per token of the tokenizer, except test/word; published results are per word of the test split",
        ]
        .map(String::from)
        .into();
        closing.extend(marks(&self.cells().collect::<Vec<_>>()));
        let lines = || self.tables.iter().flat_map(|table| &table.lines);
        if lines().any(|line| SHOWN.iter().any(|(shown, _)| line.cell(*shown).is_none())) {
            closing
                .push("- no such number, as test/word where not the whole split is tested".into());
        }
        closing.extend(self.coverage.notes(self.cells()));
        closing
    }
}

impl Table {
    pub(super) fn grid(&self) -> Grid {
        let mut lines: Vec<_> = self.lines.iter().map(|line| self.written(line)).collect();
        lines.extend(self.unigram.map(|ppl| {
            let only = |metric| match metric {
                Metric::TestPpl => number(ppl),
                _ => String::new(),
            };
            (
                "unigram".to_owned(),
                self.row(String::new(), String::new(), &only),
            )
        }));
        if self.compares() {
            let share = |metric| percent(self.gap(metric));
            let row = self.row(percent(self.paper_gap()), String::new(), &share);
            lines.push(("gap closed".to_owned(), row));
        }
        Grid {
            header: self.row("paper".into(), "rate".into(), &|metric| {
                let title = SHOWN.iter().find(|(shown, _)| *shown == metric);
                title.map_or(String::new(), |(_, title)| (*title).to_owned())
            }),
            lines,
        }
    }

    /// A text a column.
    fn row(&self, paper: String, rate: String, shown: &dyn Fn(Metric) -> String) -> Vec<String> {
        let mut row = vec![rate];
        row.extend(SHOWN.iter().map(|(metric, _)| shown(*metric)));
        if self.beside() {
            row.insert(0, paper);
        }
        row
    }

    fn written(&self, line: &Line) -> (String, Vec<String>) {
        let paper = line
            .paper()
            .map_or(MISSING.into(), |ppl| format!("{ppl:.2}"));
        let scores = SHOWN.iter().find_map(|(metric, _)| line.score(*metric));
        let rate = scores.map_or(String::new(), |score| rate(score.lr));
        let seeds = self.seeds();
        let shown = |metric| match line.cell(metric) {
            None => MISSING.to_owned(),
            Some(Cell::Scored(score)) => scored(&score, seeds),
            Some(other) => other.label(seeds),
        };
        (line.label(), self.row(paper, rate, &shown))
    }

    /// Whether a gap is of interest: beside the paper's, and where two of its attentions were trained.
    fn compares(&self) -> bool {
        let trained = |mixer: &str| self.lines.iter().any(|line| line.mixer == mixer);
        self.beside() || PAPER.iter().filter(|(mixer, _)| trained(mixer)).count() > 1
    }

    fn seeds(&self) -> usize {
        let each = |line: &Line| SHOWN.map(|(metric, _)| line.score(metric));
        let scores = self.lines.iter().flat_map(each).flatten();
        scores.map(|score| score.seeds).max().unwrap_or(0)
    }

    /// The lines below a grid.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.seeds() > 1 {
            notes.push(format!("mean ± std over {} seeds", self.seeds()));
        }
        notes.extend(self.rates());
        notes.extend(self.about_gap());
        if !self.beside() {
            notes.push(format!(
                "without the paper's numbers, whose runs were others: {}",
                self.elsewhere.join(", ")
            ));
        }
        notes
    }

    /// Among how many rates there was a choice.
    fn rates(&self) -> Option<String> {
        let tried: Vec<&Line> = self.lines.iter().filter(|line| line.rates > 0).collect();
        let most = tried.iter().map(|line| line.rates).max()?;
        if most < 2 {
            return None;
        }
        if tried.iter().all(|line| line.rates == most) {
            return Some(format!("rate: the best of {most} tried"));
        }
        let each = tried
            .iter()
            .map(|line| format!("{} {}", line.label(), line.rates));
        Some(format!(
            "rates tried: {}",
            each.collect::<Vec<_>>().join(", ")
        ))
    }

    fn about_gap(&self) -> Vec<String> {
        if !self.compares() {
            return Vec::new();
        }
        let mut notes = vec!["gap closed: (linear - normalized) / (linear - softmax)".to_owned()];
        if self.beside() {
            notes[0] += "; the paper's text says about 25 %";
        }
        let of = |gap: Gap| {
            let shown = SHOWN.iter().filter(|(metric, _)| self.gap(*metric) == gap);
            let titles: Vec<&str> = shown.map(|(_, title)| *title).collect();
            titles.join(", ")
        };
        let without: Vec<&str> = (PAPER.iter().zip(self.attentions()))
            .filter(|(_, line)| {
                line.is_none_or(|line| !SHOWN.iter().any(|(m, _)| line.score(*m).is_some()))
            })
            .map(|((mixer, _), _)| *mixer)
            .collect();
        match (&without[..], of(Gap::Missing)) {
            ([], missing) if missing.is_empty() => {}
            ([], missing) => notes.push(format!("no gap where a number is missing: {missing}")),
            (mixers, _) => notes.push(format!(
                "no gap without a number of {} in one setting",
                mixers.join(", ")
            )),
        }
        let none = of(Gap::None);
        if !none.is_empty() {
            notes.push(format!(
                "no gap to close, linear being no worse than softmax: {none}"
            ));
        }
        notes
    }
}

fn scored(score: &Score, seeds: usize) -> String {
    number(score.mean) + &score.spread_as(seeds, number)
}

/// A perplexity with two decimals, as in the paper, and the fewer the larger it is.
fn number(ppl: f64) -> String {
    match ppl {
        p if p < 100.0 => format!("{p:.2}"),
        p if p < 1000.0 => format!("{p:.1}"),
        p if p < 1e6 => format!("{p:.0}"),
        p => format!("{p:.1e}"),
    }
}

fn percent(gap: Gap) -> String {
    let share = gap.share();
    share.map_or(MISSING.into(), |share| format!("{:.0} %", 100.0 * share))
}
