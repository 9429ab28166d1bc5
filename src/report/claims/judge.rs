//! From the cells of a study to a verdict: a contrast of means over seeds for each quantity of a claim.

use super::super::score::{distinct_rates, RateChoice, Reported, Status};
use super::super::stats::{holm, Block, Estimate, Within, ALPHA};
use super::study::Cell;
use super::table::{Claim, Contrast, End, Holds, Measure, Only, Over, Rates};
use crate::store::{Metric, Outcome, Record, Shown};
use std::collections::{BTreeMap, BTreeSet};

/// What the runs say about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its interval is where the claim has it.
    Supported,
    /// The evidence contradicts it: its interval excludes the claim.
    NotSupported,
    /// Neither, or runs are missing.
    Undecided,
}

impl Verdict {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Supported => "supported",
            Self::NotSupported => "not supported",
            Self::Undecided => "undecided",
        }
    }
}

/// One quantity of a claim, at one point of the axes that are kept apart.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub about: String,
    /// How many cells it rests on.
    pub cells: usize,
    pub within: Within,
    pub found: Result<Found, Problem>,
    /// Levels of being where the claim has it, and elsewhere; 1 where there is a problem.
    pub p: [f64; 2],
    /// The same after Holm's correction.
    pub p_holm: [f64; 2],
    /// Whether it is a single mixer's number and no difference.
    pub is_level: bool,
}

/// The estimate of a quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub estimate: Estimate,
    /// Whether the same seeds were compared.
    pub paired: bool,
}

/// Why there is no estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// Runs of these mixers at these points are missing.
    Missing(Vec<String>),
    /// These diverged at every rate, at least one seed of them.
    Unstable(Vec<String>),
    /// No learning rate was tried by all mixers of these cells.
    NoSharedRate(Vec<String>),
    /// Fewer seeds than a verdict needs.
    Seeds(usize),
}

/// The number of one mixer in one cell, by seed, and its weight in a quantity.
struct Term<'a> {
    mixer: &'a str,
    weight: f64,
    seeds: BTreeMap<usize, f64>,
}

/// The cells to judge: all of them must be there, or those that are are judged.
pub(super) struct Cells<'a> {
    pub cells: Vec<&'a Cell<'a>>,
    /// Whether every mixer is wanted in every cell.
    pub whole: bool,
}

/// Every quantity of `claim` in `cells`.
pub(super) fn tests(claim: &Claim, cells: &Cells, choice: RateChoice) -> Vec<Test> {
    corrected(tests_apart(claim, cells, choice, claim.apart))
}

/// The same a cell, where the claim averages over cells.
pub(super) fn tests_by_cell(claim: &Claim, cells: &Cells, choice: RateChoice) -> Vec<Test> {
    let averages = claim.axes.len() > claim.apart.len();
    if !averages || claim.contrasts.iter().any(|c| c.over != Over::Cells) {
        return Vec::new();
    }
    let all: Vec<&str> = claim.axes.iter().map(|axis| axis.flag).collect();
    corrected(tests_apart(claim, cells, choice, &all))
}

fn tests_apart(claim: &Claim, cells: &Cells, choice: RateChoice, apart: &[&str]) -> Vec<Test> {
    let mut tests = Vec::new();
    for contrast in &claim.contrasts {
        let judged = Judged {
            claim,
            contrast,
            choice,
        };
        let of_contrast = judged.cells(cells);
        let mut units: BTreeMap<Vec<&str>, Vec<&Cell>> = BTreeMap::new();
        for cell in of_contrast {
            let key = apart.iter().map(|flag| judged.value(cell, flag));
            units.entry(key.collect()).or_default().push(cell);
        }
        for (key, cells) in units {
            let named = apart.iter().zip(key);
            let named: Vec<String> = named
                .map(|(flag, value)| format!("{flag} {value}"))
                .collect();
            // A contrast of one point says so itself.
            let about = match (&contrast.only, &named[..]) {
                (Some(Only::Point(_)), _) | (_, []) => contrast.about.clone(),
                (_, named) => format!("{}, {}", contrast.about, named.join(" ")),
            };
            tests.extend(judged.test(about, &cells));
        }
    }
    tests
}

fn corrected(mut tests: Vec<Test>) -> Vec<Test> {
    for side in [0, 1] {
        let levels: Vec<f64> = tests.iter().map(|test| test.p[side]).collect();
        for (test, level) in tests.iter_mut().zip(holm(&levels)) {
            test.p_holm[side] = level;
        }
    }
    tests
}

/// What `tests` come to.
pub(super) fn verdict(claim: &Claim, tests: &[Test]) -> Verdict {
    let all = |p: fn(&Test) -> f64| !tests.is_empty() && tests.iter().all(|t| p(t) <= ALPHA);
    let any = |p: fn(&Test) -> f64| tests.iter().any(|t| p(t) <= ALPHA);
    let (supported, contradicted) = match claim.holds {
        Holds::Every => (all(|t| t.p[0]), any(|t| t.p_holm[1])),
        Holds::Some => (any(|t| t.p_holm[0]), all(|t| t.p[1])),
    };
    match (supported, contradicted) {
        (true, _) => Verdict::Supported,
        (_, true) => Verdict::NotSupported,
        (false, false) => Verdict::Undecided,
    }
}

/// The test that decides, or that is farthest from it.
pub(super) fn decisive<'a>(claim: &Claim, tests: &'a [Test], verdict: Verdict) -> Option<&'a Test> {
    let found = tests.iter().filter(|test| test.found.is_ok());
    let by = |side: usize| move |a: &&Test, b: &&Test| a.p[side].total_cmp(&b.p[side]);
    match (claim.holds, verdict) {
        (Holds::Every, Verdict::NotSupported) => found.min_by(by(1)),
        (Holds::Every, _) => found.max_by(by(0)),
        (Holds::Some, Verdict::NotSupported) => found.max_by(by(1)),
        (Holds::Some, _) => found.min_by(by(0)),
    }
}

impl Measure {
    /// By which metric rates are chosen in `run`'s group, and which one is judged.
    pub fn metrics(self, run: &Record) -> [&'static Metric; 2] {
        let names = match (self, run.count("val_examples")) {
            (Self::Metric(name), _) => [name, name],
            (Self::Selected, 0) => ["best_accuracy", "best_accuracy"],
            (Self::Selected, _) => ["val_accuracy", "selected_accuracy"],
        };
        names.map(|name| Metric::find(name).expect("a name of METRICS"))
    }

    /// Whether it is a share, from 0 to 1.
    pub fn is_share(self) -> bool {
        match self {
            Self::Metric(name) => Metric::find(name).is_some_and(|m| m.shown == Shown::Percent),
            Self::Selected => true,
        }
    }
}

/// A quantity on its way to be judged.
struct Judged<'a> {
    claim: &'a Claim,
    contrast: &'a Contrast,
    choice: RateChoice,
}

impl Judged<'_> {
    fn axis(&self, flag: &str) -> usize {
        let found = self.claim.axes.iter().position(|axis| axis.flag == flag);
        found.expect("a test walks the names of CLAIMS")
    }

    fn value<'c>(&self, cell: &'c Cell, flag: &str) -> &'c str {
        &cell.at[self.axis(flag)]
    }

    /// Its value as a number; of sizes such as `512:64` the first.
    fn number(&self, cell: &Cell, flag: &str) -> f64 {
        let first = self.value(cell, flag).split(':').next();
        first.and_then(|n| n.parse().ok()).unwrap_or(f64::NAN)
    }

    /// The cells that the quantity is about; those that have runs of all its mixers, unless every cell must.
    fn cells<'c>(&self, cells: &Cells<'c>) -> Vec<&'c Cell<'c>> {
        let mixers = || self.contrast.weights.iter().map(|(mixer, _)| *mixer);
        let there = |cell: &Cell| mixers().all(|mixer| cell.sides.contains_key(mixer));
        let present = cells.cells.iter().copied();
        let present = present.filter(|cell| cells.whole || there(cell));
        let is = |cell: &Cell, at: &[(&str, &str)]| {
            at.iter()
                .all(|(flag, value)| self.value(cell, flag) == *value)
        };
        match &self.contrast.only {
            None => present.collect(),
            Some(Only::Point(at)) => present.filter(|cell| is(cell, at)).collect(),
            Some(Only::AllBut(at)) => present.filter(|cell| !is(cell, at)).collect(),
            Some(Only::Ends(ends)) => {
                let is_at_end = |cell: &&Cell, (flag, end): &(&str, End)| {
                    let all = || present.clone().map(|cell| self.number(cell, flag));
                    let (least, most) = (all().reduce(f64::min), all().reduce(f64::max));
                    let extreme = match end {
                        End::Least => least,
                        End::Most => most,
                        End::Limit => most.filter(|_| least != most),
                    };
                    Some(self.number(cell, flag)) == extreme
                };
                let at_ends = |cell: &&Cell| ends.iter().all(|end| is_at_end(cell, end));
                present.clone().filter(at_ends).collect()
            }
        }
    }

    /// `None` where there are too few cells for the quantity to be one.
    fn test(&self, about: String, cells: &[&Cell]) -> Option<Test> {
        let compared = self.compared(cells);
        if compared.is_empty() {
            return None;
        }
        let found = self.found(&compared);
        let within = self.contrast.within;
        let p = match &found {
            Ok(found) => [
                found.estimate.p_inside(within),
                found.estimate.p_outside(within),
            ],
            Err(_) => [1.0, 1.0],
        };
        Some(Test {
            about,
            cells: compared.iter().map(Vec::len).sum(),
            within,
            found,
            p,
            p_holm: p,
            is_level: self.contrast.weights.len() == 1 && self.contrast.over == Over::Cells,
        })
    }

    /// The sets of cells with their weights within which numbers are compared: each alone, or those that differ only in
    /// the axis over which a slope is taken.
    fn compared<'c>(&self, cells: &[&'c Cell<'c>]) -> Vec<Vec<(f64, &'c Cell<'c>)>> {
        let Over::Doublings(flag) = self.contrast.over else {
            let each = cells.iter().map(|cell| vec![(1.0, *cell)]);
            return each.collect();
        };
        let axis = self.axis(flag);
        let mut lines: BTreeMap<Vec<&str>, Vec<(f64, &Cell)>> = BTreeMap::new();
        for cell in cells {
            let rest = cell.at.iter().enumerate().filter(|(i, _)| *i != axis);
            let key = rest.map(|(_, value)| value.as_str()).collect();
            let doublings = cell.at[axis].parse::<f64>().map_or(f64::NAN, f64::log2);
            lines.entry(key).or_default().push((doublings, *cell));
        }
        let sloped = lines.into_values().filter(|line| line.len() > 1);
        sloped
            .map(|line| {
                let middle = line.iter().map(|(x, _)| x).sum::<f64>() / line.len() as f64;
                let square: f64 = line.iter().map(|(x, _)| (x - middle).powi(2)).sum();
                let weighted = line.into_iter();
                weighted
                    .map(|(x, cell)| ((x - middle) / square, cell))
                    .collect()
            })
            .collect()
    }

    fn found(&self, compared: &[Vec<(f64, &Cell)>]) -> Result<Found, Problem> {
        let mut terms = Vec::new();
        let (mut missing, mut unstable, mut apart) = (Vec::new(), Vec::new(), Vec::new());
        for set in compared {
            let rates = self.rates(set);
            for (weight, cell) in set {
                for (mixer, side) in &self.contrast.weights {
                    let name = || format!("{mixer} at {}", self.name(cell));
                    let Some(group) = cell.sides.get(mixer) else {
                        missing.push(name());
                        continue;
                    };
                    if rates.as_ref().is_some_and(Vec::is_empty) {
                        apart.push(name());
                        continue;
                    }
                    let tried = |run: &&&Record| {
                        let lr = run.number("lr").unwrap_or(f64::NAN);
                        rates.as_ref().is_none_or(|rates| rates.contains(&lr))
                    };
                    let runs: Vec<&Record> = group.runs.iter().filter(tried).copied().collect();
                    let [by, shown] = self.claim.measure.metrics(group.record);
                    match Reported::of(&runs, by, shown, self.choice) {
                        Ok(reported) if reported.diverged == 0 => terms.push(Term {
                            mixer,
                            weight: weight * side / compared.len() as f64,
                            seeds: self.numbers(group.record, &reported),
                        }),
                        Ok(_) | Err(Status::Diverged) => unstable.push(name()),
                        Err(_) => missing.push(name()),
                    }
                }
            }
        }
        for (problem, list) in [
            (Problem::Missing as fn(_) -> _, missing),
            (Problem::Unstable, unstable),
            (Problem::NoSharedRate, apart),
        ] {
            if !list.is_empty() {
                return Err(problem(list));
            }
        }
        let sides = compared
            .iter()
            .flatten()
            .flat_map(|(_, cell)| cell.sides.values());
        let examples = sides.map(|group| group.record.count("test_examples"));
        // No accuracy is finer than one example of the smallest test set.
        let least = match (self.claim.measure.is_share(), examples.min()) {
            (true, Some(examples)) if examples > 0 => 1.0 / examples as f64,
            _ => 0.0,
        };
        estimated(&terms, least)
    }

    /// An accuracy above that at which training ends says when it ended: it counts as that.
    fn numbers(&self, record: &Record, reported: &Reported) -> BTreeMap<usize, f64> {
        let most = match (self.claim.measure.is_share(), record.number("stop_above")) {
            (true, Some(most)) => most,
            _ => f64::INFINITY,
        };
        let seeds = reported.seeds.iter();
        seeds
            .map(|(seed, value)| (*seed, value.min(most)))
            .collect()
    }

    /// The rates at which a set of cells is compared: those that all its mixers tried in all its cells. `None`: any.
    fn rates(&self, set: &[(f64, &Cell)]) -> Option<Vec<f64>> {
        if self.claim.rates == Rates::Own {
            return None;
        }
        let sides = set.iter().flat_map(|(_, cell)| {
            let mixers = self.contrast.weights.iter();
            mixers.filter_map(|(mixer, _)| cell.sides.get(mixer))
        });
        let tried = sides.map(|group| {
            let ended = group.runs.iter().copied().filter(|run| {
                run.number("accuracy").is_some() || run.outcome() == Some(Outcome::Diverged)
            });
            distinct_rates(ended)
        });
        tried.reduce(|shared, other| {
            let both = shared.into_iter().filter(|lr| other.contains(lr));
            both.collect()
        })
    }

    /// A cell as its flags are typed.
    fn name(&self, cell: &Cell) -> String {
        let values = self.claim.axes.iter().zip(&cell.at);
        let values = values.map(|(axis, value)| format!("{} {value}", axis.flag));
        values.collect::<Vec<_>>().join(" ")
    }
}

/// The sum of `terms`: paired over the seeds that all have; where those are too few, of each mixer over its seeds,
/// the mixers independent of each other; then of each number alone.
fn estimated(terms: &[Term], least: f64) -> Result<Found, Problem> {
    let mixers: BTreeSet<&str> = terms.iter().map(|term| term.mixer).collect();
    let of_mixer = |mixer: &&str| terms.iter().filter(|t| t.mixer == *mixer).collect();
    let ways: [Vec<Vec<&Term>>; 3] = [
        vec![terms.iter().collect()],
        mixers.iter().map(of_mixer).collect(),
        terms.iter().map(|term| vec![term]).collect(),
    ];
    let blocks = |way: Vec<Vec<&Term>>| way.iter().map(|terms| block(terms, least)).collect();
    if let Some((way, estimate)) = Estimate::first(&ways.map(blocks)) {
        let paired = way == 0 && mixers.len() > 1;
        return Ok(Found { estimate, paired });
    }
    let fewest = terms.iter().map(|term| term.seeds.len()).min();
    Err(Problem::Seeds(fewest.unwrap_or(0)))
}

/// The weighted sum of `terms`, by the seeds that all of them have.
fn block(terms: &[&Term], least: f64) -> Block {
    let (first, rest) = (&terms[0], &terms[1..]);
    let shared = first.seeds.keys();
    let shared = shared.filter(|seed| rest.iter().all(|term| term.seeds.contains_key(seed)));
    let sum = |seed: &usize| {
        terms
            .iter()
            .map(|term| term.weight * term.seeds[seed])
            .sum()
    };
    let squares: f64 = terms.iter().map(|term| term.weight.powi(2)).sum();
    Block {
        values: shared.map(sum).collect(),
        least: least * squares.sqrt(),
    }
}
