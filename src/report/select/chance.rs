//! What a guess comes to: the accuracy that a picture sets beside what was learnt.

use super::super::grid::Baseline;
use super::super::Group;
use crate::config::Objective;
use crate::store::{Metric, Record, Shown};
use crate::tasks::lra::LraDataset;

/// As legends name it.
pub(super) const CHANCE: &str = "chance";
/// As tables and legends name it.
pub(super) const MAJORITY: &str = "majority";

/// The accuracy of a guess among all answers: 1/V where a token is the answer, one in the number of classes where a
/// class is; `None` where the next token of a text is, or sizes are not known.
pub(super) fn chance(run: &Record) -> Option<f64> {
    let task = crate::tasks::find(run.text("task")).ok()?;
    let answers = match task.objective {
        Objective::PerToken => run.count("vocab_size"),
        Objective::Pooled => {
            let named = |dataset: &LraDataset| dataset.name() == run.text("dataset");
            LraDataset::ALL.into_iter().find(named)?.classes()
        }
        Objective::NextToken => return None,
    };
    (answers > 0).then(|| 1.0 / answers as f64)
}

/// [`chance`] as a baseline of `columns` columns.
pub(super) fn chance_of(run: &Record, columns: usize) -> Vec<Baseline> {
    let level = chance(run).into_iter();
    let baseline = level.map(|level| Baseline {
        name: CHANCE,
        levels: vec![vec![level]; columns],
    });
    baseline.collect()
}

/// The baselines of `groups`, which share a task, in a grid of `columns` columns of `metric`.
pub(super) fn baselines(groups: &[&Group], metric: &Metric, columns: usize) -> Vec<Baseline> {
    if metric.shown != Shown::Percent {
        return Vec::new();
    }
    let runs = || groups.iter().flat_map(|group| &group.runs);
    let mut majorities: Vec<f64> = runs().filter_map(|run| run.number(MAJORITY)).collect();
    majorities.sort_by(f64::total_cmp);
    majorities.dedup();
    // Examples of one task may be drawn anew by each seed.
    if let [low, .., high] = majorities[..] {
        majorities = vec![low, high];
    }
    let chances: Vec<f64> = runs().find_map(|run| chance(run)).into_iter().collect();
    let named = [(CHANCE, chances), (MAJORITY, majorities)];
    let known = named.into_iter().filter(|(_, levels)| !levels.is_empty());
    known
        .map(|(name, levels)| Baseline {
            name,
            levels: vec![levels; columns],
        })
        .collect()
}
