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
use super::presets::PresetsOf;
use super::score::{GroupStatus, RateChoice};
use super::stats::{holm, ALPHA};
use super::{groups, joined, Report, ReportOptions, RunGroup};
use crate::error::Result;
use crate::store::{places, Column, Record, Role, COLUMNS};
use judge::{levels, tests, Test};
use need::NeededRuns;
use std::collections::{BTreeMap, BTreeSet};
use study::{studies, Study, StudyCell, StudyKey};
use table::{Aggregate, Holds};

/// One claim, judged in one study.
struct Judgement<'a> {
    claim: &'static Claim,
    kind: StudyKey<'a>,
    /// Whether the study is at the paper's sizes. Its cells are then the paper's grid, with runs or without.
    paper: bool,
    cells: Vec<StudyCell<'a>>,
    tests: Vec<Test>,
    /// Tests per cell, for a claim that averages over cells.
    by_cell: Vec<Test>,
    verdict: Verdict,
    /// The smaller of its two p-values, after the correction over all claims.
    level: f64,
    /// Runs that would settle an undecided claim.
    need: Option<NeededRuns>,
    left_out: Vec<String>,
}

/// Judges the claims that `options` selects by `rows`.
pub fn claims(rows: &[Record], presets: PresetsOf, options: &ReportOptions) -> Result<Report> {
    let passing: Vec<&Record> = rows.iter().filter(|run| options.filter.passes(run)).collect();
    let (runs, _) = joined(passing.clone(), None);
    let groups = groups(&runs);
    let mut used = BTreeSet::new();
    let mut judged = Vec::new();
    for claim in CLAIMS.iter().filter(|claim| options.is_about(claim.name)) {
        let mixers = claim.mixers();
        let of_claim: Vec<&RunGroup> = groups
            .iter()
            .filter(|group| {
                let run = group.record;
                let named = run.text(Column::TASK) == claim.task.name && mixers.contains(&run.text(Column::MIXER));
                named && holds(claim.runs, run)
            })
            .collect();
        used.extend(of_claim.iter().flat_map(|group| &group.runs).map(|run| run.run_id()));
        judged.extend(of_studies(claim, &studies(claim, &of_claim, presets), options.select));
    }
    // A claim without an estimate has not been tested, and does not count in the correction.
    let tested = judged.iter_mut().filter(|judgement| judgement.tests.iter().any(|test| test.found.is_ok()));
    holm(tested.map(|judgement| &mut judgement.level));
    judged.iter_mut().for_each(Judgement::decide);
    let (runs, coverage) = joined(passing.into_iter().filter(|run| used.contains(run.run_id())).collect(), None);
    let mut report = draw::report(&judged, &runs, options);
    report.coverage = coverage;
    let results: BTreeMap<&str, GroupStatus> =
        judged.iter().flat_map(|judgement| judgement.results(options.select)).collect();
    report.notes.extend(report.coverage.notes(&results.into_values().collect::<Vec<_>>()));
    Ok(report)
}

/// Judgements of a claim, undecided until the correction over all claims: at the paper's sizes, under each protocol
/// with such runs and always under the claim's own; and at all other sizes.
fn of_studies<'a>(claim: &'static Claim, studies: &[Study<'a>], choice: RateChoice) -> Vec<Judgement<'a>> {
    let judgement = |study: &Study<'a>, cells: Vec<StudyCell<'a>>, paper: bool| {
        let tests = |apart: &[&str]| tests(claim, &cells, paper, apart, choice);
        let by_cell = if claim.averages_cells() { tests(&claim.flags()) } else { Vec::new() };
        let tests = tests(claim.apart);
        let [supported, contradicted] = levels(claim, &tests);
        Judgement {
            claim,
            kind: study.kind.clone(),
            paper,
            by_cell,
            verdict: Verdict::Undecided,
            level: supported.min(contradicted),
            need: None,
            left_out: study.left_out.clone(),
            cells,
            tests,
        }
    };
    let grid = claim.grid();
    let nothing = Study {
        kind: StudyKey { protocol: claim.task.protocol, preset: "paper", ..Default::default() },
        ..Default::default()
    };
    let at_paper = studies.iter().filter(|study| study.kind.is_paper());
    let own = at_paper.clone().any(|study| study.kind.protocol == claim.task.protocol);
    let at_paper = (!own).then_some(&nothing).into_iter().chain(at_paper);
    let mut judged: Vec<Judgement> = at_paper
        .map(|study| {
            let found = |at: &Vec<String>| study.cells.iter().find(|cell| cell.at == *at).cloned();
            let cells = grid.iter().map(|at| found(at).unwrap_or(StudyCell { at: at.clone(), sides: BTreeMap::new() }));
            judgement(study, cells.collect(), true)
        })
        .collect();
    let mixers = claim.mixers();
    for study in studies {
        let whole = |cell: &StudyCell| mixers.iter().all(|m| cell.sides.contains_key(m)) && grid.contains(&cell.at);
        let answered = study.kind.is_paper() && study.cells.len() == grid.len() && study.cells.iter().all(whole);
        // Runs of only some mixers do not decide a claim, unless one of its quantities is enough.
        let there = |mixer: &&str| study.cells.iter().any(|cell| cell.sides.contains_key(mixer));
        let enough = match claim.holds {
            Holds::Every => mixers.iter().all(there),
            Holds::Some => mixers.iter().any(there),
        };
        if answered || !enough {
            continue;
        }
        let judgement = judgement(study, study.cells.clone(), false);
        // Other sizes lack the cells that a figure of the paper names.
        let of_figure = claim.contrasts.iter().any(|contrast| matches!(contrast.over, Aggregate::Beyond(_)));
        if !(of_figure && judgement.tests.is_empty()) {
            judged.push(judgement);
        }
    }
    judged
}

impl<'a> Judgement<'a> {
    /// Decides by the corrected p-value. A claim cannot be both supported and contradicted: the smaller p-value counts.
    fn decide(&mut self) {
        let [supported, contradicted] = levels(self.claim, &self.tests);
        self.verdict = match self.level <= ALPHA {
            false => Verdict::Undecided,
            true if supported <= contradicted => Verdict::Supported,
            true => Verdict::NotSupported,
        };
        if self.verdict == Verdict::Undecided {
            self.need = Some(self.needed_runs());
        }
    }

    fn groups(&self) -> impl Iterator<Item = &'a RunGroup<'a>> + '_ {
        self.cells.iter().flat_map(|cell| cell.sides.values().copied())
    }

    fn runs(&self) -> impl Iterator<Item = &'a Record> + '_ {
        self.groups().flat_map(|group| group.runs.iter().copied())
    }

    /// Run id and result of every mixer in every cell, for notes on learning rates.
    fn results(&self, choice: RateChoice) -> impl Iterator<Item = (&'a str, GroupStatus)> + '_ {
        self.groups().map(move |group| {
            let [by, shown] = self.claim.measure.metrics(group.record);
            (group.record.run_id(), GroupStatus::of(&group.runs, by, shown, choice))
        })
    }
}

/// Note on the other settings in which the mixers of a cell differ, such as the block that a protocol puts around each.
fn differences(claim: &Claim, cells: &[StudyCell]) -> Option<String> {
    let mixers = claim.mixers();
    let cell = cells.iter().find(|cell| cell.sides.len() == mixers.len())?;
    let spans = |place: usize| claim.axes.iter().flat_map(|axis| axis.columns).any(|column| column.place() == place);
    let settings = places(&[Role::Setting, Role::Cell]);
    let no_aside = [Column::MIXER, Column::MICRO_BATCH].map(Column::place);
    let settings = settings.into_iter().filter(|i| !no_aside.contains(i) && !spans(*i));
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
