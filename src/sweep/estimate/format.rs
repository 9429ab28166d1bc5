//! Formatting of durations, bytes and counts.

pub use crate::store::gigabytes as bytes;
use indicatif::HumanCount;

/// Formats a duration: `0.8 s`, `41 s`, `6 min 10 s`, `3 h 05 min`, `12 d 06 h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "-".to_owned();
    }
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let total = seconds.round() as u64;
    let (minutes, hours, days) = (total / 60, total / 3600, total / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{total} s"),
        (0, 0, m) => format!("{m} min {:02} s", total % 60),
        (0..2, h, m) => format!("{h} h {:02} min", m % 60),
        (d, h, _) => format!("{d} d {:02} h", h % 24),
    }
}

/// Formats a count with separators: `1,966,080`.
pub fn grouped(count: u64) -> String {
    HumanCount(count).to_string()
}

/// Formats a count with its noun: `1 run`, `20 runs`.
pub fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(count as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_a_person_says_them() {
        let said = [0.84, 41.2, 59.7, 370.0, 11_100.0, 90_000.0, 1e6, f64::NAN].map(duration);
        let expected = ["0.8 s", "41 s", "1 min 00 s", "6 min 10 s", "3 h 05 min", "25 h 00 min", "11 d 13 h", "-"];
        assert_eq!(said, expected);
    }

    #[test]
    fn memory_is_rounded_to_what_a_person_cares_for() {
        let said = [69.2e6, 0.949e9, 0.96e9, 12.34e9].map(bytes);
        assert_eq!(said, ["70 MB", "949 MB", "1.0 GB", "12.3 GB"]);
    }

    #[test]
    fn one_thing_has_no_plural() {
        let said = [0, 1, 1280].map(|count| counted(count, "run"));
        assert_eq!(said, ["0 runs", "1 run", "1,280 runs"]);
    }

    #[test]
    fn thousands_are_set_apart() {
        let said = [7, 168, 1000, 76_800, 1_966_080].map(grouped);
        assert_eq!(said, ["7", "168", "1,000", "76,800", "1,966,080"]);
    }
}
