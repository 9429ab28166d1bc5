//! Renders verdicts as grids: one line per claim, one grid per study, and one record per quantity for programs.

use super::super::coverage::counted;
use super::super::grid::{fact, Cell, Facts, Grid, GridLine, Style};
use super::super::solved::Share;
use super::super::stats::{Within, ALPHA, FEWEST};
use super::super::{mixed, Coverage, RateChoice, Report, ReportOptions, SCHEMA};
use super::judge::{decisive, Found, Test, Verdict};
use super::table::{Aggregate, Measure};
use super::{differences, Judgement};
use crate::store::Record;
use clap::ValueEnum;
use serde_json::Value;

const COLUMNS: [&str; 9] =
    ["protocol", "cells", "seeds", "solved", "effect", "95 % interval", "p", "p (Holm)", "verdict"];

pub(super) fn report(judged: &[Judgement], runs: &[&Record], options: &ReportOptions) -> Report {
    let mut sorted: Vec<&Judgement> = judged.iter().collect();
    // The sort is stable: claims stay in the order of the paper, and studies at the paper's sizes come first.
    sorted.sort_by_key(|judgement| (!judgement.paper, judgement.sizes()));
    let (open, decided): (Vec<&Judgement>, Vec<&Judgement>) =
        sorted.into_iter().partition(|judgement| judgement.verdict == Verdict::Undecided);
    let named = !options.claims.is_empty();
    let mut grids = Vec::new();
    for (judged, about, whole) in [(&decided, "decided", true), (&open, "undecided", named)] {
        let studies = judged.chunk_by(|a, b| a.sizes() == b.sizes());
        grids.extend(studies.map(|study| grid(format!("{about} {}", study[0].sizes()), study, whole)));
    }
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
    if options.select == RateChoice::HeldOut {
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
    let lines = judged.iter().map(|judgement| GridLine::new(judgement.claim.name, judgement.cells().into()));
    let explained = judged.iter().filter(|_| whole);
    Grid {
        axes: ["claim".into(), String::new()],
        notes: explained.flat_map(|judgement| judgement.explanation()).collect(),
        records: judged.iter().flat_map(|judgement| judgement.records()).collect(),
        ..Grid::new(title, COLUMNS, lines.collect(), Style::Percent)
    }
}

impl Judgement<'_> {
    /// Sizes of its runs, for a title.
    fn sizes(&self) -> String {
        if self.paper {
            "at the paper's sizes".to_owned()
        } else {
            format!("at the sizes of these runs, not the paper's: {}", self.kind.title())
        }
    }

    /// Source of the examples after a comma, where a study at the paper's sizes differs from its preset in it.
    fn examples(&self) -> String {
        let examples = self.kind.examples().filter(|_| self.paper);
        examples.map_or(String::new(), |examples| format!(", {examples}"))
    }

    /// The test that decides, or the one closest to deciding.
    fn decisive(&self) -> Option<&Test> {
        decisive(self.claim, &self.tests, self.verdict)
    }

    fn cells(&self) -> [Cell; COLUMNS.len()] {
        let test = self.decisive();
        let found = test.and_then(|test| Some((test, test.found.as_ref().ok()?)));
        let shown = |text: &dyn Fn(&Test, &Found) -> String| {
            let text = found.map(|(test, found)| text(test, found));
            text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".into())
        };
        let texts = [
            // The protocol and the examples distinguish two lines of one claim.
            format!("{}{}", self.kind.protocol, self.examples()),
            test.map_or(self.cells.len(), |test| test.cells).to_string(),
            shown(&|_, found| found.seeds.to_string()),
            shown(&|_, found| solved(&found.solved)),
            shown(&|test, found| self.number(test, found.evidence.mean())),
            shown(&|test, found| {
                let [low, high] = found.evidence.interval().map(|end| self.number(test, end));
                format!("{low} to {high}")
            }),
            shown(&|test, _| level(self.level_of(test))),
            shown(&|_, _| level(self.level)),
            self.outcome(),
        ];
        texts.map(Cell::text)
    }

    /// p-value of the decisive test, or of the one closest to deciding; for two directions, the one that matches the
    /// verdict.
    fn level_of(&self, test: &Test) -> f64 {
        let [supported, contradicted] = test.levels(self.claim.holds);
        match self.verdict {
            Verdict::Supported => supported,
            Verdict::NotSupported => contradicted,
            Verdict::Undecided => supported.min(contradicted),
        }
    }

    fn outcome(&self) -> String {
        let verdict = self.verdict.name();
        match (self.need.as_ref().map(|need| need.runs), self.paper) {
            (None, true) => verdict.to_owned(),
            (None, false) => format!("{verdict} at these sizes"),
            (Some(Some(runs)), _) => format!("{verdict}: needs {}", counted(runs, "run")),
            (Some(None), _) => format!("{verdict}: needs too many runs"),
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
        let mut asides = Vec::new();
        for test in &self.tests {
            if let Some(found) = test.found.as_ref().ok().and_then(|found| found.log_rank) {
                let (z, p) = (found.z, level(found.p));
                asides.push(format!("{}: log-rank on examples until training stops, z {z:.1}, p {p}", test.about));
            }
        }
        if let Some(test) = self.decisive().filter(|_| self.tests.len() > 1) {
            asides.push(format!("{}, decisive: {}", summary(&self.tests, "quantities"), test.about));
        }
        if self.by_cell.len() > 1 && self.by_cell.iter().any(|test| test.found.is_ok()) {
            asides.push(summary(&self.by_cell, "cells"));
        }
        if let Some(need) = &self.need {
            asides.extend([&need.reason, &need.command].into_iter().filter(|text| !text.is_empty()).cloned());
        }
        asides.extend(mixed::warnings(self.runs()));
        asides.extend(differences(claim, &self.cells));
        if !self.left_out.is_empty() {
            asides.push(format!("left out: {}", self.left_out.join("; ")));
        }
        let stated = format!("{}{} ({}): {}", claim.name, self.examples(), claim.source, claim.about);
        std::iter::once(stated).chain(asides.into_iter().map(|aside| format!("  {aside}"))).collect()
    }

    fn records(&self) -> Vec<Facts> {
        let tests = self.tests.iter().map(|test| self.record("claim", Some(test)));
        let none = self.tests.is_empty().then(|| self.record("claim", None));
        let by_cell = self.by_cell.iter().map(|test| self.record("cell", Some(test)));
        none.into_iter().chain(tests).chain(by_cell).collect()
    }

    fn record(&self, role: &str, test: Option<&Test>) -> Facts {
        let need = self.need.as_ref();
        let found: Option<&Found> = test.and_then(|test| test.found.as_ref().ok());
        let interval = found.map(|found| found.evidence.interval());
        let log_rank = found.and_then(|found| found.log_rank);
        let solved = found.map(|found| solved(&found.solved)).filter(|text| !text.is_empty());
        let unit = match (self.claim.measure, self.claim.measure.is_share()) {
            (Measure::Solved(_), _) => "share of runs",
            (_, true) => "accuracy",
            (_, false) => "perplexity",
        };
        let doubling =
            unit != "perplexity" && self.claim.contrasts.iter().any(|c| matches!(c.over, Aggregate::Doublings(_)));
        let within = test.map_or([None, None], |test| {
            let Within(low, high) = test.within;
            [low, high].map(|bound| Some(bound).filter(|bound| bound.is_finite()))
        });
        let level = |of: fn(&Test) -> f64| -> Value { test.filter(|_| found.is_some()).map(of).into() };
        vec![
            fact("level", if self.paper { "paper" } else { "reduced" }),
            fact("study", self.kind.title()),
            fact("protocol", self.kind.protocol),
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
            fact("seeds", found.map(|found| found.seeds)),
            fact("solved", solved),
            fact("unit", format!("{unit}{}", if doubling { " a doubling" } else { "" })),
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

/// Numbers of tests inside the claimed interval, outside it, and undecided, after Holm's correction.
fn summary(tests: &[Test], what: &str) -> String {
    let [inside, outside] = [0, 1].map(|side| tests.iter().filter(|test| test.p_holm[side] <= ALPHA).count());
    let (all, open) = (tests.len(), tests.len() - inside - outside);
    format!("of {all} {what} {inside} where the claim has it, {outside} elsewhere, {open} open (Holm)")
}

fn level(p: f64) -> String {
    match p {
        p if p < 1e-4 => "<0.0001".into(),
        p if p < 1e-3 => format!("{p:.4}"),
        p => format!("{p:.3}"),
    }
}
