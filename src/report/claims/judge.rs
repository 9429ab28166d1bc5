//! Judges a claim from the cells of a study: a test of a difference or a slope for each of its quantities.

use super::super::grid::rate;
use super::super::score::{distinct_rates, GroupStatus, RateChoice, Reported};
use super::super::solved::{LogRank, Share, Stratum, Time, Trial};
use super::super::stats::{holm, resolution, Estimate, Evidence, SeedBlock, Within, FEWEST};
use super::super::RunGroup;
use super::study::StudyCell;
use super::table::{Aggregate, AxisEnd, CellFilter, Claim, Contrast, Holds, Measure, RateRule};
use crate::store::{Column, Metric, MetricFormat, Outcome, Record};
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
#[derive(Debug)]
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
#[derive(Debug)]
pub(super) struct Found {
    /// A sum of means over seeds; a difference or a slope of the share of runs that solve the task; or the share of
    /// seeds that solve it at any rate.
    pub evidence: Box<dyn Evidence>,
    /// Seeds of the cell and mixer with the fewest.
    pub seeds: usize,
    /// The runs of each mixer that solve the task, where runs are counted.
    pub solved: Vec<Share>,
    /// Log-rank test of the time to a solution, where two mixers are compared and times are known.
    pub log_rank: Option<LogRank>,
}

/// Reason why there is no estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// These mixers at these points lack something.
    Lacking(Lack, Vec<String>),
    /// There are fewer seeds than a verdict needs.
    Seeds(usize),
}

/// Things that a mixer may lack at a point, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lack {
    /// Runs.
    Runs,
    /// A learning rate at which no seed diverged.
    StableRate,
    /// A learning rate that all other mixers and cells tried.
    SharedRate,
}

/// A thing that is lacking, and the mixer and point that lack it.
type Lacking = (Lack, String);

impl Problem {
    /// Everything in `each`; if something is lacking, the problem is of the most important kind.
    fn unless_whole<T>(each: impl Iterator<Item = Result<T, Lacking>>) -> Result<Vec<T>, Self> {
        let (mut found, mut lacking) = (Vec::new(), BTreeMap::<Lack, Vec<String>>::new());
        for result in each {
            match result {
                Ok(one) => found.push(one),
                Err((lack, name)) => lacking.entry(lack).or_default().push(name),
            }
        }
        lacking.pop_first().map_or(Ok(found), |(lack, names)| Err(Self::Lacking(lack, names)))
    }
}

impl Test {
    /// p-values with which the test supports a claim, and contradicts it.
    pub fn levels(&self, holds: Holds) -> [f64; 2] {
        match holds {
            Holds::Every => [self.p[0], self.p_holm[1]],
            Holds::Some => [self.p_holm[0], self.p[1]],
        }
    }
}

/// Tests of every quantity of `claim` in `cells`, at each point of the axes `apart`. If the cells are the `whole` grid,
/// every mixer is required in every cell; otherwise only those with runs are judged.
pub(super) fn tests(claim: &Claim, cells: &[StudyCell], whole: bool, apart: &[&str], choice: RateChoice) -> Vec<Test> {
    let mut tests = Vec::new();
    for contrast in &claim.contrasts {
        let quantity = ClaimQuantity { claim, contrast, choice };
        let mut units: BTreeMap<Vec<&str>, Vec<&StudyCell>> = BTreeMap::new();
        for cell in quantity.cells(cells, whole) {
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
    for side in [0, 1] {
        holm(tests.iter_mut().map(|test: &mut Test| &mut test.p_holm[side]));
    }
    tests
}

/// p-values with which `tests` support the claim, and contradict it.
pub(super) fn levels(claim: &Claim, tests: &[Test]) -> [f64; 2] {
    if tests.is_empty() {
        return [1.0, 1.0];
    }
    let of = |side: usize| tests.iter().map(move |test| test.levels(claim.holds)[side]);
    match claim.holds {
        Holds::Every => [of(0).fold(0.0, f64::max), of(1).fold(1.0, f64::min)],
        Holds::Some => [of(0).fold(1.0, f64::min), of(1).fold(0.0, f64::max)],
    }
}

/// The test that decides the verdict, or the one closest to deciding it.
pub(super) fn decisive<'a>(claim: &Claim, tests: &'a [Test], verdict: Verdict) -> Option<&'a Test> {
    let found = tests.iter().filter(|test| test.found.is_ok());
    let side = usize::from(verdict == Verdict::NotSupported);
    let by = |a: &&Test, b: &&Test| a.p[side].total_cmp(&b.p[side]);
    // The weakest where all quantities must agree, the strongest where one is enough.
    if (claim.holds == Holds::Every) == (side == 0) {
        found.max_by(by)
    } else {
        found.min_by(by)
    }
}

impl Measure {
    /// The metric by which rates are chosen in `run`'s group, and the metric that is judged.
    pub fn metrics(self, run: &Record) -> [&'static Metric; 2] {
        let names = match (self, run.count(Column::VAL_EXAMPLES)) {
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
            Self::Metric(name) => Metric::find(name).is_some_and(|m| m.shown == MetricFormat::Percent),
            Self::Selected | Self::Solved(_) => true,
        }
    }
}

/// Runs of one mixer in one cell, at the rates at which its set of cells is compared.
struct CellSample<'c> {
    set: usize,
    /// Index of its mixer in the contrast.
    side: usize,
    /// The mixer and the cell.
    name: String,
    cell: &'c StudyCell<'c>,
    weight: f64,
    group: &'c RunGroup<'c>,
    runs: Vec<&'c Record>,
}

/// A quantity of a claim, with all that its test needs.
struct ClaimQuantity<'a> {
    claim: &'a Claim,
    contrast: &'a Contrast,
    choice: RateChoice,
}

impl ClaimQuantity<'_> {
    fn axis(&self, flag: &str) -> usize {
        let found = self.claim.axes.iter().position(|axis| axis.flag == flag);
        found.expect("a test walks the names of CLAIMS")
    }

    fn value<'c>(&self, cell: &'c StudyCell, flag: &str) -> &'c str {
        &cell.at[self.axis(flag)]
    }

    /// Value of `cell` on an axis as a number; for sizes such as `512:64`, the first one.
    fn number(&self, cell: &StudyCell, flag: &str) -> f64 {
        let first = self.value(cell, flag).split(':').next();
        first.and_then(|n| n.parse().ok()).unwrap_or(f64::NAN)
    }

    /// Whether `cell` has all of these values.
    fn is_at(&self, cell: &StudyCell, values: &[(&str, &str)]) -> bool {
        values.iter().all(|(flag, value)| self.value(cell, flag) == *value)
    }

    /// Cells of the quantity. Unless every cell is required, those without runs of all its mixers are left out.
    fn cells<'c>(&self, cells: &'c [StudyCell<'c>], whole: bool) -> Vec<&'c StudyCell<'c>> {
        let there = |cell: &StudyCell| self.contrast.weights.iter().all(|(mixer, _)| cell.sides.contains_key(mixer));
        let present = cells.iter().filter(|cell| whole || there(cell));
        match &self.contrast.only {
            None => present.collect(),
            Some(CellFilter::Point(at)) => present.filter(|cell| self.is_at(cell, at)).collect(),
            Some(CellFilter::AllBut(at)) => present.filter(|cell| !self.is_at(cell, at)).collect(),
            Some(CellFilter::Ends(ends)) => {
                let is_at_end = |cell: &&StudyCell, (flag, end): &(&str, AxisEnd)| {
                    let all = || present.clone().map(|cell| self.number(cell, flag));
                    let (least, most) = (all().reduce(f64::min), all().reduce(f64::max));
                    let extreme = match end {
                        AxisEnd::Least => least,
                        AxisEnd::Most => most,
                        AxisEnd::Limit => most.filter(|_| least != most),
                    };
                    Some(self.number(cell, flag)) == extreme
                };
                let at_ends = |cell: &&StudyCell| ends.iter().all(|end| is_at_end(cell, end));
                present.clone().filter(at_ends).collect()
            }
        }
    }

    /// Tests the quantity; `None` if a slope has too few cells.
    fn test(&self, about: String, cells: &[&StudyCell]) -> Option<Test> {
        let compared = self.compared(cells);
        if compared.is_empty() {
            return None;
        }
        let samples = self.samples(&compared).into_iter();
        let found = match self.claim.measure {
            Measure::Solved(above) => Problem::unless_whole(samples).and_then(|samples| self.solved(&samples, above)),
            Measure::Metric(_) | Measure::Selected => {
                let blocks = samples.map(|sample| self.block(&sample?, compared.len()));
                Problem::unless_whole(blocks).and_then(|blocks| Self::means(&blocks))
            }
        };
        let within = self.contrast.within;
        let p = found.as_ref().map_or([1.0, 1.0], |found| found.evidence.levels(within));
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
    fn compared<'c>(&self, cells: &[&'c StudyCell<'c>]) -> Vec<Vec<(f64, &'c StudyCell<'c>)>> {
        let flag = match self.contrast.over {
            Aggregate::Doublings(flag) => flag,
            // Without cells of both kinds nothing can be compared.
            Aggregate::Beyond(at) if cells.iter().all(|cell| self.is_at(cell, at) == self.is_at(cells[0], at)) => {
                return Vec::new();
            }
            Aggregate::Cells | Aggregate::Beyond(_) => return cells.iter().map(|cell| vec![(1.0, *cell)]).collect(),
        };
        let axis = self.axis(flag);
        let mut lines: BTreeMap<Vec<&str>, Vec<(f64, &StudyCell)>> = BTreeMap::new();
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

    /// Runs of every mixer in every cell of the sets; an error where a mixer has no run, or none at a rate that all
    /// mixers of its set tried.
    fn samples<'c>(&self, compared: &[Vec<(f64, &'c StudyCell<'c>)>]) -> Vec<Result<CellSample<'c>, Lacking>> {
        let mut samples = Vec::new();
        for (set, cells) in compared.iter().enumerate() {
            let rates = self.rates(cells);
            for (weight, cell) in cells {
                for (side, (mixer, factor)) in self.contrast.weights.iter().enumerate() {
                    let own = self.contrast.rates.get(side);
                    let is_compared = |run: &&&Record| match own {
                        Some(own) => *own == lr(run),
                        None => rates.as_ref().is_none_or(|rates| rates.contains(&lr(run))),
                    };
                    let of_rate = own.map_or(String::new(), |own| format!(" lr {}", rate(*own)));
                    let name = format!("{mixer} at {}{of_rate}", self.name(cell));
                    let ended = |group: &RunGroup| {
                        let mut ended = group.runs.iter().filter(|run| has_ended(run));
                        ended.any(|run| own.is_none() || is_compared(&run))
                    };
                    let group = cell.sides.get(mixer).filter(|group| ended(group));
                    samples.push(match group {
                        None => Err((Lack::Runs, name)),
                        Some(_) if rates.as_ref().is_some_and(Vec::is_empty) => Err((Lack::SharedRate, name)),
                        Some(group) => {
                            let runs = group.runs.iter().filter(is_compared).copied().collect();
                            Ok(CellSample { set, side, name, cell, weight: weight * factor, group, runs })
                        }
                    });
                }
            }
        }
        samples
    }

    /// Estimates the quantity from the share of runs that end above the accuracy `above`. A diverged run does not.
    fn solved(&self, samples: &[CellSample], above: f64) -> Result<Found, Problem> {
        let mixers = &self.contrast.weights;
        // Each mixer has one stratum per set of cells and rate. Each cell has one outcome per seed: whether any rate
        // solves it.
        let mut by_rate: BTreeMap<(usize, u64), Vec<Stratum>> = BTreeMap::new();
        let mut by_seed: BTreeMap<(usize, &[String]), BTreeMap<usize, bool>> = BTreeMap::new();
        let mut beyond = BTreeMap::new();
        for sample in samples {
            if let Aggregate::Beyond(at) = self.contrast.over {
                beyond.insert(sample.set, !self.is_at(sample.cell, at));
            }
            let seeds = by_seed.entry((sample.side, &sample.cell.at)).or_default();
            for run in sample.runs.iter().filter(|run| has_ended(run)) {
                let trial = Trial {
                    score: self.score(sample),
                    solved: run.number(Column::ACCURACY).is_some_and(|accuracy| accuracy > above)
                        && run.outcome() != Some(Outcome::Diverged),
                    time: Time::of(run),
                };
                *seeds.entry(run.count(Column::SEED)).or_default() |= trial.solved;
                let sides = by_rate.entry((sample.set, lr(run).to_bits()));
                sides.or_insert_with(|| vec![Vec::new(); mixers.len()])[sample.side].push(trial);
            }
        }
        let seeds = by_seed.values().map(BTreeMap::len).min().unwrap_or(0);
        if seeds < FEWEST {
            return Err(Problem::Seeds(seeds));
        }
        let of_side = |side: usize| by_rate.values().map(move |sides| sides[side].clone());
        let solved = (0..mixers.len()).map(|side| {
            let trials = of_side(side).flatten();
            trials.fold(Share::default(), |share, trial| share.count(trial.solved))
        });
        let mut log_rank = None;
        let evidence: Option<Box<dyn Evidence>> = match (self.contrast.over, mixers.len()) {
            (Aggregate::Doublings(_), _) => {
                let parts = mixers.iter().enumerate().map(|(side, (_, weight))| (*weight, of_side(side).collect()));
                Estimate::of_slopes(&parts.collect::<Vec<_>>(), seeds).map(|slope| Box::new(slope) as _)
            }
            (Aggregate::Cells, 2) => {
                let both: Vec<Stratum> = by_rate.values().map(|sides| sides.concat()).collect();
                log_rank = LogRank::of(&both);
                Estimate::between(&both, seeds).map(|difference| Box::new(difference) as _)
            }
            (Aggregate::Beyond(_), _) => {
                let with = |is_beyond: bool| -> Vec<Stratum> {
                    let own = by_rate.iter().filter(|((set, _), _)| beyond[set] == is_beyond);
                    own.map(|(_, sides)| sides.concat()).collect()
                };
                let both = Estimate::between(&with(true), seeds).zip(Estimate::between(&with(false), seeds));
                both.map(|(beyond, there)| Box::new(beyond.minus(&there)) as _)
            }
            (Aggregate::Cells, _) => {
                let outcomes = by_seed.values().flat_map(BTreeMap::values);
                Some(Box::new(outcomes.fold(Share::default(), |share, solved| share.count(*solved))))
            }
        };
        let evidence = evidence.ok_or(Problem::Seeds(seeds))?;
        Ok(Found { evidence, seeds, solved: solved.collect(), log_rank })
    }

    /// Score of a run in the test: 1 and 0 for the two mixers of a difference; for a slope, log2 of the axis value.
    fn score(&self, sample: &CellSample) -> f64 {
        match self.contrast.over {
            Aggregate::Cells | Aggregate::Beyond(_) => f64::from(u8::from(sample.side == 0)),
            Aggregate::Doublings(flag) => self.number(sample.cell, flag).log2(),
        }
    }

    /// Numbers of a sample at its best rate, weighted for a mean over `sets` of cells.
    fn block(&self, sample: &CellSample, sets: usize) -> Result<SeedBlock, Lacking> {
        let [by, shown] = self.claim.measure.metrics(sample.group.record);
        let weight = sample.weight / sets as f64;
        match Reported::of(&sample.runs, by, shown, self.choice) {
            Ok(reported) if reported.diverged == 0 => Ok(SeedBlock {
                values: reported.seeds.iter().map(|(_, value)| weight * value).collect(),
                least: weight.abs() * resolution(sample.group.record, self.claim.measure.is_share()),
            }),
            Ok(_) | Err(GroupStatus::Diverged) => Err((Lack::StableRate, sample.name.clone())),
            Err(_) => Err((Lack::Runs, sample.name.clone())),
        }
    }

    /// Estimates the quantity as a sum of means over seeds. Two mixers or two sizes share no random draws, so all means
    /// are independent.
    fn means(blocks: &[SeedBlock]) -> Result<Found, Problem> {
        let seeds = blocks.iter().map(|block| block.values.len()).min().unwrap_or(0);
        let estimate = Estimate::of_enough(blocks).ok_or(Problem::Seeds(seeds))?;
        Ok(Found { evidence: Box::new(estimate), seeds, solved: Vec::new(), log_rank: None })
    }

    /// Learning rates at which a set of cells is compared: those that all its mixers tried in all its cells. `None` for
    /// any.
    fn rates(&self, set: &[(f64, &StudyCell)]) -> Option<Vec<f64>> {
        if self.claim.task.rates == RateRule::Own || !self.contrast.rates.is_empty() {
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
    fn name(&self, cell: &StudyCell) -> String {
        let values = self.claim.axes.iter().zip(&cell.at).map(|(axis, value)| format!("{} {value}", axis.flag));
        values.collect::<Vec<_>>().join(" ")
    }
}

/// Whether a run has an accuracy, or has diverged and will never have one.
fn has_ended(run: &Record) -> bool {
    run.number(Column::ACCURACY).is_some() || run.outcome() == Some(Outcome::Diverged)
}

fn lr(run: &Record) -> f64 {
    run.number(Column::LR).unwrap_or(f64::NAN)
}
