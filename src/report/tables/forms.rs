//! What text and Markdown have in common: how the places of a table are written.

use super::super::cell::Cell;
use super::super::difference::Difference;
use super::super::Metric;
use super::place::{Place, SHOWN};
use super::table::{Line, Table};
use super::Tables;

pub(super) const GENERATED: &str = "‡";
pub(super) const BEST_INSTEAD: &str = "°";

/// One number of a grid and what hangs on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entry {
    pub number: String,
    pub marks: String,
    /// 0 to 1, of what was trained here.
    pub accuracy: Option<f64>,
}

/// One line of a grid: its name, and an entry a column, the average behind them.
pub(super) struct Written {
    pub name: String,
    pub entries: Vec<Entry>,
    /// Whether it is the paper's.
    pub printed: bool,
}

/// Writes a table with `metric`.
pub(super) struct Scribe<'a> {
    pub tables: &'a Tables,
    pub table: &'a Table,
    pub metric: Option<Metric>,
}

impl Scribe<'_> {
    /// Titles of the columns.
    pub fn header(&self) -> Vec<String> {
        let columns = self.table.columns.iter();
        let mut titles: Vec<String> = columns.map(|c| c.title().to_owned()).collect();
        if self.averages() {
            titles.push("average".into());
        }
        titles
    }

    /// The whole grid; `write` writes a place.
    pub fn grid(&self, write: &dyn Fn(&Place) -> Entry) -> Vec<Written> {
        let mut grid = vec![];
        grid.extend(self.majority());
        grid.extend(self.random());
        for (i, line) in self.table.lines.iter().enumerate() {
            let next = self.table.lines.get(i + 1);
            grid.push(self.line(line, write));
            // Further settings of a model share what the paper prints.
            if next.is_none_or(|next| next.mixer != line.mixer) {
                grid.extend(self.printed(line));
            }
        }
        grid
    }

    fn line(&self, line: &Line, write: &dyn Fn(&Place) -> Entry) -> Written {
        let place = |place: &Option<Place>| place.as_ref().map_or_else(Entry::missing, write);
        let mut entries: Vec<Entry> = line.places.iter().map(place).collect();
        if self.averages() {
            entries.push(self.average(line));
        }
        Written {
            name: line.label.clone(),
            entries,
            printed: false,
        }
    }

    fn average(&self, line: &Line) -> Entry {
        let Some(average) = line.average(self.metric) else {
            return Entry::missing();
        };
        let places = || line.places.iter().flatten();
        let mut marks = String::new();
        if let Some(place) = places().find(|place| !place.differences.is_empty()) {
            marks += &self.dagger(place);
        }
        if places().any(|place| place.generated) {
            marks += GENERATED;
        }
        if places().any(|place| place.best_instead(self.metric)) {
            marks += BEST_INSTEAD;
        }
        Entry {
            number: format!("{:.1}", 100.0 * average),
            marks,
            accuracy: Some(average),
        }
    }

    /// One place by the metric.
    pub fn entry(&self, place: &Place) -> Entry {
        let cell = place.cell(self.metric);
        let mut marks = self.marks(place);
        if place.best_instead(self.metric) {
            marks += BEST_INSTEAD;
        }
        Entry {
            number: self.number(&cell),
            marks,
            accuracy: cell.score().map(|score| score.mean),
        }
    }

    /// One place as last / selected / best.
    pub fn all_three(&self, place: &Place) -> Entry {
        let cells = SHOWN.map(|metric| place.cell(Some(metric)));
        let number = match cells[0] {
            Cell::Scored(_) => cells.map(|cell| self.number(&cell)).join(" / "),
            ref other => self.number(other),
        };
        Entry {
            number,
            marks: self.marks(place),
            accuracy: None,
        }
    }

    fn number(&self, cell: &Cell) -> String {
        match cell {
            Cell::Scored(s) => format!("{:.1}{}", 100.0 * s.mean, s.spread(self.seeds())),
            other => other.label(0),
        }
    }

    fn marks(&self, place: &Place) -> String {
        let scored = place.score(Some(Metric::Accuracy)).is_some();
        let generated = if scored && place.generated {
            GENERATED
        } else {
            ""
        };
        self.dagger(place) + generated
    }

    fn dagger(&self, place: &Place) -> String {
        let number = self.table.footnote(place);
        number.map_or(String::new(), |number| self.numbered(number))
    }

    fn numbered(&self, footnote: usize) -> String {
        match self.table.footnotes.len() {
            1 => "†".into(),
            _ => format!("†{footnote}"),
        }
    }

    fn seeds(&self) -> usize {
        let places = self.places();
        let seeds = places.filter_map(|(_, _, place)| place.score(Some(Metric::Accuracy)));
        seeds.map(|score| score.seeds).max().unwrap_or(0)
    }

    fn averages(&self) -> bool {
        self.table.averages(self.tables.paper)
    }

    fn majority(&self) -> Option<Written> {
        let table = self.table;
        table.majority.iter().flatten().next()?;
        let entry = |share: &Option<[f64; 2]>| match share.map(|s| s.map(percent)) {
            None => Entry::missing(),
            Some([low, high]) if low == high => Entry::plain(low),
            Some([low, high]) => Entry::plain(format!("{low}-{high}")),
        };
        let mut entries: Vec<Entry> = table.majority.iter().map(entry).collect();
        if self.averages() {
            let known: Vec<f64> = table.majority.iter().flatten().map(|s| s[0]).collect();
            let one = table.majority.iter().flatten().all(|s| s[0] == s[1]);
            let all = one && known.len() == table.columns.len();
            let mean = known.iter().sum::<f64>() / known.len() as f64;
            entries.push(if all {
                Entry::plain(percent(mean))
            } else {
                Entry::missing()
            });
        }
        Some(Written {
            name: "majority".into(),
            entries,
            printed: false,
        })
    }

    fn random(&self) -> Option<Written> {
        let paper = self.tables.paper;
        let random = paper.random.filter(|_| self.table.whole)?;
        let columns = self.table.columns.iter();
        let index = |column| paper.columns.iter().position(|c| c == column);
        let mut numbers: Vec<_> = columns.map(|c| index(c).map(|i| random[i])).collect();
        if self.averages() {
            numbers.push(random.last().copied());
        }
        Some(Written::printed("  paper: random", &numbers))
    }

    fn printed(&self, line: &Line) -> Option<Written> {
        line.paper.iter().flatten().next()?;
        let mut numbers = line.paper.clone();
        if self.averages() {
            numbers.push(line.paper_average);
        }
        Some(Written::printed("  paper", &numbers))
    }

    fn places(&self) -> impl Iterator<Item = (&Line, usize, &Place)> {
        self.table.lines.iter().flat_map(|line| {
            let places = line.places.iter().enumerate();
            places.filter_map(move |(column, place)| Some((line, column, place.as_ref()?)))
        })
    }

    /// The lines below a grid: seeds, footnotes, rates.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.seeds() > 1 {
            notes.push(format!("mean ± std over {} seeds", self.seeds()));
        }
        for (i, differences) in self.table.footnotes.iter().enumerate() {
            let settings: Vec<String> = differences.iter().map(explained).collect();
            notes.push(format!("{} {}", self.numbered(i + 1), settings.join(", ")));
        }
        let rates = self.places().filter_map(|(line, column, place)| {
            let task = self.table.columns[column].title();
            let dagger = self.dagger(place);
            Some(format!(
                "{}{dagger} on {task}: {}",
                line.label,
                place.rate_note()?
            ))
        });
        notes.extend(rates);
        notes
    }
}

impl Entry {
    fn missing() -> Self {
        Self::plain("·".into())
    }

    fn plain(number: String) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }
}

impl Written {
    fn printed(name: &str, numbers: &[Option<f64>]) -> Self {
        let number = |n: &Option<f64>| n.map_or(String::new(), |n| format!("{n:.2}"));
        Self {
            name: name.to_owned(),
            entries: numbers.iter().map(|n| Entry::plain(number(n))).collect(),
            printed: true,
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// A difference beside what the preset has.
fn explained(difference: &Difference) -> String {
    match difference.usual.as_str() {
        "" => difference.to_string(),
        usual => format!("{difference} (preset: {usual})"),
    }
}
