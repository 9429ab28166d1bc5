//! Build script: stores the git commit in the binary, so that every result can name its build.

use std::path::Path;
use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    // Without optional locks, `git status` leaves the index as it is.
    let output = Command::new("git").env("GIT_OPTIONAL_LOCKS", "0").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn emit_commit() {
    // Outside a git checkout the commit stays unknown.
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let changed = git(&["status", "--porcelain", "--", "src", ":!src/tests", "cuda", "Cargo.toml", "Cargo.lock"]);
        println!("cargo::rustc-env=DSF_GIT_COMMIT={commit}");
        println!("cargo::rustc-env=DSF_GIT_DIRTY={}", changed.is_some_and(|c| !c.is_empty()));
    }
    // The log of HEAD grows with every commit and checkout. Without one (core.logAllRefUpdates=false) the index is watched,
    // which a `git status` may rewrite as well.
    let path = |of: &str| git(&["rev-parse", "--git-path", of]);
    let log = path("logs/HEAD").filter(|path| Path::new(path).exists());
    for watched in path("HEAD").into_iter().chain(log.or_else(|| path("index"))) {
        println!("cargo::rerun-if-changed={watched}");
    }
    for watched in ["cuda", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    // Tests and their snapshots are no part of the program.
    let rooms = std::fs::read_dir("src").into_iter().flatten().flatten().map(|entry| entry.path());
    for room in rooms.filter(|room| !room.ends_with("tests")) {
        println!("cargo::rerun-if-changed={}", room.display());
    }
}

fn main() {
    emit_commit();
    let target = std::env::var("TARGET").expect("cargo sets it");
    println!("cargo::rustc-env=DSF_TARGET={target}");
    // Run path of CUDA's libraries for the GPU binary; dsf-gpu refuses a build that was not started by cuda/cargo.sh.
    println!("cargo::rerun-if-env-changed=DSF_CUDA_RPATH");
    let rpath = std::env::var("DSF_CUDA_RPATH").ok();
    if let Some(rpath) = rpath.filter(|_| cfg!(feature = "cuda")) {
        println!("cargo::rustc-link-arg-bins=-Wl,-rpath,{rpath}");
    }
}
