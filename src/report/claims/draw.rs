//! Verdicts as grids: a line a claim, a grid a study, and for programs a record a quantity.

use super::super::grid::{fact, Cell, Facts, Grid, Line, Style};
use super::super::stats::{Within, ALPHA, FEWEST};
use super::super::{Asked, Coverage, Report, SCHEMA};
use super::judge::{decisive, Found, Test, Verdict};
use super::table::Over;
use super::Judgement;
use crate::store::Record;
use clap::ValueEnum;
use serde_json::Value;

const COLUMNS: [&str; 7] = [
    "protocol",
    "cells",
    "seeds",
    "effect",
    "95 % interval",
    "p",
    "verdict",
];

pub(super) fn report(judged: &[Judgement], runs: &[&Record], asked: &Asked) -> Report {
    let paper: Vec<&Judgement> = judged.iter().filter(|j| j.paper).collect();
    let mut others: Vec<&Judgement> = judged.iter().filter(|j| !j.paper).collect();
    // Stable: claims stay in the order of the paper.
    others.sort_by(|a, b| a.study.cmp(&b.study));
    let mut grids = vec![grid("at the paper's sizes".into(), &paper)];
    for study in others.chunk_by(|a, b| a.study == b.study) {
        let title = format!(
            "at the sizes of these runs, not the paper's: {}",
            study[0].study
        );
        grids.push(grid(title, study));
    }
    let select = asked.select.to_possible_value();
    let select = select.map_or(String::new(), |value| value.get_name().to_owned());
    let mut notes = vec![
        "supported: the 95 % interval of the effect is where the claim has it; not supported: it is elsewhere; undecided: \
         neither, or runs are missing".to_owned(),
        format!(
            "effect: a difference of means over seeds at the best rate, in points of accuracy or in perplexity; paired where \
             mixers have the same seeds, of which a verdict needs {FEWEST}; intervals of Student's t, Holm's correction where \
             one of several quantities would do"
        ),
    ];
    if asked.select == super::super::RateChoice::HeldOut {
        notes.extend(super::super::held_out_note(runs));
    }
    Report {
        heading: "Claims of the paper".into(),
        facts: vec![
            fact("schema", SCHEMA),
            fact("confidence", 1.0 - ALPHA),
            fact("fewest_seeds", FEWEST),
            fact("select", select),
        ],
        list: "studies",
        grids,
        printed: Vec::new(),
        notes,
        coverage: Coverage::default(),
    }
}

fn grid(title: String, judged: &[&Judgement]) -> Grid {
    let lines = judged.iter().map(|judgement| Line {
        name: judgement.claim.name.to_owned(),
        printed: false,
        cells: judgement.cells(),
    });
    let columns = COLUMNS.map(str::to_owned).into();
    Grid {
        corner: "claim".into(),
        notes: judged
            .iter()
            .flat_map(|judgement| judgement.said())
            .collect(),
        records: judged
            .iter()
            .flat_map(|judgement| judgement.records())
            .collect(),
        ..Grid::new(title, columns, lines.collect(), Style::Percent)
    }
}

impl Judgement {
    fn decisive(&self) -> Option<&Test> {
        decisive(self.claim, &self.tests, self.verdict)
    }

    fn cells(&self) -> Vec<Cell> {
        let test = self.decisive();
        let found = test.and_then(|test| test.found.as_ref().ok());
        let cells: usize = match test {
            Some(test) => test.cells,
            None => self.cells,
        };
        let texts = [
            self.under(),
            cells.to_string(),
            found.map_or("-".into(), |found| found.estimate.seeds.to_string()),
            found.map_or("-".into(), |_| {
                test.map_or(String::new(), |t| self.number(t, t.mean()))
            }),
            found.map_or("-".into(), |found| {
                let [low, high] = found.estimate.interval();
                let number = |x| test.map_or(String::new(), |test| self.number(test, x));
                format!("{} to {}", number(low), number(high))
            }),
            found.map_or("-".into(), |_| {
                test.map_or(String::new(), |t| level(self.level(t)))
            }),
            self.outcome(),
        ];
        texts.map(Cell::text).into()
    }

    /// Its protocol, and whose examples: what tells two lines of one claim apart.
    fn under(&self) -> String {
        let parts = [Some(self.protocol.clone()), self.examples.clone()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The level that decided, or that was farthest from it.
    fn level(&self, test: &Test) -> f64 {
        use super::table::Holds::{Every, Some};
        match (self.claim.holds, self.verdict) {
            (Every, Verdict::NotSupported) => test.p_holm[1],
            (Every, _) => test.p[0],
            (Some, Verdict::NotSupported) => test.p[1],
            (Some, _) => test.p_holm[0],
        }
    }

    fn outcome(&self) -> String {
        let verdict = self.verdict.name();
        match (&self.need, self.paper) {
            (None, true) => verdict.to_owned(),
            (None, false) => format!("{verdict} at these sizes"),
            (Some(need), _) => match need.runs {
                Some(1) => format!("{verdict}: needs 1 run"),
                Some(runs) => format!("{verdict}: needs {runs} runs"),
                None => format!("{verdict}: needs too many runs"),
            },
        }
    }

    /// A number of `test`, in points of accuracy, as an accuracy in % or as a perplexity.
    fn number(&self, test: &Test, value: f64) -> String {
        match (self.claim.measure.is_share(), test.is_level) {
            (true, true) => format!("{:.1}", 100.0 * value),
            (true, false) => format!("{:+.1}", 100.0 * value),
            (false, _) => format!("{value:+.2}"),
        }
    }

    /// What stands below the grid.
    fn said(&self) -> Vec<String> {
        let claim = self.claim;
        let examples = self.examples.iter().map(|examples| format!(", {examples}"));
        let mut said = vec![format!(
            "{}{} ({}): {}",
            claim.name,
            examples.collect::<String>(),
            claim.source,
            claim.about
        )];
        let mut aside = |text: String| said.push(format!("  {text}"));
        if self.tests.len() > 1 {
            if let Some(test) = self.decisive() {
                let counts = Counts::of(&self.tests);
                aside(format!(
                    "{}, decisive: {}",
                    counts.said("quantities"),
                    test.about
                ));
            }
        }
        if self.by_cell.len() > 1 && self.by_cell.iter().any(|test| test.found.is_ok()) {
            aside(Counts::of(&self.by_cell).said("cells"));
        }
        if let Some(need) = &self.need {
            aside(need.reason.clone());
            if !need.command.is_empty() {
                aside(need.command.clone());
            }
        }
        self.notes.iter().for_each(|note| aside(note.clone()));
        said
    }

    fn records(&self) -> Vec<Facts> {
        let tests = self.tests.iter().map(|test| ("claim", Some(test)));
        let cells = self.by_cell.iter().map(|test| ("cell", Some(test)));
        let mut each: Vec<(&str, Option<&Test>)> = tests.chain(cells).collect();
        if self.tests.is_empty() {
            each.insert(0, ("claim", None));
        }
        each.into_iter()
            .map(|(role, test)| self.record(role, test))
            .collect()
    }

    fn record(&self, role: &str, test: Option<&Test>) -> Facts {
        let need = self.need.as_ref();
        let found: Option<&Found> = test.and_then(|test| test.found.as_ref().ok());
        let interval = found.map(|found| found.estimate.interval());
        let doubling = self.claim.contrasts.iter().any(|c| c.over != Over::Cells);
        let unit = match (self.claim.measure.is_share(), doubling) {
            (true, true) => "accuracy a doubling",
            (true, false) => "accuracy",
            (false, _) => "perplexity",
        };
        let within = test.map_or([None, None], |test| {
            let Within(low, high) = test.within;
            [low, high].map(|bound| Some(bound).filter(|bound| bound.is_finite()))
        });
        let level =
            |of: fn(&Test) -> f64| -> Value { test.filter(|_| found.is_some()).map(of).into() };
        vec![
            fact("level", if self.paper { "paper" } else { "reduced" }),
            fact("study", self.study.clone()),
            fact("protocol", self.protocol.clone()),
            fact("claim", self.claim.name),
            fact("source", self.claim.source),
            fact("about", self.claim.about),
            fact("verdict", self.verdict.name()),
            fact("reason", need.map(|need| need.reason.clone())),
            fact("runs_needed", need.and_then(|need| need.runs)),
            fact("command", need.map(|need| need.command.clone())),
            fact("role", role),
            fact("quantity", test.map(|test| test.about.clone())),
            fact("cells", test.map(|test| test.cells)),
            fact("seeds", found.map(|found| found.estimate.seeds)),
            fact("paired", found.map(|found| found.paired)),
            fact("unit", unit),
            fact("effect", found.map(|found| found.estimate.mean)),
            fact("low", interval.map(|[low, _]| low)),
            fact("high", interval.map(|[_, high]| high)),
            fact("claimed_above", within[0]),
            fact("claimed_below", within[1]),
            fact("p_inside", level(|test| test.p[0])),
            fact("p_outside", level(|test| test.p[1])),
            fact("p_inside_holm", level(|test| test.p_holm[0])),
            fact("p_outside_holm", level(|test| test.p_holm[1])),
        ]
    }
}

impl Test {
    fn mean(&self) -> f64 {
        self.found
            .as_ref()
            .map_or(f64::NAN, |found| found.estimate.mean)
    }
}

/// Of several quantities how many are where the claim has them, elsewhere, and open, after Holm's correction.
struct Counts {
    all: usize,
    inside: usize,
    outside: usize,
}

impl Counts {
    fn of(tests: &[Test]) -> Self {
        let count = |side: usize| tests.iter().filter(|t| t.p_holm[side] <= ALPHA).count();
        Self {
            all: tests.len(),
            inside: count(0),
            outside: count(1),
        }
    }

    fn said(&self, what: &str) -> String {
        let open = self.all - self.inside - self.outside;
        format!(
            "of {} {what} {} where the claim has it, {} elsewhere, {open} open (Holm)",
            self.all, self.inside, self.outside
        )
    }
}

fn level(p: f64) -> String {
    match p {
        p if p < 0.001 => "<0.001".into(),
        p => format!("{p:.3}"),
    }
}
