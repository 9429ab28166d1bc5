//! The tables of the guide on speed print the numbers of the published measurements, digit for digit.

use std::collections::BTreeMap;
use std::path::Path;

const GUIDE: &str = include_str!("../guide/speed.md");

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
    lines
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
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
            let mut found = rows.iter().filter(|row| {
                row["case"] == case && row["instruction_set"] == set && row["peer"].contains(head)
            });
            found.next().unwrap_or_else(|| panic!("{case} {head}"))
        };
        let (all, labelled) = (of("--head all"), of("--head labelled"));
        let ratio = |row: &Row| {
            let [ratio, low, high] =
                ["ratio", "ratio_min", "ratio_max"].map(|column| number(row, column));
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

#[test]
fn rates_by_length_are_those_of_the_measurement() {
    let rows = measured("bench-lengths.csv");
    let lines = printed("| tokens a CPU second | L = 64");
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
        let mut expected: Vec<String> = rates
            .iter()
            .map(|rate| format!("{:.0} k", 1e-3 * rate))
            .collect();
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        expected.push(format!("{:.2}", fastest / slowest));
        assert_eq!(line[1..], expected[..], "{}", line[0]);
    }
}
