//! Build script: stores the git commit in the binary, so that every result can name its build.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
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
    for watched in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", watched]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=cuda");
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
