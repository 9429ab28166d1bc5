//! State tracking, copying, the tasks of H3, the Long Range Arena and texts.

use super::page::Page;
use super::{
    accuracies, by_seed, duration, ends, mean, measured, number, one, only, percent, rate, runs, texts, thousands,
    whole, without_skill, Row, LEARNT,
};
use std::collections::BTreeMap;

/// Numbers of a column with two decimals.
fn two_decimals(runs: &[&Row], column: &str) -> Vec<String> {
    runs.iter().map(|run| format!("{:.2}", number(run, column))).collect()
}

pub fn state_tracking(page: &Page) {
    let rows = measured("state-tracking-small.csv");
    let beside = page.beside(&rows);
    let groups = ["z2", "z5", "s3", "s5"];
    let guess = |group: &str| percent(without_skill("state-tracking-small.csv", &format!("group={group}")));
    beside.says(
        "trained at {seq_len} tokens and tested at {test_seq_len}: test accuracy of {seed#} seeds over all positions; \
         a guess is right at {}, {}, {} and {} %",
        &groups.map(guess),
    );
    beside.says("| mixer | parity at {test_seq_len} tokens |", &[]);
    let of = |mixer: &str, negative: bool, group: &str| {
        let mut own = by_seed(&rows, &[("mixer", mixer), ("group", group)]);
        own.retain(|run| run["options"].contains("negative_eigenvalues=true") == negative);
        assert_eq!(own.len(), 2, "{mixer}");
        own
    };
    let others = ["slstm", "lstm", "mamba", "gla", "linear", "ssd", "softmax"].map(|mixer| (mixer, mixer, false));
    let delta_nets = [("delta-net, eigenvalues in [-1, 1]", true), ("delta-net, eigenvalues in [0, 1]", false)];
    for (name, mixer, negative) in others.into_iter().chain(delta_nets.map(|(name, neg)| (name, "delta-net", neg))) {
        page.has_line(name, &groups.map(|group| accuracies(&of(mixer, negative, group))));
        let tracks = |group| of(mixer, negative, group).iter().any(|run| number(run, "accuracy") > LEARNT);
        assert_eq!(tracks("z2"), negative || ["slstm", "lstm"].contains(&mixer), "{name}");
        assert!(!tracks("z5") && !tracks("s5"), "{name}");
        let fits = of(mixer, negative, "z5").iter().all(|run| number(run, "train_loss") <= FITS);
        assert_eq!(fits, negative || ["slstm", "lstm", "mamba"].contains(&mixer), "{name}");
    }
    assert_eq!(rows.len(), 72);
    assert_eq!(4.0 * number(&rows[0], "seq_len"), number(&rows[0], "test_seq_len"), "four times the training length");
    let losses = |of: Vec<&Row>| ends(of.iter().map(|run| number(run, "train_loss"))).map(|loss| format!("{loss:.2}"));
    let words = [true, false].into_iter().flat_map(|negative| of("delta-net", negative, "s3")).collect();
    beside.says(
        "within these {epochs_max} epochs, not even at the training length (training losses of {} to {}).",
        &losses(words),
    );
    page.says("a training loss of {} to {} on parity", &losses(of("delta-net", false, "z2")));
    let learn = [("slstm", false), ("lstm", false), ("mamba", false), ("delta-net", true)];
    let learn = learn.into_iter().flat_map(|(mixer, negative)| of(mixer, negative, "z5")).collect();
    page.says("(training losses of {} to {}), and none", &losses(learn));
    page.says("(training losses of {} to {} at the end)", &losses(runs(&rows, &[("group", "s5")])));
}

pub fn copying(page: &Page) {
    let rows = measured("copying-small.csv");
    let beside = page.beside(&rows);
    // A string and its copy make up L.
    let strings = ["seq_len", "test_seq_len"].map(|column| number(&rows[0], column) / 2.0);
    beside.says("Trained on strings of {} tokens and tested on {}:", &strings.map(|tokens| tokens.to_string()));
    let forms = ["string", "delayed", "suffix-lookup", "prefix-lookup"];
    let without = forms.map(|form| without_skill("copying-small.csv", &format!("form={form}")));
    page.says(
        "answers {} % right in the form `string`, {} % in `delayed`, {} % in `suffix-lookup` and {} % in \
         `prefix-lookup`",
        &without.map(percent),
    );
    let of = |mixer, form, positions| only(&rows, &[("mixer", mixer), ("form", form), ("positions", positions)]);
    let (mixers, unfit) = (["delta-net", "mamba", "linear", "gla", "softmax", "lstm"], ["softmax", "linear", "gla"]);
    for mixer in mixers {
        let cells = forms
            .map(|form| ["true", "false"].map(|with| percent(number(of(mixer, form, with), "accuracy"))).join(", "));
        page.has_line(mixer, &cells);
    }
    assert_eq!(rows.len(), 48);
    let loss = |mixer, form, positions| number(of(mixer, form, positions), "train_loss");
    let losses = |form, positions| ends(mixers.map(|mixer| loss(mixer, form, positions)));
    page.says(
        "where each step reads the correct token before (training loss of {} or less)",
        &[format!("{:.2}", losses("string", "true")[1])],
    );
    let copied = forms.map(|form| whole(number(of("delta-net", form, "false"), "accuracy")));
    let suffix = whole(number(of("mamba", "suffix-lookup", "true"), "accuracy"));
    page.says(
        "{} % in the form `string`, {} % in `delayed`, and {} % of the look-ups by a suffix, which no other mixer \
         learns (Mamba with positions comes to {} %).",
        &texts![copied[0], copied[1], copied[2], suffix],
    );
    let fits = |mixer: &&'static str| loss(mixer, "string", "false") < 0.1;
    assert!(mixers.iter().all(|mixer| fits(mixer) != unfit.contains(mixer)));
    beside.says(
        "then do not fit the training length within these {epochs_max} epochs (training losses of {}, {} and {}),",
        &two_decimals(&unfit.map(|mixer| of(mixer, "string", "false")), "train_loss"),
    );
    let by_prefix = ["true", "false"].map(|positions| losses("prefix-lookup", positions)[0]);
    page.says("(training losses of {} or more)", &[format!("{:.1}", by_prefix[0].min(by_prefix[1]))]);
    let others = rows.iter().filter(|run| run["mixer"] != "delta-net");
    let others =
        others.filter(|run| [&*run["mixer"], &run["form"], &run["positions"]] != ["mamba", "suffix-lookup", "true"]);
    let beyond = others.map(|run| {
        let form = forms.iter().position(|form| run["form"] == *form).unwrap();
        number(run, "accuracy") - without[form]
    });
    page.says(
        "Mamba's {} % are below the accuracy without copying, or above it by at most {} points.",
        &[suffix, percent(ends(beyond)[1])],
    );
}

/// Largest training loss of a run that has learnt the training length.
const FITS: f64 = 0.2;

pub fn verdicts(page: &Page) {
    page.says(
        "is above {} %; else learnt at the training length, if the training loss of the last epoch is at most {}.",
        &texts![whole(LEARNT), FITS],
    );
    let [tracking, copying] = ["state-tracking-small.csv", "copying-small.csv"].map(measured);
    for (rows, column, value, task) in [
        (&tracking, "group", "z2", "parity"),
        (&tracking, "group", "z5", "sums of Z5"),
        (&tracking, "group", "s3", "words of S3"),
        (&tracking, "group", "s5", "words of S5"),
        (&copying, "form", "string", "copies, `string`"),
        (&copying, "form", "delayed", "copies, `delayed`"),
        (&copying, "form", "suffix-lookup", "look-ups by a suffix"),
        (&copying, "form", "prefix-lookup", "look-ups by a prefix"),
    ] {
        let mut mixers: BTreeMap<String, Vec<(usize, &Row)>> = BTreeMap::new();
        for run in runs(rows, &[(column, value)]) {
            let negative = run["options"].contains("negative_eigenvalues=true");
            let eigenvalues = if negative { " in [-1, 1]" } else { "" };
            let verdict = match (number(run, "accuracy") > LEARNT, number(run, "train_loss") <= FITS) {
                (true, _) => 0,
                (_, true) => 1,
                _ => 2,
            };
            mixers.entry(format!("{}{eigenvalues}", run["mixer"])).or_default().push((verdict, run));
        }
        let cell = |verdict: usize| {
            let named = mixers.iter().filter_map(|(mixer, runs)| {
                let own: Vec<&Row> = runs.iter().filter(|(of, _)| *of == verdict).map(|(_, run)| *run).collect();
                let only = match own[..] {
                    [] => return None,
                    _ if own.len() == runs.len() => String::new(),
                    _ if column == "group" => format!(" ({} of {} seeds)", own.len(), runs.len()),
                    [run] if run["positions"] == "true" => " (with positions)".to_owned(),
                    _ => " (without)".to_owned(),
                };
                Some(format!("{mixer}{only}"))
            });
            let named = named.collect::<Vec<_>>().join(", ");
            if named.is_empty() {
                "none".to_owned()
            } else {
                named
            }
        };
        page.has_line(task, &[0, 1, 2].map(cell));
    }
}

pub fn tasks_of_h3(page: &Page) {
    let rows = measured("h3-table1.csv");
    let beside = page.beside(&rows);
    let without = ["induction,", "recall,"].map(|task| without_skill("h3-table1.csv", task));
    beside.says(
        "two layers of width {d}, test accuracy of one seed and the epochs trained, at most {epochs_max} (a run stops \
         above {} %).",
        &[whole(number(&rows[0], "stop_above"))],
    );
    assert_eq!((one(&rows, "layers"), one(&rows, "seed"), one(&rows, "stop_above")), ("2", "123", "0.99"));
    page.says("right at {} and {} %", &without.map(percent));
    let of = |mixer, task| only(&rows, &[("mixer", mixer), ("task", task)]);
    for mixer in ["h3", "mamba", "softmax", "s4d", "gss"] {
        let cell =
            |task| format!("{} % ({})", percent(number(of(mixer, task), "accuracy")), of(mixer, task)["epochs_run"]);
        page.has_line(mixer, &["induction", "recall"].map(cell));
        let shows = ["induction", "recall"].map(|task| number(of(mixer, task), "accuracy"));
        let shows = [shows[0] > without[0], shows[1] > without[1]];
        assert_eq!(shows, [mixer != "gss", !["s4d", "gss"].contains(&mixer)], "{mixer}");
    }
    page.says("its {} % are less than", &[whole(number(of("s4d", "recall"), "accuracy"))]);
    assert_eq!(rows.len(), 10);
}

pub fn arena(page: &Page) {
    let rows = measured("lra-small.csv");
    page.beside(&rows).says("(`--preset quick`, two layers, seed {seed}, one thread of", &[]);
    assert_eq!([one(&rows, "layers"), one(&rows, "threads")], ["2", "1"]);
    let of = |dataset| only(&rows, &[("dataset", dataset)]);
    let selected = ["listops", "text", "retrieval"].map(|dataset| percent(number(of(dataset), "selected_accuracy")));
    page.says("ListOps is at {}, Text at {} and Retrieval at {} %, and the other two are unchanged", &selected);
    assert!(["image", "pathfinder"].iter().all(|dataset| of(dataset)["accuracy"] == of(dataset)["selected_accuracy"]));
    for (dataset, setting) in [
        ("listops", "{mixer}, {epochs_run} epochs | {train_examples,} generated, up to {seq_len} tokens"),
        ("text", "{mixer}, {protocol}, {epochs_run} epochs | {train_examples} reviews, {seq_len,} characters"),
        (
            "retrieval",
            "{mixer}, {protocol}, {epochs_run} epochs | {train_examples,} pairs of the substitute, each text \
             {seq_len,} characters",
        ),
        ("image", "{mixer}, {protocol}, {epochs_run} epochs | {train_examples} images"),
        ("pathfinder", "{mixer}, {epochs_run} epochs | {train_examples,} generated, paths of {contour_length} paddles"),
    ] {
        let run = of(dataset);
        let [accuracy, majority] = ["accuracy", "majority"].map(|column| percent(number(run, column)));
        let line = format!("| {dataset} | {setting} | {{}} % | {{}} % | {{}} |");
        page.beside(std::slice::from_ref(run)).says(&line, &[accuracy, majority, duration(run)]);
    }
    let rows = measured("lra-listops.csv");
    let values = ["lru", "s5", "s4d"].map(|mixer| {
        let mut own = runs(&rows, &[("mixer", mixer)]);
        own.sort_by(|a, b| number(a, "lr").total_cmp(&number(b, "lr")));
        // `dsf report` takes the lowest of equal rates.
        let best =
            own.into_iter().reduce(|a, b| if number(b, "val_accuracy") > number(a, "val_accuracy") { b } else { a });
        percent(number(best.unwrap(), "selected_accuracy"))
    });
    page.beside(&rows).says("(`--protocol {protocol}`) and {epochs_max} epochs, the time-invariant", &[]);
    page.says("LRU {} %, S5 {} % and S4D {} % at the best validation accuracy", &values);
}

pub fn language_models(page: &Page) {
    let rows = measured("wikitext-small.csv");
    assert_eq!(one(&rows, "layers"), "2");
    page.beside(&rows).says(
        "(`--preset tiny`, d = {d}, L = {seq_len}) after one epoch on the first windows of WikiText-2, learning rate \
         {} with {schedule} decay",
        &[rate(number(&rows[0], "lr"))],
    );
    let of = |tokenizer: &str| -> Vec<Row> { runs(&rows, &[("tokenizer", tokenizer)]).into_iter().cloned().collect() };
    let line = |text: &str, tokenizer: &str, digits: usize, size: String| {
        let rows = of(tokenizer);
        let perplexity = |perplexity: f64| match digits {
            0 => thousands(format!("{perplexity:.0}")),
            _ => format!("{perplexity:.digits$}"),
        };
        let each =
            ["softmax", "linear", "normalized"].map(|mixer| number(only(&rows, &[("mixer", mixer)]), "test_ppl"));
        let minutes: Vec<f64> = rows.iter().map(|run| number(run, "seconds") / 60.0).collect();
        let minutes = match digits {
            0 => ends(minutes).map(|time| format!("{time:.0}")).to_vec(),
            _ => vec![format!("{:.0}", mean(&minutes))],
        };
        let unigram = one(&rows, "unigram_ppl").parse().unwrap();
        let unigram = if digits == 0 { perplexity(unigram) } else { format!("{unigram:.1}") };
        page.says(text, &[vec![size], minutes, each.map(perplexity).to_vec(), vec![unigram]].concat());
    };
    let tokens = |tokenizer| one(&of(tokenizer), "train_tokens").parse::<f64>().unwrap();
    let millions = format!("{:.0}", 1e-6 * tokens("bytes"));
    line("| by the byte, {} M bytes, some {} min a run | {} | {} | {} | {} |", "bytes", 2, millions);
    let rounded = thousands(1e4 * (1e-4 * tokens("gpt-neox")).round());
    line("| GPT-NeoX's tokens, {} of them, {} to {} min | {} | {} | {} | {} |", "gpt-neox", 0, rounded);
}
