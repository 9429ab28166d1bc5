//! Files with bytes flipped, cut, doubled, removed or put in: an error in words or what was written, never a panic,
//! never another number.

use super::all_or;
use crate::training::{follow, trainer, weights, world, Trace};
use crate::world::checkpoint;
use dsf::config::{RunConfig, SETTINGS};
use dsf::model::weights::Checkpoint;
use dsf::recipes;
use dsf::store::{read_summary, Column, EpochRow, Metrics, Outcome, Provenance, Record, RunResult, Store};
use dsf::sweep::Experiment;
use dsf::tasks;
use fastrand::Rng;
use std::fs;
use std::path::Path;

/// Changed copies of a file: of seven kinds, 100,000 together where all are asked for.
fn copies() -> usize {
    all_or(17_000, 400)
}

/// One or several changes at random places.
fn damaged(bytes: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.usize(1..4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.usize(0..bytes.len());
        let to = random.usize(at..bytes.len().min(at + 64) + 1);
        match random.u8(0..7) {
            0 => bytes[at] ^= 1 << random.u8(0..8),
            1 => bytes[at] = random.u8(..),
            // What looks like the number that stood there.
            2 => match bytes[at..].iter().position(u8::is_ascii_digit) {
                Some(digit) => bytes[at + digit] = random.u8(b'0'..=b'9'),
                None => bytes[at] = b'0',
            },
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..to)),
            5 => {
                let part = bytes[at..to].to_vec();
                bytes.splice(to..to, part);
            }
            _ => bytes.insert(at, random.u8(..)),
        }
    }
    bytes
}

/// Calls `check` with damaged copies of `bytes`; it says whether what was read is what was written, or refused. Returns
/// the share of copies that were refused.
fn attack(name: &str, bytes: &[u8], mut check: impl FnMut(&[u8]) -> Result<(), String>) -> f64 {
    let mut random = Rng::with_seed(bytes.len() as u64);
    let mut refused = 0;
    for _ in 0..copies() {
        let copy = damaged(bytes, &mut random);
        if copy != bytes {
            if let Err(said) = check(&copy) {
                assert!(!said.trim().is_empty() && !said.contains("panicked"), "{name}: {said}");
                refused += 1;
            }
        }
    }
    refused as f64 / copies() as f64
}

fn run() -> RunConfig {
    recipes::run("mqar", &[("preset", "smoke"), ("mixer", "s6")]).unwrap()
}

fn result() -> RunResult {
    let mut metrics = Metrics::default();
    for (column, value) in
        [(Column::ACCURACY, 0.73125), (Column::TRAIN_LOSS, 1.25e-3), (Column::TEST_LOSS, 0.8), (Column::SECONDS, 12.5)]
    {
        metrics.set(column, value);
    }
    RunResult::done(Outcome::Finished, metrics, "2026-01-02T03:04:05Z", Provenance::collect("cpu", 2))
}

fn epoch(epoch: usize) -> EpochRow {
    EpochRow {
        epoch,
        train_loss: 1.5 / epoch as f64,
        test_loss: 1.25,
        accuracy: 0.73125,
        lr: 1e-3,
        seconds: 6.25,
        tokens_per_s: 1e5,
        val_loss: None,
        val_accuracy: None,
        macro_accuracy: None,
    }
}

/// A store with one finished run.
fn store(folder: &Path) -> Store {
    let store = Store::open(folder).unwrap();
    let dir = store.begin(&run(), &Provenance::collect("cpu", 2)).unwrap();
    dir.write_metrics(&[1, 2].map(epoch)).unwrap();
    dir.finish(&result()).unwrap();
    store
}

#[test]
fn a_damaged_config_or_result_is_told_and_never_makes_another_row() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let wanted = store.rows(&["mqar"]).unwrap().rows;
    assert_eq!(wanted.len(), 1);
    for name in ["config.json", "result.json"] {
        let path = store.run_folder(&run().id()).join(name);
        let whole = fs::read(&path).unwrap();
        let share = attack(name, &whole, |copy| {
            fs::write(&path, copy).unwrap();
            let scan = store.rows(&["mqar"]).unwrap();
            match scan.warnings.first() {
                Some(warning) => {
                    assert!(scan.rows.is_empty());
                    Err(warning.clone())
                }
                None => {
                    assert_eq!(scan.rows, wanted, "{}", String::from_utf8_lossy(copy));
                    Ok(())
                }
            }
        });
        assert!(share > 0.8, "{name}: {share}");
        fs::write(&path, whole).unwrap();
    }
}

#[test]
fn damaged_epochs_of_a_finished_run_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let id = run().id();
    let wanted = store.epochs(&id).unwrap();
    assert_eq!(wanted.len(), 2);
    let path = store.run_folder(&id).join("metrics.csv");
    let share = attack("metrics.csv", &fs::read(&path).unwrap(), |copy| {
        fs::write(&path, copy).unwrap();
        let found = store.epochs(&id).map_err(|e| e.to_string())?;
        assert_eq!(found, wanted);
        Ok(())
    });
    assert!(share > 0.9, "{share}");
}

#[test]
fn a_damaged_summary_has_no_row_that_was_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let path = store.summary_path("mqar");
    let wanted = Record::new(&run(), &store.result(&run().id()).unwrap().unwrap());
    // A header that loses its checksum and a row a digit at once would pass: what is damaged is the rows.
    let text = fs::read_to_string(&path).unwrap();
    let (header, row) = text.split_once('\n').unwrap();
    let share = attack("mqar.csv", row.as_bytes(), |copy| {
        fs::write(&path, [header.as_bytes(), b"\n", copy].concat()).unwrap();
        let rows = read_summary(&path).map_err(|e| e.to_string())?;
        // A file that was cut may have none.
        for row in &rows {
            assert_eq!(row, &wanted, "{}", String::from_utf8_lossy(copy));
        }
        Ok(())
    });
    assert!(share > 0.8, "{share}");
}

#[test]
fn a_damaged_checkpoint_is_refused_or_continues_the_same_training() {
    let (config, data) = world("softmax");
    let mut first = trainer(&config, &data);
    follow(&mut first, 2, &mut Trace::default());
    let whole = checkpoint(&first);
    let (wanted, progress) = (weights(&first), first.progress().clone());
    let mut second = trainer(&config, &data);
    let share = attack("checkpoint.safetensors", &whole, |copy| {
        second.restore(copy, "checkpoint").map_err(|e| e.to_string())?;
        assert_eq!((weights(&second), second.progress()), (wanted.clone(), &progress));
        Ok(())
    });
    assert!(share > 0.9, "{share}");
}

#[test]
fn damaged_weights_are_refused_or_the_same() {
    let (config, data) = world("linear");
    let mut whole = Vec::new();
    trainer(&config, &data).write_weights(&mut whole).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    type Read = (String, Vec<(String, Vec<f64>)>);
    let read = |bytes: &[u8]| -> Result<Read, String> {
        // Under another name each time: what is mapped is never written to.
        fs::remove_file(&path).ok();
        fs::write(&path, bytes).unwrap();
        let found = Checkpoint::of_any_task(&path).map_err(|e| e.to_string())?;
        let values = found.values.all().map_err(|e| e.to_string())?;
        let values = values.iter().map(|(name, value)| (name.clone(), crate::world::flat(value))).collect();
        Ok((found.config.id(), values))
    };
    let wanted = read(&whole).unwrap();
    let share = attack("weights.safetensors", &whole, |copy| {
        let found = read(copy)?;
        assert_eq!(found, wanted);
        Ok(())
    });
    assert!(share > 0.9, "{share}");
}

#[test]
fn damaged_token_files_are_refused_or_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // A text of its own: tokens of one text are shared by whoever reads it.
    let page = folder.path().display();
    let text = format!(" = {page} = \n \n the words of a page , of which there are some \n").repeat(30);
    for name in ["train.txt", "valid.txt", "test.txt"] {
        fs::write(folder.path().join(name), &text).unwrap();
    }
    let settings =
        [("preset", "smoke"), ("corpus", "text"), ("seq-len", "16"), ("train-examples", "4"), ("test-examples", "2")];
    let task = recipes::run("wikitext", &settings).unwrap().task;
    let load = || tasks::load(&task, Some(folder.path())).map(|data| data.digest());
    let wanted = load().unwrap();
    let typed = task.typed().unwrap();
    let paths = tasks::wikitext::token_files(&typed, Some(folder.path())).unwrap();
    let whole = fs::read(&paths[0]).unwrap();
    let share = attack("train.tokens", &whole, |copy| {
        fs::remove_file(&paths[0]).unwrap();
        fs::write(&paths[0], copy).unwrap();
        let found = load().map_err(|e| e.to_string())?;
        assert_eq!(found, wanted);
        Ok(())
    });
    assert!(share > 0.8, "{share}");
}

/// Whoever writes an experiment means what it says: what can be read is a plan, however strange.
#[test]
fn a_damaged_experiment_is_a_plan_or_an_error_with_its_place() {
    let whole = include_str!("../../../experiments/smoke.toml");
    let share = attack("smoke.toml", whole.as_bytes(), |copy| {
        let text = String::from_utf8(copy.to_vec()).map_err(|e| e.to_string())?;
        let parsed = Experiment::parse(&text, "smoke.toml", SETTINGS).map_err(|e| e.to_string())?;
        parsed.plan(&Default::default()).map(drop).map_err(|e| e.to_string())
    });
    assert!(share > 0.3, "{share}");
}
