//! The tasks of MAD at small sizes.

use super::page::Page;
use super::{distinct, ends, mean, measured, number, one, percent, runs, texts, whole, without_skill, words, Row};

const SKILLS: [&str; 6] = ["recall", "noisy-recall", "fuzzy-recall", "copying", "compression", "memorization"];

/// Accuracy of a mixer in a task of MAD, at the better of two rates, chosen on the validation set.
fn accuracy(rows: &[Row], mixer: &str, skill: &str) -> f64 {
    let own = runs(rows, &[("mixer", mixer), ("dataset", skill)]);
    assert_eq!(own.len(), 2, "{mixer} {skill}");
    let best = own.iter().max_by(|a, b| number(a, "val_accuracy").total_cmp(&number(b, "val_accuracy")));
    number(best.unwrap(), "macro_accuracy")
}

/// Accuracies of a mixer in all tasks, and their mean.
fn scores(rows: &[Row], mixer: &str) -> ([f64; 6], f64) {
    let each = SKILLS.map(|skill| accuracy(rows, mixer, skill));
    (each, mean(&each))
}

pub fn mad(page: &Page) {
    let rows = measured("mad-small.csv");
    let mut scored: Vec<_> = distinct(&rows, "mixer").into_iter().map(|mixer| (mixer, scores(&rows, mixer))).collect();
    scored.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
    assert_eq!(rows.len(), 2 * 6 * scored.len());
    page.says(&format!("| mixer | MAD | {} |", SKILLS.join(" | ")), &[]);
    for (mixer, (each, score)) in &scored {
        page.has_line(mixer, &[*score].iter().chain(each).map(|share| percent(*share)).collect::<Vec<_>>());
    }
    let order: Vec<&str> = scored.iter().map(|(mixer, _)| *mixer).collect();
    sentences(page, &rows, &order);
    second_seed(page, &rows);
    page.says("![Accuracy of {} mixers by skill", &texts![order.len()]);
}

fn sentences(page: &Page, rows: &[Row], order: &[&str]) {
    let of = |mixer: &str, skill: &str| accuracy(rows, mixer, skill);
    let windows = ["sliding-window", "bigbird"].map(|mixer| runs(rows, &[("mixer", mixer)]));
    let options = windows.iter().flatten().map(|run| &run["options"]);
    assert!(options.clone().all(|options| options.contains("window=64")) && options.count() == 24);
    page.says("`sliding-window` and `bigbird`, {} tokens, reach over all", &texts!["64"]);
    assert!(rows.iter().all(|run| number(run, "seq_len") <= 64.0));
    let hardest = SKILLS.into_iter().min_by(|a, b| {
        let [a, b] = [a, b].map(|skill| mean(&order.iter().map(|mixer| of(mixer, skill)).collect::<Vec<_>>()));
        a.total_cmp(&b)
    });
    assert_eq!(hardest, Some("fuzzy-recall"));
    let attention = ["softmax", "sliding-window", "bigbird", "alibi", "t5-bias"];
    let mut others: Vec<&str> = order.iter().copied().filter(|mixer| !attention.contains(mixer)).collect();
    others.sort_by(|a, b| of(b, "fuzzy-recall").total_cmp(&of(a, "fuzzy-recall")));
    assert_eq!(others[..5], ["rwkv7", "delta-net", "rwkv5", "rwkv6", "hgrn2"]);
    let values: Vec<String> = others[..5].iter().map(|mixer| percent(of(mixer, "fuzzy-recall"))).collect();
    page.says("the best are RWKV-7 ({} %), DeltaNet ({} %), RWKV-5 ({} %), RWKV-6 ({} %) and HGRN2 ({} %).", &values);
    let perfect: Vec<&str> = order.iter().copied().filter(|mixer| of(mixer, "compression") == 1.0).collect();
    assert_eq!(perfect, ["lru", "lmu"]);
    let above = |level: f64| order.iter().filter(|mixer| of(mixer, "recall") > level).count();
    assert!(["lru", "lmu", "s5"].iter().all(|mixer| above(of(mixer, "recall")) >= order.len() / 2));
    page.says("and S5 nearly so ({} %)", &[format!("{:.2}", 100.0 * of("s5", "compression"))]);
    let sizes = ["lstm", "gru", "slstm"].map(|mixer| number(runs(rows, &[("mixer", mixer)])[0], "state_size"));
    page.says("with states of {} to {} numbers", &ends(sizes).map(|size| size.to_string()));
    let pairs = [
        ["mamba", "s6"],
        ["mamba2", "ssd"],
        ["mlstm-block", "mlstm"],
        ["slstm", "slstm-block"],
        ["retention", "retnet"],
    ];
    page.says(
        "score {} and {} points less than these, and mLSTM {} points less than its block; but sLSTM scores {} points \
         more than its block, and retention {} more than RetNet.",
        &pairs.map(|[above, below]| whole(scores(rows, above).1 - scores(rows, below).1)),
    );
    let at = |mixer: &str, skill: &str, lr: &str| {
        let run = runs(rows, &[("mixer", mixer), ("dataset", skill), ("lr", lr)])[0];
        number(run, "macro_accuracy")
    };
    let learns =
        |skill, [learns, fails]: [&str; 2]| at("softmax", skill, learns) > 0.9 && at("softmax", skill, fails) < 0.9;
    let (slow, fast) = ("0.002", "0.005");
    assert!(["noisy-recall", "fuzzy-recall"].iter().all(|skill| learns(skill, [slow, fast])));
    assert!(learns("recall", [fast, slow]) && at("hgrn2", "recall", slow) == 1.0);
    let [recall, noisy, fuzzy, first, second] = [
        ("softmax", "recall", slow),
        ("softmax", "noisy-recall", fast),
        ("softmax", "fuzzy-recall", fast),
        ("hgrn2", "noisy-recall", slow),
        ("hgrn2", "noisy-recall", fast),
    ]
    .map(|(mixer, skill, lr)| percent(at(mixer, skill, lr)));
    page.says(
        "at {} alone ({} % at {}), and noisy and fuzzy recall at {} alone ({} and {} % at {}).",
        &texts![fast, recall, slow, slow, noisy, fuzzy, fast],
    );
    page.says("it ends at {} and {} % at the two rates.", &[first, second]);
    let without = [0, 1, 2, 3].map(|at| without_skill("mad-small.csv", &format!(", {},", SKILLS[at])));
    page.says(
        "is right at {} % of recall, {} % of noisy recall, {} % of fuzzy recall and {} % of copying;",
        &without.map(percent),
    );
    let shows_none = |mixer: &&&str| SKILLS.iter().zip(without).all(|(skill, level)| of(mixer, skill) < level);
    let none: Vec<&&str> = order.iter().filter(shows_none).collect();
    assert_eq!(none, [&"lmu", &"rnn", &"spatten"]);
}

fn second_seed(page: &Page, rows: &[Row]) {
    let second = measured("mad-small-seed124.csv");
    let seeds = texts![one(rows, "seed"), one(&second, "seed")];
    page.says("| mixer | seed {} | seed {} |", &seeds);
    let mut moved = Vec::new();
    for mixer in distinct(&second, "mixer") {
        let [(first, before), (other, after)] = [rows, &second].map(|rows| scores(rows, mixer));
        let apart = |i: &usize| (first[*i] - other[*i]).abs();
        let most = (0..6).max_by(|a, b| apart(a).total_cmp(&apart(b))).unwrap();
        let differs = format!("{}: {}, {}", SKILLS[most], percent(first[most]), percent(other[most]));
        page.has_line(mixer, &[percent(before), percent(after), differs]);
        moved.push((before - after).abs());
    }
    assert_eq!(second.len(), 2 * 6 * moved.len());
    let mut count = words(moved.len());
    count[..1].make_ascii_uppercase();
    page.says("{} mixers with a second one", &[count]);
    moved.sort_by(f64::total_cmp);
    let (median, most) = (percent(moved[moved.len() / 2]), percent(*moved.last().unwrap()));
    page.says("moves by {} points in the median, but by up to {},", &[median, most]);
}
