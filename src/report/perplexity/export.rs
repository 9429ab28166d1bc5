//! For other programs: every number unrounded, the paper's as well.

use super::super::difference::listed;
use super::super::export::{coverage, csv_of, text};
use super::super::{Metric, SCHEMA};
use super::line::Line;
use super::table::Table;
use super::{Perplexities, ALL};
use serde_json::{json, Map, Value};

/// Before the perplexities and their deviations.
const FRONT: [&str; 13] = [
    "table",
    "dataset",
    "tokenizer",
    "preset",
    "precision",
    "settings",
    "mixer",
    "differences",
    "status",
    "seeds",
    "lr",
    "lr_tried",
    "lr_chosen_by",
];

/// Behind them. The gaps are those of the table, on its line of normalized attention.
const BACK: [&str; 4] = [
    "unigram_ppl",
    "paper",
    "gap_closed_train_ppl",
    "gap_closed_val_ppl",
];

/// A line a mixer.
pub(super) fn csv(report: &Perplexities) -> String {
    let names = columns();
    let header: Vec<&str> = names.iter().map(String::as_str).collect();
    let each = report.tables.iter().flat_map(|table| {
        let lines = table.lines.iter();
        lines.map(|line| record(report, table, line))
    });
    csv_of(
        &header,
        each.map(|record| record.iter().map(text).collect()),
    )
}

/// One object that holds the whole report.
pub(super) fn json(report: &Perplexities) -> String {
    let each: Vec<Value> = report.tables.iter().map(|t| of_table(report, t)).collect();
    let whole = json!({
        "schema": SCHEMA,
        "table": 1,
        "metric": report.by.as_str(),
        "tables": each,
        "coverage": coverage(&report.coverage),
    });
    format!("{whole:#}\n")
}

fn of_table(report: &Perplexities, table: &Table) -> Value {
    let names = columns();
    let cell = |line: &Line| -> Map<String, Value> {
        let record = record(report, table, line);
        names.iter().cloned().zip(record).collect()
    };
    let cells: Vec<Map<String, Value>> = table.lines.iter().map(cell).collect();
    let mut gaps: Map<String, Value> = ALL
        .iter()
        .map(|metric| {
            (
                metric.as_str().to_owned(),
                json!(table.gap(*metric).share()),
            )
        })
        .collect();
    gaps.insert("paper".into(), json!(table.paper_gap().share()));
    json!({
        "title": table.title(),
        "beside_paper": table.beside(),
        "gap_closed": gaps,
        "cells": cells,
    })
}

fn columns() -> Vec<String> {
    let front = FRONT.map(String::from).into_iter();
    let numbers = ALL.iter().flat_map(|metric| {
        let name = metric.as_str();
        [name.to_owned(), format!("{name}_std")]
    });
    front.chain(numbers).chain(BACK.map(String::from)).collect()
}

/// In the order of [`columns`].
fn record(report: &Perplexities, table: &Table, line: &Line) -> Vec<Value> {
    let chosen = line.score(report.by);
    let status = line
        .cell(report.by)
        .map_or("no_number", |cell| cell.status());
    let mut record = vec![
        json!(1),
        json!(table.corpus),
        json!(table.tokenizer),
        json!(table.preset),
        json!(table.precision),
        json!(listed(&table.settings)),
        json!(line.mixer),
        json!(listed(&line.differences)),
        json!(status),
        json!(chosen.map(|score| score.seeds)),
        json!(chosen.map(|score| score.lr)),
        json!(line.rates),
        json!(report.by.as_str()),
    ];
    for metric in ALL {
        let score = line.score(metric);
        record.push(json!(score.map(|s| s.mean)));
        record.push(json!(score.and_then(|s| s.std)));
    }
    let [_, normalized, _] = table.attentions();
    let compared = normalized.is_some_and(|normalized| std::ptr::eq(normalized, line));
    let gap = |metric: Metric| json!(table.gap(metric).share().filter(|_| compared));
    record.push(json!(table.unigram));
    record.push(json!(line.paper().filter(|_| table.beside())));
    record.extend([gap(Metric::TrainPpl), gap(Metric::ValPpl)]);
    record
}
