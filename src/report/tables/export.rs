//! For other programs: every number unrounded, 0 to 1; the paper's as well.

use super::super::difference::{listed, Difference};
use super::super::export::{coverage, csv_of, text};
use super::super::{Metric, SCHEMA};
use super::place::{Place, SHOWN};
use super::table::{Line, Table};
use super::Tables;
use serde_json::{json, Map, Value};

const AVERAGE: &str = "average";

const COLUMNS: [&str; 24] = [
    "table",
    "data",
    "protocol",
    "preset",
    "loss",
    "settings",
    "mixer",
    "task",
    "differences",
    "generated",
    "status",
    "accuracy",
    "accuracy_std",
    "selected_accuracy",
    "selected_accuracy_std",
    "best_accuracy",
    "best_accuracy_std",
    "seeds",
    "lr",
    "lr_tried",
    "lr_chosen_by",
    "majority",
    "majority_highest",
    "paper",
];

/// A line a model and task, and one for its average.
pub(super) fn csv(tables: &Tables) -> String {
    let each = tables.tables.iter().flat_map(|table| {
        let lines = table.lines.iter();
        lines.flat_map(|line| records(tables, table, line))
    });
    csv_of(
        &COLUMNS,
        each.map(|record| record.iter().map(text).collect()),
    )
}

/// One object that holds the whole report.
pub(super) fn json(tables: &Tables) -> String {
    let each: Vec<Value> = tables.tables.iter().map(|t| of_table(tables, t)).collect();
    let whole = json!({
        "schema": SCHEMA,
        "table": tables.paper.number,
        "metric": tables.metric.map(Metric::as_str),
        "tables": each,
        "coverage": coverage(&tables.coverage),
    });
    format!("{whole:#}\n")
}

fn of_table(tables: &Tables, table: &Table) -> Value {
    let lines = table.lines.iter();
    let cells: Vec<Value> = lines
        .flat_map(|line| records(tables, table, line))
        .map(|record| {
            let names = COLUMNS.iter().map(|name| (*name).to_owned());
            let fields: Map<String, Value> = names.zip(record).collect();
            Value::from(fields)
        })
        .collect();
    json!({ "title": table.title(), "whole": table.whole, "cells": cells })
}

/// In the order of [`COLUMNS`].
fn records(tables: &Tables, table: &Table, line: &Line) -> Vec<Vec<Value>> {
    let mut records: Vec<Vec<Value>> = (0..table.columns.len())
        .map(|column| {
            let mut record = front(tables, table, line, table.columns[column].name());
            record.extend(of_place(line.places[column].as_ref()));
            record.extend(baselines(table.majority[column], line.paper[column]));
            record
        })
        .collect();
    if table.averages(tables.paper) {
        let mut record = front(tables, table, line, AVERAGE);
        record.extend(of_average(line));
        record.extend(baselines(None, line.paper_average));
        records.push(record);
    }
    records
}

fn front(tables: &Tables, table: &Table, line: &Line, task: &str) -> Vec<Value> {
    let losses: Vec<&str> = table.losses.iter().map(String::as_str).collect();
    vec![
        json!(tables.paper.number),
        json!(if table.whole { "whole" } else { "part" }),
        json!(table.protocol),
        json!(table.preset),
        json!(losses.join(" ")),
        json!(listed(&table.settings)),
        json!(line.mixer),
        json!(task),
    ]
}

fn of_place(place: Option<&Place>) -> Vec<Value> {
    let differences = place.map_or(&[][..], |place| &place.differences[..]);
    let mut values = vec![
        json!(listed(differences)),
        json!(place.map(|place| place.generated)),
        json!(place.map_or("not_run", |place| place
            .cell(Some(Metric::Accuracy))
            .status())),
    ];
    for metric in SHOWN {
        let score = place.and_then(|place| place.score(Some(metric)));
        values.push(json!(score.map(|s| s.mean)));
        values.push(json!(score.and_then(|s| s.std)));
    }
    let score = place.and_then(|place| place.score(Some(Metric::Accuracy)));
    values.push(json!(score.map(|s| s.seeds)));
    values.push(json!(score.map(|s| s.lr)));
    values.push(json!(place.map(|place| place.rates.len())));
    values.push(json!(place.map(Place::chosen_by)));
    values
}

fn of_average(line: &Line) -> Vec<Value> {
    let mut own = line.places.iter().flatten().map(|p| &p.differences);
    let own = own.find(|d| !d.is_empty());
    let own = own.map_or(&[][..], |differences: &Vec<Difference>| differences);
    let mean = |metric| json!(line.average(Some(metric)));
    let status = if line.average(Some(Metric::Accuracy)).is_some() {
        "done"
    } else {
        "incomplete"
    };
    let generated = line.places.iter().flatten().any(|place| place.generated);
    let mut values = vec![json!(listed(own)), json!(generated), json!(status)];
    for metric in SHOWN {
        values.extend([mean(metric), Value::Null]);
    }
    values.extend([Value::Null, Value::Null, Value::Null, Value::Null]);
    values
}

fn baselines(majority: Option<[f64; 2]>, paper: Option<f64>) -> [Value; 3] {
    [
        json!(majority.map(|m| m[0])),
        json!(majority.map(|m| m[1])),
        json!(paper.map(|percent| (100.0 * percent).round() / 1e4)),
    ]
}
