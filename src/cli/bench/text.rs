//! Measurements as text.

use crate::bench::{Clock, Measurement, MeasurementKind, MeasurementReport};
use crate::cli::print::{columns, Align};
use serde_json::Value;

/// Returns a row or a report as one line of JSON.
pub(super) fn json(report: &impl serde::Serialize) -> String {
    let mut event = serde_json::to_value(report).expect("a report is plain data");
    event["event"] = "bench".into();
    event["schema"] = 1.into();
    event.to_string()
}

/// Formats a single measurement on the CPU, one fact per line.
pub(super) fn report(report: &MeasurementReport) -> String {
    let row = &report.row;
    let detail = |name: &str| match report.details.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    };
    let number = |name: &str| report.details.get(name).and_then(Value::as_f64);
    let sizes = |names: &[[&str; 2]]| {
        names.iter().map(|[name, key]| format!("{name} = {}", detail(key))).collect::<Vec<_>>().join(", ")
    };
    let mut facts = Vec::new();
    if row.kind == MeasurementKind::Step {
        let [mixer, variant, protocol] = ["mixer", "variant", "protocol"].map(detail);
        let sizes = sizes(&[
            ["d", "d"],
            ["n", "n"],
            ["heads", "heads"],
            ["layers", "layers"],
            ["L", "seq_len"],
            ["V", "vocab_size"],
            ["batch", "batch_size"],
        ]);
        facts.push(("step", format!("{mixer} ({variant}, {protocol}): {sizes}")));
        facts.push(("task", detail("task")));
    } else {
        let sizes = sizes(&[["shape", "shape"], ["heads", "heads"]]);
        facts.push(("op", format!("{} {sizes}, {}", detail("op"), row.dtype)));
    }
    if let Some(forward) = report.details.get("forward") {
        let time = or_dash(forward["seconds"].as_f64(), seconds);
        let fraction = or_dash(forward["fraction_of_floor"].as_f64(), percent);
        facts.push(("forward", format!("{time}, {fraction} of its floor")));
    }
    facts.push(("CPU", range([row.seconds, row.seconds_min, row.seconds_max])));
    facts.push(("wall", range([row.wall_seconds, row.wall_seconds_min, row.wall_seconds_max])));
    let ours = OURS.iter().filter(|(name, _)| !["min", "max"].contains(name));
    facts.extend(ours.filter_map(|(name, cell)| Some((*name, cell(row)?))));
    facts.extend(peaks(row).map(|peaks| ("peaks", peaks)));
    let remarks = [("why slow", &row.below), ("note", &row.note)].into_iter();
    facts.extend(remarks.filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, text.clone())));
    if let (Some(first), Some(last)) = (number("first_loss"), row.loss) {
        facts.push(("loss", format!("{first:.6} in the first step, {last:.6} in the last")));
    }
    if let (Some(output), Some(gradients)) = (number("checksum"), number("gradient_checksum")) {
        facts.push(("sums", format!("{output:.6e} of the output, {gradients:.6e} of the gradients")));
    }
    facts.push(("route", row.route.clone()));
    facts.push(("machine", machine_of(row)));
    let rows: Vec<_> = facts.into_iter().map(|(name, fact)| vec![name.to_owned(), fact]).collect();
    columns(&rows, Align::Left)
}

/// Describes the peak performance of one core, if it was measured.
fn peaks(row: &Measurement) -> Option<String> {
    Some(format!(
        "{} flop/s, {} lanes/s, {} exponentials/s and {}B/s of memory on one core",
        si(row.peak_flops?),
        si(row.peak_lanes?),
        si(row.peak_exps?),
        si(row.peak_bytes?)
    ))
}

pub(super) fn failure(row: &Measurement) -> String {
    let (title, note) = (row.title(), &row.note);
    match (row.distance, row.tolerance) {
        (Some(distance), Some(tolerance)) => {
            format!("error: {title}: results differ by {distance:.1e}, allowed is {tolerance:.0e}; {note}")
        }
        _ => format!("error: {title}: {note}"),
    }
}

/// Column of the table: its heading, and the cell of a row, if it has one.
type BenchColumn = (&'static str, fn(&Measurement) -> Option<String>);

/// Columns about this program. A column without cells is omitted.
const OURS: &[BenchColumn] = &[
    ("min", |r| r.seconds_min.map(seconds)),
    ("max", |r| r.seconds_max.map(seconds)),
    ("floor", |r| r.floor_seconds.map(seconds)),
    ("of floor", |r| r.fraction_of_floor.map(percent)),
    ("expected", |r| r.predicted.map(percent)),
    ("tokens/s", |r| r.tokens_per_second.map(si)),
    ("elements/s", |r| r.elements_per_second.map(si)),
    ("memory", |r| r.peak_memory_bytes.map(megabytes)),
];

/// Columns about the peer program, and about both.
const PEERS: &[BenchColumn] = &[
    ("ratio", |r| r.ratio.map(times)),
    ("min", |r| r.ratio_min.map(times)),
    ("max", |r| r.ratio_max.map(times)),
    ("memory", |r| r.peer_peak_memory_bytes.map(megabytes)),
    ("differs", |r| r.distance.map(|d| format!("{d:.0e}"))),
];

/// Formats the number of passed checks, the times of all other rows, and the machine.
pub(super) fn table(rows: &[Measurement]) -> String {
    let (checks, timed): (Vec<&Measurement>, Vec<&Measurement>) = rows.iter().partition(|row| row.is_check());
    let mut text = String::new();
    if !checks.is_empty() {
        let passed = checks.iter().filter(|row| !row.failed()).count();
        text += &format!("{passed} of {} checks passed\n", checks.len());
    }
    let Some(last) = timed.last() else { return text };
    let clock = timed.iter().find(|row| row.seconds.is_some()).unwrap_or(last).clock;
    let [ours, peer, what, floor] = match clock {
        Clock::Cpu => {
            ["CPU", "peer CPU", "CPU seconds", "one core of this processor, measured in the process of each case"]
        }
        Clock::Wall => [
            "time",
            "peer",
            "wall-clock seconds, with the device synchronised before and after",
            "this GPU, computed from the clock and memory rates that its driver reports",
        ],
    };
    let ours: BenchColumn = (ours, |r| r.seconds.map(seconds));
    let peer: BenchColumn = (peer, |r| r.peer_seconds.map(seconds));
    let mut shown = [&[ours], OURS, &[peer], PEERS].concat();
    shown.retain(|(_, cell)| timed.iter().any(|row| cell(row).is_some()));
    let head = shown.iter().map(|(name, _)| (*name).to_owned()).chain(["case".to_owned()]);
    let mut cells = vec![head.collect()];
    cells.extend(timed.iter().map(|row| {
        let title = match row.note.as_str() {
            "" => row.title(),
            note => format!("{}: {note}", row.title()),
        };
        let texts = shown.iter().map(|(_, cell)| cell(row).unwrap_or_else(|| "-".to_owned()));
        texts.chain([title]).collect::<Vec<_>>()
    }));
    text += &columns(&cells, Align::Right);
    text += &reasons(&timed);
    let loads = timed.iter().filter_map(|row| row.load_average);
    let (low, high) = loads.fold((f64::INFINITY, 0f64), |(low, high), load| (low.min(load), high.max(load)));
    let machine = machine(last, &format!("{low:.2} to {high:.2}"));
    text + &format!("\nTimes are medians, in {what}; floors are those of {floor}.\n{machine}\n")
}

/// Lists the reasons why ops take more than twice their floors, each reason once.
fn reasons(rows: &[&Measurement]) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows.iter().filter(|row| !row.below.is_empty()) {
        let name = row.case.split(' ').next().unwrap_or_default();
        match reasons.iter_mut().find(|(reason, _)| *reason == row.below) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => reasons.push((&row.below, vec![name])),
        }
    }
    let line = |(reason, names): &(&str, Vec<&str>)| format!("  {}: {reason}\n", names.join(", "));
    let lines: String = reasons.iter().map(line).collect();
    match lines.as_str() {
        "" => lines,
        _ => format!("\nSlower than twice the floor:\n{lines}"),
    }
}

/// Describes the machine of a row in one line.
pub(super) fn machine_of(row: &Measurement) -> String {
    machine(row, &or_dash(row.load_average, |x| format!("{x:.2}")))
}

/// Describes the machine in one line: processor, instruction sets, threads, load and commit.
fn machine(row: &Measurement, load: &str) -> String {
    let unless_empty = |text: &str, [before, after]: [&str; 2]| match text {
        "" => String::new(),
        text => format!("{before}{text}{after}"),
    };
    let set = unless_empty(&row.instruction_set, [", ", ""]);
    let peer = unless_empty(&row.peer_instruction_set, [" (peer: ", ")"]);
    format!("{}{set}{peer}, {} threads, load {load}, commit {}", row.processor, row.threads, row.commit)
}

/// Formats a value, or returns a dash if there is none.
fn or_dash<T>(value: Option<T>, format: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

/// Formats the median of some times, with their range.
fn range([median, min, max]: [Option<f64>; 3]) -> String {
    let [median, min, max] = [median, min, max].map(|x| or_dash(x, seconds));
    format!("{median} ({min} to {max})")
}

fn percent(fraction: f64) -> String {
    format!("{:.0} %", 100.0 * fraction)
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}x")
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}

/// Formats seconds: `1.50 s`, `12.3 ms`, `4.56 µs`.
pub(super) fn seconds(seconds: f64) -> String {
    let (factor, unit) = match seconds {
        s if s >= 1.0 => (1.0, "s"),
        s if s >= 1e-3 => (1e3, "ms"),
        _ => (1e6, "µs"),
    };
    format!("{} {unit}", digits(factor * seconds))
}

/// Formats a count: `1.50 G`, `65.3 M`, `810`.
pub(super) fn si(count: f64) -> String {
    let (divisor, unit) = match count {
        c if c >= 1e9 => (1e9, " G"),
        c if c >= 1e6 => (1e6, " M"),
        c if c >= 1e3 => (1e3, " k"),
        _ => (1.0, ""),
    };
    format!("{}{unit}", digits(count / divisor))
}

/// Formats with three significant digits.
fn digits(x: f64) -> String {
    match x {
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_listed_once_with_all_its_ops() {
        let row = |case: &str, below: &str| Measurement {
            case: case.to_owned(),
            below: below.to_owned(),
            ..Measurement::default()
        };
        let rows = [
            row("tanh --shape 1,2,3", "it waits"),
            row("linear --shape 1,2,3,4", ""),
            row("glu --shape 1,2,3", "it waits"),
            row("glu --shape 3,2,1", "it waits"),
            row("ssd --shape 1,2,3,4", "it walks"),
        ];
        let text = reasons(&rows.each_ref());
        assert_eq!(text, "\nSlower than twice the floor:\n  tanh, glu: it waits\n  ssd: it walks\n");
        assert_eq!(reasons(&[&rows[1]]), "");
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!([1.5, 0.0123, 4.56e-6, 123.4].map(seconds), ["1.50 s", "12.3 ms", "4.56 µs", "123 s"]);
        assert_eq!([1.5e9, 65.3e6, 810.0].map(si), ["1.50 G", "65.3 M", "810"]);
    }
}
