use super::super::samples::{config, read, row, text_config};
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
    let mut text = text_config();
    text.task.set("eos_between_articles", true);
    text.task.set("train_examples", 9);
    text.task.set("test_examples", 5);
    for (config, fields) in [(config(), 25), (text, 35)] {
        let whole = serde_json::to_value(&config).unwrap();
        let paths = leaves(&whole, String::new());
        assert!(paths.len() > fields, "{paths:?}");
        for path in paths.iter().filter(|p| *p != "/format") {
            let changed = changed_at(&whole, path);
            let row = Row {
                run_id: config.id(),
                ..Row::planned(&changed)
            };
            assert_ne!(row, Row::planned(&config), "{path} does not show");
        }
    }
}

#[test]
fn a_run_on_the_whole_text_has_no_number_of_windows() {
    let row = Row::planned(&text_config());
    assert_eq!((row.train_examples, row.test_examples), (0, 0));
    assert_eq!(
        (row.dataset.as_str(), row.mlp_width),
        ("wikitext-103-raw", Some(2048))
    );
}

#[test]
fn perplexities_show_in_a_row_and_a_run_without_any_has_none() {
    let row = Row::new(&text_config(), &read(16.0));
    assert_eq!(
        (row.train_ppl, row.train_ppl_eval),
        (Some(16.0), Some(12.0))
    );
    assert_eq!((row.val_ppl, row.best_val_ppl), (Some(32.0), Some(20.0)));
    assert_eq!(
        (row.test_ppl, row.selected_test_ppl),
        (Some(40.0), Some(24.0))
    );
    assert_eq!(
        (row.val_word_ppl, row.test_word_ppl),
        (Some(64.0), Some(80.0))
    );
    assert_eq!(
        (row.val_bits_per_byte, row.test_bits_per_byte),
        (Some(1.0), Some(1.25))
    );
    assert_eq!(
        (row.unigram_ppl, row.train_tokens),
        (Some(1100.0), Some(119_000_000))
    );
    let recall = super::super::samples::row(0.5);
    assert_eq!((recall.train_ppl, recall.train_tokens), (None, None));
}

#[test]
fn no_clipping_is_a_norm_of_zero_and_the_released_optimiser_says_nothing() {
    let mut config = text_config();
    assert_eq!(Row::planned(&config).clip, Some(1.0));
    config.train.adam.as_mut().unwrap().clip = None;
    assert_eq!(Row::planned(&config).clip, Some(0.0));
    config.train.adam = None;
    assert_eq!(Row::planned(&config).clip, None);
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

/// Of every enum of a config at least two.
const OTHERS: [&str; 13] = [
    "paper",
    "matched",
    "numpy",
    "mamba",
    "none",
    "warmup-constant",
    "sample",
    "bytes",
    "post",
    "hf",
    "all",
    "bf16",
    "matrices",
];

fn changed_at(whole: &Value, path: &str) -> RunConfig {
    let candidates: Vec<Value> = match whole.pointer(path).unwrap() {
        Value::Bool(b) => vec![(!b).into()],
        Value::Number(n) if n.is_f64() => vec![(n.as_f64().unwrap() + 0.5).into()],
        Value::Number(n) => vec![(n.as_u64().unwrap() + 1).into()],
        Value::String(held) => OTHERS
            .into_iter()
            .filter(|other| other != held)
            .map(Value::from)
            .collect(),
        held => panic!("{path} holds {held}"),
    };
    let parsed = candidates.into_iter().find_map(|candidate| {
        let mut changed = whole.clone();
        *changed.pointer_mut(path).unwrap() = candidate;
        serde_json::from_value(changed).ok()
    });
    parsed.unwrap_or_else(|| panic!("no other value known for {path}"))
}
