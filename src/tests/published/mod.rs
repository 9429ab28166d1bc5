//! The numbers of the guide on speed, of `results/README.md` and of the README are those of the published runs and
//! measurements.

use crate::cli::World;
use std::collections::BTreeMap;
use std::path::Path;

const GUIDE: &str = include_str!("../../guide/speed.md");

/// A row of a table of `dsf bench`, by column.
type Row = BTreeMap<String, String>;

fn measured(file: &str) -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let mut table = csv::Reader::from_path(path.join(file)).unwrap();
    table.deserialize().map(Result::unwrap).collect()
}

fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap()
}

/// The lines of the table of the guide under `head`, a list of cells each.
fn printed(head: &str) -> Vec<Vec<&'static str>> {
    let rest = GUIDE.split(head).nth(1).unwrap().lines().skip(2);
    let lines = rest.take_while(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn steps_of_the_smallest_task_are_those_of_the_measurement() {
    let rows = measured("bench-cpu.csv");
    let lines = printed("| step | instruction set | CPU time | tokens/s | of its floor | memory | PyTorch as released");
    assert_eq!(lines.len(), 12);
    for line in lines {
        let (mixer, set) = (line[0], line[1].replace('-', "").to_lowercase());
        let case = format!("--preset paper --mixer {mixer} --d 64 --n 64 --batch-size 512");
        let of = |head: &str| {
            let mut found = rows
                .iter()
                .filter(|row| row["case"] == case && row["instruction_set"] == set && row["peer"].contains(head));
            found.next().unwrap_or_else(|| panic!("{case} {head}"))
        };
        let (all, labelled) = (of("--head all"), of("--head labelled"));
        let ratio = |row: &Row| {
            let [ratio, low, high] = ["ratio", "ratio_min", "ratio_max"].map(|column| number(row, column));
            format!("{ratio:.1}x ({low:.1} to {high:.1})")
        };
        let expected = [
            format!("{:.0} ms", 1e3 * number(all, "seconds")),
            format!("{:.0} k", 1e-3 * number(all, "tokens_per_second")),
            format!("{:.0} %", 100.0 * number(all, "fraction_of_floor")),
            format!("{:.0} MB", 1e-6 * number(all, "peak_memory_bytes")),
            ratio(all),
            ratio(labelled),
        ];
        assert_eq!(line[2..], expected, "{mixer} {set}");
    }
}

/// Seconds as the guide prints them.
fn seconds(row: &Row) -> String {
    match number(row, "seconds") {
        long if long >= 0.9 => format!("{long:.2} s"),
        short => format!("{:.0} ms", 1e3 * short),
    }
}

#[test]
fn steps_in_bf16_are_those_of_the_measurement() {
    let rows = measured("bench-cpu-zen4.csv");
    let lines = printed("| step in bf16 |");
    assert_eq!(lines.len(), 9);
    let step = |name: &str| match name {
        "LRA image, softmax" => "--task lra --dataset image --mixer softmax".to_owned(),
        "LRA image, Mamba" => "--task lra --dataset image --mixer mamba".to_owned(),
        "Pythia-70M" => "--task wikitext --preset paper".to_owned(),
        _ => format!("--preset paper --mixer {} ", name.trim_start_matches("MQAR, ")),
    };
    for line in lines {
        let of = |dtype: &str| {
            let fits = |row: &&Row| row["case"].starts_with(&step(line[0])) && row["dtype"] == dtype;
            rows.iter().find(fits).unwrap_or_else(|| panic!("{} in {dtype}", line[0]))
        };
        let (plain, rounded) = (of("f32"), of("bf16"));
        assert!(
            rounded["peer"].ends_with("--autocast")
                && rounded["passed"] == "true"
                && number(rounded, "distance") < 2e-4
        );
        assert!(number(rounded, "peak_memory_bytes") <= 1.04 * number(plain, "peak_memory_bytes"));
        let [ratio, low, high] = ["ratio", "ratio_min", "ratio_max"].map(|column| number(rounded, column));
        let expected = [
            seconds(plain),
            seconds(rounded),
            format!("{:.0} %", 100.0 * number(rounded, "fraction_of_floor")),
            format!("{ratio:.1}x ({low:.1} to {high:.1})"),
        ];
        assert_eq!(line[1..], expected, "{}", line[0]);
    }
}

#[test]
fn rates_by_length_are_those_of_the_measurement() {
    let rows = measured("bench-lengths.csv");
    let lines = printed("| tokens per CPU second | L = 64");
    assert_eq!(lines.len(), 6);
    for line in lines {
        let rates: Vec<f64> = ["64", "256", "1024", "4096", "16384"]
            .iter()
            .map(|length| {
                let words = format!("--mixer {} --d 64 --n 64 --seq-len {length} ", line[0]);
                let found = rows.iter().find(|row| row["case"].contains(&words));
                number(found.unwrap(), "tokens_per_second")
            })
            .collect();
        let mut expected: Vec<String> = rates.iter().map(|rate| format!("{:.0} k", 1e-3 * rate)).collect();
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        expected.push(format!("{:.2}", fastest / slowest));
        assert_eq!(line[1..], expected[..], "{}", line[0]);
    }
}

const RESULTS: &str = include_str!("../../../results/README.md");
const README: &str = include_str!("../../../README.md");

/// Runs of a summary whose columns hold these values.
fn runs<'a>(rows: &'a [Row], wanted: &[(&str, &str)]) -> Vec<&'a Row> {
    let holds = |row: &&Row| wanted.iter().all(|(column, value)| row[*column] == *value);
    rows.iter().filter(holds).collect()
}

/// [`runs`] in the order of their seeds.
fn by_seed<'a>(rows: &'a [Row], wanted: &[(&str, &str)]) -> Vec<&'a Row> {
    let mut found = runs(rows, wanted);
    found.sort_by_key(|run| run["seed"].parse::<u64>().unwrap());
    found
}

/// `96.5, 98.1 % at 0.003`: the accuracies of two seeds at the best rate.
fn two_seeds(runs: &[&Row]) -> String {
    let (rate, accuracies) = best(runs);
    assert_eq!(accuracies.len(), 2);
    format!("{}, {} % at {rate}", percent(accuracies[0]), percent(accuracies[1]))
}

/// The accuracies by learning rate.
fn by_rate(runs: &[&Row]) -> Vec<(f64, Vec<f64>)> {
    let mut rates: Vec<(f64, Vec<f64>)> = Vec::new();
    for run in runs {
        let (lr, accuracy) = (number(run, "lr"), number(run, "accuracy"));
        match rates.iter_mut().find(|(rate, _)| *rate == lr) {
            Some((_, accuracies)) => accuracies.push(accuracy),
            None => rates.push((lr, vec![accuracy])),
        }
    }
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    rates
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The best rate, and the accuracies there.
fn best(runs: &[&Row]) -> (f64, Vec<f64>) {
    let rates = by_rate(runs).into_iter();
    let best = rates.max_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)));
    best.expect("there are such runs")
}

/// `84.2 ± 5.1 %`, at the best rate.
fn spread(runs: &[&Row]) -> String {
    let (_, values) = best(runs);
    let middle = mean(&values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    let std = (squares / (values.len() as f64 - 1.0)).sqrt();
    format!("{} ± {:.1} %", percent(middle), 100.0 * std)
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// Whether a page, its lines joined, has a text.
fn assert_printed(page: &str, text: &str) {
    let joined = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(text), "{text}");
}

/// The cells of the lines of `page` that begin with these cells.
fn line<'a>(page: &'a str, after: &str, first: &str) -> Vec<&'a str> {
    let place = page.find(after).unwrap_or_else(|| panic!("{after}"));
    let mut lines = page[place..].lines().map(|line| {
        let cells = line.trim_matches('|').split('|');
        cells.map(str::trim).collect::<Vec<_>>()
    });
    let found = lines.find(|cells| cells[0] == first);
    found.unwrap_or_else(|| panic!("{first} after {after}"))
}

#[test]
fn the_figures_at_a_small_size_are_those_of_their_runs() {
    let rows = measured("figure2-small.csv");
    for mixer in ["softmax", "normalized", "ssd", "linear", "s6"] {
        let cells = line(RESULTS, "Figure 2 at that size", mixer);
        let expected = ["32", "64"].map(|d| spread(&runs(&rows, &[("mixer", mixer), ("d", d)])));
        assert_eq!(cells[1..], expected, "{mixer}");
    }
    let steps = measured("figure2-small-steps.csv");
    for (start, rows, first) in [("0.69, as released", &rows, "s6"), ("Mamba's", &steps, "s6")] {
        let place = RESULTS.find("| steps at the start |").unwrap();
        let after = &RESULTS[place..];
        let own = line(after, &format!("| {start} |"), start);
        assert_eq!(own[1], first);
        for (mixer, cells) in [("s6", own.clone()), ("ssd", line(after, &format!("| {start} |"), ""))] {
            let of = |d| spread(&runs(rows, &[("mixer", mixer), ("d", d)]));
            let all = runs(rows, &[("mixer", mixer)]);
            let solved = all.iter().filter(|run| number(run, "accuracy") > 0.9).count();
            let expected = [of("32"), of("64"), format!("{solved} of {}", all.len())];
            assert_eq!(cells[2..5], expected, "{start} {mixer}");
        }
    }
    let matched = measured("figure2-small-matched.csv");
    for mixer in ["normalized", "linear"] {
        assert_printed(RESULTS, &spread(&runs(&matched, &[("mixer", mixer)])));
    }
    let first = measured("figure1-small.csv");
    let of = |n| runs(&first, &[("mixer", "linear"), ("n", n)]);
    let [a, b, c, d] = ["8", "16", "32", "64"].map(|n| spread(&of(n)));
    assert_printed(RESULTS, &format!("reaches {a} at n = 8, {b} at 16, {c} at 32 and {d} at 64"));
    for rate in [1e-3, 3e-3] {
        let means = ["8", "16", "32", "64"].map(|n| {
            let rates = by_rate(&of(n));
            percent(mean(&rates.iter().find(|(lr, _)| *lr == rate).unwrap().1))
        });
        let [a, b, c, d] = means;
        assert_printed(RESULTS, &format!("({a}, {b}, {c} and {d} %)"));
    }
    let gates = measured("figure3-small.csv");
    let of = |mixer, d| spread(&runs(&gates, &[("mixer", mixer), ("d", d)]));
    let [a, b] = ["32", "64"].map(|d| of("qlstm", d));
    let [c, d] = ["32", "64"].map(|d| of("qlstm-reversed", d));
    assert_printed(
        RESULTS,
        &format!("reaches {a} at d = 32 and {b} at 64, the one with the reversed sigmoid {c} and {d}"),
    );
}

#[test]
fn the_front_page_counts_the_runs_that_solve_the_task() {
    let solved = |file: &str, mixer: &str| {
        let rows = measured(file);
        let all = runs(&rows, &[("mixer", mixer)]);
        let solved = all.iter().filter(|run| number(run, "accuracy") > 0.9);
        (solved.count(), all.len())
    };
    let counts = |claim: &str, file: &str, mixers: [&str; 2]| {
        let [(a, of_a), (b, of_b)] = mixers.map(|mixer| solved(file, mixer));
        let cells = line(README, "| claim of the paper | solved runs |", claim);
        assert_eq!(cells[1], format!("{a} of {of_a}, {b} of {of_b}"), "{claim}");
        assert_eq!(cells[3], format!("`{file}`"), "{claim}");
    };
    let base = "figure2-small.csv";
    let above = "Normalized attention is above linear attention";
    counts(above, base, ["normalized", "linear"]);
    counts("SSD is above S6", base, ["ssd", "s6"]);
    let steps = "the same, both with Mamba's initial step sizes";
    counts(steps, "figure2-small-steps.csv", ["ssd", "s6"]);
    counts("Normalized attention is on par with S6", base, ["normalized", "s6"]);
    counts("the same, with the same MLP around both", "figure2-small-matched.csv", ["normalized", "linear"]);
    let rows = measured("figure1-small.csv");
    let [linear, softmax] = ["linear", "softmax"].map(|mixer| {
        let all = runs(&rows, &[("mixer", mixer), ("n", "64")]);
        let solved = all.iter().filter(|run| number(run, "accuracy") > 0.9);
        format!("{} of {}", solved.count(), all.len())
    });
    let cells =
        line(README, "| claim of the paper | solved runs |", "Linear attention reaches softmax attention as n grows");
    assert_eq!(cells[1], format!("{linear}, {softmax} at n = 64"));
}

#[test]
fn the_true_cell_and_the_smallest_task_are_those_of_their_runs() {
    let rows = measured("figure7-cell.csv");
    for mixer in ["softmax", "linear", "normalized", "s6", "ssd"] {
        let mut own = runs(&rows, &[("mixer", mixer)]);
        own.sort_by(|a, b| number(a, "lr").total_cmp(&number(b, "lr")));
        let expected = own.iter().map(|run| {
            let accuracy = percent(number(run, "accuracy"));
            match number(run, "accuracy") > number(run, "stop_above") {
                true => format!("{accuracy} % ({})", run["epochs_run"]),
                false => format!("{accuracy} %"),
            }
        });
        let cells = line(RESULTS, "One cell of Figure 7", mixer);
        assert_eq!(cells[1..], expected.collect::<Vec<_>>()[..], "{mixer}");
    }
    let rows = measured("mqar-small.csv");
    for mixer in ["softmax", "normalized", "ssd", "qlstm-reversed", "qlstm", "linear", "s6"] {
        let own = runs(&rows, &[("mixer", mixer)]);
        let run = own.iter().max_by(|a, b| number(a, "accuracy").total_cmp(&number(b, "accuracy")));
        let run = run.unwrap();
        let expected = [
            number(run, "lr").to_string(),
            format!("{} %", percent(number(run, "accuracy"))),
            run["epochs_run"].clone(),
        ];
        let cells = line(RESULTS, "At a size that anyone can repeat", mixer);
        assert_eq!(cells[1..], expected, "{mixer}");
    }
}

#[test]
fn the_parts_that_make_a_mixer_recall_are_those_of_their_runs() {
    let rows = measured("recall-parts-small.csv");
    let part = |row: &Row, column: &str| row[column] == "true";
    let solved = |mixer: &str, conv: bool, norm: bool| {
        let mut cell = runs(&rows, &[("mixer", mixer)]);
        cell.retain(|run| part(run, "short_conv") == conv && part(run, "state_norm") == norm);
        [cell.iter().filter(|run| number(run, "accuracy") > 0.9).count(), cell.len()]
    };
    let mut without_conv = [0, 0];
    for mixer in ["softmax", "ssd", "retention", "mlstm", "s6", "linear"] {
        let counts = [[false, false], [false, true], [true, false], [true, true]].map(|[c, n]| solved(mixer, c, n));
        let cells = line(RESULTS, "| mixer | neither | norm behind the state |", mixer);
        assert_eq!(cells[1..], counts.map(|[solved, all]| format!("{solved} of {all}")), "{mixer}");
        without_conv = [0, 1].map(|i| without_conv[i] + counts[0][i] + counts[1][i]);
    }
    assert_eq!(without_conv, [1, 48]);
    let recurrent =
        |norm| -> usize { ["ssd", "retention", "mlstm", "s6"].map(|m| solved(m, true, norm)[0]).iter().sum() };
    assert_eq!([recurrent(false), recurrent(true)], [1, 12]);
    // Fisher's exact test of 1 and 12 of 16: the tables with 13 solved that are at least as unlikely.
    let tables = (0..=13).map(|k| choose(16, k) * choose(16, 13 - k) / choose(32, 13));
    let p: f64 = tables.filter(|p| *p <= choose(16, 1) * choose(16, 12) / choose(32, 13) * 1.000001).sum();
    assert_printed(RESULTS, &format!("Fisher's exact test, p = {p:.4}"));
    assert_eq!([false, true].map(|conv| solved("delta-net", conv, false)), [[4, 4], [0, 4]]);
    assert_eq!([false, true].map(|conv| solved("gla", conv, false)), [[0, 4], [0, 4]]);
    assert!(rows.iter().all(|run| run["steps"] == "2512" || number(run, "accuracy") > 0.9));
    assert_eq!(rows.len(), 112);
}

#[test]
fn the_steps_of_an_h100_are_those_of_the_measurement() {
    let page = include_str!("../../../cuda/README.md");
    let rows = measured("bench-gpu.csv");
    let table = page.lines().skip_while(|line| !line.starts_with("| mixer | nodes |"));
    let mut checked = 0;
    for text in table.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
        let case = format!("{} 512,64,64,64 recorded", cells[0].trim_matches('`'));
        let of_commit = |row: &&Row| row["commit"].starts_with("a4270a4");
        let found = runs(&rows, &[("case", &case), ("dtype", "f32"), ("peer", "")]).into_iter().find(of_commit);
        let expected = found.map_or([String::new(), String::new()], |row| {
            checked += 1;
            [row["graph_nodes"].clone(), format!("{:.2}", 1e3 * number(row, "seconds"))]
        });
        assert_eq!(cells[5..], expected, "{case}");
    }
    assert_eq!(checked, 8);
    let checks = |kind: &str, size: &str| {
        let passed = runs(&rows, &[("kind", kind), ("passed", "true")]).into_iter();
        passed.filter(|row| row["case"].starts_with(size)).count()
    };
    assert_eq!([checks("check", "small"), checks("check", "medium"), checks("check", "large")], [108, 108, 67]);
    assert_eq!(checks("model", ""), 312);
    assert!(rows.iter().all(|row| row["passed"] != "false"));
}

/// `96.5, 98.1 %`: the accuracies of runs in their order.
fn accuracies(runs: &[&Row]) -> String {
    let each = runs.iter().map(|run| percent(number(run, "accuracy")));
    format!("{} %", each.collect::<Vec<_>>().join(", "))
}

#[test]
fn the_starts_of_s6_and_ssd_are_those_of_their_runs() {
    let rows = measured("figure7-init.csv");
    let place = RESULTS.find("**Is SSD above S6 in Figure 7").unwrap();
    let table = RESULTS[place..].lines().skip_while(|line| !line.starts_with("| steps at the start"));
    let (mut checked, mut medians) = (0, Vec::new());
    for text in table.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
        let mut of = |rate: f64| {
            let mut own = runs(&rows, &[("mixer", cells[1])]);
            let from_mamba = |run: &&Row| run["options"].contains("dt_init=mamba");
            own.retain(|run| {
                from_mamba(run) == (cells[0] == "Mamba's") && (number(run, "lr") / rate - 1.0).abs() < 0.01
            });
            assert!(own.iter().all(|run| number(run, "accuracy") > 0.9));
            checked += own.len();
            let stopped = |run: &&&Row| number(run, "accuracy") > 0.99;
            let mut epochs: Vec<u32> =
                own.iter().filter(stopped).map(|run| run["epochs_run"].parse().unwrap()).collect();
            epochs.sort_unstable();
            medians.extend((rate == 1e-2).then(|| epochs[epochs.len() / 2]));
            let list = epochs.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let mut others: Vec<&Row> = own.iter().filter(|run| !stopped(run)).copied().collect();
            others.sort_by(|a, b| number(a, "accuracy").total_cmp(&number(b, "accuracy")));
            let rest = if others.is_empty() { String::new() } else { format!("; {}", accuracies(&others)) };
            let cut_off = match 5 - own.len() {
                0 => String::new(),
                missing => format!("; {missing} cut off"),
            };
            format!("{} of 5 ({list}){rest}{cut_off}", epochs.len())
        };
        assert_eq!(cells[2..], [of(4.64e-4), of(1e-2)], "{text}");
    }
    assert_eq!((checked, rows.len()), (37, 37));
    let [s6, ssd, s6_from_mamba, ssd_from_mamba] = medians[..] else { panic!("{medians:?}") };
    assert_printed(RESULTS, &format!("(a median of {s6} epochs against {ssd})"));
    assert_printed(RESULTS, &format!("Mamba's steps take the median of SSD from {ssd} to {ssd_from_mamba}"));
    assert_printed(RESULTS, &format!("the spread of its seeds ({s6} to {s6_from_mamba})"));
}

#[test]
fn the_copies_are_those_of_their_runs() {
    let rows = measured("copying-small.csv");
    for mixer in ["delta-net", "mamba", "linear", "gla", "softmax", "lstm"] {
        let expected = ["string", "delayed", "suffix-lookup", "prefix-lookup"].map(|form| {
            let each = ["true", "false"].map(|positions| {
                let own = runs(&rows, &[("mixer", mixer), ("form", form), ("positions", positions)]);
                assert_eq!(own.len(), 1);
                let loss = number(own[0], "train_loss");
                let learns = loss <= if positions == "true" { 0.04 } else { 0.06 };
                let fails = ["softmax", "linear", "gla"].contains(&mixer) && positions == "false";
                assert!(form != "string" || learns != fails, "{mixer}");
                assert!(form != "prefix-lookup" || loss >= 2.8, "{mixer}");
                percent(number(own[0], "accuracy"))
            });
            each.join(", ")
        });
        assert_eq!(line(RESULTS, "| mixer | string | delayed |", mixer)[1..], expected, "{mixer}");
    }
    assert_eq!(rows.len(), 48);
}

#[test]
fn the_tasks_of_h3_are_those_of_their_runs() {
    let rows = measured("h3-table1.csv");
    for mixer in ["h3", "mamba", "softmax", "s4d", "gss"] {
        let expected = ["induction", "recall"].map(|task| {
            let own = runs(&rows, &[("mixer", mixer), ("task", task)]);
            assert_eq!(own.len(), 1);
            format!("{} % ({})", percent(number(own[0], "accuracy")), own[0]["epochs_run"])
        });
        assert_eq!(line(RESULTS, "| mixer | induction heads |", mixer)[1..], expected, "{mixer}");
    }
    assert_eq!(rows.len(), 10);
}

#[test]
fn the_hybrids_are_those_of_their_runs() {
    let rows = measured("hybrids-small.csv");
    for mixer in ["mamba", "rg-lru", "h3", "linear"] {
        let expected = [true, false].map(|alone| {
            let mut own = by_seed(&rows, &[("mixer", mixer)]);
            own.retain(|run| run["hybrid"].is_empty() == alone);
            assert_eq!(own.len(), 4);
            two_seeds(&own)
        });
        assert_eq!(line(RESULTS, "| mixer | alone | hybrid |", mixer)[1..3], expected, "{mixer}");
    }
    assert_eq!(rows.iter().filter(|run| number(run, "accuracy") > 0.9).count(), 1);
    assert_eq!(rows.len(), 32);
}

/// Accuracy of a mixer in a task of MAD, at the better of two rates, chosen on the validation set.
fn accuracy_on_mad(rows: &[Row], mixer: &str, skill: &str) -> f64 {
    let own = runs(rows, &[("mixer", mixer), ("dataset", skill)]);
    assert_eq!(own.len(), 2, "{mixer} {skill}");
    let best = own.iter().max_by(|a, b| number(a, "val_accuracy").total_cmp(&number(b, "val_accuracy")));
    number(best.unwrap(), "macro_accuracy")
}

#[test]
fn the_scores_of_mad_are_those_of_their_runs() {
    let rows = measured("mad-small.csv");
    let place = RESULTS.find("| mixer | MAD | recall |").unwrap();
    let table: Vec<&str> = RESULTS[place..].lines().take_while(|line| line.starts_with('|')).collect();
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let head = cells(table[0]);
    let mut scores = Vec::new();
    for line in &table[2..] {
        let line = cells(line);
        let each: Vec<f64> = head[2..].iter().map(|skill| accuracy_on_mad(&rows, line[0], skill)).collect();
        let score = mean(&each);
        let expected: Vec<String> = [score].iter().chain(&each).map(|share| percent(*share)).collect();
        assert_eq!(line[1..], expected, "{}", line[0]);
        scores.push(score);
    }
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    assert_eq!(rows.len(), 2 * 6 * scores.len());
    for mixer in ["lmu", "rnn", "spatten"] {
        for (skill, without) in [("recall", 0.36), ("noisy-recall", 0.378), ("fuzzy-recall", 0.219), ("copying", 0.27)]
        {
            assert!(accuracy_on_mad(&rows, mixer, skill) < without, "{mixer} {skill}");
        }
    }

    let second = measured("mad-small-seed124.csv");
    let place = RESULTS.find("| mixer | seed 123 | seed 124 |").unwrap();
    let lines = RESULTS[place..].lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut moved = Vec::new();
    for line in lines {
        let line = cells(line);
        let each = |rows: &[Row]| -> Vec<f64> {
            head[2..].iter().map(|skill| accuracy_on_mad(rows, line[0], skill)).collect()
        };
        let (first, other) = (each(&rows), each(&second));
        let apart = |i: &usize| (first[*i] - other[*i]).abs();
        let most = (0..6).max_by(|a, b| apart(a).total_cmp(&apart(b))).unwrap();
        let differs = format!("{}: {}, {}", head[2 + most], percent(first[most]), percent(other[most]));
        assert_eq!(line[1..], [percent(mean(&first)), percent(mean(&other)), differs], "{}", line[0]);
        moved.push((mean(&first) - mean(&other)).abs());
    }
    assert_eq!(second.len(), 2 * 6 * moved.len());
    moved.sort_by(f64::total_cmp);
    let (median, most) = (percent(moved[moved.len() / 2]), percent(*moved.last().unwrap()));
    assert_printed(RESULTS, &format!("moves by {median} points in the median, but by up to {most}"));
}

#[test]
fn the_accuracies_by_heads_are_those_of_their_runs() {
    let rows = measured("heads-small.csv");
    let of = |mixer: &str, heads: &str| by_seed(&rows, &[("mixer", mixer), ("heads", heads)]);
    for mixer in ["softmax", "normalized", "linear"] {
        let expected = ["1", "2", "4", "8"].map(|heads| two_seeds(&of(mixer, heads)));
        assert_eq!(line(RESULTS, "| mixer | 1 head | 2 heads |", mixer)[1..], expected, "{mixer}");
        let narrow = of(mixer, "8").into_iter().filter(|run| run["lr"] == "0.001" || mixer == "normalized");
        assert!(narrow.map(|run| number(run, "accuracy")).all(|accuracy| accuracy < 0.32), "{mixer}");
    }
    let linear =
        |heads: &str| of("linear", heads).into_iter().map(|run| (number(run, "accuracy"), run["state_size"].clone()));
    let one = linear("1").map(|(accuracy, _)| accuracy).fold(0.0, f64::max);
    assert_eq!(linear("4").filter(|(accuracy, _)| *accuracy > one).count(), 2);
    assert!(linear("1").all(|(_, size)| size == "4160") && linear("4").all(|(_, size)| size == "1088"));
    assert_printed(RESULTS, "no run gets past 31.5 %");
    assert_printed(RESULTS, "disagree (93.3 and 59.0 %)");
    assert_eq!(rows.len(), 48);
}

#[test]
fn the_accuracies_by_states_are_those_of_their_runs() {
    let rows = measured("states-small.csv");
    let of = |mixer: &str, options: &str| by_seed(&rows, &[("mixer", mixer), ("options", options)]);
    for mixer in ["qlstm-reversed", "rg-lru"] {
        let expected = ["", "states=4", "states=16"].map(|options| two_seeds(&of(mixer, options)));
        assert_eq!(line(RESULTS, "| mixer | 1 state | 4 states |", mixer)[1..], expected, "{mixer}");
    }
    let past = |mixer: &str, options: &str| {
        of(mixer, options).into_iter().filter(|run| number(run, "accuracy") > 0.307).count()
    };
    assert!(["", "states=4", "states=16"].iter().all(|options| past("qlstm-reversed", options) == 0));
    assert_eq!(["", "states=4", "states=16"].map(|options| past("rg-lru", options)), [2, 1, 0]);
    let solved = ["paper", "reference"].map(|variant| {
        let own = runs(&rows, &[("mixer", "ssd"), ("variant", variant)]);
        assert_eq!(own.len(), 6);
        own.iter().filter(|run| number(run, "accuracy") > 0.99).count()
    });
    assert_eq!(solved, [6, 3]);
    // Fisher's exact test of 6 and 3 of 6: of all tables with 9 solved, those at least as unlikely are these two.
    let p = 2.0 * choose(6, 3) / choose(12, 9);
    assert_printed(RESULTS, &format!("Fisher's exact test, p = {p:.2}"));
    assert_eq!(rows.len(), 36);
}

/// Number of ways to choose k of n.
fn choose(n: u64, k: u64) -> f64 {
    (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

#[test]
fn the_starts_of_s4_are_those_of_their_runs() {
    let rows = measured("hippo-small.csv");
    let names = [("HiPPO-LegS", "legs"), ("HiPPO-LegT", "legt"), ("Fourier", "fourier"), ("random", "random")];
    for (name, start) in names {
        let expected = ["32", "64", "128", "256"].map(|len| {
            let mut own = runs(&rows, &[("seq_len", len)]);
            own.retain(|run| run["options"].ends_with(&format!("start={start}")));
            own.sort_by_key(|run| run["seed"].parse::<u64>().unwrap());
            let each = own.iter().map(|run| format!("{} % ({})", percent(number(run, "accuracy")), run["epochs_run"]));
            each.collect::<Vec<_>>().join(", ")
        });
        assert_eq!(line(RESULTS, "| start of S4 | L = 32 |", name)[1..], expected, "{name}");
        let learnt = rows.iter().filter(|run| run["options"].ends_with(start) && number(run, "accuracy") > 0.999);
        assert_eq!(learnt.count(), if start == "random" { 0 } else { 8 }, "{name}");
    }
    let random = rows.iter().filter(|run| run["options"].ends_with("random")).map(|run| number(run, "accuracy"));
    let [least, most] = [f64::min, f64::max].map(|of| random.clone().reduce(of).unwrap());
    assert_printed(RESULTS, &format!("they end between {} and {} %", percent(least), percent(most)));
    assert_eq!(rows.len(), 32);
}

#[test]
fn the_parities_are_those_of_their_runs() {
    let rows = measured("state-tracking-small.csv");
    let all = ["lstm", "slstm", "mamba", "gla", "linear", "ssd", "softmax"].map(|mixer| (mixer, mixer, false));
    let delta_nets = [("delta-net, eigenvalues in [-1, 1]", true), ("delta-net, eigenvalues in [0, 1]", false)];
    let delta_nets = delta_nets.map(|(name, negative)| (name, "delta-net", negative));
    for (name, mixer, negative) in all.into_iter().chain(delta_nets) {
        let mut own = by_seed(&rows, &[("mixer", mixer)]);
        own.retain(|run| run["options"].contains("negative_eigenvalues=true") == negative);
        let expected = ["z2", "s3"].map(|group| {
            let words: Vec<&Row> = own.iter().filter(|run| run["group"] == group).copied().collect();
            assert_eq!(words.len(), 2, "{name}");
            accuracies(&words)
        });
        assert_eq!(line(RESULTS, "| mixer | parity at 128 tokens |", name)[1..], expected, "{name}");
    }
    assert_eq!(rows.len(), 36);
}

#[test]
fn the_survey_is_that_of_its_runs() {
    let rows = measured("survey.csv");
    let known = |name: &str| rows.iter().any(|row| row["mixer"] == name);
    let place = RESULTS.find("The survey: 50 mixers").unwrap();
    let mut checked = 0;
    let table = RESULTS[place..].lines().skip_while(|line| !line.starts_with('|'));
    for cell in table.skip(2).take_while(|line| line.starts_with('|')) {
        let list = cell.trim_matches('|').split('|').nth(1).unwrap();
        // A mixer in several settings has lines that say which.
        for entry in list.split(", ") {
            let words: Vec<&str> = entry.split_whitespace().collect();
            let [name, printed, range @ ..] = &words[..] else {
                continue;
            };
            let own = runs(&rows, &[("mixer", name)]);
            let settings: std::collections::BTreeSet<(&str, &str)> =
                own.iter().map(|run| (&*run["options"], &*run["heads"])).collect();
            if !known(name) || printed.parse::<f64>().is_err() || settings.len() > 1 {
                continue;
            }
            let (_, values) = best(&own);
            assert_eq!(*printed, percent(mean(&values)), "{name}");
            if let [low, "to", high] = range {
                let [found_low, found_high] = [f64::min, f64::max].map(|of| values.iter().copied().reduce(of).unwrap());
                let digits = usize::from(high.contains('.'));
                let of = |share: f64, digits: usize| format!("{:.digits$}", 100.0 * share);
                assert_eq!(*low, format!("({}", of(found_low, 0)), "{name}");
                assert_eq!(*high, format!("{})", of(found_high, digits)), "{name}");
            }
            checked += 1;
        }
    }
    assert!(checked >= 15, "{checked}");
    let low = line(
        RESULTS,
        "The survey: 50 mixers",
        "at most 25 %, at most 35 with any seed: little recall or none, in alphabetical order",
    )[1];
    for name in low.split(", ").filter(|name| known(name)) {
        let (_, values) = best(&runs(&rows, &[("mixer", name)]));
        assert!(mean(&values) <= 0.25 && values.iter().all(|value| *value <= 0.35), "{name}");
    }
}

#[test]
fn the_arena_and_texts_are_those_of_their_runs() {
    let rows = measured("lra-small.csv");
    for dataset in ["listops", "text", "retrieval", "image", "pathfinder"] {
        let run = runs(&rows, &[("dataset", dataset)])[0];
        let cells = line(RESULTS, "| task | model | trained on |", dataset);
        let expected = ["accuracy", "majority"].map(|column| format!("{} %", percent(number(run, column))));
        assert_eq!(cells[3..5], expected, "{dataset}");
    }
    let rows = measured("wikitext-small.csv");
    for (first, tokenizer, digits) in [
        ("by the byte, 2 M bytes, some 3 min a run", "bytes", 2),
        ("GPT-NeoX's tokens, 410,000 of them, 4 to 9 min", "gpt-neox", 0),
    ] {
        let cells = line(RESULTS, "| perplexity per token of the test text |", first);
        for (cell, mixer) in cells[1..4].iter().zip(["softmax", "linear", "normalized"]) {
            let run = runs(&rows, &[("tokenizer", tokenizer), ("mixer", mixer)])[0];
            assert_eq!(*cell, format!("{:.digits$}", number(run, "test_ppl")), "{mixer}");
        }
    }
}

/// The accuracies without each task's skill that the page states in sentences are those of `dsf report`.
#[test]
fn the_accuracies_without_the_skill_are_those_of_the_reports() {
    let world = World::new();
    for (file, reported, said) in [
        ("state-tracking-small.csv", "without state tracking 50.4 %", "a guess is right at 50.4 and 17.3 %"),
        ("state-tracking-small.csv", "without state tracking 17.3 %", "a guess is right at 50.4 and 17.3 %"),
        ("copying-small.csv", "without copying 21.2 %", "answers 21.2 % right in"),
        ("copying-small.csv", "without copying 12.0 %", "12.0 % in `delayed`"),
        ("copying-small.csv", "without copying 9.6 %", "9.6 % in `suffix-lookup`"),
        ("copying-small.csv", "without copying 9.4 %", "9.4 % in `prefix-lookup`"),
        ("h3-table1.csv", "without recall 14.6 %", "right at 14.6 and 43.8 %"),
        ("h3-table1.csv", "without recall 43.8 %", "right at 14.6 and 43.8 %"),
        ("mad-small.csv", "without recall 36.0 %", "36.0 % of recall"),
        ("mad-small.csv", "without recall 37.8 %", "37.8 % of noisy recall"),
        ("mad-small.csv", "without recall 21.9 %", "21.9 % of fuzzy recall"),
        ("mad-small.csv", "without copying 27.0 %", "27.0 % of copying"),
        ("hybrids-small.csv", "without recall 16.7 %", "alone answer 16.7 %"),
        ("hippo-small.csv", "without copying 22.2 %", "the most frequent token of the string is right at 22.2 %"),
        ("heads-small.csv", "without recall 30.7 %", "positions alone answer 30.7 %"),
        ("states-small.csv", "without recall 30.7 %", "gets past positions alone (30.7 %)"),
        ("figure7-cell.csv", "without recall 28.8 %", "The accuracy without recall is about 29 %"),
        ("mqar-small.csv", "without recall 30.7 %", "The accuracy without recall is about 31 %"),
        ("survey.csv", "without recall 21.8 %", "The accuracy without recall is about 22 %"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(file);
        let report = world.dsf(&format!("report {}", path.display())).ok();
        assert!(report.contains(reported), "{file}: {reported}");
        assert_printed(RESULTS, said);
    }
}
