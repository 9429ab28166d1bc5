//! How a table reads, to the letter.

use super::*;
use crate::tasks::lra::LraDataset::{Image, Listops};

fn whole() -> Vec<Row> {
    let mut rows = LraDataset::ALL
        .map(|dataset| usual("softmax", dataset))
        .to_vec();
    for (seed, accuracy) in [(1, 0.62), (2, 0.64)] {
        let mut wish = wish("mamba", Image);
        wish.set("seed", seed);
        rows.push(row(&wish, [accuracy; 3]));
    }
    rows
}

#[test]
fn the_third_table_reads_like_this() {
    let expected = "\
Table 3, Long Range Arena: test accuracy (%) after the epoch chosen on validation data;
the paper's below ours

protocol reference, loss double-softmax
                           ListOps       Text   Retrieval     Image  Pathfinder   average
  majority                    17.5       17.5        17.5      17.5        17.5      17.5
    paper: random            10.00      50.00       50.00     10.00       50.00     34.00
  softmax                 60.0 (1)‡  70.0 (1)°   60.0 (1)  60.0 (1)    60.0 (1)‡     62.0‡°
    paper                    35.72      63.10       77.46     34.22       69.32     55.96
  linear                         ·          ·           ·         ·           ·         ·
    paper                    16.12      64.41       76.44     37.97       72.64     53.52
  normalized                     ·          ·           ·         ·           ·         ·
    paper                    38.24      64.96       79.68     35.96       71.56     58.08
  s6                             ·          ·           ·         ·           ·         ·
    paper                    38.02      81.34       80.50     65.08       69.26     66.84
  S6 as released (Mamba)         ·          ·           ·  63.0±1.4           ·         ·
    paper                    38.02      81.34       80.50     65.08       69.26     66.84
  mean ± std over 2 seeds

‡ examples of our own generator
° the best test accuracy of any epoch: no validation split to choose by
· not run
7 runs done
git 3f2c1e0
trained for 3.6 min
";
    assert_eq!(text(&third(&whole())), expected);
    assert!(expected.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn markdown_has_all_three_numbers_in_a_place_and_one_by_a_metric() {
    let rows = [
        usual("softmax", Listops),
        usual("softmax", LraDataset::Text),
    ];
    let all = third(&rows).render(Format::Markdown, false);
    assert!(
        all.contains("| softmax | 50.0 / 60.0 / 70.0‡ | 50.0 / · / 70.0 | · |"),
        "{all}"
    );
    assert!(all.contains("| *paper* | 35.72 | 63.10 | 77.46 |"), "{all}");
    let asked = Asked {
        metric: Some(Metric::BestAccuracy),
        ..Asked::default()
    };
    let best = super::asked(&LONG_RANGE_ARENA, &rows, &asked);
    let best = best.render(Format::Markdown, false);
    assert!(best.contains("| softmax | 70.0‡ | 70.0 | · |"), "{best}");
}

#[test]
fn csv_has_a_line_a_task_and_one_for_the_average() {
    let csv = third(&whole()).render(Format::Csv, false);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 5 * 6, "{csv}");
    let listops =
        "3,whole,reference,full,double-softmax,,softmax,listops,,true,done,0.5,,0.6,,0.7,,1,\
                   0.0005,1,val_accuracy,0.175,0.175,0.3572";
    assert_eq!(lines[1], listops);
    let text = "3,whole,reference,full,double-softmax,,softmax,text,,false,done,0.5,,,,0.7,,1,\
                0.0002,1,best_accuracy,0.175,0.175,0.631";
    assert_eq!(lines[2], text);
    assert!(
        lines[6].contains(",softmax,average,,true,done,0.5,,,,0.7,"),
        "{}",
        lines[6]
    );
    assert!(
        lines[7].contains(",linear,listops,,,not_run,"),
        "{}",
        lines[7]
    );
}

#[test]
fn json_is_one_versioned_object() {
    let json = third(&whole()).render(Format::Json, false);
    let whole: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&whole["schema"], &whole["table"]), (&1.into(), &3.into()));
    assert_eq!(whole["tables"][0]["whole"], true);
    let cell = &whole["tables"][0]["cells"][0];
    assert_eq!(
        (&cell["mixer"], &cell["task"]),
        (&"softmax".into(), &"listops".into())
    );
    assert_eq!(
        (&cell["selected_accuracy"], &cell["paper"]),
        (&0.6.into(), &0.3572.into())
    );
    assert_eq!(whole["coverage"]["done"], 7);
}

#[test]
fn colour_adds_escapes_and_nothing_else() {
    let tables = third(&whole());
    let coloured = tables.render(Format::Text, true);
    assert!(coloured.contains("\u{1b}["));
    assert_eq!(
        anstream::adapter::strip_str(&coloured).to_string(),
        text(&tables)
    );
}

#[test]
fn the_second_table_has_image_and_recall_and_says_at_which_d_and_n() {
    let recall = |mixer: &str, seq_len, kv_pairs| {
        let mut wish = Wish::of(
            "mqar",
            &[
                ("preset", "full"),
                ("mixer", mixer),
                ("d", "512"),
                ("n", "256"),
            ],
        );
        wish.set("seq-len", seq_len).set("kv-pairs", kv_pairs);
        Row::new(&wish.run(), &done(0.855))
    };
    let rows = [
        recall("normalized", 512, 64),
        recall("normalized", 256, 16),
        recall("softmax", 512, 64),
        usual("normalized", Image),
        usual("normalized", Listops),
    ];
    let second = asked(&NORMALISERS, &rows, &Asked::default());
    let text = text(&second);
    assert_eq!(second.coverage.done, 2, "{text}");
    let words = |line: &str| {
        line.split_whitespace()
            .map(String::from)
            .collect::<Vec<_>>()
    };
    let lines: Vec<Vec<String>> = text.lines().map(words).collect();
    for line in [
        &["normalized,", "exp", "60.0", "85.5†°"][..],
        &["paper", "35.96", "85.90"],
        &["normalized,", "softplus", "·", "·"],
        &["paper", "35.27", "84.30"],
        &["normalized,", "sigmoid", "·", "·"],
        &["paper", "35.80", "84.70"],
        &["†", "d=512,", "n=256"],
    ] {
        assert!(lines.iter().any(|l| l == line), "{line:?}: {text}");
    }
    assert!(
        !text.contains("average") && !text.contains("majority 8"),
        "{text}"
    );
}
