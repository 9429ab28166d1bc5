//! Two sets of results, cell by cell.

use super::*;
use crate::error::testing::Fails;
use crate::report::compare::compare;
use crate::store::samples::{config, diverged, done, failed};
use crate::store::{Column, Metric};

fn run(d: usize, seed: u64, accuracy: f64) -> Record {
    Record::new(&config_of(d, seed), &done(accuracy))
}

fn config_of(d: usize, seed: u64) -> RunConfig {
    let mut config = config();
    (config.model.d_model, config.seed) = (d, seed);
    config
}

fn seeds(d: usize, accuracies: &[f64]) -> Vec<Record> {
    (0..).zip(accuracies).map(|(seed, a)| run(d, seed, *a)).collect()
}

fn compared(a: &[Record], b: &[Record]) -> Comparison {
    compare([a, b], ["old", "new"], None).unwrap()
}

fn changes(comparison: &Comparison) -> Vec<(u64, String)> {
    let records = comparison.report.grids.iter().flat_map(|grid| &grid.records);
    let value = |record: &Facts, name: &str| {
        let mut found = record.iter().filter(|(known, _)| known == name);
        found.next().unwrap().1.clone()
    };
    let each = records.map(|record| {
        let change = value(record, "change");
        (value(record, "d").as_u64().unwrap(), change.as_str().unwrap().to_owned())
    });
    each.collect()
}

#[test]
fn every_cell_is_one_of_seven() {
    let mut a = seeds(8, &[0.5, 0.6]);
    let mut b = a.clone();
    a.extend(seeds(16, &[0.50, 0.60, 0.55, 0.52]));
    b.extend(seeds(16, &[0.54, 0.57, 0.56, 0.50]));
    a.extend(seeds(32, &[0.50, 0.51, 0.52, 0.53]));
    b.extend(seeds(32, &[0.70, 0.712, 0.72, 0.73]));
    a.extend(seeds(64, &[0.70, 0.712, 0.72, 0.73]));
    b.extend(seeds(64, &[0.50, 0.51, 0.52, 0.53]));
    a.extend(seeds(128, &[0.9]));
    b.extend(seeds(128, &[0.1]));
    a.extend(seeds(256, &[0.9]));
    b.extend(seeds(512, &[0.9]));
    let comparison = compared(&a, &b);
    let wanted = [
        (8, "identical"),
        (16, "within noise"),
        (32, "better"),
        (64, "worse"),
        (128, "too few seeds"),
        (256, "only in A"),
        (512, "only in B"),
    ];
    assert_eq!(changes(&comparison), wanted.map(|(d, change)| (d, change.to_owned())));
    assert_eq!(comparison.worse, 1);
    // Identical cells have no line.
    shows!("comparison", text(&comparison.report));
    assert_eq!(json(&comparison.report)["cells"]["identical"], 1);
}

#[test]
fn divergence_on_one_side_is_beyond_noise_and_a_failure_is_no_number() {
    let lost = Record::new(&config_of(8, 0), &diverged());
    let comparison = compared(&[run(8, 0, 0.5)], std::slice::from_ref(&lost));
    assert_eq!(comparison.worse, 1);
    assert_eq!(compared(&[lost], &[run(8, 0, 0.5)]).worse, 0);
    let broken = Record::new(&config_of(8, 0), &failed("out of memory"));
    let comparison = compared(&[run(8, 0, 0.5)], &[broken]);
    assert_eq!(changes(&comparison), [(8, "only in A".to_owned())]);
}

#[test]
fn of_perplexities_and_losses_the_lower_is_better() {
    let with_loss = |losses: [f64; 4]| -> Vec<Record> {
        let mut rows = seeds(8, &[0.5; 4]);
        for (row, loss) in rows.iter_mut().zip(losses) {
            row.set(Column::TEST_LOSS, loss);
        }
        rows
    };
    let (low, high) = (with_loss([1.0, 1.1, 1.05, 1.02]), with_loss([2.0, 2.1, 2.04, 2.02]));
    let worse = |a: &[Record], b: &[Record]| {
        let metric = Metric::find("test_loss");
        compare([a, b], ["old", "new"], metric).unwrap().worse
    };
    assert_eq!((worse(&low, &high), worse(&high, &low)), (1, 0));
}

/// Without a correction, one cell in twenty would be.
#[test]
fn many_cells_without_a_difference_are_seldom_called_worse() {
    let mut found = 0;
    for study in 0..200u64 {
        let mut noise = crate::ops::rng::Rng::new(study, "compare", 0);
        let mut cells = || -> Vec<Record> {
            let each = (1..=20).flat_map(|d| {
                let values: Vec<f64> = (0..4).map(|_| 0.5 + 0.05 * noise.normals().0).collect();
                seeds(8 * d, &values)
            });
            each.collect()
        };
        let (a, b) = (cells(), cells());
        found += usize::from(compared(&a, &b).worse > 0);
    }
    assert!(found <= 10, "{found} of 200");
}

#[test]
fn nothing_to_compare_is_said() {
    let refused = |a: &[Record], b: &[Record], metric: &str| {
        compare([a, b], ["old", "new"], Metric::find(metric)).fails("refused")
    };
    let rows = seeds(8, &[0.5]);
    refused(&rows, &[], "accuracy").is_at("new", None);
    refused(&rows, &rows, "train_ppl").names(&["old", "new", "train_ppl"]);
    let params = refused(&rows, &rows, "params");
    assert_eq!(params.flag.as_deref(), Some("--metric"));
}

#[test]
fn seeds_that_draw_their_own_data_are_compared_as_one_cell() {
    let drawn = |accuracies: &[f64]| -> Vec<Record> {
        let rows = (1..).zip(accuracies).map(|(seed, accuracy)| {
            let mut config = config_of(64, seed);
            config.task.set("data_seed", seed);
            Record::new(&config, &done(*accuracy))
        });
        rows.collect()
    };
    let (a, b) = (drawn(&[0.50, 0.51, 0.52]), drawn(&[0.90, 0.91, 0.92]));
    assert_eq!(changes(&compared(&a, &b)), [(64, "better".to_owned())]);
}
