//! Groups the runs that are judged together: those of one preset and protocol with the same changes.
//!
//! Each mixer is compared with its own preset, so sizes that the released configs give to one mixer alone do not count
//! as a difference between two mixers. Settings that span the cells of a claim, such as d and n, distinguish cells;
//! settings of a mixer, such as its options, are reported.

use super::super::presets::{generated, listed, Nearest, PresetDifference, PresetsOf, TOKENIZER};
use super::super::RunGroup;
use super::table::{Claim, PointColumns};
use crate::store::{places, Column, Record, Role, COLUMNS};
use std::collections::{BTreeMap, BTreeSet};

/// Settings that belong to a mixer. Where runs of one cell differ in them, those nearest to the preset are used.
#[rustfmt::skip]
pub(super) const OF_MIXER: [&str; 11] = [
    "variant", "options", "heads", "layout", "state_mixer", "positions", "expand", "hybrid", "rotary", "rotary_dims", "micro_batch",
];

/// Runs of one claim that may be compared.
#[derive(Default)]
pub(super) struct Study<'a> {
    pub kind: StudyKey<'a>,
    pub cells: Vec<StudyCell<'a>>,
    /// Settings of mixers that differ from their presets and are therefore left out.
    pub left_out: Vec<String>,
}

/// Settings that the runs of a study have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StudyKey<'a> {
    pub protocol: &'a str,
    /// The nearest preset; empty if there is none.
    pub preset: &'static str,
    /// Differences from the preset.
    pub differences: Vec<PresetDifference>,
    /// Settings in which some mixer differs from its preset, such as the initial step size; empty if there are none.
    pub of_mixers: String,
    pub tokenizer: &'a str,
    pub precision: &'a str,
}

/// The runs at one point of all axes.
#[derive(Clone)]
pub(super) struct StudyCell<'a> {
    /// One value per axis, as typed.
    pub at: Vec<String>,
    /// Runs by mixer.
    pub sides: BTreeMap<&'a str, &'a RunGroup<'a>>,
}

impl StudyKey<'_> {
    /// Whether the sizes and settings are the paper's. Examples of MQAR may be numpy's, whose distribution is the same;
    /// examples of the Long Range Arena must be the released files.
    pub fn is_paper(&self) -> bool {
        let tokens = ["", TOKENIZER].contains(&self.tokenizer);
        let same = self.differences.iter().all(Self::is_numpys);
        self.preset == "paper" && tokens && same && self.of_mixers.is_empty()
    }

    fn is_numpys(difference: &PresetDifference) -> bool {
        difference.name == "data" && difference.value == "numpy"
    }

    /// Source of the examples, where a study at the paper's sizes differs from its preset in it.
    pub fn examples(&self) -> Option<String> {
        let numpys = self.differences.iter().find(|d| Self::is_numpys(d));
        numpys.map(PresetDifference::to_string)
    }

    /// Title of the study.
    pub fn title(&self) -> String {
        let parts = [
            ("protocol ", self.protocol),
            ("preset ", self.preset),
            ("", &listed(&self.differences)),
            ("", &self.of_mixers),
            ("tokenizer ", self.tokenizer),
            ("", if self.precision == "f32" { "" } else { self.precision }),
        ];
        let known = parts.iter().filter(|(_, value)| !value.is_empty());
        known.map(|(name, value)| format!("{name}{value}")).collect::<Vec<_>>().join(", ")
    }
}

impl PointColumns {
    /// The point of `run` on the axis, as typed.
    pub fn point(&self, run: &Record) -> String {
        let values = self.columns.iter().map(|column| run.get(*column).to_string());
        values.collect::<Vec<_>>().join(":")
    }
}

/// Runs of a mixer at one point.
struct Candidate<'a> {
    group: &'a RunGroup<'a>,
    /// Number of the mixer's settings that differ from its preset, and their text; 0 and empty for the preset's.
    setting: (usize, String),
}

/// Candidates by mixer, those nearest to the preset first.
type Sides<'a> = BTreeMap<&'a str, Vec<Candidate<'a>>>;

/// Divides `groups`, all of `claim`, into studies.
pub(super) fn studies<'a>(claim: &Claim, groups: &[&'a RunGroup<'a>], presets: PresetsOf) -> Vec<Study<'a>> {
    type Cells<'a> = BTreeMap<Vec<String>, BTreeMap<&'a str, Sides<'a>>>;
    let mut kinds: BTreeMap<StudyKey, Cells> = BTreeMap::new();
    let of_cells: Vec<&str> = places(&[Role::Cell]).into_iter().map(|place| COLUMNS[place].name).collect();
    for &group in groups {
        let (kind, of_mixer) = kind_of(claim, &of_cells, group.record, presets);
        let at = claim.axes.iter().map(|axis| axis.point(group.record));
        let cell = kinds.entry(kind).or_default().entry(at.collect());
        let sides = cell.or_default().entry(group.record.text(Column::SOURCE_DIGEST));
        let side = sides.or_default().entry(group.record.text(Column::MIXER));
        side.or_default().push(Candidate { group, setting: (of_mixer.len(), setting(&of_mixer)) });
    }
    let mut studies = Vec::new();
    for (kind, cells) in kinds {
        let mut left_out = Vec::new();
        let mut points: Vec<(Vec<String>, Sides)> = Vec::new();
        for (at, mut sources) in cells {
            // Runs on different files are not mixed: the files that most mixers were trained on are used.
            let fullest = sources.iter().max_by_key(|(_, sides)| sides.len());
            let Some(files) = fullest.map(|(files, _)| *files) else {
                continue;
            };
            let mut sides = sources.remove(files).unwrap_or_default();
            sides.values_mut().for_each(|candidates| candidates.sort_by_key(|c| c.setting.clone()));
            let others = sources.into_keys().map(|other| format!("{} on the files {other}", at.join(" ")));
            left_out.extend(others);
            points.push((at, sides));
        }
        studies.extend(by_setting(&kind, &points, &left_out));
    }
    studies
}

/// One study per setting that some mixer has. Mixers that have the setting are taken with it, all others with the
/// setting nearest to their preset.
fn by_setting<'a>(kind: &StudyKey<'a>, points: &[(Vec<String>, Sides<'a>)], left_out: &[String]) -> Vec<Study<'a>> {
    let all = points.iter().flat_map(|(_, sides)| sides);
    let mut having: BTreeMap<&(usize, String), BTreeSet<&str>> = BTreeMap::new();
    for (mixer, candidates) in all {
        for candidate in candidates {
            having.entry(&candidate.setting).or_default().insert(*mixer);
        }
    }
    let mut studies: Vec<Study> = Vec::new();
    for (setting, having) in having {
        let (mut left_out, mut named, mut cells) = (left_out.to_vec(), BTreeSet::new(), Vec::new());
        for (at, sides) in points {
            let mut chosen = BTreeMap::new();
            for (mixer, candidates) in sides {
                let mut alike = candidates.iter().filter(|c| !having.contains(mixer) || c.setting == *setting);
                let Some(first) = alike.next() else {
                    continue;
                };
                named.insert(first.setting.1.as_str());
                chosen.insert(*mixer, first.group);
                let others = alike.filter(|other| other.setting == first.setting);
                left_out.extend(others.map(|_| format!("{mixer} with other settings")));
            }
            if chosen.keys().any(|mixer| having.contains(mixer)) {
                cells.push(StudyCell { at: at.clone(), sides: chosen });
            }
        }
        if studies.iter().any(|study| same(&study.cells, &cells)) {
            continue;
        }
        named.remove("");
        let of_mixers = named.into_iter().collect::<Vec<_>>().join(", ");
        left_out.sort();
        left_out.dedup();
        studies.push(Study { kind: StudyKey { of_mixers, ..kind.clone() }, cells, left_out });
    }
    studies
}

/// Whether both lists have the same runs in the same cells.
fn same(cells: &[StudyCell], others: &[StudyCell]) -> bool {
    let groups = |cell: &StudyCell| -> Vec<*const ()> {
        cell.sides.values().map(|group| std::ptr::from_ref(*group).cast()).collect()
    };
    let mut pairs = cells.iter().zip(others);
    cells.len() == others.len() && pairs.all(|(a, b)| a.at == b.at && groups(a) == groups(b))
}

/// Differences from a mixer's preset as one text; of its options, only those that differ from the preset's.
fn setting(differences: &[PresetDifference]) -> String {
    let parts = differences.iter().flat_map(|difference| match difference.name {
        "options" => {
            let preset: Vec<&str> = difference.preset.split(';').collect();
            let own = difference.value.split(';').filter(|option| !preset.contains(option));
            own.map(str::to_owned).collect()
        }
        _ => vec![difference.to_string()],
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// The settings that `run` shares with other mixers, and the differences that belong to its mixer alone.
fn kind_of<'a>(
    claim: &Claim,
    cells: &[&str],
    run: &'a Record,
    presets: PresetsOf,
) -> (StudyKey<'a>, Vec<PresetDifference>) {
    let nearest = Nearest::of(run, presets(run));
    // Settings that presets leave open span the cells, or are the same in all of them, such as n of an RNN.
    let open = |d: &PresetDifference| d.preset.is_empty() && cells.contains(&d.name);
    // A claim over a setting of mixers, such as heads, compares runs that differ in it.
    let axes: Vec<&str> = claim.axes.iter().flat_map(|axis| axis.columns).map(|column| column.name()).collect();
    let spans = |d: &PresetDifference| OF_MIXER.contains(&d.name) && axes.contains(&d.name);
    let differences = nearest.differences.into_iter().filter(|d| !open(d) && !spans(d));
    let (of_mixer, mut differences): (Vec<_>, Vec<_>) = differences.partition(|d| OF_MIXER.contains(&d.name));
    differences.extend(generated(run).filter(|_| claim.task.released));
    let kind = StudyKey {
        protocol: run.text(Column::PROTOCOL),
        preset: nearest.preset,
        differences,
        of_mixers: String::new(),
        tokenizer: run.text(Column::TOKENIZER),
        precision: run.text(Column::PRECISION),
    };
    (kind, of_mixer)
}
