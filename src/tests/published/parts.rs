//! Parts of mixers: convolution and norm, heads, states, the start of S4, and layers of attention.

use super::page::Page;
use super::{
    above, by_rate, by_seed, distinct, ends, fisher, measured, number, one, percent, rate, runs, solved, texts,
    thousands, two_seeds, whole, without_skill, Row, LEARNT, SOLVED,
};

pub fn parts_of_recall(page: &Page) {
    let rows = measured("recall-parts-small.csv");
    let cell = |mixer: &str, conv: bool, norm: bool| {
        let mut cell = runs(&rows, &[("mixer", mixer)]);
        cell.retain(|run| (run["short_conv"] == "true", run["state_norm"] == "true") == (conv, norm));
        cell
    };
    let count =
        |mixers: &[&str], conv, norm| -> usize { mixers.iter().map(|m| above(&cell(m, conv, norm), SOLVED)).sum() };
    let steps = ends(rows.iter().map(|run| number(run, "steps")))[1];
    assert!(rows.iter().all(|run| number(run, "steps") == steps || number(run, "accuracy") > SOLVED));
    page.beside(&rows).says(
        "Runs above {} % test accuracy, over {lr#} rates and {seed#} seeds, under `{protocol}`, at most {} steps on \
         examples that are never repeated",
        &[whole(SOLVED), thousands(steps)],
    );
    assert_eq!((one(&rows, "fresh_examples"), rows.len()), ("true", 112));
    let mixers = ["softmax", "ssd", "retention", "mlstm", "s6", "linear"];
    let recurrent = &mixers[1..5];
    for mixer in mixers {
        let parts = [[false, false], [false, true], [true, false], [true, true]];
        page.has_line(mixer, &parts.map(|[conv, norm]| solved(&cell(mixer, conv, norm))));
        let counts = parts.map(|[conv, norm]| count(&[mixer], conv, norm));
        let only_both = counts[..3].iter().all(|count| *count < 2) && counts[3] >= 2;
        assert_eq!(only_both, recurrent.contains(&mixer), "{mixer}");
    }
    let without = count(&mixers, false, false) + count(&mixers, false, true);
    assert_eq!(without, 1);
    page.says("one of the table's {} runs solves the task", &texts![2 * 4 * mixers.len()]);
    let [conv, both] = [false, true].map(|norm| count(recurrent, true, norm));
    let all = 4 * recurrent.len();
    page.says(
        "together in {} of {} runs; a norm after the state takes them to {} of {} (Fisher's exact test, p = {})",
        &texts![conv, all, both, all, format!("{:.4}", fisher(all as u64, conv as u64, both as u64))],
    );
    let [mlstm, s6, ssd, retention] = ["mlstm", "s6", "ssd", "retention"].map(|mixer| solved(&cell(mixer, true, true)));
    assert_eq!((&mlstm, &ssd), (&s6, &retention));
    let others = cell("s6", true, true).into_iter().map(|run| number(run, "accuracy")).filter(|share| *share < SOLVED);
    let [low, high] = ends(others).map(whole);
    assert_eq!(low, high);
    page.says(
        "mLSTM and S6 ({}) need more than SSD and retention ({}), four runs cannot tell: the other two of S6 end at \
         {} %.",
        &[s6, ssd, low],
    );
    let delta_net = [false, true].map(|conv| solved(&cell("delta-net", conv, false)));
    page.says("solves the task in {} runs, and in {} after a second convolution;", &delta_net);
    let [alone, convolved] = [false, true].map(|conv| cell("gla", conv, false));
    let best = |runs: &[&Row]| ends(runs.iter().map(|run| number(run, "accuracy")))[1];
    assert!(best(&alone) < best(&convolved) && best(&convolved) < SOLVED);
    page.says("in none (at most {} %, with the convolution)", &[whole(best(&convolved))]);
}

pub fn hybrids(page: &Page) {
    let rows = measured("hybrids-small.csv");
    let beside = page.beside(&rows);
    beside.says(
        "of {seed#} seeds at the better of {lr#} rates, at L = {seq_len} with {kv_pairs} pairs, where positions alone \
         answer {} % ({epochs_max} epochs over {train_examples,} examples, `{protocol}`,",
        &[percent(without_skill("hybrids-small.csv", ""))],
    );
    let of = |mixer: &str, alone: bool| {
        let mut own = by_seed(&rows, &[("mixer", mixer)]);
        own.retain(|run| run["hybrid"].is_empty() == alone);
        assert_eq!(own.len(), 4);
        own
    };
    for (mixer, model, hybrid) in [
        ("mamba", "Jamba: attention in one layer of four", "softmax:every=4,"),
        ("rg-lru", "Griffin: a window of {} in one layer of three", "sliding-window:every=3,"),
        ("h3", "H3: attention in two layers of four", "softmax:layers=1+3,"),
        ("linear", "Based: a window of {} in every other layer", "sliding-window:every=2,"),
    ] {
        let layers = &of(mixer, false)[0]["hybrid"];
        assert!(layers.starts_with(hybrid), "{layers}");
        let cells = [true, false].map(|alone| two_seeds(&of(mixer, alone)));
        let window = layers.split_once("window=").map(|(_, width)| width.to_owned());
        let values: Vec<String> = cells.into_iter().chain(window).collect();
        page.says(&format!("| {mixer} | {{}} | {{}} | {model} |"), &values);
    }
    let solving: Vec<&Row> = rows.iter().filter(|run| number(run, "accuracy") > SOLVED).collect();
    assert!(solving.len() == 1 && solving[0]["mixer"] == "mamba" && !solving[0]["hybrid"].is_empty());
    beside.says("One run of {runs} solves the task", &[]);
    let alone = ["mamba", "rg-lru"].map(|mixer| of(mixer, true));
    let [low, high] = ends(alone.iter().flatten().map(|run| number(run, "accuracy"))).map(whole);
    let windows = ends(of("rg-lru", false).iter().map(|run| number(run, "accuracy")))[1];
    page.says(
        "Mamba and RG-LRU alone reach {} to {} % and one run of RG-LRU with windows {} %;",
        &[low, high, whole(windows)],
    );
}

pub fn starts_of_s4(page: &Page) {
    let rows = measured("hippo-small.csv");
    let beside = page.beside(&rows);
    // The string, the gap and the copy make up L.
    let strings = 2 * one(&rows, "copy_tokens").parse::<u32>().unwrap();
    beside.says("copies {copy_tokens} tokens over a gap of L - {}", &texts![strings]);
    beside.says(
        "of each of {seed#} seeds; the most frequent token of the string is right at {} %",
        &[percent(without_skill("hippo-small.csv", ""))],
    );
    let lengths = ["32", "64", "128", "256"];
    page.says("| start of S4 | L = {} | L = {} | L = {} | L = {} |", &lengths.map(str::to_owned));
    let of = |start: &str, len: &str| {
        let mut own = by_seed(&rows, &[("seq_len", len)]);
        own.retain(|run| run["options"].ends_with(&format!("start={start}")));
        own
    };
    let starts = [("HiPPO-LegS", "legs"), ("HiPPO-LegT", "legt"), ("Fourier", "fourier"), ("random", "random")];
    for (name, start) in starts {
        let cells = lengths.map(|len| {
            let runs = of(start, len);
            let each = runs.iter().map(|run| format!("{} % ({})", percent(number(run, "accuracy")), run["epochs_run"]));
            each.collect::<Vec<_>>().join(", ")
        });
        page.has_line(name, &cells);
        let learnt: usize = lengths.iter().map(|len| above(&of(start, len), 0.999)).sum();
        assert_eq!(learnt, if start == "random" { 0 } else { 8 }, "{name}");
    }
    assert_eq!(rows.len(), 32);
    let random = lengths.iter().flat_map(|len| of("random", len)).map(|run| number(run, "accuracy"));
    page.says("they end between {} and {} %,", &ends(random).map(percent));
    let slower = |start: &str, len: &str| of(start, len).iter().any(|run| run["epochs_run"] != "1");
    let costs = |len: &str| ["legs", "legt", "fourier"].map(|start| slower(start, len));
    assert_eq!(lengths.map(costs), [[false; 3], [false; 3], [false; 3], [true, false, false]]);
    page.says("nothing up to L = {}; at {}, LegS,", &texts![lengths[2], lengths[3]]);
    let lr = rate(number(&rows[0], "lr"));
    assert_eq!(distinct(&rows, "lr").len(), 1);
    page.says("rates other than {} were not tried", &[lr]);
}

pub fn heads(page: &Page) {
    let rows = measured("heads-small.csv");
    let of = |mixer: &str, heads: &str| by_seed(&rows, &[("mixer", mixer), ("heads", heads)]);
    page.beside(&rows).says(
        "Attention with d = {d} and n = {n} over all heads, on {seq_len} tokens with {kv_pairs} pairs: test accuracy \
         of {seed#} seeds at the better of {lr#} rates; positions alone answer {} %",
        &[percent(without_skill("heads-small.csv", ""))],
    );
    let heads = ["1", "2", "4", "8"];
    page.says("| mixer | {} head | {} heads | {} heads | {} heads |", &heads.map(str::to_owned));
    for mixer in ["softmax", "normalized", "linear"] {
        page.has_line(mixer, &heads.map(|heads| two_seeds(&of(mixer, heads))));
        let learns = heads.map(|heads| super::best(&of(mixer, heads)).1.iter().all(|accuracy| *accuracy > 0.98));
        let expected = match mixer {
            "softmax" => [true; 4],
            "normalized" => [true, true, true, false],
            _ => [false; 4],
        };
        assert_eq!(learns, expected, "{mixer}");
    }
    let best = |heads| ends(of("linear", heads).iter().map(|run| number(run, "accuracy")))[1];
    let (_, four) = super::best(&of("linear", "4"));
    assert!(four.iter().all(|accuracy| *accuracy > best("1")));
    let sizes = ["1", "4"].map(|heads| thousands(&of("linear", heads)[0]["state_size"]));
    page.says("its state shrinks from {} to {} numbers", &sizes);
    let narrow = ["softmax", "normalized", "linear"].map(|mixer| of(mixer, "8"));
    let narrow: Vec<&Row> = narrow.into_iter().flatten().collect();
    let rates: Vec<f64> = by_rate(&narrow).iter().map(|(lr, _)| *lr).collect();
    let highest = ends(by_rate(&narrow)[0].1.iter().copied())[1];
    assert!(narrow.iter().all(|run| run["mixer"] != "normalized" || number(run, "accuracy") <= highest));
    page.says(
        "at a rate of {} no run gets past {} %, and of normalized attention none does at {}.",
        &[rate(rates[0]), percent(highest), rate(rates[1])],
    );
    let (_, two) = super::best(&of("linear", "2"));
    page.says("disagree ({} and {} %);", &[percent(two[0]), percent(two[1])]);
    assert_eq!(rows.len(), 48);
}

pub fn states(page: &Page) {
    let rows = measured("states-small.csv");
    let level = without_skill("states-small.csv", "rg-lru");
    let of = |mixer: &str, options: &str| by_seed(&rows, &[("mixer", mixer), ("options", options)]);
    let beside = page.beside(&rows);
    beside.says("at the better of {lr#} rates, after {epochs_max} epochs", &[]);
    beside.says("the {runs} runs of `dsf sweep states-small`", &[]);
    let states = ["", "states=4", "states=16"];
    let counts = states.map(|options| options.split_once('=').map_or("1", |(_, count)| count).to_owned());
    page.says("| mixer | {} state | {} states | {} states |", &counts);
    for mixer in ["qlstm-reversed", "rg-lru"] {
        page.has_line(mixer, &states.map(|options| two_seeds(&of(mixer, options))));
    }
    page.says("gets past positions alone ({} %)", &[percent(level)]);
    let past = |mixer| states.map(|options| above(&of(mixer, options), level));
    assert_eq!([past("qlstm-reversed"), past("rg-lru")], [[0, 0, 0], [2, 1, 0]]);
    let high = rows.iter().map(|run| number(run, "lr")).fold(0.0, f64::max);
    assert_eq!(super::best(&of("rg-lru", "")).0, high);
    page.says(
        "RG-LRU does at {} with one state per channel and, of two seeds, one does with four and none with {}.",
        &[rate(high), counts[2].clone()],
    );
    let [one_decay, each] = ["paper", "reference"].map(|variant| {
        let own = runs(&rows, &[("mixer", "ssd"), ("variant", variant)]);
        assert_eq!(own.len(), 6);
        above(&own, LEARNT)
    });
    page.says(
        "reaches {} % in {} of {} runs, and with one per channel, as released, in {} of {};",
        &texts![whole(LEARNT), one_decay, 6, each, 6],
    );
    page.says("(Fisher's exact test, p = {})", &[format!("{:.2}", fisher(6, one_decay as u64, each as u64))]);
    assert_eq!(rows.len(), 36);
}
