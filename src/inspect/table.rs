//! The quantities of a comparison, one row of [`QUANTITIES`] each.

use super::measures::Measures;
use super::view::View;
use crate::report::{Cell, Coverage, Facts, Grid, GridLine, PanelForm, Report, Style};
use serde_json::{json, Value};

/// A quantity of a system, and its name in the table.
struct SystemQuantity {
    name: &'static str,
    /// Value of the quantity; `None` without a system, or if it is undefined, such as a transition for a single token.
    of: fn(&View) -> Option<f64>,
}

const fn row(name: &'static str, of: fn(&View) -> Option<f64>) -> SystemQuantity {
    SystemQuantity { name, of }
}

/// Every quantity, in the order of the table.
#[rustfmt::skip]
const QUANTITIES: &[SystemQuantity] = &[
    row("state N of (11)", |view| Some(measures(view)?.width as f64)),
    row("numbers kept while decoding", |view| Some(view.state[0] as f64)),
    row("growth per token", |view| Some(view.state[1] as f64)),
    row("distinct numbers in Λ_i", |view| Some(measures(view)?.free? as f64)),
    row("smallest |λ|", |view| Some(measures(view)?.moduli()?[0])),
    row("median |λ|", |view| Some(measures(view)?.moduli()?[1])),
    row("largest |λ|", |view| Some(measures(view)?.moduli()?[2])),
    row("share of |λ| > 1 (%)", |view| Some(100.0 * measures(view)?.growing?)),
    row("largest product of Λs", |view| measures(view)?.largest_product),
    row("std of ln g over tokens", |view| measures(view)?.gate),
    row("std of ln ΠΛ g over tokens", |view| measures(view)?.product),
    row("median half-life of ΠΛ g (tokens)", |view| measures(view)?.half_life()),
    row("effective horizon (tokens)", |view| Some(measures(view)?.horizon?.tokens)),
    row("effective horizon of softmax (tokens)", |view| Some(view.attention.horizon?.tokens)),
    row("effective horizon of a uniform average (tokens)", |view| Some(view.uniform?.tokens)),
    row("effective horizon (% of the row)", |view| Some(100.0 * measures(view)?.horizon?.share)),
    row("effective horizon of softmax (% of the row)", |view| Some(100.0 * view.attention.horizon?.share)),
    row("effective horizon of a uniform average (% of the row)", |view| Some(100.0 * view.uniform?.share)),
    row("rows of Φ, the largest possible rank", |view| Some(view.attention.weights.len() as f64)),
    row("effective rank of Φ", |view| Some(measures(view)?.rank)),
    row("effective rank of softmax attention", |view| Some(view.attention.rank)),
    row("mean input gain ‖B_i‖", |view| Some(mean(measures(view)?, 0))),
    row("mean output gain ‖C_i‖", |view| Some(mean(measures(view)?, 1))),
];

/// Quantities of gradients through time, where they were asked for.
#[rustfmt::skip]
const OF_GRADIENTS: &[SystemQuantity] = &[
    row("‖dL/dh_t‖ at the first token", |view| view.gradients.as_ref()?.by_token.first().copied()),
    row("‖dL/dh_t‖ at its largest", |view| view.gradients.as_ref()?.largest()),
    row("half-life of the gradient (tokens)", |view| view.gradients.as_ref()?.half_life()),
    row("gradient left at the longest lag (%)", |view| Some(100.0 * view.gradients.as_ref()?.left()?)),
];

fn measures(view: &View) -> Option<&Measures> {
    view.found.as_ref().ok()
}

fn mean(measures: &Measures, which: usize) -> f64 {
    let sum: f64 = measures.gains.iter().map(|gains| gains[which]).sum();
    sum / measures.gains.len() as f64
}

pub struct QuantityColumn<'a> {
    /// View that it shows.
    pub view: &'a View,
    pub title: String,
    /// Distinguishes several views of one name in records.
    pub of: Option<Value>,
    /// Whether it is drawn; records contain all columns.
    pub drawn: bool,
}

pub fn table(views: &[View]) -> Grid {
    let column = |view| QuantityColumn { view, title: view.name.clone(), of: None, drawn: true };
    let columns: Vec<QuantityColumn> = views.iter().map(column).collect();
    of_columns("measured".to_owned(), &columns)
}

pub fn of_columns(title: String, columns: &[QuantityColumn]) -> Grid {
    let views = || columns.iter().map(|column| column.view);
    let drawn = || columns.iter().filter(|column| column.drawn);
    let mut lines = Vec::new();
    let mut records = Vec::new();
    let mut push = |name: &str, values: Vec<Option<f64>>| {
        let each = columns.iter().zip(&values);
        let cells = each.clone().filter(|(column, _)| column.drawn);
        let cell = |value: &Option<f64>| Cell::text(value.map_or("-".into(), shown));
        lines.push(GridLine::new(name, cells.map(|(_, value)| cell(value)).collect()));
        for (column, value) in each {
            let at = [None, column.of.clone()];
            records.push(record(&column.view.name, name, at, *value));
        }
    };
    let traced = views().any(|view| view.gradients.is_some());
    let of_gradients = OF_GRADIENTS.iter().filter(|_| traced);
    for quantity in QUANTITIES.iter().chain(of_gradients) {
        push(quantity.name, views().map(|view| (quantity.of)(view).filter(|x| !x.is_nan())).collect());
    }
    let verified = views().find_map(|view| view.errors);
    for (i, (name, _)) in verified.iter().flat_map(|errors| errors.each()).enumerate() {
        let of = |view: &View| {
            let error = view.errors.map(|errors| errors.each()[i].1);
            error.filter(|error| !error.is_nan())
        };
        push(name, views().map(of).collect());
    }
    Grid {
        form: PanelForm::Table,
        records,
        ..Grid::new(title, drawn().map(|column| column.title.as_str()), lines, Style::Measured("number"))
    }
}

/// A report of several panels.
pub fn panels(heading: String, grids: Vec<Grid>, notes: Vec<String>) -> Report {
    Report {
        heading,
        facts: vec![("inspection".to_owned(), json!(1))],
        list: "panels",
        grids,
        printed: Vec::new(),
        notes,
        coverage: Coverage::default(),
    }
}

/// A record: system, quantity, token i and token j or name, and the value. A value that is not finite becomes null, as
/// JSON requires.
pub fn record(subject: &str, quantity: &str, at: [Option<Value>; 2], value: Option<f64>) -> Facts {
    let [token, of] = at.map(Option::unwrap_or_default);
    let fields = [
        ("subject", json!(subject)),
        ("quantity", json!(quantity)),
        ("token", token),
        ("of", of),
        ("value", json!(value)),
    ];
    fields.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// Formats a number for a table; NaN becomes `-`.
pub fn shown(value: f64) -> String {
    match value {
        f64::INFINITY => "∞".to_owned(),
        value if value.is_nan() => "-".to_owned(),
        value => Style::Measured("").number(value),
    }
}
