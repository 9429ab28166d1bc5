//! The quantities of a comparison: a row of [`QUANTITIES`] each.

use super::measures::Measures;
use super::view::View;
use crate::report::{Cell, Facts, Form, Grid, Line, Style};
use serde_json::{json, Value};

/// A number that is measured of every system, by its name in a table.
struct Quantity {
    name: &'static str,
    of: fn(&View) -> Option<f64>,
}

const fn row(name: &'static str, of: fn(&View) -> Option<f64>) -> Quantity {
    Quantity { name, of }
}

/// In the order of the table.
#[rustfmt::skip]
const QUANTITIES: &[Quantity] = &[
    row("state N of (11)", |view| measured(view, |m| m.width as f64)),
    row("numbers kept while decoding", |view| Some(view.state[0] as f64)),
    row("growth a token", |view| Some(view.state[1] as f64)),
    row("different numbers in Λ_i", |view| measured(view, |m| m.free as f64)),
    row("smallest |λ|", |view| measured(view, |m| m.ends()[0])),
    row("median |λ|", |view| measured(view, Measures::median)),
    row("largest |λ|", |view| measured(view, |m| m.ends()[1])),
    row("share of |λ| > 1 (%)", |view| measured(view, |m| 100.0 * m.growing())),
    row("largest product of Λs", |view| measured(view, |m| m.largest_product)),
    row("median half-life (tokens)", |view| measured(view, |m| Measures::half_life(m.median()))),
    row("effective horizon (tokens)", |view| measured(view, |m| m.horizon)),
    row("that of softmax", |view| Some(view.attention.horizon)),
    row("effective rank of Φ", |view| measured(view, |m| m.rank)),
    row("that of softmax's attention", |view| Some(view.attention.rank)),
    row("mean gain in, ‖B_i‖", |view| measured(view, |m| mean(m, 0))),
    row("mean gain out, ‖C_i‖", |view| measured(view, |m| mean(m, 1))),
    row("spread of the gate (ln)", |view| measured(view, |m| m.gate.map_or(0.0, |g| g[0]))),
    row("spread of ΠΛ times the gate (ln)", |view| measured(view, |m| m.gate.map_or(0.0, |g| g[1]))),
];

/// `None` where there is no system, or where the number is none, as half-lives of a single token.
fn measured(view: &View, of: impl Fn(&Measures) -> f64) -> Option<f64> {
    view.found.as_ref().ok().map(of).filter(|x| !x.is_nan())
}

fn mean(measures: &Measures, which: usize) -> f64 {
    let sum: f64 = measures.gains.iter().map(|gains| gains[which]).sum();
    sum / measures.gains.len() as f64
}

/// A column of the table.
pub struct Column<'a> {
    /// What its numbers are of.
    pub view: &'a View,
    /// Above it.
    pub title: String,
    /// Which of several views under one name it is, for programs.
    pub of: Option<Value>,
    /// Whether it is drawn; programs are told of all columns.
    pub drawn: bool,
}

/// The table of `views`, a column each.
pub fn table(views: &[View]) -> Grid {
    let column = |view| Column {
        view,
        title: view.name.clone(),
        of: None,
        drawn: true,
    };
    let columns: Vec<Column> = views.iter().map(column).collect();
    of_columns("measured".to_owned(), &columns)
}

/// The table of `columns`.
pub fn of_columns(title: String, columns: &[Column]) -> Grid {
    let views = || columns.iter().map(|column| column.view);
    let drawn = || columns.iter().filter(|column| column.drawn);
    let mut lines = Vec::new();
    let mut records = Vec::new();
    let mut push = |name: &str, values: Vec<Option<f64>>| {
        let each = columns.iter().zip(&values);
        let cells = each.clone().filter(|(column, _)| column.drawn);
        let cell = |value: &Option<f64>| Cell::text(value.map_or("-".into(), shown));
        lines.push(Line {
            name: name.to_owned(),
            printed: false,
            cells: cells.map(|(_, value)| cell(value)).collect(),
        });
        for (column, value) in each {
            let at = [None, column.of.clone()];
            records.push(record(&column.view.name, name, at, *value));
        }
    };
    for quantity in QUANTITIES {
        push(quantity.name, views().map(quantity.of).collect());
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
        form: Form::Table,
        records,
        ..Grid::new(
            title,
            drawn().map(|column| column.title.clone()).collect(),
            lines,
            Style::Measured("number"),
        )
    }
}

/// A line of CSV: which system, what, at which token i and which j or name, and the number; infinite ones are words.
pub fn record(subject: &str, quantity: &str, at: [Option<Value>; 2], value: Option<f64>) -> Facts {
    let [token, of] = at.map(Option::unwrap_or_default);
    let value = match value {
        Some(value) if value.is_infinite() => json!("inf"),
        value => json!(value),
    };
    let fields = [
        ("subject", json!(subject)),
        ("quantity", json!(quantity)),
        ("token", token),
        ("of", of),
        ("value", value),
    ];
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
}

/// In a table.
pub fn shown(value: f64) -> String {
    Style::Measured("").number(value)
}
