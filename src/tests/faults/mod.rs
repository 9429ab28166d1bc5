//! Files after the program was killed, refused by the system, or finds its files damaged: never less than it had,
//! never another number.
//!
//! A test takes a sample of the places where it could break; with `DSF_FAULTS=all`, as `make test-faults` sets it, all
//! of them.

#[cfg(unix)]
mod cut;
mod damage;
#[cfg(unix)]
mod disks;
#[cfg(unix)]
mod kills;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod places;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod traced;

use crate::cli::World;
use std::fs;
use std::path::Path;

/// `all` where every place is to be tried, else the `sample`.
fn all_or<T>(all: T, sample: T) -> T {
    match std::env::var("DSF_FAULTS").is_ok_and(|value| value == "all") {
        true => all,
        false => sample,
    }
}

/// Results that a run must have however often it was interrupted: its epochs without times, its numbers, its weights.
fn worth(run: &Path) -> (Vec<String>, Vec<String>, Vec<u8>) {
    let text = fs::read_to_string(run.join("result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of = |name: &str| format!("{name} {}", result[name]);
    let names = ["status", "outcome", "accuracy", "train_loss", "test_loss", "steps"];
    let weights = fs::read(run.join("weights.safetensors")).unwrap_or_default();
    (crate::cli::numbers(run), names.map(of).into(), weights)
}

/// Whatever was done to the folder, a look at it ends with words and an exit code.
fn look_at(world: &World, out: &str) {
    for line in ["sweep status", "report", "show"] {
        let said = world.dsf(&format!("{line} --out {out}"));
        assert!(!said.err.contains("panicked") && said.code >= 0, "{line}: {}", said.err);
    }
}

/// Nothing of a run that is done but what the store names.
fn no_leftovers(run: &Path) {
    let names = fs::read_dir(run).unwrap();
    for name in names.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        let kept = [
            "config.json",
            "env.json",
            "metrics.csv",
            "slices.csv",
            "losses.csv",
            "best.safetensors",
            "weights.safetensors",
            "worker.log",
            "result.json",
            "lock",
        ];
        // One that was killed while it took over a run leaves a file for a minute.
        let aside = name.starts_with(".claim-");
        assert!(aside || kept.contains(&name.as_str()), "{name} in {}", run.display());
    }
}
