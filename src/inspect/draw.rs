//! The report of several views: a table, and panels of each view.

use super::measures::{evenly, Horizon, Measures};
use super::products::{bins, median};
use super::table::{panels, record, table};
use super::view::View;
use crate::report::{Cell, Content, Grid, GridLine, PanelForm, Report, Style, Tick};
use serde_json::{json, Value};

/// Largest number of rows and columns of a heatmap, and of tokens of a line.
const MOST: usize = 64;
/// Names of the lines of a spectrum.
pub(super) const LAMBDAS: [&str; 3] = ["smallest |λ|", "median |λ|", "largest |λ|"];
/// Title of the column of kernels.
const PHI: &str = "Φ";
/// Title of the column of attention matrices.
const SOFTMAX: &str = "softmax attention";

/// Options of the report of several views.
#[derive(Clone, Copy, Debug)]
pub struct DrawOptions {
    /// Largest number of rows and columns of a heatmap.
    pub cells: usize,
    /// Whether heatmaps have a record of every number, unrounded, for programs.
    pub records: bool,
}

/// The report of `views`.
pub fn report(heading: String, views: &[View], shown: DrawOptions) -> Report {
    let mut grids = vec![table(views)];
    grids.extend(over_layers(views));
    let mut notes = Vec::new();
    for view in views {
        let attention = (&view.attention.rows, &view.attention.weights);
        if let Ok(measures) = &view.found {
            let norms = (&measures.rows, &measures.norms);
            grids.push(heatmap(&view.name, [PHI, "Φ without D"], norms, shown));
            grids.push(heatmap(&view.name, [SOFTMAX, view.attended()], attention, shown));
            grids.extend(lines(view, measures));
            grids.extend(half_lives(view, measures));
        } else {
            grids.push(heatmap(&view.name, [SOFTMAX, view.attended()], attention, shown));
        }
        if let Some(both) = &view.both {
            let norms = (&both.rows, &both.norms);
            grids.push(heatmap(&both.name, [PHI, "Φ of both directions without D"], norms, shown));
        }
        grids.extend(through_time(view));
        notes.extend(notes_on(view));
    }
    panels(heading, grids, notes)
}

/// Number of heads that have a curve each; more are summarised.
const HEADS: [&str; 8] = ["head 0", "head 1", "head 2", "head 3", "head 4", "head 5", "head 6", "head 7"];

/// Horizon and half-lives over the layers of each network of which several layers are shown.
fn over_layers(views: &[View]) -> Vec<Grid> {
    // Both passes of a layer are neighbours.
    let mut of_networks: Vec<Vec<&View>> = Vec::new();
    for view in views {
        match of_networks.iter_mut().find(|others| others[0].place.0 == view.place.0) {
            Some(others) => others.push(view),
            None => of_networks.push(vec![view]),
        }
    }
    of_networks.iter().filter(|views| views.len() > 1).flat_map(|views| of_network(views)).collect()
}

fn of_network(views: &[&View]) -> Vec<Grid> {
    let mut measured: Vec<(usize, &Measures, &View)> =
        views.iter().filter_map(|view| Some((view.place.1, view.found.as_ref().ok()?, *view))).collect();
    measured.sort_by_key(|(layer, ..)| *layer);
    if measured.len() < 2 {
        return Vec::new();
    }
    let curves = |what, unit, names, points| Curves {
        of: &views[0].place.0,
        what,
        over: "layer",
        unit,
        names,
        points,
        at: |layer| [None, Some(json!(layer))],
        quantity: str::to_owned,
    };
    let tokens = |horizon: Option<Horizon>| horizon.map_or(f64::NAN, |h| h.tokens);
    let (names, horizons) = by_head(&measured, &["system"], |measures| {
        let of_heads = measures.horizons_of_heads.iter().map(|horizon| tokens(*horizon));
        (tokens(measures.horizon), of_heads.collect())
    });
    let names = [names, &["softmax attention"]].concat();
    let beside = |((layer, mut points), (_, _, view)): ((usize, Vec<f64>), &(usize, &Measures, &View))| {
        points.push(tokens(view.attention.horizon));
        (layer, points)
    };
    let horizons = horizons.into_iter().zip(&measured).map(beside).collect();
    // Curves of half-lives have the same names.
    let quantity = |name: &str| if name.contains("head") { format!("horizon of {name}") } else { name.to_owned() };
    let horizons = Curves { quantity, ..curves("horizon by layer", "tokens", &names, horizons) };
    let finite = |value: f64| if value.is_finite() { value } else { f64::NAN };
    let (names, lives) = by_head(&measured, &["median of all states"], |measures| {
        let of_heads = measures.half_lives_of_heads.iter().map(|life| finite(*life));
        (measures.half_life().map_or(f64::NAN, finite), of_heads.collect())
    });
    let lives = curves("half-life of ΠΛ g by layer", "tokens", names, lives);
    // Above the columns of heatmaps.
    let above = |column: &str, curves: Curves| {
        let grid = curves.grid();
        Grid { place: [column.to_owned(), views[0].place.0.clone()], ..grid }
    };
    vec![above(PHI, horizons), above(SOFTMAX, lives)]
}

/// Names of curves over layers, and their values at each layer, for a measure that is given of the whole layer, called
/// `whole`, and of each of its heads: one curve per head, or the shortest, the median and the longest of many.
fn by_head<'a>(
    measured: &[(usize, &Measures, &View)],
    whole: &'a [&'a str],
    of: impl Fn(&Measures) -> (f64, Vec<f64>),
) -> (&'a [&'a str], Vec<(usize, Vec<f64>)>) {
    let found: Vec<(usize, f64, Vec<f64>)> = measured
        .iter()
        .map(|(layer, measures, _)| {
            let (of_layer, of_heads) = of(measures);
            (*layer, of_layer, of_heads)
        })
        .collect();
    let heads = found.iter().map(|(_, _, of_heads)| of_heads.len()).max().unwrap_or(0);
    let names: &[&str] = match heads {
        0 => whole,
        many if many > HEADS.len() => &["shortest head", "median head", "longest head"],
        few => &HEADS[..few],
    };
    let points = found.into_iter().map(|(layer, of_layer, mut each)| {
        if heads == 0 {
            return (layer, vec![of_layer]);
        }
        if heads > HEADS.len() {
            each.sort_by(f64::total_cmp);
            let middle = median(&each).unwrap_or(f64::NAN);
            each = vec![each.first().copied().unwrap_or(f64::NAN), middle, each.last().copied().unwrap_or(f64::NAN)];
        }
        each.resize(names.len(), f64::NAN);
        (layer, each)
    });
    (names, points.collect())
}

fn notes_on(view: &View) -> Vec<String> {
    let mut notes = Vec::new();
    match &view.found {
        Err(why) => notes.push(format!("{}: no finite system of the form (11): {why}", view.name)),
        Ok(measures) if measures.rows.len() < measures.seq_len => notes.push(format!(
            "{}: Φ, its rank and its horizon are computed at {} of {} tokens",
            view.name,
            measures.rows.len(),
            measures.seq_len
        )),
        Ok(_) => {}
    }
    notes.extend(view.around.map(|around| format!("{}: {around}", view.name)));
    let spreads = view.found.as_ref().ok().and_then(|m| m.gate.zip(m.product));
    notes.extend(spreads.filter(|(gate, _)| *gate > 0.0).map(|(before, after)| {
        let cancels = after < 1e-9 * before.max(1.0);
        let what = if cancels { "cancels" } else { "does not cancel" };
        format!("{}: the gate of B {what} in the product of Λs with B (section 4.2)", view.name)
    }));
    if let Some(errors) = view.errors {
        let holds = if errors.hold() { "equal" } else { "NOT equal" };
        let forms = match errors.steps.is_nan() {
            true => "recurrence, kernel and forward pass",
            false => "recurrence, kernel, steps and forward pass",
        };
        notes.push(format!("{}: {forms} are {holds} to {:.0e} of the largest output", view.name, errors.tolerance));
    }
    if let Some((both, errors)) = view.both.as_ref().and_then(|both| Some((both, both.errors?))) {
        let holds = if errors.hold() { "equal" } else { "NOT equal" };
        notes.push(format!(
            "{}: the sum of both directions, Φ_f + R Φ_b R, and the layer are {holds} to {:.0e} of the largest output \
             (differences of recurrence and kernel: {:.0e}, {:.0e})",
            both.name, errors.tolerance, errors.recurrence, errors.kernel
        ));
    }
    notes
}

/// Returns `grid` with its title and its place on the page: the column of its kind, and the row of the view `name`.
fn placed(name: &str, [column, what]: [&str; 2], grid: Grid) -> Grid {
    Grid { title: format!("{name}: {what}"), place: [column.to_owned(), name.to_owned()], ..grid }
}

/// Heatmap of rows of numbers, each over its preceding tokens or all tokens, as shares of the row's largest number.
fn heatmap(
    name: &str,
    [column, what]: [&str; 2],
    (rows, numbers): (&Vec<usize>, &Vec<Vec<f64>>),
    shown: DrawOptions,
) -> Grid {
    let cells = shown.cells.clamp(1, MOST);
    let seq_len = rows.last().map_or(1, |last| last + 1);
    let count = cells.min(seq_len);
    let ends: Vec<usize> = (1..=count).map(|c| c * seq_len / count).collect();
    let kept = evenly(rows.len(), cells);
    let line = |&r: &usize| {
        let row = &numbers[r];
        let most = row.iter().copied().fold(0.0, f64::max);
        let mut from = 0;
        let cells = ends.iter().map(|&end| {
            let part = &row[from.min(row.len())..end.min(row.len())];
            from = end;
            let largest = part.iter().copied().fold(f64::NAN, f64::max);
            match largest.is_nan() || most == 0.0 {
                true => Cell::text(""),
                false => Cell::from(Content::Value(largest / most)),
            }
        });
        GridLine::new(Tick::whole(rows[r] + 1), cells.collect())
    };
    let lines = kept.iter().map(line).collect();
    let each = rows.iter().zip(numbers).filter(|_| shown.records).flat_map(|(i, row)| {
        let token = json!(i + 1);
        row.iter().enumerate().map(move |(j, value)| {
            let at = [Some(token.clone()), Some(json!(j + 1))];
            record(name, what, at, Some(*value))
        })
    });
    let columns = ends.iter().copied().map(Tick::whole);
    let style = Style::Share("share of the row's largest (%)");
    let grid = Grid {
        axes: ["token i", "token j"].map(str::to_owned),
        form: PanelForm::Heatmap,
        records: each.collect(),
        ..Grid::new("", columns, lines, style)
    };
    placed(name, [column, what], grid)
}

/// Curves of the spectrum and of the gains over the tokens.
fn lines(view: &View, measures: &Measures) -> Vec<Grid> {
    let points = |first: usize, numbers: &mut dyn Iterator<Item = Vec<f64>>| {
        numbers.enumerate().map(|(i, row)| (i + first, row)).collect()
    };
    let tokens = |what, unit, names, points| Curves {
        of: &view.name,
        what,
        over: "token",
        unit,
        names,
        points,
        at: |token| [Some(json!(token)), None],
        quantity: str::to_owned,
    };
    let mut grids = Vec::new();
    if measures.seq_len > 1 {
        let points = points(2, &mut measures.spectrum.iter().map(|row| row.to_vec()));
        grids.push(tokens("spectrum of Λ_i", "|λ|", &LAMBDAS, points).grid());
    }
    let points = points(1, &mut measures.gains.iter().map(|row| row.to_vec()));
    grids.push(tokens("gains", "gain", &["‖B_i‖", "‖C_i‖"], points).grid());
    grids
}

/// Curves of the gradients through time.
fn through_time(view: &View) -> Vec<Grid> {
    let Some(gradients) = &view.gradients else { return Vec::new() };
    let curve = |what, over, unit, name, points, at| {
        let curves = Curves { of: &view.name, what, over, unit, names: &[name], points, at, quantity: str::to_owned };
        curves.grid()
    };
    let logarithms = |first: usize, numbers: &[f64]| {
        let points =
            numbers.iter().enumerate().map(|(i, x)| (i + first, vec![if *x > 0.0 { x.log10() } else { f64::NAN }]));
        points.collect::<Vec<_>>()
    };
    let by_token = curve(
        "gradient by token",
        "token",
        "log₁₀ ‖dL/dh_t‖",
        "log₁₀ ‖dL/dh_t‖",
        logarithms(1, &gradients.by_token),
        |token| [Some(json!(token)), None],
    );
    let by_lag = curve(
        "gradient by lag",
        "lag",
        "log₁₀ of its share at lag 1",
        "log₁₀ of the gradient left",
        logarithms(1, &gradients.by_lag),
        |lag| [None, Some(json!(lag))],
    );
    [Some(by_token), (!gradients.by_lag.is_empty()).then_some(by_lag)].into_iter().flatten().collect()
}

/// Curves over whole numbers.
pub(super) struct Curves<'a> {
    /// Name of the view.
    pub of: &'a str,
    /// Subject of the panel.
    pub what: &'static str,
    /// Name of the horizontal axis.
    pub over: &'static str,
    /// Name of the vertical axis.
    pub unit: &'static str,
    pub names: &'a [&'a str],
    /// Positions on the horizontal axis, each with one number per curve.
    pub points: Vec<(usize, Vec<f64>)>,
    /// Token, or name, of a position, for records.
    pub at: fn(usize) -> [Option<Value>; 2],
    /// Quantity of the curve of a name, for records.
    pub quantity: fn(&str) -> String,
}

impl Curves<'_> {
    /// Panel of the curves. Records contain all points; the panel shows an evenly spaced selection.
    pub fn grid(self) -> Grid {
        let kept = evenly(self.points.len(), MOST);
        let line = |(k, name): (usize, &&str)| {
            GridLine::new(
                *name,
                kept.iter()
                    .map(|&i| match self.points[i].1[k] {
                        value if value.is_nan() => Cell::text("-"),
                        value => Cell::from(Content::Value(value)),
                    })
                    .collect(),
            )
        };
        let lines = self.names.iter().enumerate().map(line).collect();
        let columns = kept.iter().map(|&i| Tick::whole(self.points[i].0));
        let mut records = Vec::new();
        for (across, numbers) in &self.points {
            for (name, value) in self.names.iter().zip(numbers) {
                records.push(record(self.of, &(self.quantity)(name), (self.at)(*across), Some(*value)));
            }
        }
        let grid = Grid {
            axes: [self.over.to_owned(), String::new()],
            form: PanelForm::Lines { over: self.over.to_owned(), log: false, steps: false, named: false },
            records,
            ..Grid::new(String::new(), columns, lines, Style::Measured(self.unit))
        };
        placed(self.of, [self.what; 2], grid)
    }
}

/// Distribution of states over half-lives of the product of Λs with the gate.
fn half_lives(view: &View, measures: &Measures) -> Option<Grid> {
    let (bins, shares) = (bins(), &measures.shares);
    let what = "half-lives of ΠΛ g";
    let records = bins.iter().zip(shares).map(|(bin, share)| {
        let at = [None, Some(Value::from(bin.as_str()))];
        record(&view.name, what, at, Some(*share))
    });
    let cells = shares.iter();
    let line = GridLine::new("states", cells.map(|share| Cell::from(Content::Value(*share))).collect());
    let grid = Grid {
        axes: ["tokens".to_owned(), String::new()],
        records: records.collect(),
        ..Grid::new(String::new(), bins.clone(), vec![line], Style::Share("share of the states (%)"))
    };
    (!shares.is_empty()).then(|| placed(&view.name, [what; 2], grid))
}
