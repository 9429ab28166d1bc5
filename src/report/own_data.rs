//! Marks runs whose own seeds draw their examples: in reports their data seeds are one setting, so that a cell is a
//! mean over seeds of the data as well.

use super::grouped;
use crate::store::{places, Column, Field, Record, Role, COLUMNS};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Ids of the runs whose own seeds draw their examples.
pub(super) struct OwnData(BTreeSet<String>);

impl OwnData {
    /// Finds such runs among all `runs` of a report. A data seed shared by two seeds was set by the user and is a
    /// setting. The data seed of a run with both seeds 0 is ambiguous, and counts as drawn if other runs of its cell
    /// draw theirs.
    pub fn of<'a>(runs: impl Iterator<Item = &'a Record> + Clone) -> Self {
        if !runs.clone().any(Record::may_draw_own_data) {
            return Self(BTreeSet::new());
        }
        let mut settings = places(&[Role::Setting, Role::Cell]);
        settings.retain(|place| COLUMNS[*place].name != "data_seed");
        let mut ids = BTreeSet::new();
        for (_, runs) in grouped(runs, &settings) {
            let mut seeds: BTreeMap<&Field, BTreeSet<&Field>> = BTreeMap::new();
            for run in &runs {
                let of_data = seeds.entry(run.get(Column::DATA_SEED)).or_default();
                of_data.insert(run.get(Column::SEED));
            }
            let drawn =
                runs.iter().filter(|run| run.may_draw_own_data() && seeds[run.get(Column::DATA_SEED)].len() == 1);
            if drawn.clone().any(|run| run.count(Column::SEED) > 0) {
                ids.extend(drawn.map(|run| run.run_id().to_owned()));
            }
        }
        Self(ids)
    }

    /// Marks `run` if it is one of them.
    pub fn mark(&self, run: &mut Record) {
        if self.0.contains(run.run_id()) {
            run.set_own_data();
        }
    }

    /// Returns `runs`, with those that draw their own examples marked.
    pub fn marked<'a>(&self, runs: &'a [Record]) -> Cow<'a, [Record]> {
        if self.0.is_empty() {
            return Cow::Borrowed(runs);
        }
        let mut runs = runs.to_vec();
        runs.iter_mut().for_each(|run| self.mark(run));
        Cow::Owned(runs)
    }
}

/// Returns `runs`, with those among them that draw their own examples marked.
pub(super) fn marked(runs: &[Record]) -> Cow<'_, [Record]> {
    OwnData::of(runs.iter()).marked(runs)
}
