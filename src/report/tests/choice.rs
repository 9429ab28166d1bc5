//! Which runs a cell rests on.

use super::*;
use crate::store::samples::{read, text_config};

#[test]
fn the_rate_is_chosen_by_its_mean_over_seeds_and_not_by_the_luckiest_seed() {
    let mut rows = seeds(64, 1e-3, &[0.8, 0.8]);
    rows.extend(seeds(64, 1e-2, &[0.95, 0.5]));
    let cell = only_cell(&rows);
    let score = cell.score().unwrap();
    assert_eq!((score.lr, score.seeds), (1e-3, 2));
    assert!((score.mean - 0.8).abs() < 1e-12);
}

#[test]
fn survivors_of_an_unstable_rate_do_not_beat_a_stable_one() {
    let mut rows = seeds(64, 1e-3, &[0.8, 0.8]);
    rows.extend(seeds(64, 1e-2, &[0.95]));
    rows.push(Record::new(&at(64, 32, 1e-2, 1), &diverged()));
    assert_eq!(only_cell(&rows).score().unwrap().lr, 1e-3);
}

#[test]
fn a_cell_with_one_good_rate_is_not_diverged() {
    let rows = [row(64, 32, 1e-3, 0.6), ended(64, 32, 1e-2, &diverged())];
    assert_eq!(only_cell(&rows).score().unwrap().mean, 0.6);
}

#[test]
fn a_done_run_without_a_number_counts_as_failed() {
    let mut row = row(64, 32, 1e-3, 0.6);
    row.set("accuracy", Some(f64::NAN));
    assert_eq!(only_cell(&[row]), Cell::Failed);
}

#[test]
fn of_equal_rates_the_lowest_wins() {
    let rows = [1e-2, 1e-4, 1e-3].map(|lr| row(64, 32, lr, 0.6));
    assert_eq!(only_cell(&rows).score().unwrap().lr, 1e-4);
}

#[test]
fn a_diverged_rate_counts_as_tried() {
    let rows = [
        row(64, 32, 1e-4, 0.3),
        row(64, 32, 1e-3, 0.6),
        ended(64, 32, 1e-2, &diverged()),
    ];
    assert_eq!(only_cell(&rows).score().unwrap().edge, None);
}

#[test]
fn runs_of_different_settings_are_never_mixed() {
    let changes: [fn(&mut RunConfig); 9] = [
        |c| c.train.epochs = 8,
        |c| c.train.batch_size = 64,
        |c| c.train.stop_above = 2.0,
        |c| c.model.attn_dropout = 0.0,
        |c| c.model.n_layers = 4,
        |c| c.model.n_heads = 2,
        |c| c.model.variant = "paper".into(),
        |c| c.model.positions = false,
        |c| c.model.options.clear(),
    ];
    for change in changes {
        assert_eq!(titles(&[changed(|_| {}), changed(change)]).len(), 2);
    }
}

#[test]
fn a_cell_with_rates_still_to_run_is_not_called_diverged() {
    let plan = [at(64, 32, 1e-3, 0), at(64, 32, 1e-2, 0)];
    let rows = [ended(64, 32, 1e-2, &diverged())];
    let report = mqar(&rows, Some(&plan), &Filter::default(), Metric::Accuracy).unwrap();
    assert_eq!(report.panels[0].cell(64, 32), Cell::NotRun);
}

#[test]
fn a_run_that_is_given_twice_counts_once_and_a_number_beats_a_failure() {
    let failure = ended(64, 32, 1e-3, &failed("disk"));
    for rows in [
        [failure.clone(), row(64, 32, 1e-3, 0.5)],
        [row(64, 32, 1e-3, 0.5), failure],
    ] {
        let report = report(&rows);
        assert_eq!(report.coverage.done, 1);
        assert!(report.coverage.failed.is_empty());
    }
}

#[test]
fn the_best_accuracy_of_any_epoch_is_another_metric() {
    let mut row = row(64, 32, 1e-3, 0.5);
    row.set("best_accuracy", Some(0.625));
    let report = mqar(&[row], None, &Filter::default(), Metric::BestAccuracy).unwrap();
    let text = text(&report);
    assert!(text.contains("62.5"), "{text}");
    assert!(text.starts_with("MQAR: best test accuracy"), "{text}");
}

#[test]
fn without_results_one_sentence_says_how_to_make_some() {
    let none = mqar(&[], None, &Filter::default(), Metric::Accuracy);
    let message = none.unwrap_err().to_string();
    assert!(message.contains("`dsf mqar`"), "{message}");
    assert!(message.contains("`dsf sweep`"), "{message}");
}

#[test]
fn without_results_of_recall_but_some_of_the_arena_it_says_what_to_type() {
    let mut row = changed(|_| {});
    row.set("task", "lra");
    let message = mqar(&[row], None, &Filter::default(), Metric::Accuracy)
        .unwrap_err()
        .to_string();
    assert!(message.contains("`dsf report --table 3`"), "{message}");
}

#[test]
fn results_of_text_alone_point_to_the_table_that_shows_them() {
    let text = Record::new(&text_config(), &read(17.0));
    let refused = mqar(&[text], None, &Filter::default(), Metric::Accuracy);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("`dsf report --table 1`"), "{message}");
}

#[test]
fn recall_has_no_perplexity() {
    let refused = mqar(&[changed(|_| {})], None, &Filter::default(), Metric::ValPpl);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("--metric val_ppl"), "{message}");
}

#[test]
fn recall_has_no_epoch_chosen_on_validation_data() {
    let refused = mqar(
        &[changed(|_| {})],
        None,
        &Filter::default(),
        Metric::SelectedAccuracy,
    );
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("--metric selected_accuracy"), "{message}");
}

#[test]
fn a_filter_keeps_what_it_names() {
    let rows = [
        changed(|_| {}),
        changed(|c| c.model.mixer = "softmax".into()),
    ];
    let only = |filter: Filter| mqar(&rows, None, &filter, Metric::Accuracy);
    let softmax = only(Filter {
        mixers: vec!["softmax".into()],
        seq_lens: vec![64],
        protocols: vec![Protocol::Matched],
        ..Filter::default()
    });
    assert_eq!(softmax.unwrap().panels.len(), 1);
    let nothing = only(Filter {
        seq_lens: vec![512],
        ..Filter::default()
    });
    let message = nothing.unwrap_err().to_string();
    let there = "there are results for --mixer linear,softmax, --seq-len 64, --protocol matched";
    assert!(message.contains(there), "{message}");
}

#[test]
fn a_diverged_run_is_counted_as_done() {
    let rows = [ended(64, 32, 1e-3, &diverged())];
    assert_eq!(rows[0].outcome(), Some(Outcome::Diverged));
    let coverage = report(&rows).coverage;
    assert_eq!((coverage.done, coverage.diverged), (1, 1));
}
