//! An axis: a range, linear or logarithmic, and the ticks on it.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use std::ops::Range;

/// Mapping of values to distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal distances.
    Linear,
    /// Equal factors are equal distances.
    Log,
}

/// One axis of a plot.
#[derive(Clone, Debug)]
pub struct PlotAxis {
    /// Name of the quantity.
    pub name: String,
    /// Linear or logarithmic scale.
    pub scale: Scale,
    /// First and last value.
    pub ends: [f64; 2],
    /// Values of the ticks, and their labels.
    pub ticks: Vec<(f64, String)>,
    /// Kind of its ticks.
    pub kind: TickKind,
}

/// Kind of the ticks of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickKind {
    /// The values.
    Numbers,
    /// The values in percent.
    Percent,
    /// Names at 0, 1, 2 and so on.
    Names,
}

impl PlotAxis {
    fn new(name: impl Into<String>, scale: Scale, ends: [f64; 2], ticks: Vec<(f64, String)>, kind: TickKind) -> Self {
        Self { name: name.into(), scale, ends, ticks, kind }
    }

    /// Axis with ticks at round values, slightly wider than `low` to `high`.
    pub fn round(name: impl Into<String>, scale: Scale, range: [f64; 2]) -> Self {
        let (scale, ends) = widened(scale, range);
        let values = match scale {
            Scale::Linear => RangedCoordf64::from(ends[0]..ends[1]).key_points(6),
            Scale::Log => powers(ends),
        };
        let ticks = values.into_iter().map(|value| (value, short(value))).collect();
        Self::new(name, scale, ends, ticks, TickKind::Numbers)
    }

    /// Axis with ticks at `ticks` only, from the first to the last.
    pub fn at(name: impl Into<String>, scale: Scale, ticks: Vec<(f64, String)>) -> Self {
        let values = || ticks.iter().map(|(value, _)| *value);
        let range = [values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max)];
        let (scale, ends) = widened(scale, range);
        Self::new(name, scale, ends, ticks, TickKind::Numbers)
    }

    /// Axis with ticks at powers of two, slightly wider than `low` to `high`, both above 0.
    pub fn doublings(name: impl Into<String>, range: [f64; 2]) -> Self {
        let (scale, ends) = widened(Scale::Log, range);
        let [first, last] = [range[0].log2().ceil(), range[1].log2().floor()].map(|power| power as i32);
        let ticks = (first..=last).map(|power| 2f64.powi(power));
        Self::new(name, scale, ends, ticks.map(|value| (value, short(value))).collect(), TickKind::Numbers)
    }

    /// The axis with `share` of its length added after its end.
    pub fn longer(mut self, share: f64) -> Self {
        let [low, high] = self.ends.map(|end| self.scale.of(end));
        self.ends[1] = self.scale.back(high + share * (high - low));
        self
    }

    /// Axis of shares from 0 to 1, labelled in percent.
    pub fn percent(name: impl Into<String>) -> Self {
        let ticks = (0..=5).map(|i| (f64::from(i) / 5.0, format!("{}", 20 * i))).collect();
        Self::new(name, Scale::Linear, [-0.02, 1.03], ticks, TickKind::Percent)
    }

    /// Axis of names at 0, 1, 2 and so on.
    pub fn names<'a>(names: impl IntoIterator<Item = &'a String>) -> Self {
        let names = names.into_iter().enumerate();
        let ticks: Vec<(f64, String)> = names.map(|(i, name)| (i as f64, name.clone())).collect();
        let ends = [-0.5, ticks.len() as f64 - 0.5];
        Self::new("", Scale::Linear, ends, ticks, TickKind::Names)
    }

    /// Whether its ticks are names rather than numbers.
    pub fn is_named(&self) -> bool {
        self.kind == TickKind::Names
    }

    /// Share of the axis below `value`.
    pub fn share(&self, value: f64) -> f64 {
        let [low, high] = self.ends.map(|end| self.scale.of(end));
        (self.scale.of(value) - low) / (high - low)
    }

    /// Formats a value like the ticks.
    pub fn format(&self, value: f64) -> String {
        match self.kind {
            TickKind::Percent => format!("{:.1} %", 100.0 * value),
            TickKind::Numbers | TickKind::Names => short(value),
        }
    }

    /// Label of the tick at `value`.
    pub fn label(&self, value: f64) -> String {
        let found = self.ticks.iter().find(|(tick, _)| *tick == value);
        found.map_or(String::new(), |(_, label)| label.clone())
    }
}

impl Scale {
    fn of(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.ln(),
        }
    }

    fn back(self, distance: f64) -> f64 {
        match self {
            Self::Linear => distance,
            Self::Log => distance.exp(),
        }
    }
}

/// The scale, linear unless all values are positive, and ends slightly outside the range.
fn widened(scale: Scale, [low, high]: [f64; 2]) -> (Scale, [f64; 2]) {
    let scale = if low > 0.0 { scale } else { Scale::Linear };
    let (a, b) = (scale.of(low), scale.of(high));
    let margin = match (b - a, scale) {
        (0.0, Scale::Log) => 0.5,
        (0.0, Scale::Linear) => a.abs().max(1.0) / 2.0,
        (width, _) => 0.06 * width,
    };
    (scale, [scale.back(a - margin), scale.back(b + margin)])
}

/// Powers of ten within `ends`, with multiples of them on short ranges.
fn powers([low, high]: [f64; 2]) -> Vec<f64> {
    let decades = (low.log10().floor() as i32..=high.log10().ceil() as i32).map(|power| 10f64.powi(power));
    let steps: &[f64] = match (high / low).log10() {
        decades if decades > 3.0 => &[1.0],
        decades if decades > 0.6 => &[1.0, 2.0, 5.0],
        _ => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    };
    let all = decades.flat_map(|decade| steps.iter().map(move |step| decade * step));
    all.filter(|value| (low..=high).contains(value)).collect()
}

/// Formats a number in as few characters as possible.
pub(super) fn short(value: f64) -> String {
    let rounded = |value: f64| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value.abs() {
        v if v >= 1e6 => format!("{}M", rounded(value / 1e6)),
        v if v >= 1e4 => format!("{}k", rounded(value / 1e3)),
        v if v > 0.0 && v < 1e-2 => format!("{value:.0e}"),
        _ => rounded(value),
    }
}

impl Ranged for PlotAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.share(*value) * f64::from(to - from)).round() as i32
    }

    /// Ticks are bold key points; there are no light ones between them.
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let bold = !hint.weight().allow_light_points();
        let ticks = self.ticks.iter().filter(|_| bold);
        ticks.map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        self.ends[0]..self.ends[1]
    }
}
