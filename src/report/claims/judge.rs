//! Judges a claim from the cells of a study: a test of a difference or a slope for each of its quantities.

use super::super::score::{distinct_rates, RateChoice, Reported, Status};
use super::super::solved::{Difference, LogRank, Share, Stratum, Time, Trial};
use super::super::stats::{holm, within_level, Block, Estimate, Within, ALPHA, FEWEST};
use super::study::Cell;
use super::table::{Aggregate, AxisEnd, CellFilter, Claim, Contrast, Holds, Measure, Rates};
use crate::store::{Metric, Outcome, Record, Shown};
use std::collections::BTreeMap;

/// Outcome of testing a claim on the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The interval lies where the claim puts it.
    Supported,
    /// The evidence contradicts the claim: the interval excludes it.
    NotSupported,
    /// Neither of the two, or runs are missing.
    Undecided,
}

impl Verdict {
    /// Name, as printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Supported => "supported",
            Self::NotSupported => "not supported",
            Self::Undecided => "undecided",
        }
    }
}

/// Test of one quantity of a claim, at one point of the axes that are judged separately.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub about: String,
    /// Number of cells that it rests on.
    pub cells: usize,
    pub within: Within,
    pub found: Result<Found, Problem>,
    /// p-values for the quantity lying inside the claimed interval, and outside it; 1 if there is a problem.
    pub p: [f64; 2],
    /// The p-values after Holm's correction.
    pub p_holm: [f64; 2],
    /// Whether the quantity is a single mixer's number rather than a difference.
    pub is_level: bool,
}

/// The estimate of a quantity, with supporting statistics.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub evidence: Evidence,
    /// The runs of each mixer that solve the task, where runs are counted.
    pub solved: Vec<Share>,
    /// Log-rank test of the time to a solution, where two mixers are compared and times are known.
    pub log_rank: Option<LogRank>,
}

/// The estimate of a quantity.
#[derive(Clone, Copy, Debug)]
pub(super) enum Evidence {
    /// A sum of means over seeds.
    Means(Estimate),
    /// A difference or a slope of the share of runs that solve the task.
    Difference(Difference),
    /// The share of seeds that solve the task at any rate, and the number of seeds of the cell with the fewest.
    Share(Share, usize),
}

impl Evidence {
    pub fn mean(&self) -> f64 {
        match self {
            Self::Means(estimate) => estimate.mean,
            Self::Difference(difference) => difference.mean,
            Self::Share(share, _) => share.mean(),
        }
    }

    /// Confidence interval with coverage 1 - [`ALPHA`].
    pub fn interval(&self) -> [f64; 2] {
        match self {
            Self::Means(estimate) => estimate.interval(),
            Self::Difference(difference) => difference.interval(),
            Self::Share(share, _) => share.interval(),
        }
    }

    /// Seeds of the cell and mixer with the fewest.
    pub fn seeds(&self) -> usize {
        match self {
            Self::Means(estimate) => estimate.seeds,
            Self::Difference(difference) => difference.seeds,
            Self::Share(_, seeds) => *seeds,
        }
    }

    fn levels(&self, within: Within) -> [f64; 2] {
        within_level(within, |bound| match self {
            Self::Means(estimate) => estimate.tails(bound),
            Self::Difference(difference) => difference.tails(bound),
            Self::Share(share, _) => share.tails(bound),
        })
    }

    /// Number of seeds that should decide whether the quantity is inside `within` if the estimate stays the same;
    /// `None` if no affordable number would.
    pub fn seeds_to_decide(&self, within: Within) -> Option<usize> {
        match self {
            Self::Means(estimate) => estimate.seeds_to_decide(within),
            Self::Difference(difference) => difference.seeds_to_decide(within),
            Self::Share(share, _) => share.seeds_to_decide(within),
        }
    }
}

/// Reason why there is no estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// Runs of these mixers at these points are missing.
    Missing(Vec<String>),
    /// These mixers and points have at least one diverged seed at every rate.
    Unstable(Vec<String>),
    /// No learning rate was tried by all mixers of these cells.
    NoSharedRate(Vec<String>),
    /// There are fewer seeds than a verdict needs.
    Seeds(usize),
}

/// The cells to judge.
pub(super) struct Cells<'a> {
    pub cells: Vec<Cell<'a>>,
    /// Whether every mixer is required in every cell; otherwise only the cells with runs are judged.
    pub whole: bool,
}

/// Tests of every quantity of `claim` in `cells`.
pub(super) fn tests(claim: &Claim, cells: &Cells, choice: RateChoice) -> Vec<Test> {
    corrected(tests_apart(claim, cells, choice, claim.apart))
}

/// Tests per cell, for a claim that averages over cells; empty otherwise.
pub(super) fn tests_by_cell(claim: &Claim, cells: &Cells, choice: RateChoice) -> Vec<Test> {
    let averages = claim.axes.len() > claim.apart.len();
    if !averages || claim.contrasts.iter().any(|c| c.over != Aggregate::Cells) {
        return Vec::new();
    }
    let all: Vec<&str> = claim.axes.iter().map(|axis| axis.flag).collect();
    corrected(tests_apart(claim, cells, choice, &all))
}

fn tests_apart(claim: &Claim, cells: &Cells, choice: RateChoice, apart: &[&str]) -> Vec<Test> {
    let mut tests = Vec::new();
    for contrast in &claim.contrasts {
        let quantity = Quantity { claim, contrast, choice };
        let of_contrast = quantity.cells(cells);
        let mut units: BTreeMap<Vec<&str>, Vec<&Cell>> = BTreeMap::new();
        for cell in of_contrast {
            let key = apart.iter().map(|flag| quantity.value(cell, flag));
            units.entry(key.collect()).or_default().push(cell);
        }
        for (key, cells) in units {
            let named: Vec<String> = apart.iter().zip(key).map(|(flag, value)| format!("{flag} {value}")).collect();
            // A contrast of one point already names it.
            let about = match (&contrast.only, &named[..]) {
                (Some(CellFilter::Point(_)), _) | (_, []) => contrast.about.clone(),
                (_, named) => format!("{}, {}", contrast.about, named.join(" ")),
            };
            tests.extend(quantity.test(about, &cells));
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

/// p-values with which `tests` support the claim, and contradict it.
pub(super) fn levels(claim: &Claim, tests: &[Test]) -> [f64; 2] {
    if tests.is_empty() {
        return [1.0, 1.0];
    }
    let most = |level: fn(&Test) -> f64| tests.iter().map(level).fold(0.0, f64::max);
    let least = |level: fn(&Test) -> f64| tests.iter().map(level).fold(1.0, f64::min);
    match claim.holds {
        Holds::Every => [most(|t| t.p[0]), least(|t| t.p_holm[1])],
        Holds::Some => [least(|t| t.p_holm[0]), most(|t| t.p[1])],
    }
}

/// Verdict from the p-values of a claim after Holm's correction over all claims judged together.
pub(super) fn verdict([supported, contradicted]: [f64; 2]) -> Verdict {
    match (supported <= ALPHA, contradicted <= ALPHA) {
        (true, _) => Verdict::Supported,
        (_, true) => Verdict::NotSupported,
        (false, false) => Verdict::Undecided,
    }
}

/// p-values of several claims after Holm's correction. A claim cannot be both supported and contradicted, so it counts
/// once, by the smaller of its two p-values.
pub(super) fn corrected_over_claims(levels: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let least: Vec<f64> = levels.iter().map(|[a, b]| a.min(*b)).collect();
    let corrected = holm(&least).into_iter().zip(levels);
    corrected
        .map(|(level, [supported, contradicted])| match supported <= contradicted {
            true => [level, 1.0],
            false => [1.0, level],
        })
        .collect()
}

/// The test that decides the verdict, or the one closest to deciding it.
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
    /// The metric by which rates are chosen in `run`'s group, and the metric that is judged.
    pub fn metrics(self, run: &Record) -> [&'static Metric; 2] {
        let names = match (self, run.count("val_examples")) {
            (Self::Metric(name), _) => [name, name],
            (Self::Solved(_), _) => ["accuracy", "accuracy"],
            (Self::Selected, 0) => ["best_accuracy", "best_accuracy"],
            (Self::Selected, _) => ["val_accuracy", "selected_accuracy"],
        };
        names.map(|name| Metric::find(name).expect("a name of METRICS"))
    }

    /// Whether the measure is a share, from 0 to 1.
    pub fn is_share(self) -> bool {
        match self {
            Self::Metric(name) => Metric::find(name).is_some_and(|m| m.shown == Shown::Percent),
            Self::Selected | Self::Solved(_) => true,
        }
    }
}

/// A quantity of a claim, with all that its test needs.
struct Quantity<'a> {
    claim: &'a Claim,
    contrast: &'a Contrast,
    choice: RateChoice,
}

impl Quantity<'_> {
    fn axis(&self, flag: &str) -> usize {
        let found = self.claim.axes.iter().position(|axis| axis.flag == flag);
        found.expect("a test walks the names of CLAIMS")
    }

    fn value<'c>(&self, cell: &'c Cell, flag: &str) -> &'c str {
        &cell.at[self.axis(flag)]
    }

    /// Value of `cell` on an axis as a number; for sizes such as `512:64`, the first one.
    fn number(&self, cell: &Cell, flag: &str) -> f64 {
        let first = self.value(cell, flag).split(':').next();
        first.and_then(|n| n.parse().ok()).unwrap_or(f64::NAN)
    }

    /// Cells of the quantity. Unless every cell is required, those without runs of all its mixers are left out.
    fn cells<'c>(&self, cells: &'c Cells<'c>) -> Vec<&'c Cell<'c>> {
        let mixers = || self.contrast.weights.iter().map(|(mixer, _)| *mixer);
        let there = |cell: &Cell| mixers().all(|mixer| cell.sides.contains_key(mixer));
        let present = cells.cells.iter().filter(|cell| cells.whole || there(cell));
        let is = |cell: &Cell, at: &[(&str, &str)]| at.iter().all(|(flag, value)| self.value(cell, flag) == *value);
        match &self.contrast.only {
            None => present.collect(),
            Some(CellFilter::Point(at)) => present.filter(|cell| is(cell, at)).collect(),
            Some(CellFilter::AllBut(at)) => present.filter(|cell| !is(cell, at)).collect(),
            Some(CellFilter::Ends(ends)) => {
                let is_at_end = |cell: &&Cell, (flag, end): &(&str, AxisEnd)| {
                    let all = || present.clone().map(|cell| self.number(cell, flag));
                    let (least, most) = (all().reduce(f64::min), all().reduce(f64::max));
                    let extreme = match end {
                        AxisEnd::Least => least,
                        AxisEnd::Most => most,
                        AxisEnd::Limit => most.filter(|_| least != most),
                    };
                    Some(self.number(cell, flag)) == extreme
                };
                let at_ends = |cell: &&Cell| ends.iter().all(|end| is_at_end(cell, end));
                present.clone().filter(at_ends).collect()
            }
        }
    }

    /// Tests the quantity; `None` if a slope has too few cells.
    fn test(&self, about: String, cells: &[&Cell]) -> Option<Test> {
        let compared = self.compared(cells);
        if compared.is_empty() {
            return None;
        }
        let found = match self.claim.measure {
            Measure::Solved(above) => self.solved(&compared, above),
            Measure::Metric(_) | Measure::Selected => self.means(&compared),
        };
        let within = self.contrast.within;
        let p = match &found {
            Ok(found) => found.evidence.levels(within),
            Err(_) => [1.0, 1.0],
        };
        Some(Test {
            about,
            cells: compared.iter().map(Vec::len).sum(),
            within,
            found,
            p,
            p_holm: p,
            is_level: self.contrast.weights.len() == 1 && self.contrast.over == Aggregate::Cells,
        })
    }

    /// Sets of weighted cells within which numbers are compared: single cells, or the cells that differ only in the
    /// axis of a slope.
    fn compared<'c>(&self, cells: &[&'c Cell<'c>]) -> Vec<Vec<(f64, &'c Cell<'c>)>> {
        let Aggregate::Doublings(flag) = self.contrast.over else {
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
                weighted.map(|(x, cell)| ((x - middle) / square, cell)).collect()
            })
            .collect()
    }

    /// Estimates the quantity from the share of runs that end above the accuracy `above`. A diverged run does not.
    fn solved(&self, compared: &[Vec<(f64, &Cell)>], above: f64) -> Result<Found, Problem> {
        let mixers: Vec<(&str, f64)> = self.contrast.weights.clone();
        let mut missing = Missing::default();
        // Each mixer has one stratum per set of cells and rate. Each cell has one outcome per seed: whether any rate
        // solves it.
        let mut strata = vec![Vec::new(); mixers.len()];
        let mut seeds: BTreeMap<(usize, &[String], usize), bool> = BTreeMap::new();
        for set in compared {
            let rates = self.rates(set).unwrap_or_default();
            let mut of_rate: BTreeMap<u64, Vec<Stratum>> = BTreeMap::new();
            for (_, cell) in set {
                for (side, (mixer, _)) in mixers.iter().enumerate() {
                    let name = || format!("{mixer} at {}", self.name(cell));
                    let group = cell.sides.get(mixer);
                    let mut runs = group.iter().flat_map(|group| &group.runs).filter(|run| has_ended(run)).peekable();
                    if runs.peek().is_none() {
                        missing.runs.push(name());
                    } else if rates.is_empty() {
                        missing.rates.push(name());
                    }
                    for run in runs {
                        let lr = run.number("lr").unwrap_or(f64::NAN);
                        if !rates.contains(&lr) {
                            continue;
                        }
                        let trial = Trial {
                            score: self.score(side, cell),
                            solved: run.number("accuracy").is_some_and(|accuracy| accuracy > above)
                                && run.outcome() != Some(Outcome::Diverged),
                            time: Time::of(run),
                        };
                        *seeds.entry((side, &cell.at, run.count("seed"))).or_default() |= trial.solved;
                        let sides = of_rate.entry(lr.to_bits());
                        sides.or_insert_with(|| vec![Vec::new(); mixers.len()])[side].push(trial);
                    }
                }
            }
            for sides in of_rate.into_values() {
                strata.iter_mut().zip(sides).for_each(|(all, stratum)| all.push(stratum));
            }
        }
        missing.problem()?;
        let mut of_cell: BTreeMap<(usize, &[String]), usize> = BTreeMap::new();
        seeds.keys().for_each(|(side, at, _)| *of_cell.entry((*side, at)).or_default() += 1);
        let fewest = of_cell.into_values().min().unwrap_or(0);
        let too_few = Problem::Seeds(fewest);
        if fewest < FEWEST {
            return Err(too_few);
        }
        let share =
            |trials: &[bool]| Share { solved: trials.iter().filter(|solved| **solved).count(), of: trials.len() };
        let of_mixer = strata.iter().map(|strata| {
            let trials = strata.iter().flatten().map(|trial: &Trial| trial.solved);
            share(&trials.collect::<Vec<_>>())
        });
        let solved: Vec<Share> = of_mixer.collect();
        let mut log_rank = None;
        let evidence = match (self.contrast.over, &mixers[..]) {
            (Aggregate::Doublings(_), mixers) => {
                let parts: Vec<(f64, Vec<Stratum>)> =
                    mixers.iter().zip(strata).map(|((_, weight), strata)| (*weight, strata)).collect();
                Difference::of_slopes(&parts, fewest).map(Evidence::Difference)
            }
            (Aggregate::Cells, [_, _]) => {
                let [first, second] = &strata[..] else {
                    unreachable!("one a mixer");
                };
                let both: Vec<Stratum> = first.iter().zip(second).map(|(a, b)| [&a[..], &b[..]].concat()).collect();
                log_rank = LogRank::of(&both);
                Difference::between(&both, fewest).map(Evidence::Difference)
            }
            (Aggregate::Cells, _) => {
                let seeds: Vec<bool> = seeds.into_values().collect();
                Some(Evidence::Share(share(&seeds), fewest))
            }
        };
        Ok(Found { evidence: evidence.ok_or(too_few)?, solved, log_rank })
    }

    /// Score of a run in the test: 1 and 0 for the two mixers of a difference; for a slope, log2 of the axis value.
    fn score(&self, side: usize, cell: &Cell) -> f64 {
        match self.contrast.over {
            Aggregate::Cells => f64::from(u8::from(side == 0)),
            Aggregate::Doublings(flag) => self.number(cell, flag).log2(),
        }
    }

    /// Estimates the quantity from means over seeds at the best rate. Two mixers or two sizes share no random draws, so
    /// all means are independent.
    fn means(&self, compared: &[Vec<(f64, &Cell)>]) -> Result<Found, Problem> {
        let mut terms = Vec::new();
        let mut missing = Missing::default();
        for set in compared {
            let rates = self.rates(set);
            for (weight, cell) in set {
                for (mixer, side) in &self.contrast.weights {
                    let name = || format!("{mixer} at {}", self.name(cell));
                    let Some(group) = cell.sides.get(mixer) else {
                        missing.runs.push(name());
                        continue;
                    };
                    if rates.as_ref().is_some_and(Vec::is_empty) {
                        missing.rates.push(name());
                        continue;
                    }
                    let tried = |run: &&&Record| {
                        let lr = run.number("lr").unwrap_or(f64::NAN);
                        rates.as_ref().is_none_or(|rates| rates.contains(&lr))
                    };
                    let runs: Vec<&Record> = group.runs.iter().filter(tried).copied().collect();
                    let [by, shown] = self.claim.measure.metrics(group.record);
                    let weight = weight * side / compared.len() as f64;
                    match Reported::of(&runs, by, shown, self.choice) {
                        Ok(reported) if reported.diverged == 0 => terms.push(Block {
                            values: reported.seeds.iter().map(|(_, value)| weight * value).collect(),
                            least: weight.abs() * self.least(group.record),
                        }),
                        Ok(_) | Err(Status::Diverged) => missing.stable.push(name()),
                        Err(_) => missing.runs.push(name()),
                    }
                }
            }
        }
        missing.problem()?;
        let fewest = terms.iter().map(|block| block.values.len()).min().unwrap_or(0);
        let estimate = Estimate::of(&terms).filter(|_| fewest >= FEWEST);
        Ok(Found {
            evidence: Evidence::Means(estimate.ok_or(Problem::Seeds(fewest))?),
            solved: Vec::new(),
            log_rank: None,
        })
    }

    /// Resolution of the measure: one example of the test set for accuracies, 0 otherwise.
    fn least(&self, record: &Record) -> f64 {
        match (self.claim.measure.is_share(), record.count("test_examples")) {
            (true, examples) if examples > 0 => 1.0 / examples as f64,
            _ => 0.0,
        }
    }

    /// Learning rates at which a set of cells is compared: those that all its mixers tried in all its cells. `None` for
    /// any.
    fn rates(&self, set: &[(f64, &Cell)]) -> Option<Vec<f64>> {
        if self.claim.rates == Rates::Own {
            return None;
        }
        let sides = set.iter().flat_map(|(_, cell)| {
            let mixers = self.contrast.weights.iter();
            mixers.filter_map(|(mixer, _)| cell.sides.get(mixer))
        });
        let tried = sides.map(|group| distinct_rates(group.runs.iter().copied().filter(|run| has_ended(run))));
        tried.reduce(|shared, other| {
            let both = shared.into_iter().filter(|lr| other.contains(lr));
            both.collect()
        })
    }

    /// Names a cell by its flags and values.
    fn name(&self, cell: &Cell) -> String {
        let values = self.claim.axes.iter().zip(&cell.at).map(|(axis, value)| format!("{} {value}", axis.flag));
        values.collect::<Vec<_>>().join(" ")
    }
}

/// Reasons why a quantity cannot be estimated.
#[derive(Default)]
struct Missing {
    runs: Vec<String>,
    stable: Vec<String>,
    rates: Vec<String>,
}

impl Missing {
    fn problem(self) -> Result<(), Problem> {
        for (problem, list) in [
            (Problem::Missing as fn(_) -> _, self.runs),
            (Problem::Unstable, self.stable),
            (Problem::NoSharedRate, self.rates),
        ] {
            if !list.is_empty() {
                return Err(problem(list));
            }
        }
        Ok(())
    }
}

/// Whether a run has an accuracy, or has diverged and will never have one.
fn has_ended(run: &Record) -> bool {
    run.number("accuracy").is_some() || run.outcome() == Some(Outcome::Diverged)
}
