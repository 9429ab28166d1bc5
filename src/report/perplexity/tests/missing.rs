//! What is not there: runs, numbers of runs, a gap.

use super::*;

#[test]
fn failed_and_diverged_runs_have_marks_for_numbers() {
    let mut rows = three();
    rows[0] = at("softmax", 1e-2, &diverged());
    rows[2] = at("normalized", 1e-2, &failed("out of memory"));
    let text = text_of(&rows);
    assert!(
        text.contains("x failed") && text.contains("div diverged at every rate"),
        "{text}"
    );
    assert!(
        text.contains("no gap without a number of normalized, softmax in one setting"),
        "{text}"
    );
    assert!(text.contains("failed in 1 run: out of memory"), "{text}");
}

#[test]
fn the_gap_is_of_like_lines() {
    let heads = |mixer, ppl| changed(mixer, ppl, |c| c.model.n_heads = 4);
    let mut rows = vec![heads("linear", 20.0), heads("softmax", 16.0)];
    rows.push(row("normalized", 18.0));
    let unlike = text_of(&rows);
    assert!(
        unlike.contains("no gap without a number of linear, softmax in one"),
        "{unlike}"
    );
    rows.push(heads("normalized", 19.0));
    assert_eq!(
        first(&rows).tables[0].gap(Metric::TrainPpl),
        Gap::Closed(0.25)
    );
}

#[test]
fn a_missing_attention_has_a_line_beside_the_paper_and_no_share() {
    let text = text_of(&three()[..2]);
    assert!(text.contains("  normalized  16.43            ·"), "{text}");
    assert!(
        text.contains("no gap without a number of normalized in one setting"),
        "{text}"
    );
    let short = |mixer| changed(mixer, 40.0, |c| c.train.epochs = 2);
    let part = first(&[short("linear"), short("softmax")]).tables.remove(0);
    assert_eq!(
        part.lines.len(),
        2,
        "without the paper a mixer without runs is of no interest"
    );
}

#[test]
fn where_linear_is_no_worse_than_softmax_there_is_no_gap_to_close() {
    let mut rows = three();
    rows[0].set("val_ppl", 50.0);
    let text = text_of(&rows);
    let note = "no gap to close, linear being no worse than softmax: val";
    assert!(text.contains(&format!("  {note}\n")), "{text}");
    let gap = |metric| first(&rows).tables[0].gap(metric);
    assert_eq!(
        (gap(Metric::ValPpl), gap(Metric::TrainPpl)),
        (Gap::None, Gap::Closed(0.5))
    );
}

#[test]
fn a_number_that_runs_lack_is_neither_a_failure_nor_missing_runs() {
    let mut rows = three();
    for row in &mut rows {
        row.set("test_word_ppl", None::<f64>);
    }
    let text = text_of(&rows);
    assert!(!text.contains("x failed"), "{text}");
    assert!(text.contains("- no such number, as test/word"), "{text}");
    assert!(
        text.contains("no gap where a number is missing: test/word"),
        "{text}"
    );
    let chosen = super::text(&by(&rows, Metric::TestWordPpl));
    assert!(!chosen.contains("x failed"), "{chosen}");
}

#[test]
fn only_the_mixers_asked_for_are_shown() {
    let filter = Filter {
        mixers: vec!["linear".into()],
        ..Filter::default()
    };
    let report = asked(
        &three(),
        &Asked {
            filter,
            metric: None,
        },
    );
    assert_eq!(report.tables[0].lines.len(), 1);
    assert_eq!(report.coverage.done, 1);
}

#[test]
fn a_plan_shows_what_is_missing_and_leaves_out_the_rest() {
    let mut planned = ["softmax", "linear", "linear"].map(config);
    planned[2].train.lr = 3e-3;
    let of = |rows: &[Record]| {
        let report = perplexities(rows, Some(&planned), &presets, &Asked::default());
        text(&report.unwrap())
    };
    let text = of(&[row("softmax", 13.0), row("s6", 14.0)]);
    assert!(text.contains("1 of 3 runs done, 2 not run"), "{text}");
    assert!(
        text.contains("1 result outside the plan left out"),
        "{text}"
    );
    let none = of(&[]);
    assert!(none.contains("0 of 3 runs done, 3 not run"), "{none}");
    assert!(!none.contains("tried"), "{none}");
}

#[test]
fn one_attention_of_other_runs_than_the_papers_has_no_gap_to_speak_of() {
    let alone = text_of(&[Record::new(&small("linear"), &read(8.0))]);
    assert!(!alone.contains("gap"), "{alone}");
    let two = ["linear", "softmax"].map(|mixer| Record::new(&small(mixer), &read(8.0)));
    assert!(text_of(&two).contains("gap closed"));
}
