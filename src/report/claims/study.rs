//! Which runs are judged together: those that are one preset of one protocol with the same changes.
//!
//! Each mixer is compared with its own preset, so that sizes that the released configs give to one mixer alone are no
//! difference between two mixers. What spans the cells of a claim, such as d and n, tells cells apart; what belongs to a
//! mixer, such as its options, is said.

use super::super::presets::{generated, listed, Difference, Nearest, PresetsOf, TOKENIZER};
use super::super::Group;
use super::table::{Axis, Claim};
use crate::store::{places, Record, Role, COLUMNS, SOURCE_DIGEST};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Settings in which some mixer is not its preset, such as the start of its steps; empty where there are none.
    pub of_mixers: String,
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
        self.preset == "paper" && tokens && same && self.of_mixers.is_empty()
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
            named("", &self.of_mixers),
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

/// Runs of a mixer at one point, and in which of its own settings they are not its preset's.
struct Candidate<'a> {
    group: &'a Group<'a>,
    /// Number of these settings, and their text, which is empty for the preset's.
    setting: (usize, String),
}

/// By mixer, those nearest to the preset first.
type Sides<'a> = BTreeMap<&'a str, Vec<Candidate<'a>>>;

/// The studies that `groups`, all of `claim`, fall into.
pub(super) fn studies<'a>(
    claim: &Claim,
    groups: &[&'a Group<'a>],
    presets: PresetsOf,
) -> Vec<Study<'a>> {
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
        side.or_default().push(Candidate {
            group,
            setting: (of_mixer.len(), setting(&of_mixer)),
        });
    }
    let mut studies = Vec::new();
    for (kind, cells) in kinds {
        let mut left_out = Vec::new();
        let mut points: Vec<(Vec<String>, Sides)> = Vec::new();
        for (at, mut sources) in cells {
            // Runs on several files are not mixed: the files that most mixers saw are taken.
            let fullest = sources.iter().max_by_key(|(_, sides)| sides.len());
            let Some(files) = fullest.map(|(files, _)| *files) else {
                continue;
            };
            let mut sides = sources.remove(files).unwrap_or_default();
            let candidates = sides.values_mut();
            candidates.for_each(|candidates| candidates.sort_by_key(|c| c.setting.clone()));
            let others = sources.into_keys();
            let others = others.map(|other| format!("{} on the files {other}", at.join(" ")));
            left_out.extend(others);
            points.push((at, sides));
        }
        studies.extend(by_setting(&kind, &points, &left_out));
    }
    studies
}

/// A study of each setting that some mixer has: there every mixer that has it is taken with it, and every other one with
/// the setting that is nearest to its preset.
fn by_setting<'a>(
    kind: &Kind<'a>,
    points: &[(Vec<String>, Sides<'a>)],
    left_out: &[String],
) -> Vec<Study<'a>> {
    let all = points.iter().flat_map(|(_, sides)| sides);
    let mut having: BTreeMap<&(usize, String), BTreeSet<&str>> = BTreeMap::new();
    for (mixer, candidates) in all {
        for candidate in candidates {
            having.entry(&candidate.setting).or_default().insert(*mixer);
        }
    }
    let mut studies: Vec<Study> = Vec::new();
    for (setting, having) in having {
        let mut left_out = left_out.to_vec();
        let mut named = BTreeSet::new();
        let mut cells = Vec::new();
        for (at, sides) in points {
            let mut chosen = BTreeMap::new();
            for (mixer, candidates) in sides {
                let alike = |c: &&Candidate| !having.contains(mixer) || c.setting == *setting;
                let mut alike = candidates.iter().filter(alike);
                let Some(first) = alike.next() else {
                    continue;
                };
                named.insert(&first.setting.1);
                chosen.insert(*mixer, first.group);
                let others = alike.filter(|other| other.setting == first.setting);
                left_out.extend(others.map(|_| format!("{mixer} with other settings")));
            }
            if chosen.keys().any(|mixer| having.contains(mixer)) {
                let at = at.clone();
                cells.push(Cell { at, sides: chosen });
            }
        }
        if studies.iter().any(|study| same(&study.cells, &cells)) {
            continue;
        }
        named.remove(&String::new());
        let named: Vec<&str> = named.into_iter().map(String::as_str).collect();
        left_out.sort();
        left_out.dedup();
        studies.push(Study {
            kind: Kind {
                of_mixers: named.join(", "),
                ..kind.clone()
            },
            cells,
            left_out,
        });
    }
    studies
}

/// Whether the same runs are in the same cells.
fn same(cells: &[Cell], others: &[Cell]) -> bool {
    let groups = |cell: &Cell| -> Vec<*const ()> {
        let groups = cell.sides.values();
        groups
            .map(|group| std::ptr::from_ref(*group).cast())
            .collect()
    };
    let mut pairs = cells.iter().zip(others);
    cells.len() == others.len() && pairs.all(|(a, b)| a.at == b.at && groups(a) == groups(b))
}

/// Differences from a mixer's preset as one text; of its options those that are not the preset's.
fn setting(differences: &[Difference]) -> String {
    let parts = differences.iter().flat_map(|difference| {
        let text = difference.to_string();
        let preset: Vec<&str> = difference.preset.split(';').collect();
        match difference.name {
            "options" => difference
                .value
                .split(';')
                .filter(|option| !preset.contains(option))
                .map(str::to_owned)
                .collect(),
            _ => vec![text],
        }
    });
    parts.collect::<Vec<_>>().join(", ")
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
        of_mixers: String::new(),
        tokenizer: run.text("tokenizer"),
        precision: run.text("precision"),
    };
    (kind, of_mixer)
}
