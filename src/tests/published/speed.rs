//! The numbers of the guide on speed and of the page on CUDA are those of the measurements.

use super::{measured, number, runs, thousands, Row};
use std::collections::HashSet;

const GUIDE: &str = include_str!("../../guide/speed.md");

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

#[test]
fn rates_of_decoding_are_those_of_the_measurement() {
    let rows = measured("bench-decode.csv");
    let lines = printed("| decoding | bytes of state |");
    assert!(lines.len() > 10);
    let mixers: HashSet<&str> = rows.iter().filter_map(|row| row["case"].split(' ').next()).collect();
    assert_eq!(rows.len(), 10 * mixers.len());
    let shape = format!("{} mixers, every one whose state has one size beside softmax", mixers.len());
    let rates = |row: &Row| number(row, "tokens_per_second");
    let spread = |mixer: &str, batch: usize| {
        let words = format!("{mixer} {batch},");
        let of = rows.iter().filter(|row| row["case"].starts_with(&words)).map(rates);
        let (low, high) = of.fold((f64::INFINITY, 0.0f64), |(low, high), rate| (low.min(rate), high.max(rate)));
        high / low
    };
    let recurrent = mixers.iter().filter(|mixer| **mixer != "softmax");
    let widest = recurrent.flat_map(|mixer| [1, 8].map(|batch| spread(mixer, batch))).fold(0.0, f64::max);
    for said in [shape, format!("differ by up to {widest:.1} times")] {
        assert!(GUIDE.contains(&said), "the guide does not say: {said}");
    }
    for line in lines {
        let of = |batch: usize, context: usize| {
            let words = format!("{} {batch},{context},64,", line[0]);
            rows.iter().find(|row| row["case"].starts_with(&words)).unwrap()
        };
        let mut expected: Vec<String> =
            [256, 65_536].map(|context| thousands((4.0 * number(of(1, context), "elements")) as u64)).into();
        for (batch, context) in [(1, 256), (1, 4096), (1, 65_536), (8, 256), (8, 4096), (8, 65_536)] {
            expected.push(thousands(number(of(batch, context), "tokens_per_second").round() as u64));
        }
        assert_eq!(line[1..], expected, "{}", line[0]);
    }
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
