//! Merging several results folders into one.

use super::claim::{RunClaim, CLAIM, LOCK};
use super::heartbeat::BEAT;
use super::reconcile::reconcile;
use super::{run_dir, Record, RunStatus, Store, CONFIG, RESULT};
use crate::config::RunConfig;
use crate::error::{refuse, Error, Result};
use crate::files::{is_hidden, remove_if_present, write_atomic_by};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Files of a run that belong to the process that works on it.
const NOT_COPIED: [&str; 3] = [LOCK, CLAIM, BEAT];

/// Outcome of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Runs copied from another folder.
    pub taken: usize,
    /// Copies not taken, because this folder or another one holds the same run.
    pub left_out: usize,
    /// One sentence per folder that holds no run, or a run in progress.
    pub warnings: Vec<String>,
}

/// One copy of a run.
struct Copy<'a> {
    store: &'a Store,
    run: RunConfig,
    /// The record, if the run is done.
    done: Option<Box<Record>>,
    /// Completed epochs.
    epochs: usize,
}

impl Copy<'_> {
    /// Rank of a copy: finished before unfinished, then by completed epochs.
    fn worth(&self) -> (bool, usize) {
        (self.done.is_some(), self.epochs)
    }
}

impl Store {
    /// Copies the runs of `others` that this folder lacks or has in a worse state, and updates the summaries. Of
    /// several copies of a run one is kept: a finished one before an unfinished one, otherwise the one with more
    /// epochs.
    ///
    /// # Errors
    /// Fails if two folders hold different results of one run by one build; the error names both files. Nothing is
    /// copied in that case.
    pub fn merge(&self, others: &[Self]) -> Result<Merged> {
        let mut merged = Merged::default();
        let mut copies = self.copies(&mut merged)?;
        for other in others {
            let found = other.copies(&mut merged)?;
            if found.is_empty() {
                refuse!(
                    path & other.out,
                    "holds no runs that nobody is working on: give the folder in which `runs` lies"
                );
            }
            copies.extend(found);
        }
        let done = copies.iter().filter_map(|copy| copy.done.as_deref());
        let differing = reconcile(&done.cloned().collect::<Vec<_>>())?;
        merged.warnings.extend(differing);
        let tasks: BTreeSet<String> = { copies.iter() }.map(|copy| copy.run.task.name().to_owned()).collect();
        let mut best: BTreeMap<String, Copy> = BTreeMap::new();
        for copy in copies {
            let id = copy.run.id();
            match best.get(&id) {
                // Among equal copies the first wins, which is the one of this folder.
                Some(known) if known.worth() >= copy.worth() => merged.left_out += 1,
                known => {
                    merged.left_out += usize::from(known.is_some());
                    best.insert(id, copy);
                }
            }
        }
        for (id, copy) in best.iter().filter(|(_, copy)| copy.store.out != self.out) {
            self.take(id, &copy.store.run_folder(id))?;
            merged.taken += 1;
        }
        tasks.iter().try_for_each(|task| self.refresh_summary(task))?;
        Ok(merged)
    }

    /// Returns the runs of this folder that no process works on.
    fn copies(&self, merged: &mut Merged) -> Result<Vec<Copy<'_>>> {
        let configs = self.configs()?;
        merged.warnings.extend(configs.warnings);
        let mut copies = Vec::new();
        for run in configs.runs {
            let id = run.id();
            let folder = self.run_folder(&id);
            let result = self.result(&id)?;
            if result.is_none() && self.beat(&id)?.is_some_and(|heard| heard.is_fresh()) {
                let folder = folder.display();
                let warning = format!("{folder} is being worked on; left out");
                merged.warnings.push(warning);
                continue;
            }
            let done = result.filter(|result| result.status == RunStatus::Done);
            let file = folder.join(RESULT).display().to_string();
            copies.push(Copy {
                store: self,
                epochs: run_dir::epochs(&folder)?.len(),
                done: done.map(|result| Box::new(Record::new(&run, &result).read_from(&file))),
                run,
            });
        }
        Ok(copies)
    }

    /// Replaces the run `id` of this folder by the copy in the folder `from`. If the process is killed meanwhile, an
    /// unfinished run remains.
    fn take(&self, id: &str, from: &Path) -> Result<()> {
        let folder = self.run_folder(id);
        let Some(_claim) = RunClaim::take(&folder, self.locks, self.timing)? else {
            return Err(Error::Busy(id.to_owned()));
        };
        remove_if_present(&folder.join(RESULT))?;
        let wanted = files(from)?;
        let gone = files(&folder)?.into_iter();
        for name in gone.filter(|name| !wanted.contains(name)) {
            remove_if_present(&folder.join(name))?;
        }
        // The config comes first, since a folder without it is no run; the result comes last, since it marks the run as
        // complete.
        let order = |name: &OsString| (name != CONFIG, name == RESULT);
        let mut wanted: Vec<OsString> = wanted.into_iter().collect();
        wanted.sort_by_key(order);
        for name in wanted {
            let source = from.join(&name);
            let mut file = File::open(&source).map_err(Error::io("read", &source))?;
            write_atomic_by(&folder.join(&name), |out| io::copy(&mut file, out).map(drop))?;
        }
        Ok(())
    }
}

/// Returns the files of a run that a copy needs.
fn files(folder: &Path) -> Result<BTreeSet<OsString>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let entry = entry.map_err(Error::io("read", folder))?;
        let name = entry.file_name();
        let own = name.to_str().is_some_and(|name| NOT_COPIED.contains(&name)) || is_hidden(&name);
        if entry.path().is_file() && !own {
            names.insert(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{config, done, failed, provenance};
    use super::super::{read_summary, Column, RunResult};
    use super::*;
    use crate::error::testing::Fails;

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        /// Creates the folder `name` with runs identified by their seeds.
        fn folder(&self, name: &str, runs: &[(u64, RunResult)]) -> Store {
            let store = Store::open(&self.0.path().join(name)).unwrap();
            for (seed, result) in runs {
                let run = store.begin(&seeded(*seed), &provenance()).unwrap();
                run.finish(result).unwrap();
            }
            store
        }
    }

    fn seeded(seed: u64) -> RunConfig {
        RunConfig { seed, ..config() }
    }

    #[test]
    fn folders_become_one_with_every_run_once_and_a_new_summary() {
        let world = World::new();
        let a = world.folder("a", &[(1, done(0.5)), (2, failed("disk"))]);
        let mut slower = done(0.5);
        slower.metrics.set(Column::SECONDS, 99.0);
        let b = world.folder("b", &[(1, slower), (2, done(0.25)), (3, done(0.75))]);
        let out = world.folder("out", &[]);
        let merged = out.merge(&[a, b]).unwrap();
        assert_eq!((merged.taken, merged.left_out), (3, 2));
        let rows = read_summary(&out.summary_path("mqar")).unwrap();
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|r| r.status() == Some(RunStatus::Done)));
        let again = out.merge(&[world.folder("b", &[])]).unwrap();
        assert_eq!((again.taken, again.left_out), (0, 3));
    }

    #[test]
    fn two_results_of_one_run_are_refused_with_both_files_and_nothing_is_copied() {
        let world = World::new();
        let a = world.folder("a", &[(1, done(0.5)), (2, done(0.5))]);
        let b = world.folder("b", &[(1, done(0.25))]);
        let out = world.folder("out", &[]);
        let at = out.merge(&[a, b]).fails("corrupt");
        let text = format!("{} {}", at.path.clone().unwrap().display(), at.reason);
        for part in ["/a/runs/", "/b/runs/", "result.json", "accuracy"] {
            assert!(text.contains(part), "{at:?}");
        }
        assert!(out.configs().unwrap().runs.is_empty());
    }

    #[test]
    fn the_copy_that_is_trained_further_is_taken_and_one_in_work_is_not() {
        let world = World::new();
        let begun = |name: &str, epochs: usize| {
            let store = world.folder(name, &[]);
            let run = store.begin(&seeded(1), &provenance()).unwrap();
            let epoch = |epoch| super::super::EpochRow {
                epoch,
                train_loss: 0.5,
                test_loss: 0.5,
                accuracy: 0.5,
                lr: 0.1,
                seconds: 1.0,
                tokens_per_s: 1.0,
                val_loss: None,
                val_accuracy: None,
                macro_accuracy: None,
            };
            let epochs: Vec<_> = (1..=epochs).map(epoch).collect();
            run.write_metrics(&epochs).unwrap();
            (store, run)
        };
        let (a, _) = begun("a", 2);
        let (b, _) = begun("b", 3);
        let (c, _held) = begun("c", 9);
        let merged = world.folder("out", &[]).merge(&[a.clone(), b]).unwrap();
        assert_eq!(merged.taken, 1);
        let id = seeded(1).id();
        assert_eq!(world.folder("out", &[]).epochs(&id).unwrap().len(), 3);
        a.merge(&[c]).fails("refused").is_at("c", None);
    }

    #[test]
    fn what_is_no_run_is_told_and_left_out() {
        let world = World::new();
        let a = world.folder("a", &[(1, done(0.5))]);
        fs::create_dir_all(a.run_folder("no-run")).unwrap();
        // Files left by a file manager or a notebook are neither runs nor files of a run.
        fs::create_dir_all(a.run_folder(".ipynb_checkpoints")).unwrap();
        let id = seeded(1).id();
        fs::write(a.run_folder(&id).join("Thumbs.db"), "").unwrap();
        let out = world.folder("out", &[]);
        let merged = out.merge(&[a]).unwrap();
        assert_eq!(merged.taken, 1);
        assert_eq!(merged.warnings.len(), 1, "{merged:?}");
        assert!(merged.warnings[0].contains("no-run"), "{merged:?}");
        assert!(!out.run_folder(&id).join("Thumbs.db").exists());
    }
}
