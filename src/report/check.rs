//! Compares our numbers with those printed in the paper.

use super::grid::{fact, PrintedNumber, Report};
use serde_json::json;

impl PrintedNumber {
    /// Signed distance of our number from the paper's; `None` without ours.
    fn apart(&self) -> Option<f64> {
        let apart = self.ours? - self.paper;
        Some(match self.style.is_share() {
            true => apart,
            false => 100.0 * apart / self.paper,
        })
    }

    fn unit(&self) -> &'static str {
        match self.style.is_share() {
            true => "points",
            false => "%",
        }
    }

    fn missed(&self, apart: f64) -> String {
        format!(
            "missed: {}: {:.2}, the paper prints {:.2} ({apart:+.2} {})",
            self.what,
            self.ours.unwrap_or(f64::NAN),
            self.paper,
            self.unit()
        )
    }
}

impl Report {
    /// Adds a note and facts on which printed numbers are met within `tolerance`, missed and absent. Returns whether
    /// none is missed; an absent number is neither met nor missed.
    pub fn check(&mut self, tolerance: f64) -> bool {
        let unit = self.printed.first().map_or("", PrintedNumber::unit);
        let there = self.printed.iter().filter_map(|number| Some((number, number.apart()?)));
        let (held, missed): (Vec<_>, Vec<_>) = there.partition(|(_, apart)| apart.abs() <= tolerance);
        let absent: Vec<String> =
            self.printed.iter().filter(|number| number.ours.is_none()).map(|number| number.what.clone()).collect();
        self.notes.push(format!(
            "check: {} of {} printed numbers are reproduced within {tolerance} {unit}, {} missed, {} absent",
            held.len(),
            self.printed.len(),
            missed.len(),
            absent.len()
        ));
        let each = missed.iter().map(|(number, apart)| number.missed(*apart));
        self.notes.extend(each);
        if !absent.is_empty() {
            self.notes.push(format!("absent, and so not checked: {}", absent.join("; ")));
        }
        let listed = |numbers: &[(&PrintedNumber, f64)]| -> Vec<serde_json::Value> {
            let each = numbers.iter().map(|(number, apart)| {
                json!({ "what": number.what, "ours": number.ours, "paper": number.paper, "apart": apart })
            });
            each.collect()
        };
        self.facts.push(fact(
            "check",
            json!({ "tolerance": tolerance, "unit": unit, "held": listed(&held),
                    "missed": listed(&missed), "absent": absent }),
        ));
        missed.is_empty()
    }
}
