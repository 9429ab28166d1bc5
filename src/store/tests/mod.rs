//! Life of a run on disk, with its interruptions.

mod opening;
pub(crate) mod samples;

use super::*;
use crate::error::testing::Fails;
use samples::{config, diverged, done, failed, provenance};
use std::process::{Command, Stdio};

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    (dir, store)
}

fn with_seed(seed: u64) -> RunConfig {
    RunConfig { seed, ..config() }
}

fn begin(store: &Store, config: &RunConfig) -> RunDir {
    store.begin(config, &provenance()).unwrap()
}

const EPOCH: EpochRow = EpochRow {
    epoch: 1,
    train_loss: 1.0 / 3.0,
    test_loss: 0.5,
    accuracy: 0.25,
    lr: 1e-4,
    seconds: 1.5,
    tokens_per_s: 1e6,
    val_loss: None,
    val_accuracy: None,
    macro_accuracy: None,
};

#[test]
fn a_run_goes_from_missing_over_started_to_done() {
    let (_dir, store) = store();
    let id = config().id();
    assert_eq!(store.status(&id).unwrap(), Status::Missing);
    let run = begin(&store, &config());
    assert_eq!(store.status(&id).unwrap(), Status::Started);
    run.finish(&done(0.9)).unwrap();
    assert_eq!(store.status(&id).unwrap(), Status::Done);
    assert_eq!(store.result(&id).unwrap(), Some(done(0.9)));
}

#[test]
fn an_interrupted_run_is_started_and_keeps_checkpoint_metrics_and_start() {
    let (_dir, store) = store();
    let run = begin(&store, &config());
    run.write_metrics(&[EPOCH]).unwrap();
    run.write_checkpoint(|out| out.write_all(b"weights")).unwrap();
    drop(run);

    assert_eq!(store.status(&config().id()).unwrap(), Status::Started);
    let later = Provenance { started: "2027-01-01T00:00:00Z".into(), ..provenance() };
    let run = store.begin(&config(), &later).unwrap();
    assert_eq!(checkpoints(&run), [b"weights"]);
    assert_eq!(run.read_metrics().unwrap(), [EPOCH]);
    assert_eq!(run.started(), provenance().started);
}

/// Contents of the checkpoints of a run, the newest first.
fn checkpoints(run: &RunDir) -> Vec<Vec<u8>> {
    run.checkpoints().map(|read| read.unwrap().1).collect()
}

fn write_checkpoint(run: &RunDir, bytes: &[u8]) {
    run.write_checkpoint(|out| out.write_all(bytes)).unwrap();
}

#[test]
fn the_last_two_checkpoints_are_kept_until_the_run_is_done() {
    let (_dir, store) = store();
    let run = begin(&store, &config());
    for bytes in [b"1", b"2", b"3"] {
        write_checkpoint(&run, bytes);
    }
    assert_eq!(checkpoints(&run), [b"3", b"2"]);
    let failed_write = run.write_checkpoint(|_| Err(std::io::Error::other("disk full")));
    failed_write.fails("io").names(&["disk full"]);
    assert_eq!(checkpoints(&run), [b"3", b"2"], "a failed write costs none");
    run.finish(&done(0.9)).unwrap();
    assert!(checkpoints(&begin(&store, &config())).is_empty());
}

#[test]
fn a_failed_run_keeps_its_checkpoints_for_a_retry() {
    let (_dir, store) = store();
    let run = begin(&store, &config());
    write_checkpoint(&run, b"weights");
    run.finish(&failed("killed by signal 9")).unwrap();
    let retry = begin(&store, &config());
    assert_eq!(checkpoints(&retry), [b"weights"]);
}

#[test]
fn a_discarded_checkpoint_leaves_the_one_before_it() {
    let (_dir, store) = store();
    let run = begin(&store, &config());
    write_checkpoint(&run, b"good");
    write_checkpoint(&run, b"damaged");
    let (path, _) = run.checkpoints().next().unwrap().unwrap();
    run.discard_checkpoint(&path).unwrap();
    write_checkpoint(&run, b"new");
    assert_eq!(checkpoints(&run), [&b"new"[..], b"good"]);
}

#[test]
fn a_fresh_run_has_neither_metrics_nor_checkpoint_nor_result() {
    let (_dir, store) = store();
    let run = begin(&store, &config());
    assert_eq!(run.read_metrics().unwrap(), []);
    assert!(checkpoints(&run).is_empty());
    assert_eq!(run.result().unwrap(), None);
}

#[test]
fn metrics_survive_a_loss_that_is_not_a_number() {
    let (_dir, store) = store();
    let run = begin(&store, &config());
    let row = EpochRow { train_loss: f64::NAN, test_loss: f64::INFINITY, ..EPOCH };
    run.write_metrics(&[EPOCH, row]).unwrap();
    let back = run.read_metrics().unwrap();
    assert_eq!(back[0], EPOCH);
    assert!(back[1].train_loss.is_nan());
    assert_eq!(back[1].test_loss, f64::INFINITY);
}

#[test]
fn damaged_metrics_are_an_error_that_names_file_and_remedy() {
    let (_dir, store) = store();
    let run = begin(&store, &config());
    let path = store.run_folder(run.id()).join("metrics.csv");
    fs::write(&path, "epoch,train_loss\n1,zero\n").unwrap();
    let at = run.read_metrics().fails("corrupt");
    at.is_at("metrics.csv", None);
}

#[test]
fn a_diverged_run_is_done_and_its_loss_reads_back_as_absent() {
    let (_dir, store) = store();
    begin(&store, &config()).finish(&diverged()).unwrap();
    let result = store.result(&config().id()).unwrap().unwrap();
    assert_eq!(store.status(&config().id()).unwrap(), Status::Done);
    assert_eq!(result.outcome, Some(Outcome::Diverged));
    assert_eq!(result.metrics.get(Column::TRAIN_LOSS), None);
}

#[test]
fn a_failed_run_that_is_taken_up_again_is_started() {
    let (_dir, store) = store();
    let id = config().id();
    begin(&store, &config()).finish(&failed("disk")).unwrap();
    assert_eq!(store.status(&id).unwrap(), Status::Failed);
    drop(begin(&store, &config()));
    assert_eq!(store.status(&id).unwrap(), Status::Started);
}

#[test]
fn a_finished_run_that_is_taken_up_again_keeps_its_result() {
    let (_dir, store) = store();
    begin(&store, &config()).finish(&done(0.9)).unwrap();
    let run = begin(&store, &config());
    assert_eq!(run.result().unwrap(), Some(done(0.9)));
}

#[test]
fn a_second_worker_is_told_that_the_run_is_busy_until_the_first_lets_go() {
    let (_dir, store) = store();
    let first = begin(&store, &config());
    let refused = store.begin(&config(), &provenance()).unwrap_err();
    assert!(matches!(refused, Error::Busy(id) if id == config().id()));
    drop(first);
    begin(&store, &config());
}

/// Variable set in a child process only, in which the test below holds a run until it is killed.
const HOLD: &str = "DSF_TEST_HOLD_RUN_IN";

#[test]
fn a_killed_worker_frees_its_run() {
    if let Ok(out) = std::env::var(HOLD) {
        let run = begin(&Store::open(Path::new(&out)).unwrap(), &config());
        run.write_checkpoint(|out| out.write_all(b"weights")).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(60));
        return;
    }
    let (dir, store) = store();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::tests::a_killed_worker_frees_its_run"])
        .env(HOLD, dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let checkpoint = store.run_folder(&config().id()).join("checkpoint.safetensors");
    while !checkpoint.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the child ended early");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let busy = store.begin(&config(), &provenance());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(busy, Err(Error::Busy(_))));
    let run = begin(&store, &config());
    assert_eq!(checkpoints(&run), [b"weights"]);
}

#[test]
fn another_config_under_the_same_id_is_refused() {
    let (_dir, store) = store();
    drop(begin(&store, &config()));
    let path = store.run_folder(&config().id()).join("config.json");
    fs::write(&path, with_seed(1).canonical()).unwrap();
    let at = store.begin(&config(), &provenance()).fails("corrupt");
    at.is_at("config.json", None);
}

#[test]
fn a_damaged_result_is_an_error_that_names_file_and_remedy() {
    let (_dir, store) = store();
    let id = config().id();
    begin(&store, &config()).finish(&done(0.9)).unwrap();
    fs::write(store.run_folder(&id).join("result.json"), "{\"status\":").unwrap();
    for at in [store.status(&id).fails("corrupt"), store.result(&id).fails("corrupt")] {
        at.is_at("result.json", None);
    }
}

#[test]
fn a_run_stays_finished_when_its_summary_cannot_be_written() {
    let (_dir, store) = store();
    fs::create_dir_all(store.summary_path("mqar").join("in the way")).unwrap();
    let finished = begin(&store, &config()).finish(&done(0.9));
    finished.fails("io").is_at("mqar.csv", None);
    assert_eq!(store.status(&config().id()).unwrap(), Status::Done);
}

#[test]
fn an_old_result_outlives_a_failed_rewrite() {
    let (_dir, store) = store();
    begin(&store, &config()).finish(&done(0.9)).unwrap();
    let result = store.run_folder(&config().id()).join("result.json");
    let run = begin(&store, &config());
    // Renaming the folder makes temporary files beside the result impossible, even for root.
    let folder = store.run_folder(&config().id());
    let aside = folder.with_extension("aside");
    fs::rename(&folder, &aside).unwrap();
    run.finish(&done(0.1)).unwrap_err();
    fs::rename(&aside, &folder).unwrap();
    assert!(result.exists());
    assert_eq!(store.result(&config().id()).unwrap(), Some(done(0.9)));
}

#[test]
fn finished_runs_are_rows_and_started_ones_are_not() {
    let (_dir, store) = store();
    begin(&store, &config()).finish(&done(0.9)).unwrap();
    drop(begin(&store, &with_seed(1)));
    let scan = store.rows(&["mqar"]).unwrap();
    assert_eq!(scan.rows, [Record::new(&config(), &done(0.9))]);
    assert!(scan.warnings.is_empty());
}

#[test]
fn foreign_and_damaged_folders_are_warnings() {
    let (_dir, store) = store();
    begin(&store, &config()).finish(&done(0.9)).unwrap();
    let folder = |name: &str| {
        let folder = store.run_folder(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    };
    folder("foreign");
    fs::write(folder("copied").join("config.json"), config().canonical()).unwrap();
    fs::write(folder("damaged").join("config.json"), "{").unwrap();
    let scan = store.rows(&["mqar"]).unwrap();
    assert_eq!(scan.rows.len(), 1);
    assert_eq!(scan.warnings.len(), 3);
    for (warning, name) in scan.warnings.iter().zip(["copied", "damaged", "foreign"]) {
        assert!(warning.contains(name), "{warning}");
    }
}
