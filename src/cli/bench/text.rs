//! Numbers of a report as a person reads them.

use crate::bench::Machine;

/// Names and values, one a line.
pub(super) fn lines(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:width$}  {value}");
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Rows of cells below each other, aligned to the right but for the last column.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let length = |cell: &String| cell.chars().count();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(length).max();
    let widths: Vec<usize> = (0..count).map(|c| width(c).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(c, (cell, &width))| match c + 1 == count {
                true => cell.clone(),
                false => format!("{cell:>width$}"),
            });
        text += &(cells.collect::<Vec<_>>().join("  ") + "\n");
    }
    text
}

/// Seconds with what they strayed between.
pub(super) fn spread(median: f64, min: f64, max: f64) -> String {
    format!("{} ({} to {})", seconds(median), seconds(min), seconds(max))
}

/// `1.234 s`, `12.3 ms`, `4.56 µs`.
pub(super) fn seconds(seconds: f64) -> String {
    let (factor, unit) = match seconds {
        s if s >= 1.0 => (1.0, "s"),
        s if s >= 1e-3 => (1e3, "ms"),
        _ => (1e6, "µs"),
    };
    format!("{} {unit}", digits(factor * seconds))
}

/// `1.50 G`, `65.3 M`, `810`.
pub(super) fn si(count: f64) -> String {
    let (divisor, unit) = match count {
        c if c >= 1e9 => (1e9, " G"),
        c if c >= 1e6 => (1e6, " M"),
        c if c >= 1e3 => (1e3, " k"),
        _ => (1.0, ""),
    };
    format!("{}{unit}", digits(count / divisor))
}

/// Three digits.
fn digits(x: f64) -> String {
    match x {
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// The machine in a line.
pub(super) fn machine(machine: &Machine) -> String {
    let load = machine.load_average;
    let load = load.map_or("unknown".to_owned(), |load| format!("{load:.2}"));
    format!(
        "{}, {}, {} threads, load {load}, commit {}",
        machine.cpu, machine.instruction_set, machine.threads, machine.commit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit_say_enough() {
        assert_eq!(
            [1.5, 0.0123, 4.56e-6, 123.4].map(seconds),
            ["1.50 s", "12.3 ms", "4.56 µs", "123 s"]
        );
        assert_eq!([1.5e9, 65.3e6, 810.0].map(si), ["1.50 G", "65.3 M", "810"]);
    }
}
