//! Points of one metric over another, a panel a task, a point a setting, a colour a mixer.

use super::super::grid::{fact, Cell, Content, Form, Grid, Line, Style};
use super::super::score::Status;
use super::super::Group;
use super::axes::{caption, selected, split};
use super::chance::{baselines, say_without_recall};
use super::naming::{key, names, settings, Key, Titles};
use super::{metric, numbers, Selected, Selection};
use crate::store::{places, Metric, Role, COLUMNS};
use std::collections::{BTreeMap, BTreeSet};

/// What tells panels apart: the task and its data. All else belongs to a point.
#[rustfmt::skip]
const PANEL: [&str; 8] =
    ["task", "protocol", "dataset", "contour_length", "seq_len", "kv_pairs", "vocab_size", "train_examples"];

pub(in super::super) fn points(of: &Selection, across: &str) -> Selected {
    let across = metric(across);
    let grids = by_task(of, |groups, title, of_point| {
        panel(of, across, groups, title, of_point)
    });
    selected(of, grids)
}

/// A grid a task, made by `panel` of its groups, its title and the settings that tell its lines apart.
pub(super) fn by_task(
    of: &Selection,
    panel: impl Fn(&[&Group], String, &[usize]) -> Grid,
) -> Vec<Grid> {
    let (mut panels, head) = settings(&PANEL, &[]);
    panels.truncate(head);
    let of_line = settings(&["mixer"], &panels).0;
    let texts = |name: &str| -> BTreeSet<&str> {
        let texts = of.groups.iter().map(|group| group.record.text(name));
        texts.collect()
    };
    let titles = Titles {
        places: panels,
        head,
        tasks: texts("task").len() > 1,
    };
    let protocols = texts("protocol").len();
    let split = split(of, &titles.places);
    let grids = split.iter().map(|(key, groups)| {
        let title = titles.title(key, &[]);
        let place = titles.place(key, protocols, &title);
        Grid {
            place,
            ..panel(groups, title, &of_line)
        }
    });
    grids.collect()
}

/// The points of one task.
fn panel(
    of: &Selection,
    across: &'static Metric,
    groups: &[&Group],
    title: String,
    places_of_line: &[usize],
) -> Grid {
    let mut by_setting: BTreeMap<Key, &Group> = BTreeMap::new();
    for group in groups {
        by_setting.insert(key(group.record, places_of_line), group);
    }
    let named = names(
        of.figure.runs,
        places_of_line,
        by_setting.keys().cloned().collect(),
    );
    let all: Vec<usize> = places(&[Role::Setting, Role::Cell]);
    let (mut lines, mut at, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for (name, setting) in named {
        let group = by_setting[&setting];
        let score = Status::of(&group.runs, of.metric, of.metric, of.asked.select);
        let size = Status::known(&group.runs, of.metric, across, of.asked.select);
        let size = size.score().map(|score| score.mean);
        at.push((
            group.record.text("mixer").to_owned(),
            size.unwrap_or(f64::NAN),
        ));
        let written = size.map_or("-".to_owned(), |size| {
            format!("{}", (size * 10.0).round() / 10.0)
        });
        lines.push(Line {
            name,
            printed: false,
            cells: vec![Cell::from(Content::Text(written)), Cell::result(score)],
        });
        let mut record: Vec<_> = all
            .iter()
            .map(|i| fact(COLUMNS[*i].name, group.record.at(*i).json()))
            .collect();
        record.extend(numbers(of.metric, score));
        record.push(fact(across.name, size));
        records.push(record);
    }
    let columns = vec![across.name.to_owned(), of.metric.name.to_owned()];
    let unit = match across.unit {
        "" => String::new(),
        unit => format!(" ({unit})"),
    };
    let mut grid = Grid {
        form: Form::Points {
            over: format!("{}{unit}", across.meaning),
            at,
        },
        baselines: baselines(groups, of.metric, 1),
        records,
        ..Grid::new(title, columns, lines, Style::of(of.metric))
    };
    grid.notes.extend(caption(&grid));
    say_without_recall(&mut grid);
    grid
}
