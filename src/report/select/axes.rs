//! Grids of one metric over two axes, one grid per setting.

use super::super::figures::MIXERS;
use super::super::grid::{fact, Cell, Grid, GridLine, PanelForm, Style, Tick};
use super::super::mixed;
use super::super::score::GroupStatus;
use super::super::{Orient, RunGroup};
use super::chance::{baselines, say_without_skill};
use super::panel::{filled, known, lines, PanelRuns, Titles};
use super::{caption, facts_at, numbers, selected, Selected, Selection};
use crate::error::{refuse, Result};
use crate::store::{places, Field, Role, COLUMNS};
use std::collections::BTreeSet;

/// Columns of the lines, of the horizontal axis, and of the settings that distinguish grids.
struct GridAxes {
    lines: Vec<usize>,
    column: usize,
    titles: Titles,
}

pub(in super::super) fn axes(of: &Selection, lines: &[&str], column: &str) -> Result<Selected> {
    let axes = GridAxes::of(of, lines, column)?;
    let panels = axes.titles.panels(of.figure.runs, &of.groups);
    Ok(selected(of, panels.into_iter().map(|panel| axes.grid(of, panel)).collect()))
}

impl GridAxes {
    fn of(of: &Selection, lines: &[&str], column: &str) -> Result<Self> {
        let (mut lines, mut column) = (lines.to_vec(), column);
        if let Some(orient) = of.options.orient {
            if lines.len() > 1 {
                refuse!(flag "--orient", "turns grids of d and n: {} has mixers in its rows", of.figure.title());
            }
            (lines, column) = match orient {
                Orient::Brief => (vec!["n"], "d"),
                Orient::Paper => (vec!["d"], "n"),
            };
        }
        if let Some(over) = of.options.over {
            (lines, column) = (MIXERS.to_vec(), over.column());
        }
        lines.retain(|line| *line != column);
        let lines: Vec<usize> = lines.into_iter().map(known).collect();
        let column = known(column);
        let titles = Titles::of_cells(&[&lines[..], &[column]].concat());
        Ok(Self { lines, column, titles })
    }

    fn grid(&self, of: &Selection, panel: PanelRuns<RunGroup>) -> Grid {
        let runs = &panel.runs;
        let columns: BTreeSet<&Field> = runs.iter().map(|group| group.record.at(self.column)).collect();
        let columns: Vec<&Field> = columns.into_iter().collect();
        let mut recorded = places(&[Role::Setting]);
        recorded.retain(|place| !self.titles.places.contains(place));
        recorded.extend(places(&[Role::Cell]));
        let cell = |groups: &Vec<&RunGroup>, _, column: &&Field| {
            let group = groups.iter().find(|group| group.record.at(self.column) == *column);
            let status = group.map_or(GroupStatus::NotRun, |group| of.status(group, of.metric));
            let value = |place: &usize| match *place == self.column {
                true => column.json(),
                false => groups[0].record.at(*place).json(),
            };
            let settings = recorded.iter().map(|place| fact(COLUMNS[*place].name, value(place)));
            (Cell::result(status), Some(settings.chain(numbers(of.metric, status)).collect()))
        };
        let (lines, records): (Vec<GridLine>, _) = filled(lines(of.figure.runs, runs, &self.lines), &columns, cell);
        let mut shared = self.titles.places.clone();
        shared.sort_unstable();
        shared.retain(|i| COLUMNS[*i].role == Role::Setting);
        let mut grid = Grid {
            place: panel.place,
            form: self.form(),
            baselines: baselines(runs, of.metric, columns.len()),
            axes: [self.lines[0], self.column].map(|place| COLUMNS[place].name.to_owned()),
            shared: facts_at(runs[0].record, &shared),
            records,
            ..Grid::new(panel.title, columns.into_iter().map(Tick::from), lines, Style::of(of.metric))
        };
        grid.notes.extend(caption(&grid));
        say_without_skill(&mut grid);
        grid.notes.extend(mixed::warnings(runs.iter().flat_map(|group| group.runs.iter().copied())));
        grid
    }

    /// Lines for mixers, a heatmap for cells of d and n.
    fn form(&self) -> PanelForm {
        let [first, over] = [self.lines[0], self.column].map(|place| &COLUMNS[place]);
        match first.role {
            Role::Cell => PanelForm::Heatmap,
            _ => PanelForm::Lines {
                // The meaning of an axis is shown up to its first semicolon.
                over: format!("{} {}", over.meaning.split(';').next().unwrap_or(""), over.name),
                log: true,
                steps: false,
                named: false,
            },
        }
    }
}
