//! The gap between linear and softmax attention, and the share of it that normalisation closes.

use super::super::super::grid::{Cell, GridLine};
use super::table::{ModelColumnKind, Table};
use super::ModelLine;

/// Share of the gap between linear and softmax attention that normalisation closes, (linear - normalized) / (linear -
/// softmax): the paper's claim as one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Gap {
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

    pub fn share(self) -> Option<f64> {
        match self {
            Self::Closed(share) => Some(share),
            Self::Missing | Self::None => None,
        }
    }

    fn is_telling(self) -> bool {
        self.share().is_some_and(|share| share.abs() <= TELLING)
    }
}

impl<'a> Table<'a> {
    /// The gap in the first setting in which all three attentions have a line, since only equal settings are
    /// comparable.
    pub fn gap(&self, metric: &str) -> Gap {
        Gap::of(self.attentions().map(|line| Some(self.status(line?, metric).score()?.mean)))
    }

    /// The gap of the paper's numbers.
    pub fn paper_gap(&self) -> Gap {
        Gap::of([0, 1, 2].map(|i| Some(self.paper.models[i].numbers[0]).filter(|_| self.first.beside)))
    }

    /// The share of the gap that is recorded with `line`: the gaps belong to the table and are recorded on its line of
    /// normalized attention.
    pub fn recorded_gap(&self, line: &ModelLine, metric: &str) -> Option<f64> {
        let [_, normalized, _] = self.attentions();
        normalized.filter(|normalized| std::ptr::eq(*normalized, line))?;
        self.gap(metric).share()
    }

    /// Lines of linear, normalized and softmax attention in one setting.
    fn attentions(&self) -> [Option<&ModelLine<'a>>; 3] {
        let lines_of = |i: usize| {
            let mixer = self.paper.models[i].mixer;
            self.lines.iter().filter(move |line| line.mixer == mixer)
        };
        let in_setting = |differences| [0, 1, 2].map(|i| lines_of(i).find(|line| line.differences() == differences));
        let mut settings = lines_of(0).map(|line| in_setting(line.differences()));
        let whole = settings.find(|three| three.iter().all(Option::is_some));
        whole.unwrap_or_else(|| in_setting(&[]))
    }

    /// Whether the table shows a gap: beside the paper's numbers, and if at least two of its attentions were trained.
    pub fn compares(&self) -> bool {
        let trained = |mixer: &str| self.lines.iter().any(|line| line.mixer == mixer);
        self.first.beside || self.paper.models.iter().filter(|model| trained(model.mixer)).count() > 1
    }

    /// The line of the shares, which has no picture.
    pub fn gap_line(&self) -> GridLine {
        let percent = |gap: Gap| {
            let share = gap.share().filter(|_| gap.is_telling());
            Cell::text(share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share)))
        };
        let cells = self.columns.iter().map(|column| match column.kind {
            ModelColumnKind::Paper => percent(self.paper_gap()),
            ModelColumnKind::Number(_, Some(metric)) => percent(self.gap(metric)),
            _ => Cell::text(""),
        });
        GridLine::of_baseline("gap closed", cells.collect())
    }

    /// Notes on the gap and on the columns without a share.
    pub fn about_gap(&self) -> Vec<String> {
        let mut notes = vec!["gap closed: (linear - normalized) / (linear - softmax)".to_owned()];
        if self.first.beside {
            notes[0] += "; the paper's text says about 25 %";
        }
        let metrics = self.paper.metrics;
        let titles = |holds: &dyn Fn(Gap) -> bool| -> String {
            let shown = metrics.iter().filter(|(metric, _)| holds(self.gap(metric)));
            shown.map(|(_, title)| *title).collect::<Vec<_>>().join(", ")
        };
        let has_number = |line: &ModelLine| metrics.iter().any(|(name, _)| self.status(line, name).score().is_some());
        let three = self.paper.models.iter().zip(self.attentions());
        let without = three.filter(|(_, line)| !line.is_some_and(has_number)).map(|(model, _)| model.mixer);
        let without = without.collect::<Vec<_>>().join(", ");
        let missing = titles(&|gap| gap == Gap::Missing);
        let alike = titles(&|gap| gap.share().is_some() && !gap.is_telling());
        let none = titles(&|gap| gap == Gap::None);
        if !without.is_empty() {
            notes.push(format!("no gap for lack of a number of {without} in the same setting"));
        } else if !missing.is_empty() {
            notes.push(format!("no gap for lack of a number: {missing}"));
        }
        if !alike.is_empty() {
            notes.push(format!(
                "no share, since linear and softmax are so close that it would exceed {:.0} %: {alike}",
                100.0 * TELLING
            ));
        }
        if !none.is_empty() {
            notes.push(format!("no gap to close, since linear is no worse than softmax: {none}"));
        }
        notes
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
