//! Plans the runs that would settle an undecided claim: their number, and the command that makes them.

use super::super::presets::FILES;
use super::super::score::distinct_rates;
use super::super::stats::{ALPHA, FEWEST, MOST};
use super::judge::{Lack, Problem};
use super::table::{Aggregate, AxisEnd, CellFilter, Holds, PointColumns};
use super::Judgement;
use crate::config::SETTINGS;
use crate::store::{Column, RunStatus};
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

impl Judgement<'_> {
    /// Runs that would settle the claim, which is undecided.
    pub(super) fn needed_runs(&self) -> NeededRuns {
        let problems = || self.tests.iter().filter_map(|test| test.found.as_ref().err());
        let unstable = problems().find(|problem| matches!(problem, Problem::Lacking(Lack::StableRate, _)));
        let known = self.seeds();
        let (count, reason) = if let Some(problem) = unstable {
            (known.len().max(FEWEST), problem.reason())
        } else if let Some(problem) = problems().next() {
            (FEWEST, problem.reason())
        } else if self.tests.is_empty() {
            let reason = match self.single() {
                Some(flag) => format!("a trend over --{flag} needs two of its values"),
                None => "no cell has runs of all its mixers".to_owned(),
            };
            (FEWEST, reason)
        } else if let Some(seeds) = self.seeds_to_decide() {
            let reason = format!(
                "the interval holds both; {seeds} seeds should decide, were they to come out like these, and no other claim judged"
            );
            (seeds, reason)
        } else {
            let reason = format!(
                "the interval holds both, and {MOST} seeds would not decide: the difference is too small to tell"
            );
            return NeededRuns { runs: None, reason, command: String::new() };
        };
        // The known seeds, continued with the numbers above them.
        let above = known.last().map_or(0, |last| last + 1);
        let seeds: Vec<usize> = known.into_iter().chain(above..).take(count).collect();
        let mut rates = self.rates();
        if unstable.is_some() {
            let lowest = self.runs().filter_map(|run| run.number(Column::LR)).reduce(f64::min).unwrap_or(1e-4);
            rates.push(format!("{:.2e}", lowest / 4.0));
        }
        NeededRuns { runs: Some(self.missing(&seeds, &rates)), reason, command: self.command(&seeds, &rates) }
    }

    fn seeds(&self) -> Vec<usize> {
        let seeds: BTreeSet<usize> = self.runs().map(|run| run.count(Column::SEED)).collect();
        seeds.into_iter().collect()
    }

    /// Largest number of seeds that an open quantity needs; the smallest if one quantity is enough.
    fn seeds_to_decide(&self) -> Option<usize> {
        let open = self.tests.iter().filter(|test| test.p[0] > ALPHA);
        let needed = open.filter_map(|test| {
            let found = test.found.as_ref().ok()?;
            Some(found.evidence.seeds_to_decide(test.within))
        });
        match self.claim.holds {
            Holds::Every => needed.max_by_key(|seeds| seeds.unwrap_or(usize::MAX))?,
            Holds::Some => needed.flatten().min(),
        }
    }

    /// Learning rates as typed after `--lr`, one element per rate.
    fn rates(&self) -> Vec<String> {
        let (count, typed) = self.claim.task.paper_rates;
        // At the paper's sizes its own rates, otherwise those of the existing runs.
        if self.paper {
            // The word `paper` stands for `count` rates; an empty string keeps the recipe's own rate.
            return match typed {
                "" => vec![String::new()],
                word => vec![word.to_owned(); count],
            };
        }
        let mut known = distinct_rates(self.runs().filter(|run| run.number(Column::LR).is_some()));
        known.extend(self.claim.contrasts.iter().flat_map(|contrast| &contrast.rates));
        known.sort_by(f64::total_cmp);
        known.dedup();
        known.iter().map(f64::to_string).collect()
    }

    /// Values of an axis in the cells.
    fn values(&self, axis: usize) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for cell in &self.cells {
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
        let mut flags = self.claim.contrasts.iter().flat_map(|contrast| {
            let slope = match contrast.over {
                Aggregate::Doublings(flag) => Some(flag),
                Aggregate::Cells | Aggregate::Beyond(_) => None,
            };
            let ends = match &contrast.only {
                Some(CellFilter::Ends(ends)) => &ends[..],
                _ => &[],
            };
            let limits = ends.iter().filter(|(_, end)| *end == AxisEnd::Limit);
            slope.into_iter().chain(limits.map(|(flag, _)| *flag))
        });
        flags.find(|flag| {
            let axis = self.claim.axes.iter().position(|axis| axis.flag == *flag);
            axis.is_some_and(|axis| self.values(axis).len() == 1)
        })
    }

    /// Values of each axis for the command: those of the cells, plus a second value where a slope has only one.
    fn axes(&self) -> Vec<Vec<String>> {
        let single = self.single();
        let of_axis = |(i, axis): (usize, &PointColumns)| {
            let mut values: Vec<String> = self.values(i).into_iter().map(str::to_owned).collect();
            if single == Some(axis.flag) {
                let twice = values[0].parse::<usize>().map(|value| 2 * value);
                values.extend(twice.map(|value| value.to_string()));
            }
            values
        };
        self.claim.axes.iter().enumerate().map(of_axis).collect()
    }

    /// Number of the command's runs that have no result.
    fn missing(&self, seeds: &[usize], rates: &[String]) -> usize {
        let points: usize = self.axes().iter().map(Vec::len).product();
        let wanted = points * self.claim.mixers().len() * seeds.len() * rates.len();
        let mut done: BTreeMap<(&[String], &str, usize), BTreeSet<u64>> = BTreeMap::new();
        for cell in &self.cells {
            for (mixer, group) in &cell.sides {
                let ended = group.runs.iter().filter(|run| run.status() == Some(RunStatus::Done));
                for run in ended.filter(|run| seeds.contains(&run.count(Column::SEED))) {
                    let rates = done.entry((&cell.at[..], *mixer, run.count(Column::SEED))).or_default();
                    rates.insert(run.number(Column::LR).unwrap_or(f64::NAN).to_bits());
                }
            }
        }
        let done: usize = done.values().map(|lrs| lrs.len().min(rates.len())).sum();
        wanted.saturating_sub(done)
    }

    fn command(&self, seeds: &[usize], rates: &[String]) -> String {
        let (claim, kind) = (self.claim, &self.kind);
        let mut words = vec!["dsf sweep".to_owned()];
        let mut flag = |name: &str, value: &str| {
            if !value.is_empty() {
                words.push(format!("--{name} {value}"));
            }
        };
        flag("task", claim.task.name);
        flag("preset", kind.preset);
        if claim.task.has_protocols {
            flag("protocol", kind.protocol);
        }
        if !self.paper {
            flag("tokenizer", kind.tokenizer);
        }
        // The recipe generates the examples of some datasets. A difference in the column `data` is typed below.
        if claim.task.released && !kind.differences.iter().any(|d| d.name == "data") {
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
        let typed: Vec<String> = seeds.iter().map(usize::to_string).collect();
        match self.runs().next() {
            None => flag("seeds", &seeds.len().to_string()),
            Some(_) => flag("seed", &typed.join(",")),
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
        let (what, list) = match self {
            Self::Seeds(have) => return format!("a verdict needs {FEWEST} seeds, and there are {have}"),
            Self::Lacking(Lack::Runs, list) => ("no result of", list),
            Self::Lacking(Lack::StableRate, list) => {
                ("at every rate a seed diverged, so that a lower one is needed:", list)
            }
            Self::Lacking(Lack::SharedRate, list) => ("no learning rate in common:", list),
        };
        format!("{what} {}", few(list))
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
