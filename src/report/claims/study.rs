//! Which runs are judged together: those that are one preset of one protocol with the same changes.
//!
//! Each mixer is compared with its own preset, so that sizes that the released configs give to one mixer alone are no
//! difference between two mixers. What spans the cells of a claim, such as d and n, tells cells apart; what belongs to a
//! mixer, such as its options, is said.

use super::super::presets::{generated, listed, Difference, Nearest, PresetsOf, TOKENIZER};
use super::super::Group;
use super::table::{Axis, Claim};
use crate::store::{places, Record, Role, COLUMNS, SOURCE_DIGEST};
use std::collections::BTreeMap;

/// What belongs to a mixer: its preset's wins where runs of one cell differ in it.
#[rustfmt::skip]
pub(super) const OF_MIXER: [&str; 11] = [
    "variant", "options", "heads", "layout", "state_mixer", "positions", "expand", "hybrid", "rotary", "rotary_dims", "micro_batch",
];

/// Runs of one claim that may be compared.
pub(super) struct Study<'a> {
    pub kind: Kind<'a>,
    pub cells: Vec<Cell<'a>>,
    /// Settings of mixers that are not their presets', and so are left out.
    pub left_out: Vec<String>,
}

/// What the runs of a study have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind<'a> {
    pub protocol: &'a str,
    /// The nearest preset; empty where there is none.
    pub preset: &'static str,
    /// What they have otherwise than that.
    pub differences: Vec<Difference>,
    pub tokenizer: &'a str,
    pub precision: &'a str,
}

/// The runs of one point of all axes.
#[derive(Clone)]
pub(super) struct Cell<'a> {
    /// A value an axis, as typed.
    pub at: Vec<String>,
    /// By mixer.
    pub sides: BTreeMap<&'a str, &'a Group<'a>>,
}

impl Kind<'_> {
    /// Whether it has the paper's sizes and settings. Examples of MQAR may be those of numpy, whose distribution is the
    /// same; examples of the Long Range Arena must be the released files.
    pub fn is_paper(&self) -> bool {
        let tokens = ["", TOKENIZER].contains(&self.tokenizer);
        let same = self.differences.iter().all(Self::is_numpys);
        self.preset == "paper" && tokens && same
    }

    fn is_numpys(difference: &Difference) -> bool {
        difference.name == "data" && difference.value == "numpy"
    }

    /// Whose examples they are, where a study at the paper's sizes has others than its preset.
    pub fn examples(&self) -> Option<String> {
        let numpys = self.differences.iter().find(|d| Self::is_numpys(d));
        numpys.map(Difference::to_string)
    }

    /// For a title.
    pub fn title(&self) -> String {
        let named = |name: &str, value: &str| match value {
            "" => None,
            value => Some(format!("{name}{value}")),
        };
        let differences = Some(listed(&self.differences)).filter(|list| !list.is_empty());
        let parts = [
            named("protocol ", self.protocol),
            named("preset ", self.preset),
            differences,
            named("tokenizer ", self.tokenizer),
            named("", self.precision).filter(|precision| precision != "f32"),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl Axis {
    /// The point of `run`, as typed.
    pub fn point(&self, run: &Record) -> String {
        let values = self.columns.iter().map(|name| run.get(name).to_string());
        values.collect::<Vec<_>>().join(":")
    }
}

/// Which of several groups at one point is the mixer's own setting: the one nearest to its preset.
struct Candidate<'a> {
    group: &'a Group<'a>,
    of_mixer: Vec<Difference>,
}

/// The studies that `groups`, all of `claim`, fall into.
pub(super) fn studies<'a>(
    claim: &Claim,
    groups: &[&'a Group<'a>],
    presets: PresetsOf,
) -> Vec<Study<'a>> {
    type Sides<'a> = BTreeMap<&'a str, Vec<Candidate<'a>>>;
    type Cells<'a> = BTreeMap<Vec<String>, BTreeMap<&'a str, Sides<'a>>>;
    let mut kinds: BTreeMap<Kind, Cells> = BTreeMap::new();
    let of_cells = places(&[Role::Cell]).into_iter();
    let of_cells: Vec<&str> = of_cells.map(|place| COLUMNS[place].name).collect();
    for &group in groups {
        let (kind, of_mixer) = kind_of(claim, &of_cells, group.record, presets);
        let at = claim.axes.iter().map(|axis| axis.point(group.record));
        let cell = kinds.entry(kind).or_default().entry(at.collect());
        let sides = cell.or_default().entry(group.record.text(SOURCE_DIGEST));
        let side = sides.or_default().entry(group.record.text("mixer"));
        side.or_default().push(Candidate { group, of_mixer });
    }
    let study = |(kind, cells): (Kind<'a>, Cells<'a>)| {
        let mut study = Study {
            kind,
            cells: Vec::new(),
            left_out: Vec::new(),
        };
        for (at, mut sources) in cells {
            // Runs on several files are not mixed: the files that most mixers saw are taken.
            let fullest = sources.iter().max_by_key(|(_, sides)| sides.len());
            let Some(files) = fullest.map(|(files, _)| *files) else {
                continue;
            };
            let sides = sources.remove(files).unwrap_or_default();
            let others = sources.into_keys();
            let others = others.map(|other| format!("{} on the files {other}", at.join(" ")));
            study.left_out.extend(others);
            let chosen = sides.into_iter().map(|(mixer, mut candidates)| {
                candidates.sort_by_cached_key(|c| (c.of_mixer.len(), listed(&c.of_mixer)));
                let others = candidates.iter().skip(1);
                study.left_out.extend(others.map(|other| {
                    let setting = Some(listed(&other.of_mixer)).filter(|list| !list.is_empty());
                    format!(
                        "{mixer} with {}",
                        setting.unwrap_or("other settings".into())
                    )
                }));
                (mixer, candidates[0].group)
            });
            let sides = chosen.collect();
            study.cells.push(Cell { at, sides });
        }
        study.left_out.sort();
        study.left_out.dedup();
        study
    };
    kinds.into_iter().map(study).collect()
}

/// What `run` has in common with others, and what belongs to its mixer alone.
fn kind_of<'a>(
    claim: &Claim,
    cells: &[&str],
    run: &'a Record,
    presets: PresetsOf,
) -> (Kind<'a>, Vec<Difference>) {
    let nearest = Nearest::of(run, presets(run));
    // What presets leave open spans cells, or is the same in all of them, such as n of an RNN.
    let open = |d: &Difference| d.preset.is_empty() && cells.contains(&d.name);
    let differences = nearest.differences.into_iter().filter(|d| !open(d));
    let (of_mixer, mut differences): (Vec<_>, Vec<_>) =
        differences.partition(|d| OF_MIXER.contains(&d.name));
    differences.extend(generated(run).filter(|_| claim.released));
    let kind = Kind {
        protocol: run.text("protocol"),
        preset: nearest.preset,
        differences,
        tokenizer: run.text("tokenizer"),
        precision: run.text("precision"),
    };
    (kind, of_mixer)
}
