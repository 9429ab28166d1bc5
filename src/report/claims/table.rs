//! Table of the paper's claims (Sieber et al. 2024), one row per claim.

use super::super::figures::Where;
use super::super::grid::rate;
use super::super::solved::SOLVED;
use super::super::stats::Within;
use crate::store::Column;
use std::sync::LazyLock;

/// One claim of the paper, and the rule by which it is judged.
pub struct Claim {
    /// Name for programs.
    pub name: &'static str,
    /// Place in the paper.
    pub source: &'static str,
    /// Statement of the claim, and the quantity by which it is judged.
    pub about: &'static str,
    pub(super) task: ClaimTask,
    /// Further conditions on its runs.
    pub(super) runs: Where,
    pub(super) measure: Measure,
    /// Axes of its cells. The paper's grid is the product of their points.
    pub(super) axes: Vec<PointColumns>,
    /// The quantities of the claim.
    pub(super) contrasts: Vec<Contrast>,
    /// Axes whose points are each judged separately; cells of all other axes are averaged.
    pub(super) apart: &'static [&'static str],
    /// Whether all quantities must be where the claim puts them, or one of them.
    pub(super) holds: Holds,
}

/// The task of a claim, and how the paper ran it.
#[derive(Clone, Copy)]
pub(super) struct ClaimTask {
    pub name: &'static str,
    /// Whether the paper's examples are released files, which generated ones do not replace.
    pub released: bool,
    pub rates: RateRule,
    /// Number of learning rates that the paper tried, and the value of `--lr` that selects them.
    pub paper_rates: (usize, &'static str),
    /// The protocol under which the paper's numbers were made.
    pub protocol: &'static str,
    /// Whether the command accepts `--protocol`.
    pub has_protocols: bool,
}

/// The number of a run that is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Measure {
    /// One metric, by which rates are chosen as well.
    Metric(&'static str),
    /// Test accuracy after the epoch chosen on the validation split; the best test accuracy if there is no such split.
    Selected,
    /// Whether the accuracy after the last epoch is above this one.
    Solved(f64),
}

/// Columns whose values together form a point.
pub(super) struct PointColumns {
    /// The flag that takes a list of points.
    pub flag: &'static str,
    pub columns: &'static [Column],
    /// Points of the paper, as typed: the values of the columns separated by colons.
    pub points: &'static [&'static str],
}

/// A weighted sum over mixers, averaged over cells, and the interval in which the claim puts it.
#[derive(Clone, Debug)]
pub(super) struct Contrast {
    pub about: String,
    pub weights: Vec<(&'static str, f64)>,
    /// Learning rate of each mixer; empty for all rates.
    pub rates: Vec<f64>,
    pub within: Within,
    pub over: Aggregate,
    /// Restriction to some cells.
    pub only: Option<CellFilter>,
}

/// Aggregation of the cells of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    /// Mean over the cells.
    Cells,
    /// Mean over the cells that do not have all of these values, less the mean over those that have.
    Beyond(&'static [(&'static str, &'static str)]),
    /// Slope over log2 of an axis: the change per doubling.
    Doublings(&'static str),
}

/// Restriction of a quantity to some cells.
#[derive(Clone, Debug)]
pub(super) enum CellFilter {
    Point(Vec<(&'static str, &'static str)>),
    AllBut(Vec<(&'static str, &'static str)>),
    /// Cells at an end of each of these axes.
    Ends(Vec<(&'static str, AxisEnd)>),
}

/// An end of the values of an axis; sizes such as `512:64` are ordered by their first number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AxisEnd {
    Least,
    Most,
    /// The largest of several values. A single value is no limit.
    Limit,
}

/// Rule that combines the quantities of a claim into its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// All quantities must be where the claim puts them. Each is tested at the full level, because they rarely all pass
    /// by chance. A single quantity elsewhere contradicts the claim, after Holm's correction.
    Every,
    /// One quantity is enough, after Holm's correction. The claim is contradicted if all are elsewhere.
    Some,
}

/// Learning rates at which a cell is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RateRule {
    /// The best of the rates that all mixers of the cell tried, since a mixer with more rates finds better ones.
    Shared,
    /// Each mixer's own rates, which belong to its released hyperparameters.
    Own,
}

const INFINITE: f64 = f64::INFINITY;
const POSITIVE: Within = Within(0.0, INFINITE);
const NEGATIVE: Within = Within(-INFINITE, 0.0);

const RECALL: ClaimTask = ClaimTask {
    name: "mqar",
    released: false,
    rates: RateRule::Shared,
    paper_rates: (4, "paper"),
    protocol: "reference",
    has_protocols: true,
};
const ARENA: ClaimTask =
    ClaimTask { name: "lra", released: true, rates: RateRule::Own, paper_rates: (1, ""), ..RECALL };
const LANGUAGE: ClaimTask = ClaimTask { name: "wikitext", protocol: "paper", has_protocols: false, ..RECALL };

/// Two mixers are on par if the shares of their runs that solve the task are less than ten points apart. The paper
/// states no margin; this one is our choice, which `about` states.
const ON_PAR: f64 = 0.1;
/// The margin for mean accuracies.
const CLOSE: f64 = 0.05;
/// The margin for a slope: the share of runs that a doubling may cost without being said to hurt.
const FLAT: f64 = 0.05;
/// Training stops above 99 %, where the paper's figures call a cell perfect; one point less is accepted.
const PERFECT: f64 = 0.98;
/// Smallest share of seeds that reach [`PERFECT`] at some rate for a cell to be called perfect.
const RELIABLE: f64 = 0.8;
/// Bounds of the share of a gap that counts as about 25 %.
const OF_GAP: [f64; 2] = [0.15, 0.35];

const SIZES: PointColumns = sizes(&["64:4", "128:8", "256:16", "512:64"]);
const WIDTHS: PointColumns = axis("d", &[Column::D], &["64", "128", "256", "512"]);
const STATES: PointColumns = axis("n", &[Column::N], &["32", "64", "128", "256"]);
const DATASETS: PointColumns =
    axis("dataset", &[Column::DATASET], &["listops", "text", "retrieval", "image", "pathfinder"]);

const fn sizes(points: &'static [&'static str]) -> PointColumns {
    axis("sizes", &[Column::SEQ_LEN, Column::KV_PAIRS], points)
}

const fn axis(flag: &'static str, columns: &'static [Column], points: &'static [&'static str]) -> PointColumns {
    PointColumns { flag, columns, points }
}

/// A claim about MQAR: on all cells of the paper's grid, by the runs that solve the task.
fn recall(name: &'static str, source: &'static str, about: &'static str) -> Claim {
    Claim {
        name,
        source,
        about,
        task: RECALL,
        runs: &[],
        measure: Measure::Solved(SOLVED),
        axes: vec![SIZES, WIDTHS, STATES],
        contrasts: Vec::new(),
        apart: &[],
        holds: Holds::Every,
    }
}

/// A claim about WikiText-103: by perplexity of training.
fn language(name: &'static str, source: &'static str, about: &'static str) -> Claim {
    let claim = Claim { task: LANGUAGE, measure: Measure::Metric("train_ppl"), ..recall(name, source, about) };
    claim.on([axis("corpus", &[Column::DATASET], &["wikitext-103-raw"])]).apart(&["corpus"])
}

/// A claim about the Long Range Arena: on average over its datasets, by accuracy.
fn arena(name: &'static str, source: &'static str, about: &'static str) -> Claim {
    Claim { task: ARENA, measure: Measure::Selected, ..recall(name, source, about) }.on([DATASETS])
}

/// A claim about normalisers, in one cell: by mean accuracy.
fn normalisers(name: &'static str, source: &'static str, about: &'static str) -> Claim {
    let claim = Claim { measure: Measure::Metric("accuracy"), ..recall(name, source, about) };
    let axes = [sizes(&["512:64"]), axis("d", &[Column::D], &["512"]), axis("n", &[Column::N], &["256"])];
    claim.on(axes).apart(&["sizes"])
}

impl Claim {
    fn on(self, axes: impl Into<Vec<PointColumns>>) -> Self {
        Self { axes: axes.into(), ..self }
    }

    fn by(self, contrasts: impl Into<Vec<Contrast>>) -> Self {
        Self { contrasts: contrasts.into(), ..self }
    }

    fn apart(self, apart: &'static [&'static str]) -> Self {
        Self { apart, ..self }
    }
}

/// The number of one mixer, on average over cells.
fn of(mixer: &'static str, within: Within) -> Contrast {
    let (about, weights) = (mixer.into(), vec![(mixer, 1.0)]);
    Contrast { about, weights, rates: Vec::new(), within, over: Aggregate::Cells, only: None }
}

/// The first of two mixers is above the second, on average over cells.
fn above(first: &'static str, second: &'static str) -> Contrast {
    let weights = vec![(first, 1.0), (second, -1.0)];
    Contrast { about: format!("{first} - {second}"), weights, ..of(first, POSITIVE) }
}

impl Contrast {
    fn within(self, low: f64, high: f64) -> Self {
        Self { within: Within(low, high), ..self }
    }

    fn only(self, cells: CellFilter) -> Self {
        Self { only: Some(cells), ..self }
    }

    fn called(self, about: impl Into<String>) -> Self {
        Self { about: about.into(), ..self }
    }

    /// The difference between cells without and with all of these values, in place of a mean over cells.
    fn beyond(self, cells: &'static [(&'static str, &'static str)]) -> Self {
        Self { about: format!("{}, beyond Figure 2", self.about), over: Aggregate::Beyond(cells), ..self }
    }

    /// The slope over an axis, in place of a mean over cells.
    fn over(self, axis: &'static str) -> Self {
        Self { about: format!("{}, a doubling of {axis}", self.about), over: Aggregate::Doublings(axis), ..self }
    }
}

/// The perplexity of `mixer` is higher at the first of two rates than at the second.
fn above_at(mixer: &'static str, rates: [f64; 2]) -> Contrast {
    let [about, best] = rates.map(rate);
    Contrast { rates: rates.into(), ..above(mixer, mixer).called(format!("{mixer} at {about} - at {best}")) }
}

/// The second of three perplexities closes `share` of the gap between the first and the last.
fn of_gap([wide, between, narrow]: [&'static str; 3], share: f64, within: Within, order: &str) -> Contrast {
    let percent = 100.0 * share;
    let about = format!("{order} than {percent:.0} % of the gap: ({wide} - {between}) - {share} ({wide} - {narrow})");
    Contrast { weights: vec![(wide, 1.0 - share), (between, -1.0), (narrow, share)], ..of(wide, within).called(about) }
}

/// The cells at an end of each of these axes.
fn at_ends<const K: usize>(ends: [(&'static str, AxisEnd); K]) -> CellFilter {
    CellFilter::Ends(ends.into())
}

/// The cells of Figure 2.
const OF_FIGURE_2: [(&str, &str); 2] = [("sizes", "512:64"), ("n", "128")];
/// The only cell that is not perfect.
const NOT_PERFECT: [(&str, &str); 3] = [("sizes", "512:64"), ("d", "64"), ("n", "32")];

/// Every claim, in the order of the paper.
#[rustfmt::skip]
pub static CLAIMS: LazyLock<Vec<Claim>> = LazyLock::new(|| vec![
    language("gap-in-perplexity", "Table 1",
        "normalized attention closes about 25 % of the gap in perplexity between linear and softmax attention: \
         between 15 and 35 %, in perplexity of training")
        .by([("more", OF_GAP[0], POSITIVE), ("less", OF_GAP[1], NEGATIVE)].map(|(order, share, within)| {
            of_gap(["linear", "normalized", "softmax"], share, within, order)
        })),
    language("order-in-perplexity", "Table 1",
        "softmax attention is below normalized attention, and that below linear attention, in perplexity of training")
        .by([above("linear", "normalized"), above("normalized", "softmax")]),
    language("best-rate-on-text", "Appendix J.3",
        "of the four learning rates 3e-3 is the best for softmax, linear and normalized attention, in perplexity of training; a \
         rate at which a seed diverged is not compared")
        .by(["softmax", "linear", "normalized"].into_iter().flat_map(|mixer| {
            [3e-4, 1e-3, 1e-2].map(|other| above_at(mixer, [other, 3e-3]))
        }).collect::<Vec<_>>()),
    recall("linear-approaches-softmax", "Figure 1",
        "linear attention approaches softmax attention as n grows: the gap in runs that solve the task falls as n doubles, on \
         each task")
        .by([above("softmax", "linear").over("n").within(-INFINITE, 0.0)])
        .on([sizes(&["256:16", "512:64"]), axis("d", &[Column::D], &["512"]), STATES]).apart(&["sizes"]),
    recall("linear-reaches-softmax", "Figure 1",
        "linear attention converges to softmax attention: at the largest n less than 10 points fewer of its runs solve the \
         task, on each")
        .by([above("softmax", "linear").within(-INFINITE, ON_PAR).only(at_ends([("n", AxisEnd::Limit)]))])
        .on([sizes(&["256:16", "512:64"]), axis("d", &[Column::D], &["512"]), STATES]).apart(&["sizes"]),
    recall("normalized-beats-linear", "Figures 2 and 7",
        "normalized attention is above linear attention: more of its runs solve the task, in cells and at rates alike")
        .by([above("normalized", "linear")]),
    recall("gap-grows-beyond-figure-2", "Figure 7",
        "the gap between normalized and linear attention is larger in the other cells of Figure 7 than in those of Figure 2, L=512 \
         k=64 n=128: by the difference of their runs that solve the task")
        .by([above("normalized", "linear").beyond(&OF_FIGURE_2)]),
    recall("ssms-beat-linear", "Figures 2 and 7",
        "S6 and SSD are above linear attention: more of their runs solve the task, in cells and at rates alike")
        .by([above("s6", "linear"), above("ssd", "linear")]),
    recall("ssd-beats-s6", "Figure 7", "SSD is above S6: more of its runs solve the task, in cells and at rates alike")
        .by([above("ssd", "s6")]),
    Claim {
        task: ClaimTask { protocol: "paper", ..RECALL },
        runs: &[(Column::VARIANT, &["paper"])],
        ..recall("one-decay-is-enough", "Section 4.2",
            "reducing the decays of a token from one a channel (S6) to a single one (SSD) does not hurt, in the variants of the text: \
             less than 10 points fewer of SSD's runs solve the task")
            .by([above("ssd", "s6").within(-ON_PAR, INFINITE)])
    },
    recall("normalized-on-par-with-s6", "Figure 7",
        "normalized attention is on par with S6: the shares of their runs that solve the task are less than 10 points apart")
        .by([above("normalized", "s6").within(-ON_PAR, ON_PAR)]),
    Claim {
        measure: Measure::Solved(PERFECT),
        ..recall("softmax-is-perfect", "Figure 7",
            "softmax attention is perfect but for one cell, L=512 k=64 d=64 n=32: in each other, more than 80 % of its seeds end \
             above 98 % at the best of the rates, and there, fewer do")
            .by([
                of("softmax", Within(RELIABLE, INFINITE)).only(CellFilter::AllBut(NOT_PERFECT.into())),
                of("softmax", Within(-INFINITE, RELIABLE)).only(CellFilter::Point(NOT_PERFECT.into()))
                    .called("softmax in the one cell"),
            ])
            .apart(&["sizes", "d", "n"])
    },
    recall("larger-n-helps", "Figure 7",
        "on the largest task a larger n helps normalized attention, S6 and SSD: more runs solve it as n doubles, for each of them")
        .by(["normalized", "s6", "ssd"].map(|mixer| of(mixer, POSITIVE).over("n").only(at_ends([("sizes", AxisEnd::Most)]))))
        .on([sizes(&["512:64"]), WIDTHS, STATES]),
    Claim {
        holds: Holds::Some,
        ..recall("larger-n-hurts-at-small-d", "Figure 7",
            "at the smallest d a larger n can hurt on the largest task: fewer runs solve it as n doubles, for at least one mixer")
            .by(["softmax", "linear", "normalized", "s6", "ssd"].map(|mixer| {
                of(mixer, NEGATIVE).over("n").only(at_ends([("d", AxisEnd::Least), ("sizes", AxisEnd::Most)]))
            }))
            .on([sizes(&["512:64"]), axis("d", &[Column::D], &["64"]), STATES])
    },
    recall("larger-n-is-safe-at-large-d", "Figure 7",
        "at the largest d a larger n does not hurt on the largest task: as n doubles, less than 5 points fewer runs of each mixer \
         solve it")
        .by(["softmax", "linear", "normalized", "s6", "ssd"].map(|mixer| {
            of(mixer, Within(-FLAT, INFINITE)).over("n").only(at_ends([("d", AxisEnd::Limit), ("sizes", AxisEnd::Most)]))
        }))
        .on([sizes(&["512:64"]), axis("d", &[Column::D], &["64", "512"]), STATES]),
    recall("heads-help-by-little", "Section 4.2",
        "several heads are better than one, by little: as the heads double, more runs of softmax, linear and normalized attention \
         solve the task, but less than 10 points more; the paper does not say how many: here 1 to 4, L=512 k=64 d=128 n=128")
        .by(["softmax", "linear", "normalized"].map(|mixer| of(mixer, Within(0.0, ON_PAR)).over("heads")))
        .on([
            sizes(&["512:64"]), axis("d", &[Column::D], &["128"]), axis("n", &[Column::N], &["128"]),
            axis("heads", &[Column::HEADS], &["1", "2", "4"]),
        ]),
    recall("reversed-beats-plain", "Figure 3",
        "qLSTM with the reversed sigmoid is above the plain qLSTM: more of its runs solve each task, at widths and rates alike")
        .by([above("qlstm-reversed", "qlstm")])
        .on([sizes(&["64:4", "128:8", "256:16"]), WIDTHS]).apart(&["sizes"]),
    normalisers("exp-is-best", "Table 2",
        "exp is the best normaliser of normalized attention, by little: mean accuracy at the best rate is above that of \
         softplus and sigmoid by less than 5 points; the paper does not say at which d and n: here 512 and 256")
        .by(["normalized-softplus", "normalized-sigmoid"].map(|other| above("normalized", other).within(0.0, CLOSE))),
    normalisers("normalisers-are-alike", "Appendix H",
        "exp, softplus and sigmoid perform similarly: mean accuracies at the best rate are less than 5 points apart, pair by pair")
        .by([
            ["normalized", "normalized-softplus"], ["normalized", "normalized-sigmoid"], ["normalized-softplus", "normalized-sigmoid"],
        ].map(|[first, second]| above(first, second).within(-CLOSE, CLOSE))),
    arena("exp-is-best-on-images", "Table 2",
        "exp is the best normaliser of normalized attention, by little, on the images of the Long Range Arena, too")
        .by(["normalized-softplus", "normalized-sigmoid"].map(|other| above("normalized", other).within(0.0, CLOSE)))
        .on([axis("dataset", &[Column::DATASET], &["image"])]).apart(&["dataset"]),
    arena("normalized-is-best-attention", "Table 3",
        "normalized attention is above softmax and linear attention on average over the Long Range Arena")
        .by([above("normalized", "softmax"), above("normalized", "linear")]),
    arena("s6-beats-normalized", "Table 3",
        "S6, as released (mixer mamba), is above normalized attention on average over the Long Range Arena")
        .by([above("mamba", "normalized")]),
    arena("s6-beats-attention", "Table 3",
        "S6, as released (mixer mamba), is above softmax, linear and normalized attention on average over the Long Range Arena")
        .by(["softmax", "linear", "normalized"].map(|attention| above("mamba", attention))),
    arena("s6-beats-softmax", "Table 3",
        "S6, as released (mixer mamba), is above softmax attention on Text and on Image, each by itself; of the other tasks \
         the paper claims no order")
        .by(["text", "image"].map(|dataset| {
            above("mamba", "softmax").called(format!("mamba - softmax on {dataset}"))
                .only(CellFilter::Point(vec![("dataset", dataset)]))
        }))
        .on([axis("dataset", &[Column::DATASET], &["text", "image"])]).apart(&["dataset"]),
]);

impl Claim {
    /// Mixers of the claim, each once, in order.
    pub(super) fn mixers(&self) -> Vec<&'static str> {
        let mut mixers: Vec<&str> = Vec::new();
        for (mixer, _) in self.contrasts.iter().flat_map(|c| &c.weights) {
            if !mixers.contains(mixer) {
                mixers.push(mixer);
            }
        }
        mixers
    }

    pub(super) fn flags(&self) -> Vec<&'static str> {
        self.axes.iter().map(|axis| axis.flag).collect()
    }

    /// Whether its quantities are means over several cells.
    pub(super) fn averages_cells(&self) -> bool {
        self.axes.len() > self.apart.len() && self.contrasts.iter().all(|contrast| contrast.over == Aggregate::Cells)
    }

    /// Points of the paper's grid.
    pub(super) fn grid(&self) -> Vec<Vec<String>> {
        let longer = |start: &Vec<String>, axis: &PointColumns| -> Vec<Vec<String>> {
            axis.points.iter().map(|point| [&start[..], &[(*point).to_owned()]].concat()).collect()
        };
        self.axes
            .iter()
            .fold(vec![Vec::new()], |grid, axis| grid.iter().flat_map(|start| longer(start, axis)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Metric;

    #[test]
    fn every_row_names_columns_metrics_and_axes_that_there_are() {
        for claim in CLAIMS.iter() {
            if let Measure::Metric(name) = claim.measure {
                assert!(Metric::find(name).is_some(), "{name}");
            }
            let known = |flag: &str| claim.axes.iter().any(|axis| axis.flag == flag);
            assert!(claim.apart.iter().all(|flag| known(flag)), "{}", claim.name);
            for contrast in &claim.contrasts {
                let named: Vec<&str> = match &contrast.only {
                    None => Vec::new(),
                    Some(CellFilter::Ends(ends)) => ends.iter().map(|(flag, _)| *flag).collect(),
                    Some(CellFilter::Point(at) | CellFilter::AllBut(at)) => at.iter().map(|(flag, _)| *flag).collect(),
                };
                assert!(named.into_iter().all(known), "{}", claim.name);
                match contrast.over {
                    Aggregate::Doublings(flag) => assert!(known(flag), "{}", claim.name),
                    Aggregate::Beyond(at) => assert!(at.iter().all(|(flag, _)| known(flag)), "{}", claim.name),
                    Aggregate::Cells => {}
                }
                assert!([0, contrast.weights.len()].contains(&contrast.rates.len()), "{}", claim.name);
            }
        }
    }

    #[test]
    fn no_two_claims_have_one_name() {
        for (i, claim) in CLAIMS.iter().enumerate() {
            assert!(CLAIMS[..i].iter().all(|other| other.name != claim.name));
        }
    }

    /// One seed each and differences of 0.06 points: the text orders no pair of Table 3 by its printed numbers.
    #[test]
    fn on_the_arena_only_orders_that_the_text_states_are_judged() {
        let arena = CLAIMS.iter().filter(|c| c.source == "Table 3");
        let orders: Vec<(Vec<&str>, &[&str])> = arena
            .flat_map(|claim| {
                let mixers = claim.contrasts.iter().map(|contrast| {
                    assert_eq!(contrast.within, POSITIVE);
                    let mixers = contrast.weights.iter().map(|(mixer, _)| *mixer);
                    (mixers.collect(), claim.axes[0].points)
                });
                mixers.collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(
            orders,
            [
                (vec!["normalized", "softmax"], DATASETS.points),
                (vec!["normalized", "linear"], DATASETS.points),
                (vec!["mamba", "normalized"], DATASETS.points),
                (vec!["mamba", "softmax"], DATASETS.points),
                (vec!["mamba", "linear"], DATASETS.points),
                (vec!["mamba", "normalized"], DATASETS.points),
                (vec!["mamba", "softmax"], &["text", "image"]),
                (vec!["mamba", "softmax"], &["text", "image"]),
            ]
        );
    }
}
