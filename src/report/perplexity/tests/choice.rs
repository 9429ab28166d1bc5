//! Which runs a line rests on, and beside what it stands.

use super::*;

#[test]
fn a_line_takes_the_rate_of_the_lowest_training_perplexity_and_shows_all_numbers_at_it() {
    let mut overfit = at("softmax", 3e-3, &read(12.0));
    (overfit.val_ppl, overfit.test_ppl) = (Some(90.0), Some(91.0));
    let rows = [at("softmax", 1e-3, &read(13.0)), overfit];
    let line = &first(&rows).tables[0].lines[2];
    assert_eq!(line.score(Metric::TrainPpl).unwrap().mean, 12.0);
    assert_eq!(line.score(Metric::ValPpl).unwrap().mean, 90.0);
    assert_eq!(line.score(Metric::TestPpl).unwrap().lr, 3e-3);
    let chosen = &by(&rows, Metric::ValPpl).tables[0].lines[2];
    assert_eq!(chosen.score(Metric::ValPpl).unwrap().mean, 26.0);
    assert_eq!(chosen.score(Metric::TrainPpl).unwrap().lr, 1e-3);
}

#[test]
fn a_choice_by_the_test_split_is_said() {
    let said = "read off the test split";
    for metric in [Metric::TestPpl, Metric::TestWordPpl] {
        assert!(text(&by(&three(), metric)).contains(said));
    }
    assert!(!text(&by(&three(), Metric::ValPpl)).contains(said));
}

#[test]
fn a_rate_at_an_end_of_those_tried_is_a_hint() {
    let rows = [1e-3, 3e-3].map(|lr| at("linear", lr, &read(1.0 / lr)));
    let text = text_of(&rows);
    assert!(
        text.contains("the highest rate tried won in 1 cell"),
        "{text}"
    );
}

#[test]
fn seeds_are_a_mean_and_a_deviation() {
    let rows = [(1, 13.0), (2, 14.0)].map(|(seed, ppl)| changed("softmax", ppl, |c| c.seed = seed));
    let text = text_of(&rows);
    assert!(text.contains("13.50±0.71"), "{text}");
    assert!(text.contains("mean ± std over 2 seeds"), "{text}");
}

#[test]
fn the_papers_numbers_stand_only_beside_its_text_its_tokens_and_its_sizes() {
    let beside = |change: Change| first(&[changed("linear", 17.0, change)]).tables[0].beside();
    let same: [Change; 8] = [
        |_| {},
        |c| c.task.set("corpus", "wikitext-103"),
        |c| c.task.set("test_examples", 4),
        |c| c.task.set("eos_between_articles", true),
        |c| c.train.precision = Precision::Bf16,
        |c| c.train.schedule = Schedule::Linear,
        |c| c.train.lr = 0.1,
        |c| c.train.micro_batch = Some(2),
    ];
    for (i, change) in same.into_iter().enumerate() {
        assert!(beside(change), "change {i}");
    }
    let other: [Change; 9] = [
        |c| c.task.set("corpus", "wikitext-2-raw"),
        |c| c.task.set("tokenizer", "bytes"),
        |c| c.task.set("seq_len", 512),
        |c| c.task.set("vocab_size", 50_277),
        |c| c.task.set("train_examples", 100),
        |c| c.train.epochs = 2,
        |c| c.train.batch_size = 64,
        |c| c.model.n_layers = 5,
        |c| c.model.language.as_mut().unwrap().mlp_width = 1024,
    ];
    for (i, change) in other.into_iter().enumerate() {
        assert!(!beside(change), "change {i}");
    }
}

#[test]
fn runs_as_the_presets_make_them_differ_in_nothing() {
    use crate::recipes::{presets_of, Wish};
    let of = |preset, mixer: &str| {
        let wish = Wish::of("wikitext", &[("preset", preset), ("mixer", mixer)]);
        Row::new(&wish.run(), &read(17.0))
    };
    for preset in ["full", "quick", "smoke"] {
        let rows = ["softmax", "linear", "normalized", "s6", "ssd"].map(|mixer| of(preset, mixer));
        let report = perplexities(&rows, None, &presets_of, &Asked::default()).unwrap();
        assert_eq!(report.tables.len(), 1);
        let table = &report.tables[0];
        assert_eq!(table.beside(), preset == "full");
        assert!(table.settings.is_empty(), "{}", table.title());
        assert_eq!(table.lines.len(), 5);
        assert!(table.lines.iter().all(|line| line.differences.is_empty()));
    }
}

#[test]
fn without_the_papers_numbers_a_line_says_why() {
    let short = changed("linear", 40.0, |c| c.train.epochs = 2);
    let text = text_of(&[short, Row::new(&small("linear"), &read(8.0))]);
    assert!(
        !text.contains("17.42") && !text.contains("paper  "),
        "{text}"
    );
    assert!(
        text.contains("whose runs were others: epochs_max=2"),
        "{text}"
    );
    let reasons = "others: corpus sample, tokenizer bytes, preset quick";
    assert!(text.contains(reasons), "{text}");
}

#[test]
fn texts_and_settings_make_tables_of_their_own_and_those_beside_the_paper_come_first() {
    let changes: [Change; 6] = [
        |c| c.task.set("corpus", "wikitext-2"),
        |c| c.task.set("tokenizer", "0123456789ab"),
        |c| c.task.set("eos_between_articles", true),
        |c| c.train.weight_decay = 0.0,
        |c| c.train.adam.as_mut().unwrap().clip = None,
        |c| c.train.precision = Precision::Bf16,
    ];
    let mut rows: Vec<Row> = changes.map(|change| changed("linear", 17.0, change)).into();
    rows.extend(three());
    let tables = first(&rows).tables;
    let titles: Vec<String> = tables.iter().map(Table::title).collect();
    assert_eq!(
        titles,
        [
            "wikitext-103-raw, tokenizer gpt-neox, preset full, bf16",
            "wikitext-103-raw, tokenizer gpt-neox, preset full, f32",
            "wikitext-103-raw, tokenizer gpt-neox, preset full, f32, clip=0.0",
            "wikitext-103-raw, tokenizer gpt-neox, preset full, f32, eos_between_articles=true",
            "wikitext-103-raw, tokenizer gpt-neox, preset full, f32, weight_decay=0.0",
            "wikitext-103-raw, tokenizer 0123456789ab, preset full, f32",
            "wikitext-2, tokenizer gpt-neox, preset full, f32",
        ]
    );
    let beside: Vec<bool> = tables.iter().map(Table::beside).collect();
    assert_eq!(beside, [true, true, true, true, true, false, false]);
}

#[test]
fn what_belongs_to_a_mixer_alone_makes_a_line() {
    let after = changed("linear", 18.0, |c| {
        c.model.language.as_mut().unwrap().rotary = Rotary::Post;
    });
    let mut rows = three();
    rows.extend([after, changed("linear", 19.0, |c| c.model.n_heads = 4)]);
    let table = first(&rows).tables.remove(0);
    let lines: Vec<_> = table.lines.iter().map(|l| (l.label(), l.paper())).collect();
    let label = |label: &str, paper| (label.to_owned(), paper);
    assert_eq!(
        lines,
        [
            label("linear", Some(17.42)),
            label("linear, heads=4", None),
            label("linear, rotary=post", Some(17.42)),
            label("normalized", Some(16.43)),
            label("softmax", Some(13.15)),
        ]
    );
    assert_eq!(
        table.gap(Metric::TrainPpl),
        Gap::Closed(0.5),
        "of like lines"
    );
}

#[test]
fn a_mixer_beyond_the_paper_has_a_line_without_its_number() {
    let mut rows = three();
    rows.push(row("s6", 14.0));
    let text = text_of(&rows);
    assert!(text.contains("  s6              -  1e-3  14.00"), "{text}");
    let alone = text_of(&[Row::new(&small("s6"), &read(8.0))]);
    assert!(!alone.contains("gap closed"), "{alone}");
}

#[test]
fn a_mixer_that_this_version_does_not_know_has_all_its_settings_said() {
    let none = |_: &Row| Vec::new();
    let report = perplexities(&[row("telepathy", 9.0)], None, &none, &Asked::default());
    let text = text(&report.unwrap());
    assert!(
        text.contains("telepathy") && text.contains("d=512"),
        "{text}"
    );
    assert!(text.contains("without the paper's numbers"), "{text}");
}

#[test]
fn without_results_one_sentence_says_how_to_get_some() {
    let none = refusal(&[], None, &Asked::default());
    assert!(
        none.contains("`dsf sweep experiments/table1.toml`"),
        "{none}"
    );
    let recall = crate::store::samples::row(0.5);
    assert_eq!(refusal(&[recall], None, &Asked::default()), none);
    let filter = Filter {
        mixers: vec!["s6".into()],
        ..Filter::default()
    };
    let filtered = refusal(
        &three(),
        None,
        &Asked {
            filter,
            metric: None,
        },
    );
    let there = "of wikitext-103-raw, for --mixer linear,normalized,softmax";
    assert!(filtered.contains(there), "{filtered}");
    let other_plan = refusal(&[], Some(&[]), &Asked::default());
    assert!(other_plan.contains("task is wikitext"), "{other_plan}");
}

#[test]
fn accuracies_are_refused_with_what_to_take() {
    let metric = Some(Metric::BestAccuracy);
    let message = refusal(
        &three(),
        None,
        &Asked {
            metric,
            ..Asked::default()
        },
    );
    assert!(
        message.contains("--metric best_accuracy") && message.contains("train_ppl"),
        "{message}"
    );
}
