//! The survey of mixers.

use super::page::Page;
use super::{
    by_rate, by_seed, distinct, ends, mean, measured, number, one, percent, rate, runs, texts, thousands, whole,
    without_skill, Row, LEARNT, SOLVED,
};
use std::collections::BTreeMap;

pub fn survey(page: &Page) {
    let rows = measured("survey.csv");
    let mut settings: BTreeMap<[&str; 3], Vec<&Row>> = BTreeMap::new();
    for run in &rows {
        settings.entry(["mixer", "options", "heads"].map(|column| &*run[column])).or_default().push(run);
    }
    let best = |runs: &[&Row]| super::best(runs).1;
    let of = |mixer: &str, option: &str| {
        let mut found = settings.iter().filter(|([name, options, heads], _)| {
            *name == mixer && format!("{options};heads={heads};").contains(option)
        });
        best(found.next().unwrap_or_else(|| panic!("{mixer} {option}")).1)
    };

    let beside = page.beside(&rows);
    let rates: Vec<String> = by_rate(&rows.iter().collect::<Vec<_>>()).iter().map(|(lr, _)| rate(*lr)).collect();
    let softmax = runs(&rows, &[("mixer", "softmax")])[0];
    beside.says("The survey: {} mixers on one", &texts![distinct(&rows, "mixer").len()]);
    beside.says(
        "(L = {seq_len}, {kv_pairs} pairs, V = {vocab_size}, {train_examples,} examples, d = {d}, n = {}, two layers, \
         at most {epochs_max} epochs, protocol `{protocol}`), {seed#} seeds, at the better of the rates {} and {} by \
         their",
        &texts![softmax["n"], rates[0], rates[1]],
    );
    let level = without_skill("survey.csv", "");
    let below = settings.values().filter(|runs| mean(&best(runs)) <= level).count();
    page.says(
        "without recall is about {} %, and the order of lines near it means nothing: {} of the {} are at or below it.",
        &texts![whole(level), below, settings.len()],
    );

    let learnt = ["softmax", "rwkv5", "rwkv6", "rwkv7", "delta-net", "gated-delta-net"].map(|mixer| of(mixer, ""));
    let windows = ["sliding-window", "bigbird"].map(|mixer| of(mixer, "window=64;"));
    assert!(learnt.iter().chain(&windows).flatten().all(|accuracy| *accuracy > LEARNT));
    page.says(
        "| above {} % with every seed, stopped early | softmax, and windows of {}, which see all {} tokens;",
        &texts![whole(LEARNT), 64, one(&rows, "seq_len")],
    );
    // Mean, and the range as the page has it, with a decimal where it is 99.7.
    let ranged = |values: &[f64]| {
        let [low, high] = ends(values.iter().copied());
        let high = if high > 0.995 { percent(high) } else { whole(high) };
        [percent(mean(values)), whole(low), high]
    };
    let [window, alibi, sinkhorn] =
        [("sliding-window", "window=16;"), ("alibi", "heads=4;"), ("sinkhorn", "")].map(|(m, o)| mean(&of(m, o)));
    assert!([window, alibi, sinkhorn].iter().all(|accuracy| *accuracy > SOLVED));
    let values = texts![whole(SOLVED), percent(sinkhorn), 16, percent(window), percent(alibi)];
    page.says(
        "| above {} % | sinkhorn {}, a window of {}: {}, alibi with four heads {}, retnet {} ({} to {}) |",
        &[&values[..], &ranged(&of("retnet", ""))].concat(),
    );
    let decided_by_seed = "mamba2 performer gla rg-lru spatten normalized-sigmoid generalized-linear normalized hgrn2 \
                           ssd-mamba2 normalized-softplus ssd qlstm-reversed";
    for mixer in decided_by_seed.split(' ') {
        page.says(&format!(" {mixer} {{}} ({{}} to {{}})"), &ranged(&of(mixer, "")));
    }
    let low =
        "dss gateloop gru gss h3 hyena lightning linear lmu lru lstm mamba mlstm qlstm retention rnn rwkv4 s4 s4d \
               s5 s6 sgconv slstm t5-bias taylor ttt-linear";
    let narrow = [("alibi", "heads=1;"), ("bigbird", "window=8;"), ("sliding-window", "window=8;")];
    let (most, most_of_a_seed) = (0.25, 0.35);
    for (mixer, option) in low.split(' ').map(|mixer| (mixer, "")).chain(narrow) {
        let values = of(mixer, option);
        assert!(mean(&values) <= most && values.iter().all(|accuracy| *accuracy <= most_of_a_seed), "{mixer}");
    }
    page.says("| at most {} %, at most {} with any seed:", &[most, most_of_a_seed].map(whole));
    page.says("bigbird with a window of {}, dss", &texts![8]);
    page.says("sliding-window of {}, slstm", &texts![8]);
    assert_eq!(settings.len(), 8 + 4 + decided_by_seed.split(' ').count() + low.split_whitespace().count() + 3);

    let size = |mixer: &str| thousands(&runs(&rows, &[("mixer", mixer)])[0]["state_size"]);
    page.says(
        "With a state of {} numbers, DeltaNet answers {} % within four epochs, while linear attention, with {}, \
         reaches {} % after sixteen.",
        &[size("delta-net"), percent(mean(&of("delta-net", ""))), size("linear"), percent(mean(&of("linear", "")))],
    );
    page.says(
        "RWKV-5, with {} numbers, a token shift and a norm but no delta rule, reaches {} %. In two layers a window of \
         {} reaches back far enough and a window of {} does not.",
        &texts![size("rwkv5"), percent(mean(&of("rwkv5", ""))), 16, 8],
    );
    let seeds = |mixer: &str| {
        let lr = super::best(&runs(&rows, &[("mixer", mixer)])).0;
        let runs = by_seed(&rows, &[("mixer", mixer)]).into_iter().filter(|run| number(run, "lr") == lr);
        runs.map(|run| whole(number(run, "accuracy"))).collect::<Vec<_>>()
    };
    page.says(
        "reaches {}, {} and {} %, normalized attention {}, {} and {} %.",
        &[seeds("ssd-mamba2"), seeds("normalized")].concat(),
    );
    let at = |mixer: &str| {
        let own = by_seed(&rows, &[("mixer", mixer), ("seed", "123")]);
        [0.003, 0.001].map(|lr| percent(number(own.iter().find(|run| number(run, "lr") == lr).unwrap(), "accuracy")))
    };
    let [[gla_fast, gla], delta_net, mamba2] = ["gla", "gated-delta-net", "mamba2"].map(at);
    page.says(
        "with seed {}, GLA reaches {} % at {} and {} % at {}, and Gated DeltaNet and Mamba-2 the reverse ({} and {} \
         %, {} and {} %).",
        &[&texts![123, gla_fast, rates[1], gla, rates[0]][..], &delta_net, &mamba2].concat(),
    );
    beside.says("![Test accuracy of {} mixers,", &texts![distinct(&rows, "mixer").len()]);
}
