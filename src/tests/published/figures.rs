//! Figures 1 to 3 at a small size, their controls and the claims of the paper.

use super::page::Page;
use super::{
    above, best, by_rate, by_seed, distinct, ends, mean, measured, number, one, percent, rate, released_step, runs,
    solved, spread, texts, whole, words, Claim, Row, LEARNT, SOLVED, STEP_BIAS,
};
use crate::cli::World;
use dsf::recipes;

/// Accuracy above which a seed of softmax attention is perfect.
const PERFECT: f64 = 0.98;

const WIDTHS: [&str; 2] = ["32", "64"];

pub fn accuracy_without_recall(page: &Page) {
    let sizes = [("32", "4"), ("32", "8"), ("64", "4"), ("128", "8"), ("256", "16"), ("512", "64")];
    let values = sizes.map(|(len, pairs)| {
        let settings = [("vocab-size", "8192"), ("seq-len", len), ("kv-pairs", pairs)];
        let task = recipes::run("mqar", &settings).unwrap().task.read().unwrap();
        texts![percent(task.without_skill().unwrap().accuracy), len, pairs]
    });
    page.says(
        "answers {} % correctly at L = {} with {} pairs, {} % at {} with {}, {} % at {} with {}, {} % at {} with {}, \
         {} % at {} with {} and {} % at {} with {}.",
        values.as_flattened(),
    );
    let mut pairs: Vec<u32> = sizes.iter().map(|(_, pairs)| pairs.parse().unwrap()).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let pairs: Vec<String> = pairs.iter().map(u32::to_string).collect();
    page.says("in one of {}, {}, {} or {} cases", &pairs);
}

pub fn figure1(page: &Page) {
    let rows = measured("figure1-small.csv");
    let of = |mixer, n| runs(&rows, &[("mixer", mixer), ("n", n)]);
    let sizes = ["8", "16", "32", "64"];
    page.beside(&rows).says(
        "(L = {seq_len}, {kv_pairs} pairs, V = {vocab_size}, {train_examples,} examples, d = {d}, at most {epochs_max} \
         epochs; mean ± std over {seed#} seeds at the best of {lr#} rates,",
        &[],
    );
    assert!(sizes.iter().all(|n| mean(&best(&of("softmax", n)).1) > LEARNT));
    page.says("softmax attention is above {} % at every n", &texts![whole(LEARNT)]);
    let values = sizes.map(|n| texts![spread(&of("linear", n)), n]);
    page.says("reaches {} at n = {}, {} at {}, {} at {} and {} at {}.", values.as_flattened());

    let claim = |name| Claim::of(&["figure1-small.csv"], name, "");
    let [softmax, linear] = ["softmax", "linear"].map(|mixer| solved(&of(mixer, sizes[3])));
    let (reaches, all) = (claim("linear-reaches-softmax"), runs(&rows, &[("mixer", "linear")]));
    page.says(
        "at n = {}, {} runs of softmax attention end above {} % and {} of linear attention (`--claims`: \
         `linear-reaches-softmax` {}, p {})",
        &texts![sizes[3], softmax, whole(SOLVED), linear, reaches.verdict(), reaches.p()],
    );
    page.says(
        "only {} runs of linear attention solve the task (`linear-approaches-softmax` {})",
        &texts![solved(&all), claim("linear-approaches-softmax").verdict()],
    );

    let values = [1e-3, 3e-3].map(|lr| {
        let means = sizes.map(|n| {
            let rates = by_rate(&of("linear", n));
            mean(&rates.iter().find(|(rate, _)| *rate == lr).unwrap().1)
        });
        let highest = (0..4).max_by(|a, b| means[*a].total_cmp(&means[*b])).unwrap();
        assert!(means[..=highest].is_sorted() && means[highest..].is_sorted_by(|a, b| a > b));
        let [a, b, c, d] = means.map(percent);
        [rate(lr), sizes[highest].to_owned(), a, b, c, d]
    });
    page.says(
        "at {} alone it falls from n = {} on ({}, {}, {} and {} %), and at {} it rises up to n = {} ({}, {}, {} and {} \
         %).",
        values.as_flattened(),
    );
}

pub fn figure2(page: &Page) {
    let rows = measured("figure2-small.csv");
    let of = |mixer, d| runs(&rows, &[("mixer", mixer), ("d", d)]);
    let beside = page.beside(&rows);
    beside.says("at that size, n = {n} (mean ± std over {seed#} seeds", &[]);
    page.says("| | d = {} | d = {} |", &WIDTHS.map(str::to_owned));
    for mixer in ["softmax", "normalized", "ssd", "linear", "s6"] {
        page.has_line(mixer, &WIDTHS.map(|d| spread(&of(mixer, d))));
    }

    beside.says(
        "ends above {} %, over all {lr#} rates and {seed#} seeds (for softmax attention: a seed, if it ends above {} % \
         at the best rate)",
        &texts![whole(SOLVED), whole(PERFECT)],
    );
    let claim = |name| Claim::of(&["figure2-small.csv"], name, "");
    let [above_linear, above_s6] = ["normalized-beats-linear", "ssd-beats-s6"].map(claim);
    let confidence = whole(above_s6.share("confidence"));
    page.says("| difference in points, {} % interval |", &[confidence]);
    let cells = |claim: &Claim| {
        let difference = format!("{} ({})", claim.difference(), claim.interval());
        texts![claim.solved(), difference, claim.p(), claim.verdict()]
    };
    page.has_line("normalized attention above linear", &cells(&above_linear));
    page.has_line("SSD above S6", &cells(&above_s6));
    let par = claim("normalized-on-par-with-s6");
    let margin = texts![whole(par.share("claimed_below"))];
    page.says(
        "| normalized attention on par with S6 ({} points at most) | {} | {} | {} | {} |",
        &[&margin[..], &cells(&par)].concat(),
    );
    let perfect = claim("softmax-is-perfect");
    for d in WIDTHS {
        let (_, seeds) = best(&of("softmax", d));
        let share = seeds.iter().filter(|accuracy| **accuracy > PERFECT).count() as f64 / seeds.len() as f64;
        assert_eq!(share, perfect.share("effect"));
    }
    let seeds = distinct(&rows, "seed").len();
    let (share, shown) = (perfect.share("claimed_above"), perfect.share("effect"));
    page.says(
        "| softmax attention is perfect (more than {} % of seeds) | {} of {} seeds at d = {} and at d = {} | {} % ({}) \
         | {} | {} |",
        &texts![
            whole(share),
            shown * seeds as f64,
            seeds,
            WIDTHS[0],
            WIDTHS[1],
            whole(shown),
            perfect.interval().replace(".0", ""),
            perfect.p(),
            perfect.verdict()
        ],
    );
    let log_ranks = [&above_linear, &above_s6].map(Claim::log_rank);
    page.says("(p = {} for the first claim, {} for the second)", &log_ranks);
    assert!([above_linear, above_s6].iter().all(|claim| claim.share("p_of_claim") < 0.05));
    // The fewest seeds that, all perfect, differ from that share at a two-sided level of 5 %.
    let enough = (1..).find(|seeds| 2.0 * share.powi(*seeds) < 0.05).unwrap();
    page.says("{} of {} would.", &texts![enough, enough]);

    let between: Vec<&Row> = ["linear", "normalized"].iter().flat_map(|m| runs(&rows, &[("mixer", m)])).collect();
    let values = [[45.0, 50.0], [60.0, 75.0], [84.0, 90.0]].map(|[low, high]| {
        let percents = between.iter().map(|run| (100.0 * number(run, "accuracy")).round());
        let inside: Vec<f64> = percents.filter(|percent| (low..=high).contains(percent)).collect();
        assert_eq!(ends(inside.iter().copied()), [low, high]);
        texts![inside.len(), low, high]
    });
    let values = [&texts![between.len()], values.as_flattened()].concat();
    page.says("of their {} runs, {} end at {} to {} %, {} at {} to {} % and {} at {} to {} %.", &values);
    page.says("a step bias of {}, that is, steps of {}.", &texts![STEP_BIAS, format!("{:.2}", released_step())]);
    let files = ["figure2-small.csv", "figure2-small-steps.csv"];
    let par = Claim::of(&files, "normalized-on-par-with-s6", "dt_init=mamba");
    let solved = par.solved();
    let (normalized, s6) = solved.split_once(", ").unwrap();
    page.says(
        "{} runs of normalized attention and {} of S6 end above {} %, a difference of {} points ({}); whether the two \
         are on par remains {} (",
        &texts![normalized, s6, whole(SOLVED), par.difference(), par.interval(), par.verdict()],
    );
}

pub fn figure2_matched(page: &Page) {
    let rows = measured("figure2-small-matched.csv");
    let of = |mixer| runs(&rows, &[("mixer", mixer)]);
    let beside = page.beside(&rows);
    beside.says("within this budget of {epochs_max} epochs", &[]);
    beside.says("(`{protocol}`, d = {d}, {seed#} seeds", &[]);
    let claim = Claim::of(&["figure2-small-matched.csv"], "normalized-beats-linear", "");
    assert_eq!(claim.verdict(), "supported");
    page.says(
        "normalized attention reaches {} and linear attention {}; {} runs end above {} % (p = {}, log-rank {})",
        &texts![
            spread(&of("normalized")),
            spread(&of("linear")),
            claim.solved().replace(", ", " and "),
            whole(SOLVED),
            claim.p(),
            claim.log_rank()
        ],
    );
    let released = measured("figure2-small.csv");
    let linear = spread(&runs(&released, &[("mixer", "linear"), ("d", one(&rows, "d"))]));
    page.says("better without the MLP ({} in the table above)", &[linear]);
    let rates: Vec<f64> = by_rate(&of("linear")).iter().map(|(lr, _)| *lr).collect();
    assert!(["linear", "normalized"].iter().all(|mixer| best(&of(mixer)).0 == rates[0]));
    page.says("the lowest rate tried, {},", &[rate(rates[0])]);
    let (_, seeds) = &by_rate(&of("normalized"))[1];
    let low: Vec<f64> = seeds.iter().copied().filter(|accuracy| *accuracy < 0.5).collect();
    let [least, most] = ends(low.iter().copied()).map(whole);
    page.says(
        "at {}, {} of {} seeds of normalized attention end at {} to {} %.",
        &texts![rate(rates[1]), words(low.len()), words(seeds.len()), least, most],
    );
    let cell = measured("figure7-cell.csv");
    let [normalized, linear] = ["normalized", "linear"].map(|mixer| {
        let own = runs(&cell, &[("mixer", mixer)]).into_iter().find(|run| super::has_rate(run, 4.64e-4)).unwrap();
        assert!(number(own, "accuracy") > LEARNT);
        own["epochs_run"].clone()
    });
    page.says(
        "both end above {} % at the rate {}, after {} and {} epochs.",
        &[whole(LEARNT), rate(4.64e-4), normalized, linear],
    );
}

pub fn ssd_and_s6(page: &Page) {
    let [released, from_mamba] = ["figure2-small.csv", "figure2-small-steps.csv"].map(measured);
    let help = World::new().dsf("mixers s6").ok();
    let range = help.split_once("(log-uniform, ").unwrap().1.split_once(')').unwrap().0;
    page.beside(&from_mamba).says("log-uniform from {} ({seed#} seeds", &texts![range]);
    page.says("| | d = {} | d = {} | runs above {} % |", &texts![WIDTHS[0], WIDTHS[1], whole(SOLVED)]);
    let step = format!("{:.2}", released_step());
    for (rows, file, study) in
        [(&released, "figure2-small.csv", ""), (&from_mamba, "figure2-small-steps.csv", "dt_init=mamba")]
    {
        let [s6, ssd] = ["s6", "ssd"].map(|mixer| {
            let [narrow, wide] = WIDTHS.map(|d| spread(&runs(rows, &[("mixer", mixer), ("d", d)])));
            [narrow, wide, solved(&runs(rows, &[("mixer", mixer)]))]
        });
        match study {
            "" => page.says("| {}, as released | s6 | {} | {} | {} | |", &[&texts![step][..], &s6].concat()),
            _ => page.says("| Mamba's | s6 | {} | {} | {} | |", &s6),
        }
        let claim = Claim::of(&[file], "ssd-beats-s6", study);
        let judged = texts![claim.difference(), claim.interval(), claim.p(), claim.verdict()];
        page.says("| | ssd | {} | {} | {} | {} points ({}), p {}: {} |", &[&ssd[..], &judged].concat());
    }
    let s6: Vec<Row> = runs(&released, &[("mixer", "s6")]).into_iter().cloned().collect();
    let decay = |state: &str| format!("{:.0}^-{state}", released_step().exp());
    page.beside(&s6).says(
        "With a step bias of {}, the {n} states of S6 decay by factors of {} to {} per token, a short memory, while \
         SSD has one decay of {}.",
        &texts![STEP_BIAS, decay("1"), decay(one(&s6, "n")), decay("1")],
    );
    let [before, after] = [&released, &from_mamba].map(|rows| {
        let means = WIDTHS.map(|d| mean(&best(&runs(rows, &[("mixer", "s6"), ("d", d)])).1));
        mean(&means)
    });
    page.says("the mean of S6 rises by {} points.", &[whole(after - before)]);
}

pub fn figure3(page: &Page) {
    let rows = measured("figure3-small.csv");
    let of = |mixer| runs(&rows, &[("mixer", mixer)]);
    let [plain, reversed] = ["qlstm", "qlstm-reversed"].map(|mixer| {
        let [narrow, wide] = WIDTHS.map(|d| by_seed(&rows, &[("mixer", mixer), ("d", d)]));
        [narrow, wide]
    });
    let spreads = [&plain, &reversed].map(|widths| widths.each_ref().map(|runs| spread(runs)));
    page.beside(&rows).says("({seed#} seeds, `dsf report", &[]);
    let [[a, b], [c, d]] = spreads;
    page.says(
        "reaches {} at d = {} and {} at {}, the one with the reversed sigmoid {} and {}.",
        &texts![a, WIDTHS[0], b, WIDTHS[1], c, d],
    );
    assert_eq!(["qlstm", "qlstm-reversed"].map(|mixer| above(&of(mixer), SOLVED)), [0, 1]);
    page.says(
        "One of {} runs with the reversed sigmoid and none of the plain ones end above {} %",
        &texts![of("qlstm-reversed").len(), whole(SOLVED)],
    );
    let cells = plain.iter().chain(&reversed);
    let highest = cells.filter(|runs| best(runs).0 == by_rate(runs).last().unwrap().0).count();
    assert_eq!(highest, 2, "in half of the four cells the highest rate was best");
}
