//! Which runs a place rests on, and beside what it stands.

use super::*;
use LraDataset::{Image, Listops, Pathfinder, Retrieval, Text};

/// What makes a run another one.
type Change = fn(&mut Wish);

#[test]
fn runs_of_several_protocols_losses_inputs_or_pools_are_never_in_one_table() {
    let changes: [Change; 9] = [
        |w| w.set("protocol", "paper").end(),
        |w| w.set("protocol", "matched").end(),
        |w| w.set("loss", "ce").end(),
        |w| w.set("input", "scalar").end(),
        |w| w.set("mask", true).end(),
        |w| w.set("lambda-skip", true).end(),
        |w| w.set("pool", "max").end(),
        |w| w.set("dual", "features").end(),
        |w| w.set("precision", "bf16").end(),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let rows = [usual("softmax", Retrieval), changed(Retrieval, change)];
        let tables = third(&rows).tables;
        assert_eq!(tables.len(), 2, "change {i}");
        assert_ne!(tables[0].title(), tables[1].title(), "change {i}");
    }
}

#[test]
fn mixers_that_read_differently_by_design_share_a_table() {
    let rows = ["softmax", "s6", "mamba"].map(|mixer| usual(mixer, Listops));
    assert_eq!(
        (rows[0].input.as_str(), rows[1].input.as_str()),
        ("embedding", "scalar")
    );
    assert_eq!(third(&rows).tables.len(), 1);
}

#[test]
fn any_other_setting_has_a_place_of_its_own_and_a_footnote() {
    let changes: [(Change, &str); 8] = [
        (|w| w.set("d", 64).end(), "d=64 (preset: 128)"),
        (|w| w.set("layers", 2).end(), "layers=2 (preset: 8)"),
        (|w| w.set("heads", 2).end(), "heads=2 (preset: 8)"),
        (|w| w.set("epochs", 3).end(), "epochs_max=3 (preset: 50)"),
        (|w| w.set("batch-size", 4).end(), "batch_size=4 (preset: 8)"),
        (
            |w| w.set("weight-decay", 0.0).end(),
            "weight_decay=0.0 (preset: 0.1)",
        ),
        (|w| w.set("data-seed", 7).end(), "data_seed=7"),
        (
            |w| w.set("val-examples", 0).end(),
            "val_examples=0 (preset: 2000)",
        ),
    ];
    for (change, footnote) in changes {
        let tables = third(&[usual("softmax", Listops), changed(Listops, change)]);
        let softmax = tables.tables[0]
            .lines
            .iter()
            .filter(|l| l.mixer == "softmax");
        assert_eq!(softmax.count(), 2, "{footnote}");
        let text = text(&tables);
        assert!(
            text.contains(&format!("  † {footnote}")),
            "{footnote}: {text}"
        );
    }
}

#[test]
fn a_run_on_part_of_the_data_never_stands_beside_the_papers_numbers() {
    let parts: [Change; 5] = [
        |w| w.set("train-examples", 1_000).end(),
        |w| w.set("test-examples", 1_000).end(),
        |w| w.set("seq-len", 600).set("data", "files").end(),
        |w| w.set("preset", "quick").end(),
        |w| w.set("preset", "smoke").end(),
    ];
    for part in parts {
        let text = text(&third(&[changed(Listops, part)]));
        assert!(
            text.contains("on part of the data, protocol reference"),
            "{text}"
        );
        assert!(!text.contains("35.72") && !text.contains("paper"), "{text}");
    }
}

#[test]
fn an_easier_pathfinder_never_stands_beside_the_papers_numbers() {
    let of = |paddles: Option<usize>| {
        let row = changed(Pathfinder, |w| {
            paddles
                .into_iter()
                .for_each(|n: usize| w.set("contour-length", n).end())
        });
        third(&[row]).tables[0].whole
    };
    assert!(of(None) && of(Some(14)) && !of(Some(9)));
}

#[test]
fn runs_on_all_and_on_part_of_the_data_are_in_two_tables() {
    let part = changed(Listops, |w| w.set("train-examples", 95_999).end());
    let tables = third(&[part, usual("softmax", Listops)]).tables;
    assert_eq!([tables[0].whole, tables[1].whole], [true, false]);
}

#[test]
fn a_tenth_of_text_may_serve_as_validation_split_and_no_more() {
    let held_out = |train, val| {
        let row = changed(Text, |w| {
            w.set("train-examples", train)
                .set("val-examples", val)
                .end();
        });
        third(&[row]).tables[0].whole
    };
    assert!(held_out(22_500, 2_500) && held_out(25_000, 0));
    assert!(!held_out(22_500, 0) && !held_out(12_500, 12_500));
    let matched = changed(Text, |w| w.set("protocol", "matched").end());
    assert!(third(&[matched]).tables[0].whole);
}

#[test]
fn the_rate_is_chosen_on_validation_data_and_not_on_the_test_split() {
    let at = |lr, validation, test: f64| {
        let mut row = changed(Image, |w| w.set("lr", lr).end());
        (row.val_accuracy, row.selected_accuracy) = (Some(validation), Some(test));
        row
    };
    let text = text(&third(&[at(1e-3, 0.4, 0.35), at(1e-2, 0.3, 0.45)]));
    assert!(text.contains(" 35.0") && !text.contains("45.0"), "{text}");
    let note = "softmax on Image: rate 1e-3, the best of 2 by validation accuracy";
    assert!(text.contains(note), "{text}");
}

#[test]
fn without_validation_split_the_best_test_accuracy_is_shown_and_said() {
    let rows = [usual("softmax", Text)];
    let shown = text(&third(&rows));
    assert!(
        shown.contains("70.0°") && shown.contains("° the best test"),
        "{shown}"
    );
    let of = |metric| {
        let asked = Asked {
            metric: Some(metric),
            ..Asked::default()
        };
        text(&super::asked(&LONG_RANGE_ARENA, &rows, &asked))
    };
    let none = of(Metric::SelectedAccuracy);
    assert!(!none.contains("70.0") && !none.contains("60.0"), "{none}");
    assert!(none.contains("where no validation split"), "{none}");
    assert!(of(Metric::Accuracy).contains(" 50.0"));
    assert!(of(Metric::BestAccuracy).contains(" 70.0"));
}

#[test]
fn released_and_generated_examples_share_no_place_and_the_latter_are_marked() {
    let released = changed(Listops, |w| w.set("data", "files").end());
    let alone = text(&third(&[usual("softmax", Listops)]));
    assert!(
        alone.contains("60.0‡") && alone.contains("‡ examples of our own"),
        "{alone}"
    );
    let both = text(&third(&[usual("softmax", Listops), released.clone()]));
    assert!(both.contains("† data=native (preset: files)"), "{both}");
    assert!(!text(&third(&[released])).contains('‡'));
}

#[test]
fn an_average_needs_all_five_tasks_in_one_setting() {
    let average = |rows: &[Row]| third(rows).tables[0].lines[0].average(None);
    let rows = LraDataset::ALL.map(|dataset| usual("softmax", dataset));
    // Four of 0.6, and 0.7 on Text.
    assert!((average(&rows).unwrap() - 0.62).abs() < 1e-12);
    assert_eq!(average(&rows[1..]), None);
    let own = |d| changed(Listops, |w| w.set("d", d).end());
    let other = changed(Image, |w| w.set("layers", 1).end());
    let mixed = [&rows[1..3], &rows[4..], &[own(64), other]].concat();
    assert_eq!(average(&mixed), None, "two settings of their own");
    let marked = text(&third(&[&rows[1..], &[own(64)]].concat()));
    assert!(marked.contains("62.0†‡°"), "{marked}");
    let some = Asked {
        filter: Filter {
            datasets: vec![Listops, Image],
            ..Filter::default()
        },
        ..Asked::default()
    };
    let some = text(&super::asked(&LONG_RANGE_ARENA, &rows, &some));
    assert!(
        !some.contains("average") && !some.contains("Retrieval"),
        "{some}"
    );
}

#[test]
fn a_mixer_beyond_the_paper_has_a_line_without_its_numbers() {
    let tables = third(&[usual("rg-lru", Image), usual("ssd", Image)]);
    let lines = &tables.tables[0].lines;
    let mixers: Vec<&str> = lines.iter().map(|line| line.mixer.as_str()).collect();
    assert_eq!(
        mixers,
        [
            "softmax",
            "linear",
            "normalized",
            "s6",
            "mamba",
            "rg-lru",
            "ssd"
        ]
    );
    assert!(lines[5].paper.iter().all(Option::is_none));
    assert_eq!(
        lines[3].paper, lines[4].paper,
        "the paper's S6 stands beside both"
    );
}

#[test]
fn a_mixer_that_this_version_does_not_know_has_all_its_settings_said() {
    let mut row = usual("softmax", Image);
    row.mixer = "telepathy".into();
    let text = text(&third(&[row]));
    assert!(
        text.contains("telepathy") && text.contains("d=128, "),
        "{text}"
    );
}

#[test]
fn without_results_one_sentence_says_how_to_get_some() {
    let refused = |which, rows: &[Row], asked: &Asked| {
        let refused = accuracies(which, rows, None, &presets_of, asked);
        refused.err().unwrap().to_string()
    };
    let none = Asked::default();
    let third = refused(&LONG_RANGE_ARENA, &[], &none);
    assert!(
        third.contains("`dsf sweep experiments/table3.toml`"),
        "{third}"
    );
    let image = [usual("softmax", Image)];
    let second = refused(&NORMALISERS, &image, &none);
    assert!(
        second.contains("`dsf sweep experiments/table2.toml`"),
        "{second}"
    );
    let matched = Asked {
        filter: Filter {
            protocols: vec![Protocol::Matched],
            ..Filter::default()
        },
        ..none
    };
    let filtered = refused(&LONG_RANGE_ARENA, &image, &matched);
    let there = "there are results of image, for --mixer softmax, --protocol reference";
    assert!(filtered.contains(there), "{filtered}");
}

#[test]
fn perplexities_are_refused_with_what_to_take() {
    let asked = Asked {
        metric: Some(Metric::ValPpl),
        ..Asked::default()
    };
    let refused = accuracies(&LONG_RANGE_ARENA, &[], None, &presets_of, &asked);
    let message = refused.err().unwrap().to_string();
    assert!(
        message.contains("--metric val_ppl") && message.contains("--table 1"),
        "{message}"
    );
}

#[test]
fn a_plan_shows_what_is_missing_and_leaves_out_the_rest() {
    let planned = ["softmax", "linear"].map(|m| wish(m, Image).run());
    let rows = [usual("softmax", Image), usual("s6", Image)];
    let of = |rows: &[Row]| {
        let which = &LONG_RANGE_ARENA;
        let tables = accuracies(which, rows, Some(&planned), &presets_of, &Asked::default());
        text(&tables.unwrap())
    };
    let text = of(&rows);
    assert!(text.contains("1 of 2 runs done, 1 not run"), "{text}");
    assert!(
        text.contains("1 result outside the plan left out"),
        "{text}"
    );
    assert!(of(&[]).contains("0 of 2 runs done, 2 not run"));
}
