//! Training curves.

use super::*;
use crate::error::testing::Fails;
use crate::report::picture::PanelBody;
use crate::store::samples::{config, done, read, text_config};
use crate::store::EpochRow;

/// Epochs of these accuracies; losses halve from 1.
fn epochs(accuracies: &[f64]) -> Vec<EpochRow> {
    let rows = accuracies.iter().enumerate().map(|(i, accuracy)| EpochRow {
        epoch: i + 1,
        train_loss: 0.5f64.powi(i as i32),
        test_loss: 1.0,
        accuracy: *accuracy,
        lr: 1e-3,
        seconds: 1.0,
        tokens_per_s: 1.0,
        val_loss: None,
        val_accuracy: None,
        macro_accuracy: None,
    });
    rows.collect()
}

fn curve(mixer: &str, lr: f64, seed: u64, accuracies: &[f64]) -> Traced<EpochRow> {
    let mut config = config();
    config.model.mixer = mixer.into();
    (config.train.lr, config.seed) = (lr, seed);
    Traced { run: Record::new(&config, &done(0.5)), rows: epochs(accuracies) }
}

fn small() -> Vec<Traced<EpochRow>> {
    vec![
        curve("linear", 1e-3, 0, &[0.25, 0.5]),
        curve("linear", 1e-3, 1, &[0.75, 0.5]),
        curve("linear", 1e-2, 0, &[0.125]),
    ]
}

#[test]
fn curves_are_means_over_seeds_a_line_a_rate_until_the_last_epoch_of_each() {
    let report = curves(&small(), &ReportOptions::default()).unwrap();
    shows!("curves", text(&report));
    let csv = drawn(&report, "csv");
    assert!(csv.lines().next().unwrap().ends_with(",metric,epoch,mean,std,seeds,without_skill"), "{csv}");
    assert!(csv.lines().last().unwrap().contains(",accuracy,1,0.125,,1,0.28"), "{csv}");
    assert!(csv.lines().any(|line| line.ends_with(",train_loss,1,1.0,,1,")), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 2 * 3);
}

#[test]
fn curves_are_drawn_on_the_scales_of_their_numbers() {
    let report = curves(&small(), &ReportOptions::default()).unwrap();
    let picture = panels::picture(&report);
    let names: Vec<&str> = picture
        .panels
        .iter()
        .flatten()
        .map(|panel| match &panel.body {
            PanelBody::Plot(plot) => &*plot.y.name,
            PanelBody::Heatmap(_) => "",
        })
        .collect();
    assert_eq!((picture.across, names), (2, vec!["loss (nats)", "accuracy (%)"]));
    shows!("words-of-the-picture", words(&drawn(&report, "svg")));
    assert!(!bytes(&report, "png").is_empty());
}

#[test]
fn a_long_curve_is_whole_in_pictures_and_data_and_short_in_tables() {
    let long: Vec<f64> = (0..64).map(|epoch| f64::from(epoch) / 64.0).collect();
    let report = curves(&[curve("ssd", 1e-3, 0, &long)], &ReportOptions::default()).unwrap();
    shows!("long-curve", text(&report));
    shows!("long-curve-in-latex", drawn(&report, "latex"));
    assert_eq!(drawn(&report, "csv").lines().count(), 1 + 2 * 64);
    let picture = panels::picture(&report);
    let panel = picture.panels[0].as_ref().unwrap();
    assert!(matches!(&panel.body, PanelBody::Plot(plot) if plot.series[0].points.len() == 64));
}

#[test]
fn texts_have_curves_of_perplexity() {
    let mut rows = epochs(&[0.1, 0.2]);
    for row in &mut rows {
        row.val_loss = Some(2f64.ln());
    }
    let run = Record::new(&text_config(), &read(16.0));
    let report = curves(&[Traced { run, rows }], &ReportOptions::default()).unwrap();
    shows!("curves-of-perplexity", text(&report));
}

#[test]
fn without_epochs_or_behind_a_filter_that_leaves_none_a_sentence_says_so() {
    let none = curves(&[], &ReportOptions::default()).fails("refused");
    none.names(&["metrics.csv"]);
    let filter = Filter { mixers: vec!["s6".into()], ..Filter::default() };
    let none = curves(&small(), &filtered(filter)).fails("refused");
    none.names(&["3 runs"]);
}
