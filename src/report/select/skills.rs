//! Scores of mixers by skill: the mean accuracy over the settings of each task of MAD, and over the tasks.

use super::super::figures::Skills;
use super::super::grid::{fact, Cell, Content, Facts, Grid, GridLine, PanelForm, Style};
use super::super::score::{GroupStatus, Reported, Score};
use super::super::{grouped, mixed, RunGroup};
use super::chance::{chance, WITHOUT_SKILL};
use super::panel::{known, lines};
use super::{caption, facts_at, in_percent, selected, settings, Selected, Selection};
use crate::store::Column;
use std::collections::BTreeMap;

/// Title of the column of means over tasks.
const SCORE: &str = "MAD";

/// Title of the column of state sizes.
const STATE: &str = "state";

/// Mark after the names of mixers with runs of [`ReportOptions::marked`](super::super::ReportOptions::marked).
const MARK: &str = " *";

/// Score of one mixer in one task: the mean over its settings.
struct TaskScore {
    cell: Cell,
    mean: Option<f64>,
    /// The score of each seed that all settings have.
    seeds: BTreeMap<usize, f64>,
}

pub(in super::super) fn skills(of: &Selection, skills: &Skills) -> Selected {
    let tasks: Vec<usize> = skills.task.iter().chain(skills.tuned).map(|column| column.place()).collect();
    let mut places = settings();
    places.retain(|place| !tasks.contains(place) && *place != known("mixer"));
    places.insert(0, known("mixer"));
    let groups: Vec<&RunGroup> = of.groups.iter().collect();
    let levels: Vec<Option<f64>> = skills.names.iter().map(|name| without_skill(&groups, name)).collect();
    let mut drawn: Vec<(Option<f64>, GridLine, Vec<Facts>)> = Vec::new();
    for (mut line, groups) in lines(of.figure.runs, &groups, &places) {
        let (mut scores, mut records) = (Vec::new(), Vec::new());
        let mut runs = groups.iter().flat_map(|group| &group.runs);
        if runs.any(|run| of.options.marked.contains(run.run_id())) {
            line.tick.title += MARK;
        }
        for (name, level) in skills.names.iter().zip(&levels) {
            let own = groups.iter().copied().filter(|group| group.record.text(Column::DATASET) == *name);
            let own: Vec<&RunGroup> = own.collect();
            let score = task_score(of, skills, &own);
            line.cells.push(score.cell.clone());
            let facts = facts_at(groups[0].record, &places).into_iter();
            let state = own.iter().flat_map(|group| &group.runs).filter_map(|run| run.number(Column::STATE_SIZE));
            let state = state.reduce(f64::max);
            let state = state.map(|state| state as u64);
            let task = [fact("skill", *name), fact("metric", of.metric.name), fact("mean", score.mean)];
            let sizes = [fact(WITHOUT_SKILL, *level), fact("state_size", state)];
            records.push(facts.chain(task).chain(sizes).collect());
            scores.push(score);
        }
        let score = scores.iter().map(|score| score.mean).sum::<Option<f64>>().map(|sum| sum / scores.len() as f64);
        let seeds: Vec<f64> = of_all(scores.iter().map(|score| &score.seeds)).into_values().collect();
        let std = score.zip(Score::of(&seeds, f64::NAN).std);
        line.cells.insert(0, std.map_or(Cell::value(score), |(mean, std)| Content::Mean(mean, std).into()));
        let runs = groups.iter().flat_map(|group| &group.runs);
        let state = runs.filter_map(|run| run.number(Column::STATE_SIZE)).reduce(f64::max);
        line.cells.push(Cell::text(state.map_or("-".to_owned(), |state| state.to_string())));
        drawn.push((score, line, records));
    }
    drawn.sort_by(|(a, ..), (b, ..)| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0)));
    let ranked = drawn.iter().filter(|(score, ..)| score.is_some()).count();
    let unranked = drawn.len() - ranked;
    let records = drawn.iter_mut().flat_map(|(_, _, records)| std::mem::take(records)).collect();
    let mut lines: Vec<GridLine> = drawn.into_iter().map(|(_, line, _)| line).collect();
    lines.extend((!groups.is_empty()).then(|| line_without_skill(&levels)));
    let columns = [SCORE].into_iter().chain(skills.names.iter().copied()).chain([STATE]);
    let mut grid = Grid {
        form: PanelForm::Heatmap,
        axes: ["mixer".to_owned(), "skill".to_owned()],
        records,
        ..Grid::new(String::new(), columns, lines, Style::of(of.metric))
    };
    grid.notes.extend(caption(&grid));
    grid.notes.extend(mixed::warnings(of.groups.iter().flat_map(|group| group.runs.iter().copied())));
    let mut legend = Vec::new();
    if unranked > 0 {
        legend.push(format!("lines without all tasks have no score: {unranked} of {}", ranked + unranked));
    }
    legend.push("the score of a task is the mean over its settings, each at its best rate and weight decay".to_owned());
    if grid.lines.iter().any(|line| line.name().ends_with(MARK)) {
        legend.push(format!("{}: not among the published runs", MARK.trim_start()));
    }
    legend.push(format!(
        "{STATE}: size of the state, in numbers that all layers carry from token to token; the largest of the tasks"
    ));
    legend.extend(alike(&grid));
    let heading = format!("{SCORE}, {}: {}", of.figure.about, in_percent(of.metric));
    Selected { heading, after: legend, ..selected(of, vec![grid]) }
}

/// Notes on lines with the same numbers, as those of mixers that differ only at other lengths.
fn alike(grid: &Grid) -> Vec<String> {
    let mut names: BTreeMap<Vec<u64>, Vec<&str>> = BTreeMap::new();
    for line in &grid.lines {
        let scores = line.cells.split_last().map_or(&[][..], |(_, scores)| scores);
        let means = scores.iter().map(|cell| cell.number(grid.style).map(|(mean, _)| mean.to_bits()));
        if let Some(means) = means.collect() {
            names.entry(means).or_default().push(line.name().trim_end_matches(MARK));
        }
    }
    let alike = names.into_values().filter(|names| names.len() > 1);
    let listed = alike.map(|names| match &names[..] {
        [others @ .., last] => format!("the same means to the last digit: {} and {last}", others.join(", ")),
        [] => String::new(),
    });
    listed.collect()
}

/// Score of the `groups` of one mixer in one task.
fn task_score(of: &Selection, skills: &Skills, groups: &[&RunGroup]) -> TaskScore {
    let task: Vec<usize> = skills.task.iter().map(|column| column.place()).collect();
    let mean = |status: &GroupStatus| status.score().map_or(-1.0, |score| score.mean);
    let best = |groups: &[&RunGroup]| {
        let statuses = groups.iter().map(|group| (of.status(group, of.metric), &group.runs));
        let (status, runs) = statuses.max_by(|(a, _), (b, _)| mean(a).total_cmp(&mean(b)))?;
        let reported = Reported::of(runs, of.metric, of.metric, of.options.select);
        let seeds = reported.map_or_else(|_| BTreeMap::new(), |reported| reported.seeds.into_iter().collect());
        Some((status, seeds))
    };
    let settings: Vec<_> =
        grouped(groups.iter().copied(), &task).iter().filter_map(|(_, groups)| best(groups)).collect();
    let lacking = settings.iter().map(|(status, _)| *status).find(|status| status.score().is_none());
    let average = || settings.iter().map(|(status, _)| mean(status)).sum::<f64>() / settings.len() as f64;
    let (cell, mean) = match (&settings[..], lacking) {
        ([], _) => (Cell::result(GroupStatus::NotRun), None),
        (_, Some(status)) => (Cell::result(status), None),
        ([(status, _)], None) => (Cell::result(*status), Some(mean(status))),
        (_, None) => (Cell::value(Some(average())), Some(average())),
    };
    TaskScore { cell, mean, seeds: of_all(settings.iter().map(|(_, seeds)| seeds)) }
}

/// Means of the values of each seed that all of `parts` have.
fn of_all<'a>(parts: impl Iterator<Item = &'a BTreeMap<usize, f64>> + Clone) -> BTreeMap<usize, f64> {
    let count = parts.clone().count() as f64;
    let seeds = parts.clone().next().into_iter().flat_map(BTreeMap::keys);
    let mean = |seed: &usize| Some((*seed, parts.clone().map(|part| part.get(seed)).sum::<Option<f64>>()? / count));
    seeds.filter_map(mean).collect()
}

/// Accuracy without the skill of the task called `name`, the mean over all of its settings that were run.
fn without_skill(groups: &[&RunGroup], name: &str) -> Option<f64> {
    let own = groups.iter().filter(|group| group.record.text(Column::DATASET) == name);
    let levels: Vec<f64> = own.filter_map(|group| Some(chance(group.record)?.1)).collect();
    (!levels.is_empty()).then(|| levels.iter().sum::<f64>() / levels.len() as f64)
}

/// Line of the accuracies without each skill, after their mean.
fn line_without_skill(levels: &[Option<f64>]) -> GridLine {
    let mean = levels.iter().copied().sum::<Option<f64>>().map(|sum| sum / levels.len() as f64);
    let levels = [mean].iter().chain(levels).map(|level| Cell::value(*level)).chain([Cell::text("")]).collect();
    GridLine::of_baseline("without the skill", levels)
}
