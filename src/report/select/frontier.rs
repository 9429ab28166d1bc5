//! The frontier of recall: the number of pairs that each mixer recalls with a state of a given size, and the best mixer
//! of each family.
//!
//! At each number k of pairs, P is the share of seeds that solve the task at the best learning rate. Made to fall with k
//! by isotonic regression, P crosses 1/2 at the number that is reported, interpolated linearly in ln k.

use super::super::grid::{fact, Baseline, Cell, Content, Facts, Grid, GridLine, PanelForm, Style, Tick};
use super::super::score::{GroupStatus, RateChoice, Reported};
use super::super::solved::{Share, SOLVED};
use super::super::{grouped, RunGroup};
use super::panel::{lines, of_lines, PanelRuns, Titles};
use super::{facts_at, metric, selected_of_all_rates, settings, Selected, Selection};
use crate::mixers::{self, Family};
use crate::store::{Column, Field};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The task's number of pairs, by which it gets harder.
const HARDER: Column = Column::KV_PAIRS;
/// Name of the horizontal axis.
const OVER: &str = "numbers in the state";

/// The number of pairs at which the share of seeds that solve the task falls to one half.
#[derive(Clone, Copy, Debug, PartialEq)]
enum HalfPoint {
    /// Below this number of pairs, the smallest that was tried.
    Below(f64),
    /// Between two numbers that were tried.
    At(f64),
    /// Not up to this number, the largest that was tried.
    Beyond(f64),
}

impl HalfPoint {
    /// Crossing of one half by `shares`, one for each number of pairs in ascending order; `None` without any.
    fn of(shares: &[(f64, Share)]) -> Option<Self> {
        let falling = falling(shares);
        let (first, last) = (shares.first()?.0, shares.last()?.0);
        let crossed = falling.iter().position(|share| *share < 0.5);
        Some(match crossed {
            None => Self::Beyond(last),
            Some(0) => Self::Below(first),
            Some(i) => {
                let [(low, p), (high, q)] = [i - 1, i].map(|at| (shares[at].0, falling[at]));
                Self::At(low * (high / low).powf((p - 0.5) / (p - q)))
            }
        })
    }

    /// The number that is known to be recalled at least, and what tells apart those with an equal one.
    fn order(self) -> (f64, f64) {
        match self {
            Self::Below(k) => (0.0, k),
            Self::At(k) => (k, 0.0),
            Self::Beyond(k) => (k, 1.0),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let ((k, side), (other_k, other_side)) = (self.order(), other.order());
        k.total_cmp(&other_k).then(side.total_cmp(&other_side))
    }

    /// The cell, in a picture of numbers from `fewest` to `most`. A bound is drawn at its number, or half an octave
    /// outside of what was tried.
    fn cell(self, [fewest, most]: [f64; 2]) -> Cell {
        let half_octave = 2f64.sqrt();
        Cell::from(match self {
            Self::Below(k) if k > fewest => Content::Beyond(k, format!("<{k}")),
            Self::Below(k) => Content::Beyond(k / half_octave, format!("<{k}")),
            Self::At(k) => Content::Value(k),
            Self::Beyond(k) if k < most => Content::Beyond(k, format!("≥{k}")),
            Self::Beyond(k) => Content::Beyond(k * half_octave, format!("≥{k}")),
        })
    }

    fn facts(self) -> Facts {
        let (k, bound) = match self {
            Self::Below(k) => (k, "below"),
            Self::At(k) => (k, "at"),
            Self::Beyond(k) => (k, "at_least"),
        };
        vec![fact("k_half", k), fact("bound", bound)]
    }
}

/// The shares as the nearest sequence that never rises, each weighted by its seeds: isotonic regression by pooling
/// adjacent violators (Ayer et al. 1955).
fn falling(shares: &[(f64, Share)]) -> Vec<f64> {
    // Blocks of equal shares: solved, seeds, length.
    let mut blocks: Vec<(usize, usize, usize)> = Vec::new();
    for (_, share) in shares {
        let mut block = (share.solved, share.of, 1);
        while let Some(last) = blocks.pop_if(|last| last.0 * block.1 < block.0 * last.1) {
            block = (block.0 + last.0, block.1 + last.1, block.2 + last.2);
        }
        blocks.push(block);
    }
    let shares = blocks.into_iter();
    shares.flat_map(|(solved, of, length)| std::iter::repeat_n(solved as f64 / of as f64, length)).collect()
}

/// Mixers that share a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FrontierFamily {
    One(Family),
    /// Layers of two mixers.
    Hybrid,
}

impl FrontierFamily {
    fn of(group: &RunGroup) -> Option<Self> {
        if *group.record.get(Column::HYBRID) != Field::Absent {
            return Some(Self::Hybrid);
        }
        mixers::find(group.record.text(Column::MIXER)).ok().map(|entry| Self::One(entry.family))
    }

    fn name(self) -> &'static str {
        match self {
            Self::One(family) => family.name(),
            Self::Hybrid => "hybrid",
        }
    }
}

/// One mixer with one size of its state.
struct Sized<'a> {
    group: &'a RunGroup<'a>,
    /// Numbers in the state of all layers.
    state: f64,
    half: HalfPoint,
}

pub(in super::super) fn frontier(of: &Selection) -> Selected {
    let mut titles = Titles::of_task();
    titles.leave_out(HARDER);
    let panels = titles.panels(of.figure.runs, &of.groups);
    let grids = panels.iter().flat_map(|panel| panel_grids(of, panel));
    let mut selected = selected_of_all_rates(of, grids.collect());
    selected.after.extend([
        format!(
            "the number of pairs at which the share of seeds that solve the task (above {:.0} %, at the best rate) falls to \
             one half, interpolated in ln k between the numbers tried, after isotonic regression",
            100.0 * SOLVED
        ),
        "<: the share is below one half at the fewest pairs tried; ≥: it is still at least one half at the most; a picture \
         outlines both"
            .to_owned(),
        "the state is all numbers that the model keeps of a sequence, rounded to a power of two; of several n at one power the \
         best is shown"
            .to_owned(),
    ]);
    if selected.grids.iter().all(|grid| grid.baselines.len() < 2) {
        selected.after.push("one number of pairs was tried: only bounds follow from it".to_owned());
    }
    selected
}

/// A grid of families, and one of the mixers of each.
fn panel_grids(of: &Selection, panel: &PanelRuns<RunGroup>) -> Vec<Grid> {
    let mut places = of_lines(&[]);
    places.retain(|place| ![HARDER, Column::N, Column::ROTARY_DIMS].map(|column| column.place()).contains(place));
    let mut families: BTreeMap<FrontierFamily, Vec<(GridLine, Vec<Sized>)>> = BTreeMap::new();
    for (line, groups) in lines(of.figure.runs, &panel.runs, &places) {
        let sizes = sizes(of, &groups);
        let family = FrontierFamily::of(groups[0]);
        if let Some(family) = family.filter(|_| !sizes.is_empty()) {
            families.entry(family).or_default().push((line, sizes));
        }
    }
    let mixers = || families.values().flatten();
    let states: BTreeSet<usize> = mixers().flat_map(|(_, sizes)| sizes).map(|sized| rounded(sized.state)).collect();
    let states: Vec<usize> = states.into_iter().collect();
    let tried: BTreeSet<usize> = panel.runs.iter().map(|group| group.record.count(HARDER)).collect();
    let ends = [tried.first(), tried.last()].map(|k| k.map_or(f64::NAN, |k| *k as f64));
    let drawn = |title: String, place: String, lines: Vec<GridLine>| Grid {
        form: PanelForm::Lines { over: OVER.into(), log: true, steps: false, named: true },
        axes: ["mixer", OVER].map(str::to_owned),
        place: [place, panel.title.clone()],
        baselines: levels(ends),
        ..Grid::new(title, states.iter().copied().map(Tick::whole), lines, Style::Doublings("pairs k recalled"))
    };
    let best_of = |sizes: &[&Sized]| -> Vec<Cell> {
        let cell = |state: &usize| {
            let own = sizes.iter().filter(|sized| rounded(sized.state) == *state);
            let best = own.map(|sized| sized.half).max_by(HalfPoint::compare);
            best.map_or_else(|| Cell::text("-"), |half| half.cell(ends))
        };
        states.iter().map(cell).collect()
    };
    let of_families = families.iter().map(|(family, mixers)| {
        let all: Vec<&Sized> = mixers.iter().flat_map(|(_, sizes)| sizes).collect();
        GridLine::new(family.name(), best_of(&all))
    });
    let each = families.iter().map(|(family, mixers)| {
        let lines = mixers.iter().map(|(line, sizes)| {
            let cells = best_of(&sizes.iter().collect::<Vec<_>>());
            GridLine { cells, ..line.clone() }
        });
        let mut recorded = settings();
        recorded.retain(|place| *place != HARDER.place());
        let records = mixers.iter().flat_map(|(_, sizes)| sizes).map(|sized| {
            let found = [fact("family", family.name()), fact("state_size", sized.state)];
            [facts_at(sized.group.record, &recorded), found.into(), sized.half.facts()].concat()
        });
        let title = format!("{}: {}", family.name(), panel.title);
        Grid { records: records.collect(), ..drawn(title, family.name().to_owned(), lines.collect()) }
    });
    let title = format!("the best mixer of each family: {}", panel.title);
    let overview = Grid {
        axes: ["family", OVER].map(str::to_owned),
        ..drawn(title, "families".to_owned(), of_families.collect())
    };
    [overview].into_iter().chain(each).filter(|grid| !grid.lines.is_empty()).collect()
}

/// Results of one line of a panel, by n.
fn sizes<'a>(of: &Selection, groups: &[&'a RunGroup<'a>]) -> Vec<Sized<'a>> {
    let by_n = grouped(groups.iter().copied(), &[Column::N.place()]);
    let each = by_n.iter().filter_map(|(_, groups)| {
        let mut shares: Vec<(f64, Share)> =
            groups.iter().filter_map(|group| Some((group.record.number(HARDER)?, share(of, group)?))).collect();
        shares.sort_by(|a, b| a.0.total_cmp(&b.0));
        let size = metric("state_size");
        let runs: Vec<_> = groups.iter().flat_map(|group| group.runs.iter().copied()).collect();
        let state = runs.iter().filter_map(|run| run.number(size.column)).next()?;
        Some(Sized { group: groups[0], state, half: HalfPoint::of(&shares)? })
    });
    each.collect()
}

/// Seeds of `group` that solve the task at the best rate; `None` without a number.
fn share(of: &Selection, group: &RunGroup) -> Option<Share> {
    match Reported::of(&group.runs, of.metric, of.metric, of.options.select) {
        Ok(found) => {
            let solved = found.seeds.iter().filter(|(_, accuracy)| *accuracy > SOLVED).count();
            Some(Share { solved, of: found.seeds.len() + found.diverged })
        }
        // Held-out halves diverge as a whole if one seed does, which says nothing of the others.
        Err(GroupStatus::Diverged) if of.options.select == RateChoice::Best => {
            let seeds: BTreeSet<usize> = group.runs.iter().map(|run| run.count(Column::SEED)).collect();
            Some(Share { solved: 0, of: seeds.len() })
        }
        Err(_) => None,
    }
}

/// The power of two nearest to `state`.
fn rounded(state: f64) -> usize {
    1 << state.max(1.0).log2().round() as usize
}

/// The fewest and the most pairs tried, beyond which nothing was measured.
fn levels([fewest, most]: [f64; 2]) -> Vec<Baseline> {
    let level = |name, k: f64| Baseline { name, levels: vec![vec![k]] };
    match fewest < most {
        true => vec![level("fewest pairs tried", fewest), level("most pairs tried", most)],
        false => vec![level("pairs tried", most)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(solved: &[(usize, usize)]) -> Vec<(f64, Share)> {
        let k = [4.0, 8.0, 16.0];
        k.into_iter().zip(solved).map(|(k, (solved, of))| (k, Share { solved: *solved, of: *of })).collect()
    }

    #[test]
    fn one_half_is_crossed_between_two_numbers_of_pairs() {
        let half = |solved: &[(usize, usize)]| HalfPoint::of(&shares(solved)).unwrap();
        assert_eq!(half(&[(3, 3), (3, 3), (2, 3)]), HalfPoint::Beyond(16.0));
        assert_eq!(half(&[(1, 3), (0, 3), (0, 3)]), HalfPoint::Below(4.0));
        let at = |half: HalfPoint, wanted: f64| {
            let HalfPoint::At(k) = half else { panic!("{half:?}") };
            assert!((k - wanted).abs() < 1e-9, "{k} for {wanted}");
        };
        at(half(&[(2, 2), (1, 2), (0, 2)]), 8.0);
        at(half(&[(2, 2), (0, 2), (0, 2)]), 32f64.sqrt());
        // 1, 1/4: one half at two thirds of the way from ln 4 to ln 8.
        at(half(&[(4, 4), (1, 4)]), 4.0 * 2f64.powf(2.0 / 3.0));
        assert_eq!(HalfPoint::of(&[]), None);
    }

    /// Weighted pools, computed by hand: 1/3 and 3/3 are pooled to 4/6, and 2/4 stays below them.
    #[test]
    fn shares_that_rise_are_pooled() {
        assert_eq!(falling(&shares(&[(1, 3), (3, 3), (2, 4)])), [4.0 / 6.0, 4.0 / 6.0, 0.5]);
        assert_eq!(falling(&shares(&[(0, 2), (0, 2), (2, 2)])), [1.0 / 3.0; 3]);
        assert_eq!(falling(&shares(&[(2, 2), (1, 2), (0, 2)])), [1.0, 0.5, 0.0]);
    }

    /// The number that is known to be recalled ranks first.
    #[test]
    fn bounds_rank_by_what_they_say() {
        use HalfPoint::{At, Below, Beyond};
        let mut all = [Beyond(8.0), At(8.0), Below(16.0), Below(4.0), At(5.0), Beyond(16.0)];
        all.sort_by(HalfPoint::compare);
        assert_eq!(all, [Below(4.0), Below(16.0), At(5.0), At(8.0), Beyond(8.0), Beyond(16.0)]);
    }

    /// Bounds are drawn outside of the numbers tried, or at their own number where others were tried beyond it.
    #[test]
    fn bounds_have_a_place_in_the_picture() {
        use HalfPoint::{At, Below, Beyond};
        let place = |half: HalfPoint| half.cell([4.0, 16.0]).number(Style::default()).unwrap().0;
        assert_eq!([Below(8.0), At(5.0), Beyond(8.0)].map(place), [8.0, 5.0, 8.0]);
        assert!(place(Below(4.0)) < 4.0 && place(Beyond(16.0)) > 16.0);
    }
}
