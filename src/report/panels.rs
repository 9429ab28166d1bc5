//! Turns a report into a picture: one panel per grid, all on common scales.

use super::coverage::counted;
use super::grid::{
    mean_over_seeds, rates_won, Baseline, Cell, Content, Grid, GridLine, PanelForm, Report, Style, Tick,
};
use super::picture::{Heatmap, HeatmapTile, Level, Panel, PanelBody, Picture, Plot, PlotAxis, Point, Scale, Series};
use super::score::GroupStatus;

/// Panels per row where grids have no common layout; tables, whose panels are wide, get fewer.
const ACROSS: usize = 4;
const WIDE_ACROSS: usize = 2;

/// Share of the length of an axis that is added for the names of curves.
const OF_NAMES: f64 = 0.4;

/// Largest number of cells without a number that a caption lists.
const NAMED: usize = 6;

/// The picture of `report`, its panels arranged on a page.
pub(super) fn picture(report: &Report) -> Picture {
    let in_order = in_order(report);
    let (across, slots) = arranged(&report.grids);
    let panels = slots.into_iter().map(|slot| slot.and_then(|i| in_order.panels[i].clone()));
    Picture { panels: panels.collect(), across, caption: caption(report), ..in_order }
}

/// The picture of `report`, one panel per grid, one below the other.
pub(super) fn in_order(report: &Report) -> Picture {
    let grids = &report.grids;
    let series = grids.iter().filter(|grid| grid.form != PanelForm::Heatmap).flat_map(series);
    let names = distinct(series.map(|(name, _)| name.to_owned()));
    let leveled = grids.iter().flat_map(|grid| &grid.baselines).filter(|b| b.levels.iter().any(|l| !l.is_empty()));
    let levels = distinct(leveled.map(|baseline| baseline.name.to_owned()));
    let axes = SharedScales(grids);
    let panels = grids.iter().map(|grid| {
        let title = grid.title.clone();
        let body = match &grid.form {
            PanelForm::Table => return None,
            PanelForm::Heatmap => PanelBody::Heatmap(axes.heatmap(grid)),
            _ => PanelBody::Plot(axes.plot(grid, &names, &levels)),
        };
        Some(Panel { title, body })
    });
    Picture {
        title: report.heading.replace('\n', " "),
        caption: Vec::new(),
        panels: panels.collect(),
        across: 1,
        names,
        levels,
    }
}

/// Lines of a grid that are drawn, with the names of their series: those of models, our numbers and the paper's.
fn series(grid: &Grid) -> Vec<(&str, &GridLine)> {
    let points = matches!(grid.form, PanelForm::Points { .. });
    let lines = grid.lines.iter();
    let drawn = lines.filter(|line| points || line.cells.iter().any(|cell| is_measured(grid, cell)));
    drawn.filter_map(|line| Some((line.series.as_deref()?, line))).collect()
}

/// Whether a cell has a number or a reason for its absence, which a learning rate or a gap has not.
fn is_measured(grid: &Grid, cell: &Cell) -> bool {
    let result = matches!(cell.content, Content::Result(_) | Content::Results(_));
    result || cell.number(grid.style).is_some()
}

/// The distinct ones of `all`, in order.
fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut known = Vec::new();
    for each in all {
        if !known.contains(&each) {
            known.push(each);
        }
    }
    known
}

/// Scales that the panels of some grids share.
struct SharedScales<'a>(&'a [Grid]);

impl SharedScales<'_> {
    /// Horizontal positions and their titles, on the axis called `name`.
    fn across(&self, name: &str) -> Vec<(f64, String)> {
        let mut all: Vec<(f64, String)> = Vec::new();
        for grid in self.0 {
            match &grid.form {
                PanelForm::Lines { over, .. } if over == name => {
                    all.extend(grid.columns.iter().filter_map(|tick| Some((tick.at?, tick.title.clone()))));
                }
                PanelForm::Points { over } if over == name => {
                    all.extend(grid.lines.iter().filter_map(|line| Some((line.across?, String::new()))));
                }
                _ => {}
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.dedup_by(|a, b| a.0 == b.0);
        all
    }

    /// Lowest and highest number with the format `style`, if there is one.
    fn ends(&self, style: Style) -> Option<[f64; 2]> {
        let grids = || self.0.iter().filter(|grid| grid.style == style);
        let cells = grids().flat_map(|grid| &grid.lines).flat_map(|line| &line.cells);
        let numbers = cells.filter_map(|cell| cell.number(style));
        let numbers = numbers.flat_map(|(mean, band)| [mean].into_iter().chain(band.into_iter().flatten()));
        let levels = grids().flat_map(|grid| &grid.baselines).flat_map(|b| b.levels.iter().flatten().copied());
        let ends = numbers.chain(levels).filter(|value| value.is_finite()).map(|value| [value, value]);
        ends.reduce(|[low, high], [value, _]| [low.min(value), high.max(value)])
    }

    fn x(&self, grid: &Grid, columns: &[usize]) -> PlotAxis {
        match &grid.form {
            PanelForm::Lines { over, log: true, named, .. } => {
                let axis = PlotAxis::at(over, Scale::Log, self.across(over));
                if *named {
                    axis.longer(OF_NAMES)
                } else {
                    axis
                }
            }
            PanelForm::Lines { over, .. } => {
                let all = self.across(over);
                let [first, last] = [all.first(), all.last()].map(|end| end.map_or(1.0, |(x, _)| *x));
                // Epochs and layers are counted: there is nothing between two of a few.
                match all.len() > 1 && last - first < 6.0 {
                    true => PlotAxis::at(over, Scale::Linear, all),
                    false => PlotAxis::round(over, Scale::Linear, [first.min(1.0), last]),
                }
            }
            PanelForm::Points { over } => match &self.across(over)[..] {
                [] => PlotAxis::round(over, Scale::Linear, [0.0, 1.0]),
                values => PlotAxis::round(over, Scale::Log, [values[0].0, values[values.len() - 1].0]),
            },
            PanelForm::Columns | PanelForm::Heatmap | PanelForm::Table => {
                PlotAxis::names(columns.iter().map(|i| &grid.columns[*i].title))
            }
        }
    }

    fn y(&self, grid: &Grid) -> PlotAxis {
        let name = grid.style.name();
        if grid.style.is_share() {
            return PlotAxis::percent(name);
        }
        let ends = self.ends(grid.style).unwrap_or([0.0, 1.0]);
        if let Style::Doublings(name) = grid.style {
            return PlotAxis::doublings(name, ends);
        }
        // Losses that span orders of magnitude get a logarithmic axis, like perplexities.
        let scale = match grid.style {
            Style::Loss | Style::Measured(_) if ends[1] < 30.0 * ends[0] || ends[0] <= 0.0 => Scale::Linear,
            _ => Scale::Log,
        };
        PlotAxis::round(name, scale, ends)
    }

    fn plot(&self, grid: &Grid, names: &[String], levels: &[String]) -> Plot {
        let all = series(grid);
        let measured = |i: &usize| all.iter().any(|(_, line)| is_measured(grid, &line.cells[*i]));
        let columns = 0..grid.columns.len();
        let columns: Vec<usize> = match grid.form {
            PanelForm::Columns => columns.filter(measured).collect(),
            // The first column holds the horizontal positions.
            PanelForm::Points { .. } => columns.skip(1).collect(),
            PanelForm::Lines { .. } | PanelForm::Heatmap | PanelForm::Table => columns.collect(),
        };
        let x = self.x(grid, &columns);
        let mut series: Vec<Series> = Vec::new();
        for (name, line) in &all {
            let key = names.iter().position(|known| known == name);
            let key = key.expect("every name of every grid is known");
            let points = points(grid, line, &columns, shift(name, &all));
            let joined = matches!(grid.form, PanelForm::Lines { .. });
            let same = |known: &&mut Series| known.key == key && known.hollow == line.printed;
            // Points of one mixer are one series.
            match series.iter_mut().find(same).filter(|_| !joined) {
                Some(known) => known.points.extend(points),
                None => series.push(Series {
                    key,
                    points,
                    joined,
                    steps: matches!(grid.form, PanelForm::Lines { steps: true, .. }),
                    hollow: line.printed,
                    label: match grid.form {
                        PanelForm::Lines { named: true, .. } => (*name).to_owned(),
                        _ => String::new(),
                    },
                }),
            }
        }
        let levels = levels.iter().enumerate().filter_map(|(key, name)| level(grid, key, name, &columns, &x));
        let y = self.y(grid);
        let shaded = match (grid.style, &grid.baselines[..]) {
            (Style::Doublings(_), [lowest, .., highest]) => {
                let level = |baseline: &Baseline, end: f64| baseline.levels[0].first().copied().unwrap_or(end);
                vec![[y.ends[0], level(lowest, y.ends[0])], [level(highest, y.ends[1]), y.ends[1]]]
            }
            _ => Vec::new(),
        };
        Plot { levels: levels.collect(), shaded, y, x, series }
    }

    /// Values of one side of a heatmap: its own, and those of all heatmaps that share at least one of them.
    fn shared(&self, grid: &Grid, side: usize) -> Vec<Tick> {
        let own = ticks(grid, side);
        let alike = self.0.iter().filter(|other| other.form == PanelForm::Heatmap && other.axes == grid.axes);
        let others = alike.map(|other| ticks(other, side)).filter(|ticks| ticks.iter().any(|tick| own.contains(tick)));
        let mut shared = distinct(own.iter().cloned().chain(others.flatten()));
        if shared.iter().all(|tick| tick.at.is_some()) {
            let number = |tick: &Tick| tick.at.unwrap_or(f64::NAN);
            shared.sort_by(|a, b| number(a).total_cmp(&number(b)));
        }
        shared
    }

    fn heatmap(&self, grid: &Grid) -> Heatmap {
        let [columns, rows] = [0, 1].map(|side| self.shared(grid, side));
        let [down, across] = grid.axes.clone();
        let seeds = grid.seeds();
        let tile = |row: &Tick, column: &Tick| {
            let line = grid.lines.iter().find(|line| line.tick == *row);
            let index = grid.columns.iter().position(|known| known == column);
            let missing = Cell::result(GroupStatus::NotRun);
            let cell = line.zip(index).map_or(&missing, |(line, index)| &line.cells[index]);
            HeatmapTile {
                // Shares are many and small, so tiles show them by colour only.
                label: match grid.style {
                    Style::Share(_) => String::new(),
                    _ => grid.label(cell, seeds),
                },
                shade: cell.shade(grid.style),
            }
        };
        let shown = grid.baselines.iter().flat_map(|baseline| {
            let mut levels: Vec<f64> = baseline.levels.iter().flatten().copied().collect();
            levels.sort_by(f64::total_cmp);
            levels.dedup();
            levels.into_iter().map(|level| (labelled(baseline.name, level, grid.style), level))
        });
        Heatmap {
            what: match grid.style {
                Style::Share(name) => name,
                _ => "Accuracy in percent",
            },
            axes: [across, down],
            cells: rows.iter().map(|row| columns.iter().map(|column| tile(row, column)).collect()).collect(),
            columns: columns.into_iter().map(|tick| tick.title).collect(),
            rows: rows.into_iter().map(|tick| tick.title).collect(),
            levels: shown.collect(),
        }
    }
}

/// The points of a line in `columns`. Above named columns they are moved sideways by `shift`.
fn points(grid: &Grid, line: &GridLine, columns: &[usize], shift: f64) -> Vec<Point> {
    let place = |at: usize, column: usize| match grid.form {
        PanelForm::Points { .. } => line.across,
        PanelForm::Columns => Some(at as f64 + shift),
        PanelForm::Lines { .. } | PanelForm::Heatmap | PanelForm::Table => grid.columns[column].at,
    };
    let each = columns.iter().enumerate();
    let points = each.filter_map(|(at, column)| {
        let (y, band) = line.cells[*column].number(grid.style)?;
        let x = place(at, *column)?;
        let detail = match grid.form {
            PanelForm::Points { .. } => line.detail.clone(),
            _ => String::new(),
        };
        let bound = match &line.cells[*column].content {
            Content::Beyond(_, bound) => bound.clone(),
            _ => String::new(),
        };
        Some(Point { detail, x, y, band, bound })
    });
    let finite = points.filter(|point| point.x.is_finite() && point.y.is_finite());
    finite.collect()
}

/// Horizontal offset of a model's points from the middle of a column, so that models stand side by side.
fn shift(name: &str, all: &[(&str, &GridLine)]) -> f64 {
    let mut models: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    models.dedup();
    let model = models.iter().position(|model| *model == name).unwrap_or(0);
    0.8 * ((model as f64 + 0.5) / models.len() as f64 - 0.5)
}

/// The columns of a grid, or its lines.
fn ticks(grid: &Grid, side: usize) -> Vec<Tick> {
    match side {
        0 => grid.columns.clone(),
        _ => grid.lines.iter().map(|line| line.tick.clone()).collect(),
    }
}

/// Lines of one baseline: a single one from end to end, or one piece above each named column.
fn level(grid: &Grid, key: usize, name: &str, columns: &[usize], x: &PlotAxis) -> Option<Level> {
    let baseline = grid.baselines.iter().find(|baseline| baseline.name == name)?;
    let pieces: Vec<[f64; 3]> = match grid.form {
        PanelForm::Columns => {
            let each = columns.iter().enumerate().flat_map(|(place, i)| {
                let middle = place as f64;
                baseline.levels[*i].iter().map(move |level| [middle - 0.45, middle + 0.45, *level])
            });
            each.collect()
        }
        _ => {
            let levels = baseline.levels.first()?;
            levels.iter().map(|level| [x.ends[0], x.ends[1], *level]).collect()
        }
    };
    let label = pieces.first().map(|[.., level]| labelled(name, *level, grid.style))?;
    Some(Level { key, label, pieces })
}

fn labelled(name: &str, level: f64, style: Style) -> String {
    let percent = 100.0 * level;
    match percent {
        _ if !style.is_share() => format!("{name} {}", style.number(level)),
        p if p >= 1.0 => format!("{name} {p:.1} %"),
        p => {
            let digits = (-p.log10()).ceil().clamp(1.0, 6.0) as usize;
            format!("{name} {p:.digits$} %")
        }
    }
}

/// Panels per row, and the grid in each slot: by the grids' places, or one after the other if that layout leaves most
/// of the page empty.
fn arranged(grids: &[Grid]) -> (usize, Vec<Option<usize>>) {
    let drawn: Vec<usize> = (0..grids.len()).filter(|&i| grids[i].form != PanelForm::Table).collect();
    let [across, down] = [0, 1].map(|side| distinct(drawn.iter().map(|i| &grids[*i].place[side])));
    let mut slots = vec![None; across.len() * down.len()];
    for &i in &drawn {
        let at = |side: &[&String], name: &String| side.iter().position(|known| *known == name);
        let [column, row] = &grids[i].place;
        if let Some((row, column)) = at(&down, row).zip(at(&across, column)) {
            slots[row * across.len() + column].get_or_insert(i);
        }
    }
    let placed = slots.iter().flatten().count();
    // A single column of many panels would make a very long page.
    let narrow = across.len() == 1 && down.len() > 2;
    let wide = down.len() == 1 && across.len() > ACROSS;
    if placed == drawn.len() && 2 * placed > slots.len() && !narrow && !wide {
        return (across.len(), slots);
    }
    let most = match grids.iter().any(|grid| grid.form == PanelForm::Columns) {
        true => WIDE_ACROSS,
        false => ACROSS,
    };
    let square = (1..most).find(|across| across * across >= drawn.len());
    let across = square.unwrap_or(most);
    (across, drawn.into_iter().map(Some).collect())
}

/// Caption: seeds, rates, notes, and missing numbers of the picture.
fn caption(report: &Report) -> Vec<String> {
    let grids = &report.grids;
    let mut caption = Vec::new();
    let drawn = |form: fn(&PanelForm) -> bool| grids.iter().any(|grid| form(&grid.form));
    let bands = if drawn(|form| matches!(form, PanelForm::Lines { .. })) { " (bands)" } else { "" };
    let training = if report.is_of_rates() { " that were still training" } else { "" };
    caption.extend(mean_over_seeds(grids.iter().flat_map(Grid::results), bands).map(|said| said + training));
    if drawn(|form| !matches!(form, PanelForm::Columns | PanelForm::Table)) {
        let results = grids.iter().flat_map(Grid::results);
        caption.extend(rates_won(results).filter(|_| !report.is_of_rates()));
    } else {
        caption = distinct(caption.into_iter().chain(grids.iter().flat_map(|grid| grid.notes.clone())));
        let printed = grids.iter().flat_map(|grid| &grid.lines).any(|line| line.printed);
        caption.extend(printed.then(|| "outlined points: printed in the paper".to_owned()));
    }
    caption.extend(grids.iter().flat_map(tabled));
    caption.extend(unshared(grids));
    caption.extend(missing(grids));
    caption.extend(report.notes.iter().cloned());
    caption
}

/// One caption line per line of a table.
fn tabled(grid: &Grid) -> Vec<String> {
    if grid.form != PanelForm::Table {
        return Vec::new();
    }
    let of = |line: &GridLine| {
        let cells =
            grid.columns.iter().zip(&line.cells).map(|(tick, cell)| format!("{} {}", tick.title, grid.label(cell, 1)));
        format!("{}: {}", line.name(), cells.collect::<Vec<_>>().join("; "))
    };
    grid.lines.iter().map(of).collect()
}

/// Notes on panels that lack values of an axis that other panels have.
fn unshared(grids: &[Grid]) -> Vec<String> {
    let axes = SharedScales(grids);
    let mut notes = Vec::new();
    for grid in grids {
        let (name, all): (&str, Vec<String>) = match &grid.form {
            PanelForm::Lines { over, log: true, .. } => {
                (over, axes.across(over).into_iter().map(|(_, title)| title).collect())
            }
            PanelForm::Heatmap => (&grid.axes[1], axes.shared(grid, 0).into_iter().map(|tick| tick.title).collect()),
            _ => continue,
        };
        let own = |title: &String| grid.columns.iter().any(|tick| tick.title == *title);
        let lacking: Vec<&str> = all.iter().filter(|title| !own(title)).map(String::as_str).collect();
        if !lacking.is_empty() {
            notes.push(format!("no runs at {name} = {} in: {}", lacking.join(", "), grid.title));
        }
    }
    if notes.len() > NAMED {
        let more = format!("and {} more panels without runs at values that others have", notes.len() - NAMED);
        notes.truncate(NAMED);
        notes.push(more);
    }
    notes
}

/// Note on the cells that a curve leaves out because their runs failed or diverged.
fn missing(grids: &[Grid]) -> Option<String> {
    let mut cells = Vec::new();
    for grid in grids.iter().filter(|grid| grid.form != PanelForm::Heatmap) {
        for line in &grid.lines {
            for (cell, column) in line.cells.iter().zip(&grid.columns) {
                if let Content::Result(status @ (GroupStatus::Failed | GroupStatus::Diverged)) = &cell.content {
                    let (name, column) = (line.name(), &column.title);
                    cells.push(format!("{name} at {column} ({})", status.name()));
                }
            }
        }
    }
    let more = cells.len().saturating_sub(NAMED);
    cells.truncate(NAMED);
    let more = match more {
        0 => String::new(),
        more => format!(", and {} more", counted(more, "cell")),
    };
    (!cells.is_empty()).then(|| format!("without a number: {}{more}", cells.join("; ")))
}
