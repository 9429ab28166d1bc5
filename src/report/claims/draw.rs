//! Renders verdicts as grids: one line per claim, one grid per study, and one record per quantity for programs.

use super::super::grid::{fact, Cell, Facts, Grid, Line, Style};
use super::super::solved::Share;
use super::super::stats::{Within, ALPHA, FEWEST};
use super::super::{Coverage, Report, ReportOptions, SCHEMA};
use super::judge::{decisive, Found, Test, Verdict};
use super::table::{Aggregate, Measure};
use super::Judgement;
use crate::store::Record;
use clap::ValueEnum;
use serde_json::Value;

const COLUMNS: [&str; 9] =
    ["protocol", "cells", "seeds", "solved", "effect", "95 % interval", "p", "p (Holm)", "verdict"];

pub(super) fn report(judged: &[Judgement], runs: &[&Record], options: &ReportOptions) -> Report {
    let mut sorted: Vec<&Judgement> = judged.iter().collect();
    // The sort is stable: claims stay in the order of the paper, and studies at the paper's sizes come first.
    sorted.sort_by_key(|judgement| (!judgement.paper, judgement.sizes()));
    let is_open = |judgement: &&Judgement| judgement.verdict == Verdict::Undecided;
    let (open, decided): (Vec<&Judgement>, Vec<&Judgement>) = sorted.into_iter().partition(is_open);
    let of_sizes = |judged: &[&Judgement], about: &str, whole: bool| -> Vec<Grid> {
        let studies = judged.chunk_by(|a, b| a.sizes() == b.sizes());
        let grids = studies.map(|study| grid(format!("{about} {}", study[0].sizes()), study, whole));
        grids.collect()
    };
    let named = !options.claims.is_empty();
    let mut grids = of_sizes(&decided, "decided", true);
    grids.extend(of_sizes(&open, "undecided", named));
    let select = options.select.to_possible_value();
    let select = select.map_or(String::new(), |value| value.get_name().to_owned());
    let mut notes = vec![
        "supported: the quantity is where the claim has it; not supported: it is elsewhere; undecided: neither, or runs are \
         missing; with an error of 5 % over all claims above together (Holm's correction)"
            .to_owned(),
        format!(
            "solved: runs that end above the accuracy of the claim, at all rates and seeds, of each mixer; the effect is their \
             difference in points, p by Cochran, Mantel and Haenszel in strata of cell and rate, a slope by Mantel's trend test, \
             a share of seeds with the interval of Clopper and Pearson. Accuracies and perplexities without that column: means \
             over seeds at the best rate, intervals of Student's t. A verdict needs {FEWEST} seeds"
        ),
        "p supposes that the number of seeds was fixed before the results were seen: who adds seeds until a claim is decided \
         will find some that are not so"
            .to_owned(),
    ];
    if !named && !open.is_empty() {
        notes.push(
            "dsf report --claims=NAME says what an undecided claim lacks, and the command that makes its runs"
                .to_owned(),
        );
    }
    if options.select == super::super::RateChoice::HeldOut {
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

/// Grid of `judged`; if `whole`, with notes on what each claim states and which runs it lacks.
fn grid(title: String, judged: &[&Judgement], whole: bool) -> Grid {
    let lines = judged.iter().map(|judgement| Line::new(judgement.claim.name, judgement.cells()));
    let said = judged.iter().filter(|_| whole);
    Grid {
        axes: ["claim".into(), String::new()],
        notes: said.flat_map(|judgement| judgement.explanation()).collect(),
        records: judged.iter().flat_map(|judgement| judgement.records()).collect(),
        ..Grid::new(title, COLUMNS, lines.collect(), Style::Percent)
    }
}

impl Judgement {
    /// Sizes of its runs, for a title.
    fn sizes(&self) -> String {
        match self.paper {
            true => "at the paper's sizes".to_owned(),
            false => format!("at the sizes of these runs, not the paper's: {}", self.study),
        }
    }

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
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let solved = found.map(|found| solved(&found.solved));
        let texts = [
            self.condition(),
            cells.to_string(),
            or_dash(found.map(|found| found.evidence.seeds().to_string())),
            or_dash(solved.filter(|solved| !solved.is_empty())),
            or_dash(found.and_then(|found| Some(self.number(test?, found.evidence.mean())))),
            or_dash(found.and_then(|found| {
                let [low, high] = found.evidence.interval();
                Some(format!("{} to {}", self.number(test?, low), self.number(test?, high)))
            })),
            or_dash(found.and_then(|_| Some(level(self.level_of(test?))))),
            or_dash(found.map(|_| level(self.level))),
            self.outcome(),
        ];
        texts.map(Cell::text).into()
    }

    /// Its protocol, and the source of its examples: the values in which two lines of one claim differ.
    fn condition(&self) -> String {
        let parts = [Some(self.protocol.clone()), self.examples.clone()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// p-value of the decisive test, or of the one closest to deciding; for two directions, the one that matches the
    /// verdict.
    fn level_of(&self, test: &Test) -> f64 {
        use super::table::Holds::{Every, Some};
        match (self.claim.holds, self.verdict) {
            (Every, Verdict::NotSupported) => test.p_holm[1],
            (Some, Verdict::NotSupported) => test.p[1],
            (Every, Verdict::Supported) => test.p[0],
            (Some, Verdict::Supported) => test.p_holm[0],
            (Every, Verdict::Undecided) => test.p[0].min(test.p_holm[1]),
            (Some, Verdict::Undecided) => test.p_holm[0].min(test.p[1]),
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

    /// Formats a number of `test`: a difference in points of accuracy, an accuracy in %, or a perplexity.
    fn number(&self, test: &Test, value: f64) -> String {
        match (self.claim.measure.is_share(), test.is_level) {
            (true, true) => format!("{:.1}", 100.0 * value),
            (true, false) => format!("{:+.1}", 100.0 * value),
            (false, _) => format!("{value:+.2}"),
        }
    }

    /// Notes below the grid.
    fn explanation(&self) -> Vec<String> {
        let claim = self.claim;
        let examples = self.examples.iter().map(|examples| format!(", {examples}"));
        let mut said =
            vec![format!("{}{} ({}): {}", claim.name, examples.collect::<String>(), claim.source, claim.about)];
        let mut aside = |text: String| said.push(format!("  {text}"));
        for test in &self.tests {
            let log_rank = test.found.as_ref().ok().and_then(|found| found.log_rank);
            if let Some(found) = log_rank {
                let (z, p) = (found.z, level(found.p));
                aside(format!("{}: log-rank on examples until training stops, z {z:.1}, p {p}", test.about));
            }
        }
        if self.tests.len() > 1 {
            if let Some(test) = self.decisive() {
                let counts = Counts::of(&self.tests);
                aside(format!("{}, decisive: {}", counts.summary("quantities"), test.about));
            }
        }
        if self.by_cell.len() > 1 && self.by_cell.iter().any(|test| test.found.is_ok()) {
            aside(Counts::of(&self.by_cell).summary("cells"));
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
        each.into_iter().map(|(role, test)| self.record(role, test)).collect()
    }

    fn record(&self, role: &str, test: Option<&Test>) -> Facts {
        let need = self.need.as_ref();
        let found: Option<&Found> = test.and_then(|test| test.found.as_ref().ok());
        let interval = found.map(|found| found.evidence.interval());
        let log_rank = found.and_then(|found| found.log_rank);
        let solved = found.map(|found| solved(&found.solved)).filter(|text| !text.is_empty());
        let counted = matches!(self.claim.measure, Measure::Solved(_));
        let doubling = self.claim.contrasts.iter().any(|c| c.over != Aggregate::Cells);
        let unit = match (counted, self.claim.measure.is_share(), doubling) {
            (true, _, true) => "share of runs a doubling",
            (true, _, false) => "share of runs",
            (false, true, true) => "accuracy a doubling",
            (false, true, false) => "accuracy",
            (false, false, _) => "perplexity",
        };
        let within = test.map_or([None, None], |test| {
            let Within(low, high) = test.within;
            [low, high].map(|bound| Some(bound).filter(|bound| bound.is_finite()))
        });
        let level = |of: fn(&Test) -> f64| -> Value { test.filter(|_| found.is_some()).map(of).into() };
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
            fact("seeds", found.map(|found| found.evidence.seeds())),
            fact("solved", solved),
            fact("unit", unit),
            fact("effect", found.map(|found| found.evidence.mean())),
            fact("low", interval.map(|[low, _]| low)),
            fact("high", interval.map(|[_, high]| high)),
            fact("claimed_above", within[0]),
            fact("claimed_below", within[1]),
            fact("p_inside", level(|test| test.p[0])),
            fact("p_outside", level(|test| test.p[1])),
            fact("p_inside_holm", level(|test| test.p_holm[0])),
            fact("p_outside_holm", level(|test| test.p_holm[1])),
            fact("p_of_claim", Some(self.level).filter(|_| found.is_some())),
            fact("log_rank_z", log_rank.map(|test| test.z)),
            fact("log_rank_p", log_rank.map(|test| test.p)),
        ]
    }
}

/// Formats shares as `20/30, 5/30`.
fn solved(shares: &[Share]) -> String {
    let shares = shares.iter().map(|share| format!("{}/{}", share.solved, share.of));
    shares.collect::<Vec<_>>().join(", ")
}

/// Numbers of quantities inside the claimed interval, outside it, and undecided, after Holm's correction.
struct Counts {
    all: usize,
    inside: usize,
    outside: usize,
}

impl Counts {
    fn of(tests: &[Test]) -> Self {
        let count = |side: usize| tests.iter().filter(|t| t.p_holm[side] <= ALPHA).count();
        Self { all: tests.len(), inside: count(0), outside: count(1) }
    }

    fn summary(&self, what: &str) -> String {
        let open = self.all - self.inside - self.outside;
        format!(
            "of {} {what} {} where the claim has it, {} elsewhere, {open} open (Holm)",
            self.all, self.inside, self.outside
        )
    }
}

fn level(p: f64) -> String {
    match p {
        p if p < 1e-4 => "<0.0001".into(),
        p if p < 1e-3 => format!("{p:.4}"),
        p => format!("{p:.3}"),
    }
}
