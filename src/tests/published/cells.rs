//! Cells of the paper's grid, and the small recall task of `dsf mqar`.

use super::page::Page;
use super::{
    above, accuracies, best, by_rate, distinct, duration, has_rate, measured, number, one, only, percent, planned,
    rate, released_step, runs, texts, whole, without_skill, words, Row, LEARNT, SOLVED,
};

pub fn figure7_cell(page: &Page) {
    let rows = measured("figure7-cell.csv");
    let beside = page.beside(&rows);
    assert_eq!(one(&rows, "n"), one(&rows, "d"));
    beside.says(
        "(L = {seq_len}, {kv_pairs} pairs, d = n = {d}, seed {seed}, {data}'s examples, protocol `{protocol}`;",
        &[],
    );
    let level = without_skill("figure7-cell.csv", "");
    beside.says(
        "without recall is about {} %. A run stops above {} %; the epochs it took, of {epochs_max}, are in parentheses",
        &[whole(level), whole(LEARNT)],
    );
    assert_eq!(one(&rows, "stop_above"), LEARNT.to_string());
    let mut rates: Vec<f64> = by_rate(&rows.iter().collect::<Vec<_>>()).into_iter().map(|(lr, _)| lr).collect();
    page.says("| | {} | {} | {} | {} |", &rates.iter().copied().map(rate).collect::<Vec<_>>());
    let of = |mixer: &str, lr: f64| {
        let found = rows.iter().find(|run| run["mixer"] == mixer && number(run, "lr") == lr);
        found.unwrap()
    };
    let learns = |mixer, lr| number(of(mixer, lr), "accuracy") > LEARNT;
    for mixer in ["softmax", "linear", "normalized", "s6", "ssd"] {
        let cells = rates.iter().map(|lr| {
            let accuracy = percent(number(of(mixer, *lr), "accuracy"));
            match learns(mixer, *lr) {
                true => format!("{accuracy} % ({})", of(mixer, *lr)["epochs_run"]),
                false => format!("{accuracy} %"),
            }
        });
        page.has_line(mixer, &cells.collect::<Vec<_>>());
        assert!(!learns(mixer, rates[0]) && best(&runs(&rows, &[("mixer", mixer)])).1[0] > LEARNT, "{mixer}");
    }
    beside.says(
        "At the best of the {lr#} rates, which is all that Figure 7 shows, the {mixer#} mixers do not differ",
        &[],
    );
    page.says("each passes {} %.", &[whole(LEARNT)]);
    beside.says("too low for all of them in {epochs_max} epochs.", &[]);
    let succeed = |mixer| rates.iter().filter(|lr| learns(mixer, **lr)).count();
    page.says(
        "({} for softmax attention; for S6 {}, at the upper end of the paper's range)",
        &["softmax", "s6"].map(|mixer| words(succeed(mixer))),
    );
    assert!(learns("s6", rates[3]) && learns("ssd", rates[1]) && !learns("ssd", rates[2]) && learns("ssd", rates[3]));
    let missed = of("ssd", rates[2]);
    let losses = ["train_loss", "test_loss"].map(|column| format!("{:.2}", number(missed, column)));
    beside.says(
        "on both sides of {}; at that rate it memorised the {train_examples,} fixed training examples, with a training \
         loss of {} and a test loss of {}.",
        &[&[rate(rates.swap_remove(2))][..], &losses].concat(),
    );
    let other = measured("mqar-paper-cell.csv");
    let other = only(&other, &[("mixer", "ssd"), ("data", "native")]);
    assert!(number(other, "accuracy") > LEARNT && has_rate(other, number(missed, "lr")));
    page.says(
        "With seed {} and our own generator it passed {} % at that rate after {} epochs",
        &texts![other["seed"], whole(LEARNT), other["epochs_run"]],
    );
}

pub fn starts_of_s6_and_ssd(page: &Page) {
    let rows = measured("figure7-init.csv");
    let beside = page.beside(&rows);
    assert_eq!((one(&rows, "n"), one(&rows, "stop_above")), (one(&rows, "d"), &*LEARNT.to_string()));
    beside.says(
        "(L = {seq_len}, {kv_pairs} pairs, d = n = {d}, {seed#} seeds, {lr#} of the four rates, {data}'s examples, \
         {precision} on an H100;",
        &[],
    );
    beside.says("Runs above {} % with the epochs that they took, of {epochs_max},", &[whole(LEARNT)]);
    let (seeds, low, high) = (distinct(&rows, "seed").len(), 4.64e-4, 1e-2);
    page.says("| steps at the start | mixer | {} | {} |", &[low, high].map(rate));
    let of = |mixer: &str, from_mamba: bool, lr: f64| -> Vec<&Row> {
        let own = runs(&rows, &[("mixer", mixer)]).into_iter().filter(|run| has_rate(run, lr));
        own.filter(|run| run["options"].contains("dt_init=mamba") == from_mamba).collect()
    };
    let epochs = |runs: &[&Row]| {
        let stopped = runs.iter().filter(|run| number(run, "accuracy") > LEARNT);
        let mut epochs: Vec<usize> = stopped.map(|run| run["epochs_run"].parse().unwrap()).collect();
        epochs.sort_unstable();
        epochs
    };
    let cell = |mixer, from_mamba, lr| {
        let own = of(mixer, from_mamba, lr);
        let epochs: Vec<String> = epochs(&own).iter().map(usize::to_string).collect();
        let mut others: Vec<&Row> = own.iter().filter(|run| number(run, "accuracy") <= LEARNT).copied().collect();
        others.sort_by(|a, b| number(a, "accuracy").total_cmp(&number(b, "accuracy")));
        let rest = if others.is_empty() { String::new() } else { format!("; {}", accuracies(&others)) };
        let cut_off = match seeds - own.len() {
            0 => String::new(),
            missing => format!("; {missing} cut off"),
        };
        format!("{} of {seeds} ({}){rest}{cut_off}", epochs.len(), epochs.join(", "))
    };
    for mixer in ["s6", "ssd"] {
        let cells = [false, true].map(|from_mamba| [low, high].map(|lr| cell(mixer, from_mamba, lr)));
        let step = format!("{:.2}", released_step());
        page.says(&format!("| {{}}, as released | {mixer} | {{}} | {{}} |"), &[&[step][..], &cells[0]].concat());
        page.says(&format!("| Mamba's | {mixer} | {{}} | {{}} |"), &cells[1]);
    }
    assert_eq!(above(&rows.iter().collect::<Vec<_>>(), SOLVED), rows.len());
    beside.says("All {runs} finished runs solve the task (above {} %).", &[whole(SOLVED)]);
    let counted = |mixer, lr| {
        let own = [false, true].map(|from_mamba| epochs(&of(mixer, from_mamba, lr)).len());
        own.iter().sum::<usize>()
    };
    let [s6, ssd] = ["s6", "ssd"].map(|mixer| counted(mixer, high));
    page.says("At {} all {} runs finished and pass {} %,", &texts![rate(high), s6 + ssd, whole(LEARNT)]);
    page.says(
        "at {}, {} of {} runs of SSD did and {} of {} of S6; at {}, with the released start,",
        &texts![rate(low), counted("ssd", low), 2 * seeds, counted("s6", low), 2 * seeds, rate(high)],
    );
    let median = |mixer, from_mamba| {
        let epochs = epochs(&of(mixer, from_mamba, high));
        epochs[epochs.len() / 2]
    };
    let [[s6, ssd], [s6_later, ssd_later]] =
        [false, true].map(|from_mamba| ["s6", "ssd"].map(|mixer| median(mixer, from_mamba)));
    page.says(
        "(a median of {} epochs against {}), and Mamba's steps take the median of SSD from {} to {}, while that of S6 \
         moves within the spread of its seeds ({} to {}).",
        &texts![s6, ssd, ssd, ssd_later, s6, s6_later],
    );
    let on_a_cpu = measured("figure7-cell.csv");
    let on_a_cpu = on_a_cpu.iter().find(|run| run["mixer"] == "s6" && has_rate(run, high)).unwrap();
    let here = of("s6", false, high).into_iter().find(|run| run["seed"] == on_a_cpu["seed"]).unwrap();
    page.says(
        "On a CPU, S6 took {} epochs with the seed that took {} here",
        &texts![on_a_cpu["epochs_run"], here["epochs_run"]],
    );
    page.says("{} runs of the experiment are left.", &texts![planned("figure7-init") - rows.len()]);
}

pub fn small_task(page: &Page) {
    let rows = measured("mqar-small.csv");
    let beside = page.beside(&rows);
    let n = &runs(&rows, &[("mixer", "softmax")])[0]["n"];
    beside.says(
        "(V = {vocab_size}, L = {seq_len}, {kv_pairs} pairs, {train_examples,} examples, d = {d}, n = {}, {epochs_max} \
         epochs at most, protocol `{protocol}`, seed {seed}, one thread a run;",
        &texts![n],
    );
    assert_eq!(one(&rows, "threads"), "1");
    let rates: Vec<f64> = by_rate(&rows.iter().collect::<Vec<_>>()).into_iter().map(|(lr, _)| lr).collect();
    page.says("the best of the rates {}, {} and {}.", &rates.into_iter().map(rate).collect::<Vec<_>>());
    page.says("without recall is about {} %.", &[whole(without_skill("mqar-small.csv", ""))]);
    for mixer in ["softmax", "normalized", "ssd", "qlstm-reversed", "qlstm", "linear", "s6"] {
        let own = runs(&rows, &[("mixer", mixer)]).into_iter();
        let run = own.max_by(|a, b| number(a, "accuracy").total_cmp(&number(b, "accuracy"))).unwrap();
        let accuracy = percent(number(run, "accuracy"));
        page.has_line(mixer, &texts![number(run, "lr"), format!("{accuracy} %"), run["epochs_run"]]);
    }
    let rows = measured("mqar-quick.csv");
    page.beside(&rows).says(
        "{} of the {runs} mixers end above {} %",
        &texts![above(&rows.iter().collect::<Vec<_>>(), SOLVED), whole(SOLVED)],
    );
}

pub fn smallest_task(page: &Page) {
    let rows = measured("mqar-paper-cell.csv");
    assert_eq!((one(&rows, "n"), one(&rows, "threads")), (one(&rows, "d"), "2"));
    page.beside(&rows).says(
        "(V = {vocab_size}, L = {seq_len}, {kv_pairs} pairs, {train_examples,} examples, d = n = {d}, rate {}; two \
         threads;",
        &texts![format!("{:e}", number(&rows[0], "lr"))],
    );
    for mixer in ["softmax", "ssd"] {
        let run = only(&rows, &[("mixer", mixer)]);
        page.says(&format!("| {mixer}, seed {{}} |"), &texts![run["seed"]]);
        let memory = format!("{:.0}", 1e-6 * number(run, "peak_memory_bytes"));
        let accuracy = percent(number(run, "accuracy"));
        page.says("| {} % | {} | {} | {} MB |", &texts![accuracy, run["epochs_run"], duration(run), memory]);
    }
}
