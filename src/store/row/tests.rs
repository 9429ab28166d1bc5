use super::super::samples::{config, row};
use super::*;
use crate::config::RunConfig;

#[test]
fn the_table_names_the_fields_of_a_row_in_order() {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.serialize(row(0.5)).unwrap();
    let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
    let header: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let table: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    assert_eq!(header, table);
}

/// A setting that a row left out would let two different trainings share a cell.
#[test]
fn every_setting_of_a_config_shows_in_its_row() {
    let whole = serde_json::to_value(config()).unwrap();
    let paths = leaves(&whole, String::new());
    assert!(paths.len() > 25, "{paths:?}");
    for path in paths.iter().filter(|p| *p != "/format") {
        let changed = changed_at(&whole, path);
        let row = Row {
            run_id: config().id(),
            ..Row::planned(&changed)
        };
        assert_ne!(row, Row::planned(&config()), "{path} does not show");
    }
}

#[test]
fn the_precision_shows_in_a_row_and_only_a_lower_one_in_the_name_of_a_run() {
    let mut lower = config();
    lower.train.precision = Precision::Bf16;
    assert_eq!(Row::planned(&lower).precision, "bf16");
    assert_ne!(lower.id(), config().id());
    assert!(!config().canonical().contains("precision"));
    assert_eq!(RunConfig::parse(&lower.canonical(), "here").unwrap(), lower);
}

fn leaves(value: &Value, path: String) -> Vec<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, field)| leaves(field, format!("{path}/{name}")))
            .filter(|leaf| leaf != "/task/name") // there is but one task
            .collect(),
        _ => vec![path],
    }
}

fn changed_at(whole: &Value, path: &str) -> RunConfig {
    let candidates: Vec<Value> = match whole.pointer(path).unwrap() {
        Value::Bool(b) => vec![(!b).into()],
        Value::Number(n) if n.is_f64() => vec![(n.as_f64().unwrap() + 0.5).into()],
        Value::Number(n) => vec![(n.as_u64().unwrap() + 1).into()],
        _ => ["paper", "numpy", "mamba", "none", "warmup-constant"]
            .map(Value::from)
            .into(),
    };
    let parsed = candidates.into_iter().find_map(|candidate| {
        let mut changed = whole.clone();
        *changed.pointer_mut(path).unwrap() = candidate;
        serde_json::from_value(changed).ok()
    });
    parsed.unwrap_or_else(|| panic!("no other value known for {path}"))
}
