//! Points of one metric over another: one panel per task, one point per setting, one colour per mixer.

use super::super::grid::{fact, Cell, Grid, GridLine, PanelForm, Style};
use super::super::score::GroupStatus;
use super::super::RunGroup;
use super::chance::{baselines, say_without_skill};
use super::panel::{lines, of_lines, PanelRuns, Titles};
use super::{caption, facts_at, metric, numbers, selected, settings, Selected, Selection};
use crate::store::{Column, Metric};

pub(in super::super) fn points(of: &Selection, across: &str) -> Selected {
    let across = metric(across);
    let panels = Titles::of_task().panels(of.figure.runs, &of.groups);
    selected(of, panels.into_iter().map(|each| panel(of, across, each)).collect())
}

fn panel(of: &Selection, across: &'static Metric, panel: PanelRuns<RunGroup>) -> Grid {
    let (mut drawn, mut records) = (Vec::new(), Vec::new());
    for (line, groups) in lines(of.figure.runs, &panel.runs, &of_lines(&[])) {
        let group = groups[0];
        let score = of.status(group, of.metric);
        let size = GroupStatus::of(&group.runs, of.metric, across, of.options.select);
        let size = size.score().map(|score| score.mean);
        let written = size.map_or("-".to_owned(), |size| format!("{}", (size * 10.0).round() / 10.0));
        drawn.push(GridLine {
            series: Some(group.record.text(Column::MIXER).to_owned()),
            across: size.filter(|size| size.is_finite()),
            cells: vec![Cell::text(written), Cell::result(score)],
            ..line
        });
        let facts = facts_at(group.record, &settings()).into_iter();
        records.push(facts.chain(numbers(of.metric, score)).chain([fact(across.name, size)]).collect());
    }
    let unit = match across.unit {
        "" => String::new(),
        unit => format!(" ({unit})"),
    };
    let mut grid = Grid {
        form: PanelForm::Points { over: format!("{}{unit}", across.meaning) },
        place: panel.place,
        baselines: baselines(&panel.runs, of.metric, 1),
        records,
        ..Grid::new(panel.title, [across.name, of.metric.name], drawn, Style::of(of.metric))
    };
    grid.notes.extend(caption(&grid));
    say_without_skill(&mut grid);
    grid
}
