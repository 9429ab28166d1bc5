//! The effect of training on a system: its measures at the epochs whose weights a run kept.

use super::draw::{Curves, LAMBDAS};
use super::measures::{evenly, Measures};
use super::table::{of_columns, panels, shown, QuantityColumn};
use super::view::View;
use crate::report::{Grid, Report};
use serde_json::{json, Value};

/// Largest number of epochs in a table.
const COLUMNS: usize = 10;

/// Names of curves, for the system and for its baselines.
const BESIDE: [&str; 3] = ["of Φ", "of softmax attention", "of a uniform average"];

/// A run at the epochs whose weights it kept.
pub struct Course {
    /// Name in reports.
    pub name: String,
    /// Test accuracy after each epoch of the run, from the first, 0 to 1.
    pub accuracy: Vec<f64>,
    /// Snapshots in the order of training, with the same layers each.
    pub snapshots: Vec<Snapshot>,
}

/// The layers of a run after some of its epochs.
pub struct Snapshot {
    /// Epochs completed; 0 is the initialisation.
    pub epoch: usize,
    /// One view per layer.
    pub views: Vec<View>,
}

/// A quantity that a note follows over an epoch, with its name.
type Followed = (&'static str, fn(&Measures) -> Option<f64>);

/// Quantities in the note on the steepest rise in accuracy.
const FOLLOWED: [Followed; 3] = [
    ("median |λ|", |m| Some(m.moduli()?[1])),
    ("horizon", |m| Some(m.horizon?.tokens)),
    ("effective rank", |m| Some(m.rank)),
];

/// Reports `courses`: accuracy by epoch, and spectrum, horizon and rank of each layer by epoch.
pub fn over_training(heading: String, courses: &[Course]) -> Report {
    let (mut grids, mut notes) = (Vec::new(), Vec::new());
    for course in courses {
        let layers = course.snapshots[0].views.len();
        grids.extend((0..layers).map(|layer| course.table(layer)));
        grids.extend(course.accuracy_by_epoch());
        for layer in 0..layers {
            grids.extend(course.curves(layer));
        }
        notes.extend(course.without_system());
        notes.extend(course.learnt());
    }
    panels(heading, grids, notes)
}

fn at_epoch(epoch: usize) -> [Option<Value>; 2] {
    [None, Some(json!(epoch))]
}

impl Course {
    /// The views of a layer, each with its epoch.
    fn layer(&self, layer: usize) -> impl Iterator<Item = (usize, &View)> + Clone {
        self.snapshots.iter().map(move |snapshot| (snapshot.epoch, &snapshot.views[layer]))
    }

    /// Test accuracy after `epoch` epochs, if it was tested.
    fn accuracy(&self, epoch: usize) -> Option<f64> {
        self.accuracy.get(epoch.checked_sub(1)?).copied()
    }

    /// Table of every quantity by epoch.
    fn table(&self, layer: usize) -> Grid {
        let drawn = evenly(self.snapshots.len() - 1, COLUMNS - 1);
        // The initialisation is always drawn.
        let drawn = |i: usize| i == 0 || drawn.contains(&(i - 1));
        let column = |(i, (epoch, view)): (usize, (usize, _))| QuantityColumn {
            view,
            title: format!("epoch {epoch}"),
            of: Some(json!(epoch)),
            drawn: drawn(i),
        };
        let columns: Vec<QuantityColumn> = self.layer(layer).enumerate().map(column).collect();
        let name = &self.snapshots[0].views[layer].name;
        of_columns(format!("{name}: measured by epoch"), &columns)
    }

    fn accuracy_by_epoch(&self) -> Option<Grid> {
        let points: Vec<_> = self.accuracy.iter().enumerate().map(|(i, a)| (i + 1, vec![100.0 * a])).collect();
        let curves = Curves {
            of: &self.name,
            what: "test accuracy",
            over: "epoch",
            unit: "accuracy (%)",
            names: &["test accuracy"],
            points,
            at: at_epoch,
            quantity: str::to_owned,
        };
        (!self.accuracy.is_empty()).then(|| curves.grid())
    }

    fn curves(&self, layer: usize) -> Vec<Grid> {
        let views = self.layer(layer);
        let of = &self.snapshots[0].views[layer].name;
        let curves = |what, unit, names, points| {
            let curves = Curves { of, what, over: "epoch", unit, names, points, at: at_epoch, quantity: str::to_owned };
            curves.grid()
        };
        // Each measure of Φ is drawn with those of the baselines on the same rows; without Φ only the baselines are.
        let of_phi = views.clone().all(|(_, view)| view.found.is_ok());
        let beside = |of: fn(&Measures) -> Option<f64>, others: &[fn(&View) -> Option<f64>]| {
            let numbers = views.clone().map(|(epoch, view)| {
                let own = view.found.as_ref().ok().filter(|_| of_phi).map(of);
                let others = others.iter().map(|other| other(view));
                let all = own.into_iter().chain(others);
                (epoch, all.map(|x| x.unwrap_or(f64::NAN)).collect())
            });
            numbers.collect::<Vec<(usize, Vec<f64>)>>()
        };
        let names = |count| &BESIDE[usize::from(!of_phi)..count];
        let spectrum: Vec<_> = views
            .clone()
            .filter_map(|(epoch, view)| Some((epoch, view.found.as_ref().ok()?.moduli()?.to_vec())))
            .collect();
        let mut grids = Vec::new();
        if !spectrum.is_empty() {
            grids.push(curves("spectrum of all Λ_i", "|λ|", &LAMBDAS, spectrum));
        }
        let horizon = beside(
            |m| Some(m.horizon?.tokens),
            &[|view| Some(view.attention.horizon?.tokens), |view| Some(view.uniform?.tokens)],
        );
        grids.push(curves("effective horizon", "tokens", names(3), horizon));
        let rank = beside(|m| Some(m.rank), &[|view| Some(view.attention.rank)]);
        grids.push(curves("effective rank", "rank", names(2), rank));
        let left: Vec<_> =
            views.filter_map(|(epoch, view)| Some((epoch, vec![100.0 * view.gradients.as_ref()?.left()?]))).collect();
        if !left.is_empty() {
            grids.push(curves("gradient at the longest lag", "share of lag 1 (%)", &["gradient left"], left));
        }
        grids
    }

    fn without_system(&self) -> Option<String> {
        let why = self.snapshots[0].views[0].found.as_ref().err()?;
        Some(format!(
            "{}: no finite system of the form (11): {why}; only horizon and rank of its attention matrix are shown",
            self.name
        ))
    }

    /// Note on the snapshots between which accuracy rose most, and on other quantities at that time.
    fn learnt(&self) -> Vec<String> {
        let pairs = self.snapshots.windows(2).filter_map(|pair| {
            let [before, after] = pair else { return None };
            let accuracies = [self.accuracy(before.epoch)?, self.accuracy(after.epoch)?];
            Some((before, after, accuracies))
        });
        let rise = |[before, after]: [f64; 2]| after - before;
        let steepest = pairs.max_by(|a, b| rise(a.2).total_cmp(&rise(b.2)));
        let Some((before, after, accuracies)) = steepest.filter(|pair| rise(pair.2) > 0.0) else {
            return Vec::new();
        };
        let [from, to] = accuracies.map(|accuracy| 100.0 * accuracy);
        let moved = before.views.iter().zip(&after.views).filter_map(|(before, after)| {
            let (start, end) = (before.found.as_ref().ok()?, after.found.as_ref().ok()?);
            let moves: Vec<String> = FOLLOWED
                .iter()
                .filter_map(|(name, of)| {
                    let [start, end] = [of(start)?, of(end)?].map(shown);
                    Some(format!("{name} from {start} to {end}"))
                })
                .collect();
            Some(format!("{} meanwhile: {}", before.name, moves.join(", ")))
        });
        let (start, end) = (before.epoch, after.epoch);
        let rose =
            format!("{}: test accuracy rose most from epoch {start} to {end}, from {from:.1} to {to:.1} %", self.name);
        [rose].into_iter().chain(moved).collect()
    }
}
