//! Accuracies that need no learning, drawn beside those of models.

use super::super::grid::{fact, Baseline, Grid};
use super::super::RunGroup;
use crate::config::{At, Objective, TaskConfig, SETTINGS};
use crate::store::{Column, Field, Metric, MetricFormat, Record};
use crate::tasks::lra::LraDataset;
use crate::tasks::NoRecall;
use serde_json::Map;

/// Name of a random guess among all classes.
pub(super) const CHANCE: &str = "chance";
/// Name of the best accuracy without recall.
const NO_RECALL: &str = "no recall";
/// Name of the majority-class baseline in tables and legends, and of its metric.
pub(super) const MAJORITY: &str = "majority";

/// Name and value of the accuracy that needs no learning: the best accuracy without recall where tokens are the
/// answers, a random guess where classes are; `None` for language modelling, and where sizes are unknown.
pub(super) fn chance(run: &Record) -> Option<(&'static str, f64)> {
    let task = crate::tasks::find(run.text(Column::TASK)).ok()?;
    match task.objective {
        Objective::PerToken => Some((NO_RECALL, without_recall(run)?.accuracy)),
        Objective::Pooled => {
            let named = |dataset: &LraDataset| dataset.name() == run.text(Column::DATASET);
            let classes = LraDataset::ALL.into_iter().find(named)?.classes();
            Some((CHANCE, 1.0 / classes as f64))
        }
        Objective::NextToken => None,
    }
}

/// The best accuracy without recall on the task of `run`, read from its columns.
fn without_recall(run: &Record) -> Option<NoRecall> {
    let entry = crate::tasks::find(run.text(Column::TASK)).ok()?;
    let mut config = TaskConfig::new(entry.name, &Map::new());
    for setting in SETTINGS.iter() {
        let At::Task(field) = setting.at else {
            continue;
        };
        let value = run.get(Column::find(&setting.column()?)?);
        if entry.fields.contains(&field) && *value != Field::Absent {
            config.set(field, value.json());
        }
    }
    config.read().ok()?.without_recall()
}

/// Lowest and highest majority-class baseline of `runs`: seeds that draw their own examples have different ones. One
/// number where all agree, none where there is none.
pub(super) fn majorities<'a>(runs: impl Iterator<Item = &'a &'a Record>) -> Vec<f64> {
    ends(runs.filter_map(|run| run.number(Column::MAJORITY)))
}

/// Lowest and highest of `levels`; one number where all agree, none where there is none.
fn ends(levels: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut levels: Vec<f64> = levels.collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    match levels[..] {
        [low, .., high] => vec![low, high],
        _ => levels,
    }
}

/// [`chance`] of `runs`, which share a task, as a baseline of a grid with `columns` columns: its lowest and highest
/// level where they differ.
pub(super) fn chance_of<'a>(runs: impl IntoIterator<Item = &'a Record>, columns: usize) -> Option<Baseline> {
    let known: Vec<(&str, f64)> = runs.into_iter().filter_map(chance).collect();
    let (name, _) = *known.first()?;
    let levels = ends(known.iter().map(|(_, level)| *level));
    Some(Baseline { name, levels: vec![levels; columns] })
}

/// The baselines of `groups`, which share a task, in a grid with `columns` columns of `metric`.
pub(super) fn baselines(groups: &[&RunGroup], metric: &Metric, columns: usize) -> Vec<Baseline> {
    if metric.shown != MetricFormat::Percent {
        return Vec::new();
    }
    let chance = chance_of(groups.iter().map(|group| group.record), columns);
    let mut baselines: Vec<Baseline> = chance.into_iter().collect();
    let majorities = majorities(groups.iter().flat_map(|group| &group.runs));
    if !majorities.is_empty() {
        baselines.push(Baseline { name: MAJORITY, levels: vec![majorities; columns] });
    }
    baselines
}

/// Adds a note on the number of cells at or below the accuracy without recall, and that accuracy as a fact; where runs
/// differ in it, both by the lowest.
pub(super) fn say_without_recall(grid: &mut Grid) {
    let known = grid.baselines.iter().find(|baseline| baseline.name == NO_RECALL);
    let levels = known.and_then(|baseline| baseline.levels.first()).map_or(&[][..], Vec::as_slice);
    let (&[ceiling] | &[ceiling, _]) = levels else {
        return;
    };
    let percent = |level: &f64| format!("{:.1}", 100.0 * level);
    let ceilings: Vec<String> = levels.iter().map(percent).collect();
    let scores: Vec<f64> = grid.results().filter_map(|status| Some(status.score()?.mean)).collect();
    let below = scores.iter().filter(|score| **score <= ceiling).count();
    let shown = match below {
        0 => String::new(),
        below => format!("; {below} of {} cells are at or below it and show no recall", scores.len()),
    };
    grid.notes.push(format!("without recall {} %{shown}", ceilings.join(" to ")));
    grid.facts.push(fact("without_recall", ceiling));
}
