//! From groups of runs to grids: one way for each way of drawing.

mod accuracies;
mod axes;
mod perplexities;

pub(super) use accuracies::accuracies;
pub(super) use axes::axes;
pub(super) use perplexities::perplexities;

use super::grid::{Facts, Grid};
use super::presets::PresetsOf;
use super::score::Status;
use super::{Asked, Figure, Group};
use crate::store::Metric;

/// What is drawn, and of what.
pub(super) struct Selection<'a> {
    pub figure: &'static Figure,
    /// The metric that was asked for, or the figure's first.
    pub metric: &'static Metric,
    pub asked: &'a Asked,
    pub presets: PresetsOf<'a>,
    pub groups: Vec<Group<'a>>,
}

/// Grids, and what is said around them.
pub(super) struct Selected {
    pub heading: String,
    pub facts: Facts,
    pub grids: Vec<Grid>,
    /// Notes in front of what the marks mean.
    pub before: Vec<String>,
    /// Notes behind it.
    pub after: Vec<String>,
    /// Results whose marks and rates are spoken of.
    pub results: Vec<Status>,
}
