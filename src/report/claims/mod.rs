//! Tests whether the runs support what the paper claims.
//!
//! A claim is a quantity and the interval in which the paper puts it. On associative recall the quantity is the share
//! of runs that solve the task, over all rates and seeds (see [`solved`](super::solved)); for accuracy on the Long
//! Range Arena and for perplexity it is a mean over seeds at the best rate (see [`stats`](super::stats)). A claim is
//! judged at the paper's sizes, where every cell of its grid is required, and separately at the sizes of other runs:
//! the two are never mixed, and neither are protocols. All claims that are judged together share one error of 5 %
//! (Holm's correction).

mod draw;
mod judge;
mod need;
mod study;
mod table;

pub use judge::Verdict;
pub use table::{Claim, CLAIMS};

use super::figures::holds;
use super::mixed;
use super::presets::PresetsOf;
use super::score::Status;
use super::{groups, joined, Group, Report, ReportOptions};
use crate::error::Result;
use crate::store::{places, Record, Role, COLUMNS};
use judge::{corrected_over_claims, levels, tests, tests_by_cell, verdict, Cells, Test};
use need::{NeededRuns, RunPlanner};
use std::collections::{BTreeMap, BTreeSet};
use study::{studies, Cell, Study, StudyKey};
use table::Holds;

/// One claim, judged in one study.
struct Judgement {
    claim: &'static Claim,
    /// Whether the study is at the paper's sizes.
    paper: bool,
    protocol: String,
    /// Source of the examples, where a study at the paper's sizes differs from its preset in it.
    examples: Option<String>,
    /// Settings that the runs have in common.
    study: String,
    verdict: Verdict,
    /// The smaller of its two p-values, after the correction over all claims.
    level: f64,
    tests: Vec<Test>,
    by_cell: Vec<Test>,
    /// Number of cells, with runs or without.
    cells: usize,
    /// Runs that would settle an undecided claim.
    need: Option<NeededRuns>,
    notes: Vec<String>,
    /// Run id and result of every mixer in every cell, for notes on learning rates.
    results: Vec<(String, Status)>,
}

/// Judges the claims that `options` selects by `rows`.
pub fn claims(rows: &[Record], presets: PresetsOf, options: &ReportOptions) -> Result<Report> {
    let passing: Vec<&Record> = rows.iter().filter(|run| options.filter.passes(run)).collect();
    let (runs, _) = joined(passing.clone(), None);
    let groups = groups(&runs);
    let mut used = BTreeSet::new();
    let mut of_claims = Vec::new();
    for claim in CLAIMS.iter().filter(|claim| options.is_about(claim.name)) {
        let mixers = claim.mixers();
        let of_claim: Vec<&Group> = groups
            .iter()
            .filter(|group| holds(claim.runs, group.record) && mixers.contains(&group.record.text("mixer")))
            .collect();
        let runs = of_claim.iter().flat_map(|group| &group.runs);
        used.extend(runs.map(|run| run.run_id()));
        of_claims.push((claim, studies(claim, &of_claim, presets)));
    }
    let each = of_claims.iter();
    let drafts: Vec<Draft> = each.flat_map(|(claim, studies)| of_studies(claim, studies, options)).collect();
    let levels: Vec<[f64; 2]> = drafts.iter().map(Draft::levels).collect();
    // A claim without an estimate has not been tested, and does not count in the correction.
    let looked = |draft: &Draft| draft.tests.iter().any(|test| test.found.is_ok());
    let counted: Vec<[f64; 2]> =
        drafts.iter().zip(&levels).filter(|(draft, _)| looked(draft)).map(|(_, levels)| *levels).collect();
    let mut corrected = corrected_over_claims(&counted).into_iter();
    let judged: Vec<Judgement> = drafts
        .into_iter()
        .map(|draft| {
            let levels = match looked(&draft) {
                true => corrected.next().unwrap_or([1.0; 2]),
                false => [1.0; 2],
            };
            draft.judged(levels, options)
        })
        .collect();
    let used = passing.into_iter().filter(|run| used.contains(run.run_id()));
    let (runs, coverage) = joined(used.collect(), None);
    let mut report = draw::report(&judged, &runs, options);
    report.coverage = coverage;
    let results: BTreeMap<String, Status> = judged.iter().flat_map(|judgement| judgement.results.clone()).collect();
    let results: Vec<Status> = results.into_values().collect();
    report.notes.extend(report.coverage.notes(&results));
    Ok(report)
}

/// One claim in one study, before the correction over all claims.
struct Draft<'a> {
    claim: &'static Claim,
    kind: StudyKey<'a>,
    cells: Cells<'a>,
    tests: Vec<Test>,
    left_out: Vec<String>,
}

/// Drafts at the paper's sizes, under each protocol with such runs and always under the claim's own; and at all other
/// sizes.
fn of_studies<'a>(claim: &'static Claim, studies: &[Study<'a>], options: &ReportOptions) -> Vec<Draft<'a>> {
    let paper = studies.iter().filter(|study| study.kind.is_paper());
    let draft = |study: &Study<'a>, cells: Cells<'a>| Draft {
        claim,
        kind: study.kind.clone(),
        tests: tests(claim, &cells, options.select),
        cells,
        left_out: study.left_out.clone(),
    };
    let nothing = Study {
        kind: StudyKey {
            protocol: claim.protocol,
            preset: "paper",
            differences: Vec::new(),
            of_mixers: String::new(),
            tokenizer: "",
            precision: "",
        },
        cells: Vec::new(),
        left_out: Vec::new(),
    };
    let own = paper.clone().any(|study| study.kind.protocol == claim.protocol);
    let own = (!own).then_some(&nothing);
    let whole = own.into_iter().chain(paper).map(|study| draft(study, at_paper(claim, study)));
    let mut drafts: Vec<Draft> = whole.collect();
    for study in studies {
        let whole = |cell: &&Cell| claim.mixers().iter().all(|m| cell.sides.contains_key(m)) && claim.has(cell);
        let grid: usize = claim.axes.iter().map(|axis| axis.points.len()).product();
        let answered =
            study.kind.is_paper() && study.cells.iter().filter(whole).count() == grid && study.cells.len() == grid;
        // Runs of only some mixers do not decide a claim, unless one of its quantities is enough.
        let there = |mixer: &&str| study.cells.iter().any(|cell| cell.sides.contains_key(mixer));
        let mixers = claim.mixers();
        let enough = match claim.holds {
            Holds::Every => mixers.iter().all(there),
            Holds::Some => mixers.iter().any(there),
        };
        if !answered && enough {
            let cells = study.cells.clone();
            drafts.push(draft(study, Cells { cells, whole: false }));
        }
    }
    drafts
}

impl Claim {
    /// Whether `cell` is in the paper's grid.
    fn has(&self, cell: &Cell) -> bool {
        let mut points = self.axes.iter().zip(&cell.at);
        points.all(|(axis, value)| axis.points.contains(&value.as_str()))
    }

    /// The points of the paper's grid.
    fn grid(&self) -> Vec<Vec<String>> {
        let mut grid = vec![Vec::new()];
        for axis in &self.axes {
            let longer = grid.iter().flat_map(|start: &Vec<String>| {
                let points = axis.points.iter();
                points.map(|point| [&start[..], &[(*point).to_owned()]].concat())
            });
            grid = longer.collect();
        }
        grid
    }
}

/// Every cell of the paper's grid, with runs or without.
fn at_paper<'a>(claim: &Claim, study: &Study<'a>) -> Cells<'a> {
    let found = |at: Vec<String>| {
        let known = study.cells.iter().find(|cell| cell.at == at);
        known.cloned().unwrap_or(Cell { at, sides: Default::default() })
    };
    Cells { cells: claim.grid().into_iter().map(found).collect(), whole: true }
}

impl Draft<'_> {
    fn levels(&self) -> [f64; 2] {
        levels(self.claim, &self.tests)
    }

    /// Judges the draft by its corrected p-values.
    fn judged(self, levels: [f64; 2], options: &ReportOptions) -> Judgement {
        let Self { claim, kind, cells, tests, left_out } = self;
        let verdict = verdict(levels);
        let planner = RunPlanner { claim, kind: &kind, cells: &cells.cells, paper: cells.whole };
        let groups = cells.cells.iter().flat_map(|cell| cell.sides.values());
        let results = groups.clone().map(|group| {
            let [by, shown] = claim.measure.metrics(group.record);
            let status = Status::of(&group.runs, by, shown, options.select);
            (group.record.run_id().to_owned(), status)
        });
        let runs = groups.clone().flat_map(|group| group.runs.iter().copied());
        let mut notes = mixed::warnings(runs);
        notes.extend(asides(claim, &cells.cells));
        if !left_out.is_empty() {
            notes.push(format!("left out: {}", left_out.join("; ")));
        }
        Judgement {
            claim,
            paper: cells.whole,
            protocol: kind.protocol.to_owned(),
            examples: kind.examples().filter(|_| cells.whole),
            study: kind.title(),
            verdict,
            level: levels[0].min(levels[1]),
            by_cell: tests_by_cell(claim, &cells, options.select),
            need: (verdict == Verdict::Undecided).then(|| planner.needed_runs(&tests)),
            tests,
            cells: cells.cells.len(),
            notes,
            results: results.collect(),
        }
    }
}

/// Note on the other settings in which the mixers of a cell differ, such as the block that a protocol puts around each.
fn asides(claim: &Claim, cells: &[Cell]) -> Option<String> {
    let mixers = claim.mixers();
    let cell = cells.iter().find(|cell| cell.sides.len() == mixers.len())?;
    let spans = |name: &str| claim.axes.iter().any(|axis| axis.columns.contains(&name));
    let settings = places(&[Role::Setting, Role::Cell]);
    let settings = settings.into_iter().filter(|i| {
        let name = COLUMNS[*i].name;
        !["mixer", "micro_batch"].contains(&name) && !spans(name)
    });
    let differing: Vec<String> = settings
        .filter_map(|i| {
            let values: Vec<String> = mixers
                .iter()
                .filter_map(|mixer| Some(cell.sides.get(mixer)?.record.at(i).to_string()))
                .map(|value| if value.is_empty() { "none".into() } else { value })
                .collect();
            let differ = values.iter().any(|value| *value != values[0]);
            differ.then(|| format!("{} {}", COLUMNS[i].name, values.join(" / ")))
        })
        .collect();
    (!differing.is_empty())
        .then(|| format!("beside themselves {} differ in: {}", mixers.join(" / "), differing.join(", ")))
}
