//! What is reached without learning: the accuracies that a picture sets beside those of models.

use super::super::grid::{fact, Baseline, Grid};
use super::super::Group;
use crate::config::{At, Objective, TaskConfig, SETTINGS};
use crate::store::{place, Field, Metric, Record, Shown};
use crate::tasks::lra::LraDataset;
use crate::tasks::NoRecall;
use serde_json::Map;

/// A guess among all classes, as legends name it.
pub(super) const CHANCE: &str = "chance";
/// The best accuracy without recall, as legends name it.
pub(super) const NO_RECALL: &str = "no recall";
/// The majority-class baseline, as tables and legends name it.
pub(super) const MAJORITY: &str = "majority";

/// The accuracy that needs no learning, and its name: the best accuracy without recall where tokens are the answers, a guess among
/// the classes where a class is; `None` where the next token of a text is, or sizes are not known.
pub(super) fn chance(run: &Record) -> Option<(&'static str, f64)> {
    let task = crate::tasks::find(run.text("task")).ok()?;
    match task.objective {
        Objective::PerToken => Some((NO_RECALL, without_recall(run)?.accuracy)),
        Objective::Pooled => {
            let named = |dataset: &LraDataset| dataset.name() == run.text("dataset");
            let classes = LraDataset::ALL.into_iter().find(named)?.classes();
            Some((CHANCE, 1.0 / classes as f64))
        }
        Objective::NextToken => None,
    }
}

/// The best accuracy without recall on the task of `run`, whose settings its columns hold.
fn without_recall(run: &Record) -> Option<NoRecall> {
    let entry = crate::tasks::find(run.text("task")).ok()?;
    let mut config = TaskConfig::new(entry.name, &Map::new());
    for setting in SETTINGS.iter() {
        let At::Task(field) = setting.at else {
            continue;
        };
        let value = run.at(place(&setting.column()?)?);
        if entry.fields.contains(&field) && *value != Field::Absent {
            config.set(field, value.json());
        }
    }
    config.read().ok()?.without_recall()
}

/// [`chance`] as a baseline of `columns` columns.
pub(super) fn chance_of(run: &Record, columns: usize) -> Vec<Baseline> {
    let level = chance(run).into_iter();
    let baseline = level.map(|(name, level)| Baseline {
        name,
        levels: vec![vec![level]; columns],
    });
    baseline.collect()
}

/// Says below `grid` how many of its cells show no recall, and tells programs the accuracy without it.
pub(super) fn say_without_recall(grid: &mut Grid) {
    let mut known = grid.baselines.iter();
    let known = known.find(|baseline| baseline.name == NO_RECALL);
    let Some(ceiling) = known.and_then(|baseline| baseline.levels.first()?.first().copied()) else {
        return;
    };
    let scores = grid
        .results()
        .filter_map(|status| Some(status.score()?.mean));
    let scores: Vec<f64> = scores.collect();
    let below = scores.iter().filter(|score| **score <= ceiling).count();
    let shown = match below {
        0 => String::new(),
        below => format!(
            "; no recall shown in {below} of {} cells, which are at or below it",
            scores.len()
        ),
    };
    grid.notes
        .push(format!("without recall {:.1} %{shown}", 100.0 * ceiling));
    grid.facts.push(fact("without_recall", ceiling));
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
    let chance = runs().find_map(|run| chance(run));
    let chance = chance.map(|(name, level)| (name, vec![level]));
    let majorities = Some((MAJORITY, majorities)).filter(|(_, levels)| !levels.is_empty());
    chance
        .into_iter()
        .chain(majorities)
        .map(|(name, levels)| Baseline {
            name,
            levels: vec![levels; columns],
        })
        .collect()
}
