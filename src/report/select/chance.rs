//! Accuracies that need no learning, drawn beside those of models.

use super::super::grid::{fact, Baseline, Grid};
use super::super::RunGroup;
use crate::config::{At, Objective, TaskConfig, SETTINGS};
use crate::store::{Column, Field, Metric, MetricFormat, Record};
use crate::tasks::{NoSkill, NO};
use serde_json::Map;

/// Name of a random guess among all classes.
pub(super) const CHANCE: &str = "chance";
/// Name of the majority-class baseline in tables and legends, and of its metric.
pub(super) const MAJORITY: &str = "majority";

/// Name, for programs, of the accuracy without the task's skill.
pub(super) const WITHOUT_SKILL: &str = "without_skill";

/// Name and value of the accuracy that needs no learning: the accuracy without the task's skill where tokens are the
/// answers, a random guess where classes are; `None` for language modelling, and where sizes are unknown.
pub(super) fn chance(run: &Record) -> Option<(&'static str, f64)> {
    let task = crate::tasks::find(run.text(Column::TASK)).ok()?;
    match task.objective {
        Objective::PerToken => without_skill(run).map(|without| (without.label, without.accuracy)),
        Objective::Pooled => {
            let classes = self::task(run)?.read().ok()?.sizes().classes;
            Some((CHANCE, 1.0 / classes as f64))
        }
        Objective::NextToken => None,
    }
}

/// The accuracy without the skill that the task of `run` tests.
fn without_skill(run: &Record) -> Option<NoSkill> {
    task(run)?.read().ok()?.without_skill()
}

/// Name and value of the accuracy without the skill that the task of `run` tests, among the test answers whose property
/// `by` is between `from` and `to`.
pub(super) fn without_skill_in(run: &Record, by: &str, (from, to): (usize, usize)) -> Option<(&'static str, f64)> {
    let task = task(run)?.read().ok()?;
    Some((task.without_skill()?.label, task.without_skill_in(by, from, to)?))
}

/// The settings of the task of `run`, read from its columns.
fn task(run: &Record) -> Option<TaskConfig> {
    let entry = crate::tasks::find(run.text(Column::TASK)).ok()?;
    let mut config = TaskConfig::new(entry.name, &Map::new());
    for setting in SETTINGS.iter() {
        let At::Task(field) = setting.at else {
            continue;
        };
        let column = Column::find(&setting.column()?)?;
        let value = run.get(column);
        if !entry.fields.contains(&field) || *value == Field::Absent {
            continue;
        }
        // The examples of a group of seeds have no seed of their own, and the accuracy is that of all examples.
        let seed = column == Column::DATA_SEED;
        config.set(field, if seed { 0.into() } else { value.json() });
    }
    Some(config)
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

/// Adds the accuracy without the task's skill as a note, as a fact of the grid and of every record, and, unless epochs
/// are shown, the number of cells at or below it. Where runs differ in it, the lowest counts.
pub(super) fn say_without_skill(grid: &mut Grid) {
    let known = grid.baselines.iter().find(|baseline| baseline.name.starts_with(NO));
    let levels = known.and_then(|baseline| baseline.levels.first()).map_or(&[][..], Vec::as_slice);
    let ceiling = levels.first().copied();
    grid.records.iter_mut().for_each(|record| record.push(fact(WITHOUT_SKILL, ceiling)));
    let (Some(ceiling), Some(skill)) = (ceiling, known.and_then(|baseline| baseline.name.strip_prefix(NO))) else {
        return;
    };
    let percent = |level: &f64| format!("{:.1}", 100.0 * level);
    let ceilings: Vec<String> = levels.iter().map(percent).collect();
    let results = grid.results().filter(|_| !grid.is_of_epochs());
    let scores: Vec<f64> = results.filter_map(|status| Some(status.score()?.mean)).collect();
    let below = scores.iter().filter(|score| **score <= ceiling).count();
    let shown = match below {
        0 => String::new(),
        below => format!("; {below} of {} cells are at or below it and show no {skill}", scores.len()),
    };
    grid.notes.push(format!("without {skill} {} %{shown}", ceilings.join(" to ")));
    grid.facts.push(fact(NoSkill::field(skill), ceiling));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes;
    use crate::tasks::TASKS;

    #[test]
    fn the_columns_of_a_run_give_the_accuracy_without_the_skill() {
        for entry in TASKS.iter().filter(|entry| entry.objective == Objective::PerToken && entry.name != "toy") {
            let config = recipes::run(entry.name, &[("preset", "smoke")]).unwrap();
            let mut run = Record::planned(&config);
            run.set_own_data();
            let found = task(&run).unwrap();
            let found = found.read().unwrap().without_skill();
            assert_eq!(found, config.task.read().unwrap().without_skill(), "{}", entry.name);
            assert!(found.is_some(), "{}", entry.name);
        }
    }
}
