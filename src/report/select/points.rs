//! Points of one metric over another: one panel per task, one point per setting, one colour per mixer.

use super::super::grid::{fact, Cell, Form, Grid, Line, Style};
use super::super::score::Status;
use super::super::Group;
use super::axes::{caption, selected};
use super::chance::{baselines, say_without_recall};
use super::tasks::{lines, panels, Panel};
use super::{facts_at, metric, numbers, Selected, Selection};
use crate::store::{places, Metric, Role};

pub(in super::super) fn points(of: &Selection, across: &str) -> Selected {
    let across = metric(across);
    let panels = panels(of.figure.runs, &of.groups);
    let grids = panels.into_iter().map(|each| panel(of, across, each));
    selected(of, grids.collect())
}

fn panel(of: &Selection, across: &'static Metric, panel: Panel<Group>) -> Grid {
    let all: Vec<usize> = places(&[Role::Setting, Role::Cell]);
    let (mut drawn, mut records) = (Vec::new(), Vec::new());
    for (line, groups) in lines(of.figure.runs, &panel.runs, &[]) {
        let group = groups[0];
        let score = Status::of(&group.runs, of.metric, of.metric, of.options.select);
        let size = Status::known(&group.runs, of.metric, across, of.options.select);
        let size = size.score().map(|score| score.mean);
        let written = size.map_or("-".to_owned(), |size| format!("{}", (size * 10.0).round() / 10.0));
        drawn.push(Line {
            series: Some(group.record.text("mixer").to_owned()),
            across: size.filter(|size| size.is_finite()),
            cells: vec![Cell::text(written), Cell::result(score)],
            ..line
        });
        let mut record = facts_at(group.record, &all);
        record.extend(numbers(of.metric, score));
        record.push(fact(across.name, size));
        records.push(record);
    }
    let columns = [across.name, of.metric.name];
    let unit = match across.unit {
        "" => String::new(),
        unit => format!(" ({unit})"),
    };
    let mut grid = Grid {
        form: Form::Points { over: format!("{}{unit}", across.meaning) },
        place: panel.place,
        baselines: baselines(&panel.runs, of.metric, 1),
        records,
        ..Grid::new(panel.title, columns, drawn, Style::of(of.metric))
    };
    grid.notes.extend(caption(&grid));
    say_without_recall(&mut grid);
    grid
}
