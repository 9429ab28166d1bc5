//! The README.

use super::page::Page;
use super::{
    above, best, distinct, ends, measured, number, one, only, percent, planned, runs, solved, texts, thousands, whole,
    words, Claim, LEARNT, SOLVED, STEP_BIAS,
};

pub fn picture(page: &Page) {
    page.beside(&measured("figure2-small.csv")).says(
        "(L = {seq_len}, {kv_pairs} key-value pairs) with the released configs: mean test accuracy over {seed#} seeds \
         at the best of {lr#} learning rates, {runs} runs.",
        &[],
    );
}

pub fn reproduced(page: &Page) {
    page.says("if it ends above {} % test accuracy", &[whole(SOLVED)]);
    let claims = [
        ("Normalized attention is above linear attention", "figure2-small.csv", "normalized-beats-linear"),
        ("the same, with the same MLP around both", "figure2-small-matched.csv", "normalized-beats-linear"),
        ("SSD is above S6", "figure2-small.csv", "ssd-beats-s6"),
        ("Normalized attention is on par with S6", "figure2-small.csv", "normalized-on-par-with-s6"),
    ];
    for (first, file, name) in claims {
        let claim = Claim::of(&[file], name, "");
        let outcome = match (name, claim.verdict()) {
            ("ssd-beats-s6", "supported") => "reproduced as released",
            (_, "supported") => "reproduced",
            (_, verdict) => verdict,
        };
        page.says(&format!("| {first} | {{}} | {outcome} (p = {{}}) | `{file}` |"), &[claim.solved(), claim.p()]);
    }
    let claim = Claim::of(&["figure2-small-steps.csv"], "ssd-beats-s6", "");
    page.says(
        "| the same, both with Mamba's initial step sizes | {} | {} (p = {}): without the step bias of {} in the \
         released code there is no lead to be seen | `figure2-small-steps.csv` |",
        &texts![claim.solved(), claim.verdict(), claim.p(), STEP_BIAS],
    );
    let claim = Claim::of(&["figure1-small.csv"], "linear-reaches-softmax", "");
    assert_eq!(claim.verdict(), "not supported");
    let rows = measured("figure1-small.csv");
    let most = rows.iter().map(|run| number(run, "n")).fold(0.0, f64::max);
    let [linear, softmax] =
        ["linear", "softmax"].map(|mixer| solved(&runs(&rows, &[("mixer", mixer), ("n", &most.to_string())])));
    page.says(
        "| Linear attention reaches softmax attention as n grows | {}, {} at n = {} | not reproduced (p {}) | \
         `figure1-small.csv` |",
        &texts![linear, softmax, most, claim.p()],
    );

    let rows = measured("figure7-cell.csv");
    let mixers = distinct(&rows, "mixer");
    assert!(mixers.iter().all(|mixer| best(&runs(&rows, &[("mixer", mixer)])).1[0] > LEARNT));
    assert_eq!((one(&rows, "d"), distinct(&rows, "seed").len(), one(&rows, "device")), (one(&rows, "n"), 1, "cpu"));
    page.beside(&rows).says(
        "(L = {seq_len}, {kv_pairs} pairs, d = n = {d}), all {mixer#} mixers pass {} % at the best of the {lr#} rates \
         with one seed on a CPU",
        &[whole(LEARNT)],
    );
    let rows = measured("figure7-init.csv");
    assert_eq!(above(&rows.iter().collect::<Vec<_>>(), SOLVED), rows.len());
    let counts = ["options", "lr", "seed"].map(|column| distinct(&rows, column).len());
    // Each of the two mixers has the released start and Mamba's.
    page.beside(&rows).says(
        "at {lr#} of these rates, with either start, all {runs} runs that finished, of {}, solve the task on an H100",
        &texts![counts.iter().product::<usize>()],
    );
    // The cells of Figures 1 and 2 are some of those of Figure 7.
    let grid = thousands(planned("figure7") + planned("figure3"));
    page.says("the paper's full grid of {} runs", &[grid]);
}

pub fn limits(page: &Page) {
    let rows = measured("bench-gpu.csv");
    let named = ["causal_attention", "selective_scan", "delta_rule"];
    let ops = rows.iter().filter(|row| row["kind"] == "op" && named.iter().any(|op| row["case"].starts_with(op)));
    let [least, most] = ends(ops.map(|row| number(row, "fraction_of_floor")));
    assert_eq!([1.0 / least, 1.0 / most].map(|share| (share / 2.0).round()), [11.0, 1.0], "a twentieth to a half");
    let rows = measured("figure7-cell.csv");
    let [normalized, linear] = ["normalized", "linear"].map(|mixer| {
        let rows: Vec<_> = runs(&rows, &[("mixer", mixer)]).into_iter().cloned().collect();
        assert_eq!(one(&rows, "state_mixer") == "mlp", mixer == "normalized");
        thousands(one(&rows, "params"))
    });
    page.says(
        "({} parameters at d = n = {}) and linear attention none ({})",
        &texts![normalized, one(&rows, "n"), linear],
    );
}

pub fn wishes(page: &Page) {
    let rows = measured("mqar-paper-cell.csv");
    let run = only(&rows, &[("mixer", "softmax")]);
    page.says(
        "(softmax attention: {} % after {} minutes on {} cores)",
        &[
            percent(number(run, "accuracy")),
            words((number(run, "seconds") / 60.0).round() as usize),
            words(run["threads"].parse().unwrap()),
        ],
    );
}
