//! Plans the runs that would settle an undecided claim: their number, and the command that makes them.

use super::super::presets::FILES;
use super::super::stats::{ALPHA, FEWEST, MOST};
use super::judge::{Problem, Test};
use super::study::{Cell, StudyKey};
use super::table::{Aggregate, AxisEnd, CellFilter, Claim, Holds};
use crate::config::SETTINGS;
use crate::store::{Record, RunStatus};
use std::collections::{BTreeMap, BTreeSet};

/// Runs that would settle a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NeededRuns {
    /// Number of runs; `None` if even [`MOST`] seeds would not settle the claim.
    pub runs: Option<usize>,
    /// Reason why they are needed.
    pub reason: String,
    /// Command that makes them; it skips finished runs.
    pub command: String,
}

/// Plans runs for one claim in one study.
pub(super) struct RunPlanner<'a> {
    pub claim: &'a Claim,
    pub kind: &'a StudyKey<'a>,
    pub cells: &'a [Cell<'a>],
    /// Whether to plan the paper's learning rates; otherwise those of the existing runs.
    pub paper: bool,
}

impl RunPlanner<'_> {
    /// Runs that would settle `tests`, which are undecided.
    pub fn needed_runs(&self, tests: &[Test]) -> NeededRuns {
        let problems: Vec<&Problem> = tests.iter().filter_map(|t| t.found.as_ref().err()).collect();
        let unstable = problems.iter().find_map(|problem| match problem {
            Problem::Unstable(list) => Some(list),
            _ => None,
        });
        let known = self.seeds();
        let (seeds, reason) = match (unstable, problems.first()) {
            (Some(list), _) => (
                known.len().max(FEWEST),
                format!(
                    "at every rate a seed diverged, so that a lower one is needed: {}",
                    few(list)
                ),
            ),
            (None, Some(problem)) => (FEWEST, problem.reason()),
            (None, None) if tests.is_empty() => (
                FEWEST,
                match self.single() {
                    Some(flag) => format!("a trend over --{flag} needs two of its values"),
                    None => "no cell has runs of all its mixers".to_owned(),
                },
            ),
            (None, None) => match self.seeds_to_decide(tests) {
                Some(seeds) => (
                    seeds,
                    format!("the interval holds both; {seeds} seeds should decide, were they to come out like these"),
                ),
                None => {
                    return NeededRuns {
                        runs: None,
                        reason: format!(
                            "the interval holds both, and {MOST} seeds would not decide: the difference is too small to tell"
                        ),
                        command: String::new(),
                    }
                }
            },
        };
        let seeds = Self::first(&known, seeds);
        let mut rates = self.rates();
        if unstable.is_some() {
            let lowest = self.runs().filter_map(|run| run.number("lr")).reduce(f64::min).unwrap_or(1e-4);
            rates.push(format!("{:.2e}", lowest / 4.0));
        }
        NeededRuns { runs: Some(self.missing(&seeds, &rates)), reason, command: self.command(&seeds, &rates) }
    }

    fn runs(&self) -> impl Iterator<Item = &Record> {
        let groups = self.cells.iter().flat_map(|cell| cell.sides.values());
        groups.flat_map(|group| group.runs.iter().copied())
    }

    fn seeds(&self) -> Vec<usize> {
        let seeds: BTreeSet<usize> = self.runs().map(|run| run.count("seed")).collect();
        seeds.into_iter().collect()
    }

    /// Largest number of seeds that an open quantity needs; the smallest if one quantity is enough.
    fn seeds_to_decide(&self, tests: &[Test]) -> Option<usize> {
        let open = tests.iter().filter(|test| test.p[0] > ALPHA);
        let needed = open.filter_map(|test| {
            let found = test.found.as_ref().ok()?;
            Some(found.evidence.seeds_to_decide(test.within))
        });
        match self.claim.holds {
            Holds::Every => needed.max_by_key(|seeds| seeds.unwrap_or(usize::MAX))?,
            Holds::Some => needed.flatten().min(),
        }
    }

    /// The first `count` of the `known` seeds, continued with the numbers above them.
    fn first(known: &[usize], count: usize) -> Vec<usize> {
        let last = known.last().map_or(0, |last| last + 1);
        known.iter().copied().chain(last..).take(count).collect()
    }

    /// Learning rates as typed after `--lr`, one element per rate.
    fn rates(&self) -> Vec<String> {
        let (count, typed) = self.claim.paper_rates;
        if self.paper {
            // The word `paper` stands for `count` rates; an empty string keeps the recipe's own rate.
            return match typed {
                "" => vec![String::new()],
                word => vec![word.to_owned(); count],
            };
        }
        let mut rates: Vec<f64> = self.runs().filter_map(|run| run.number("lr")).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        rates.iter().map(f64::to_string).collect()
    }

    /// Values of an axis in the cells.
    fn values(&self, axis: usize) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for cell in self.cells {
            if !values.contains(&cell.at[axis].as_str()) {
                values.push(&cell.at[axis]);
            }
        }
        // Numbers are sorted by size; other values keep their order.
        values.sort_by(|x, y| match (x.parse::<f64>(), y.parse::<f64>()) {
            (Ok(x), Ok(y)) => x.total_cmp(&y),
            _ => std::cmp::Ordering::Equal,
        });
        values
    }

    /// Flag of the axis over which a slope or a limit is needed, if it has only one value.
    fn single(&self) -> Option<&'static str> {
        let mut contrasts = self.claim.contrasts.iter();
        contrasts.find_map(|contrast| {
            let flag = match (&contrast.over, &contrast.only) {
                (Aggregate::Doublings(flag), _) => *flag,
                (_, Some(CellFilter::Ends(ends))) => ends.iter().find(|(_, end)| *end == AxisEnd::Limit)?.0,
                _ => return None,
            };
            let axis = self.claim.axes.iter().position(|axis| axis.flag == flag)?;
            (self.values(axis).len() == 1).then_some(flag)
        })
    }

    /// Values of each axis for the command: those of the cells, plus a second value where a slope has only one.
    fn axes(&self) -> Vec<Vec<String>> {
        let single = self.single();
        let axes = self.claim.axes.iter().enumerate();
        axes.map(|(i, axis)| {
            let mut values: Vec<String> = self.values(i).into_iter().map(str::to_owned).collect();
            if single == Some(axis.flag) {
                let twice = values[0].parse::<usize>().map(|value| 2 * value);
                values.extend(twice.map(|value| value.to_string()));
            }
            values
        })
        .collect()
    }

    /// Number of the command's runs that have no result.
    fn missing(&self, seeds: &[usize], rates: &[String]) -> usize {
        let points: usize = self.axes().iter().map(Vec::len).product();
        let wanted = points * self.claim.mixers().len() * seeds.len() * rates.len();
        let mut done: BTreeMap<(&[String], &str, usize), BTreeSet<u64>> = BTreeMap::new();
        for cell in self.cells {
            for (mixer, group) in &cell.sides {
                for run in &group.runs {
                    let seed = run.count("seed");
                    if run.status() == Some(RunStatus::Done) && seeds.contains(&seed) {
                        let lr = run.number("lr").unwrap_or(f64::NAN);
                        let key = (&cell.at[..], *mixer, seed);
                        done.entry(key).or_default().insert(lr.to_bits());
                    }
                }
            }
        }
        let done: usize = done.values().map(|lrs| lrs.len().min(rates.len())).sum();
        wanted.saturating_sub(done)
    }

    fn command(&self, seeds: &[usize], rates: &[String]) -> String {
        let (claim, kind) = (self.claim, self.kind);
        let mut words = vec!["dsf sweep".to_owned()];
        let mut flag = |name: &str, value: &str| {
            if !value.is_empty() {
                words.push(format!("--{name} {value}"));
            }
        };
        let task = claim.runs.iter().find(|(column, _)| *column == "task");
        flag("task", task.map_or("", |(_, tasks)| tasks[0]));
        flag("preset", kind.preset);
        if claim.has_protocols {
            flag("protocol", kind.protocol);
        }
        if !self.paper {
            flag("tokenizer", kind.tokenizer);
        }
        // The recipe generates the examples of some datasets. A difference in the column `data` is typed below.
        if claim.released && !kind.differences.iter().any(|d| d.name == "data") {
            flag("data", FILES);
        }
        for difference in &kind.differences {
            if let Some(name) = typed(difference.name) {
                flag(name, &difference.value);
            }
        }
        flag("mixer", &claim.mixers().join(","));
        for (axis, values) in claim.axes.iter().zip(self.axes()) {
            flag(axis.flag, &values.join(","));
        }
        let mut rates = rates.to_vec();
        rates.dedup();
        rates.retain(|rate| !rate.is_empty());
        flag("lr", &rates.join(","));
        match self.seeds().is_empty() {
            true => flag("seeds", &seeds.len().to_string()),
            false => {
                let seeds: Vec<String> = seeds.iter().map(usize::to_string).collect();
                flag("seed", &seeds.join(","));
            }
        }
        if self.runs().any(|run| run.status() == Some(RunStatus::Failed)) {
            words.push("--retry-failed".to_owned());
        }
        words.join(" ")
    }
}

/// Flag of a column, if it has one.
fn typed(column: &str) -> Option<&'static str> {
    let mut settings = SETTINGS.typed();
    let setting = settings.find(|setting| setting.column().as_deref() == Some(column));
    setting.map(|setting| setting.name)
}

impl Problem {
    fn reason(&self) -> String {
        match self {
            Self::Missing(list) => format!("no result of {}", few(list)),
            Self::Unstable(list) => format!("at every rate a seed diverged: {}", few(list)),
            Self::NoSharedRate(list) => format!("no learning rate in common: {}", few(list)),
            Self::Seeds(have) => format!("a verdict needs {FEWEST} seeds, and there are {have}"),
        }
    }
}

/// The first two of a list, and the number of the others.
fn few(list: &[String]) -> String {
    let shown: Vec<&str> = list.iter().take(2).map(String::as_str).collect();
    match list.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{}, and {more} more", shown.join(", ")),
    }
}
