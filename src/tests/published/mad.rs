//! The tasks of MAD at small sizes.

use super::page::Page;
use super::{
    by_seed, deviation, distinct, ends, mean, measured, number, percent, runs, texts, whole, without_skill, Row,
};

const FILES: [&str; 2] = ["mad-small.csv", "mad-small-seed124.csv"];

const SKILLS: [&str; 6] = ["recall", "noisy-recall", "fuzzy-recall", "copying", "compression", "memorization"];

/// Accuracies of a mixer in a task of MAD by seed, at the better of two rates, chosen on the validation set.
fn accuracies(rows: &[Row], mixer: &str, skill: &str) -> Vec<f64> {
    let of_rate = |lr: &str| by_seed(rows, &[("mixer", mixer), ("dataset", skill), ("lr", lr)]);
    let all = |runs: &[&Row], column: &str| runs.iter().map(|run| number(run, column)).collect::<Vec<f64>>();
    let rates = distinct(rows, "lr").into_iter().map(of_rate);
    let best = rates.max_by(|a, b| mean(&all(a, "val_accuracy")).total_cmp(&mean(&all(b, "val_accuracy"))));
    all(&best.unwrap(), "macro_accuracy")
}

fn accuracy(rows: &[Row], mixer: &str, skill: &str) -> f64 {
    mean(&accuracies(rows, mixer, skill))
}

/// Means over the tasks, by seed.
fn scores(rows: &[Row], mixer: &str) -> Vec<f64> {
    let each = SKILLS.map(|skill| accuracies(rows, mixer, skill));
    (0..each[0].len()).map(|seed| mean(&each.each_ref().map(|of_seeds| of_seeds[seed]))).collect()
}

pub fn mad(page: &Page) {
    let rows: Vec<Row> = FILES.into_iter().flat_map(measured).collect();
    let mut scored: Vec<_> = distinct(&rows, "mixer").into_iter().map(|mixer| (mixer, scores(&rows, mixer))).collect();
    scored.sort_by(|(_, a), (_, b)| mean(b).total_cmp(&mean(a)));
    let seeds = scored.iter().map(|(_, scores)| scores.len()).sum::<usize>();
    assert_eq!((rows.len(), seeds), (2 * 6 * seeds, 2 * scored.len()));
    page.says(&format!("| mixer | MAD | {} |", SKILLS.join(" | ")), &[]);
    for (mixer, scores) in &scored {
        let each = SKILLS.map(|skill| accuracies(&rows, mixer, skill));
        page.has_line(
            mixer,
            &[scores].into_iter().chain(&each).map(|of_seeds| deviation(of_seeds)).collect::<Vec<_>>(),
        );
    }
    let order: Vec<&str> = scored.iter().map(|(mixer, _)| *mixer).collect();
    sentences(page, &rows, &order);
    let mut moved: Vec<f64> = scored.iter().map(|(_, scores)| (scores[0] - scores[1]).abs()).collect();
    moved.sort_by(f64::total_cmp);
    let (median, most) = (percent(moved[moved.len() / 2]), percent(moved[moved.len() - 1]));
    page.says("a score moves by {} points in the median, but by up to {},", &[median, most]);
    page.says("![Accuracy of {} mixers by skill", &texts![order.len()]);
}

fn sentences(page: &Page, rows: &[Row], order: &[&str]) {
    let of = |mixer: &str, skill: &str| accuracy(rows, mixer, skill);
    let windows = ["sliding-window", "bigbird"].map(|mixer| runs(rows, &[("mixer", mixer)]));
    let options = windows.iter().flatten().map(|run| &run["options"]);
    assert!(options.clone().all(|options| options.contains("window=64")) && options.count() == 48);
    page.says("`sliding-window` and `bigbird`, {} tokens, reach over all", &texts!["64"]);
    assert!(rows.iter().all(|run| number(run, "seq_len") <= 64.0));
    assert_eq!(order[3..6], ["rwkv7", "delta-net", "rwkv5"]);
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
    assert!(["lru", "lmu"].iter().all(|mixer| above(of(mixer, "recall")) >= order.len() / 2));
    let sizes = ["lstm", "gru", "slstm"].map(|mixer| number(runs(rows, &[("mixer", mixer)])[0], "state_size"));
    page.says("with states of {} to {} numbers", &ends(sizes).map(|size| size.to_string()));
    let pairs = [["mamba", "s6"], ["mamba2", "ssd"], ["mlstm-block", "mlstm"], ["slstm", "slstm-block"]];
    page.says(
        "score {} and {} points less than these, and mLSTM {} points less than its block; but sLSTM scores {} points \
         more than its block.",
        &pairs.map(|[above, below]| whole(mean(&scores(rows, above)) - mean(&scores(rows, below)))),
    );
    let [alibi, sinkhorn] = ["alibi", "sinkhorn"].map(|mixer| accuracies(rows, mixer, "noisy-recall"));
    page.says(
        "ALiBi ends at {} and {} %, and sinkhorn at {} and {} %.",
        &[alibi, sinkhorn].concat().into_iter().map(percent).collect::<Vec<_>>(),
    );
    let at = |seed: &str, skill: &str, lr: &str| {
        let wanted = [("mixer", "softmax"), ("dataset", skill), ("lr", lr), ("seed", seed)];
        number(super::only(rows, &wanted), "macro_accuracy")
    };
    let recalls = ["recall", "noisy-recall", "fuzzy-recall"];
    let (first, second, slow, fast) = ("123", "124", "0.002", "0.005");
    let learns =
        |skill: &str, [learns, fails]: [&str; 2]| at(first, skill, learns) > 0.9 && at(first, skill, fails) < 0.9;
    assert!(learns("recall", [fast, slow]) && recalls[1..].iter().all(|skill| learns(skill, [slow, fast])));
    assert!(recalls.iter().all(|skill| [slow, fast].iter().all(|lr| at(second, skill, lr) > 0.9)));
    let failed = [at(first, "recall", slow), at(first, "noisy-recall", fast), at(first, "fuzzy-recall", fast)];
    let [recall, noisy, fuzzy] = failed.map(percent);
    page.says(
        "With seed {}, softmax attention learns recall at {} alone ({} % at {}), and noisy and fuzzy recall at {} alone \
         ({} and {} % at {}); with seed {} it learns all three at both.",
        &texts![first, fast, recall, slow, slow, noisy, fuzzy, fast, second],
    );
    let without = [0, 1, 2, 3].map(|at| without_skill(FILES[0], &format!(", {},", SKILLS[at])));
    page.says(
        "is right at {} % of recall, {} % of noisy recall, {} % of fuzzy recall and {} % of copying;",
        &without.map(percent),
    );
    let shows_none = |mixer: &&&str| SKILLS.iter().zip(without).all(|(skill, level)| of(mixer, skill) < level);
    let none: Vec<&&str> = order.iter().filter(shows_none).collect();
    assert_eq!(none, [&"lmu", &"rnn", &"spatten"]);
}
