//! Writes the git commit into the binary, so that every result can name what produced it; with the
//! feature `cuda` it also compiles the kernels.

#[cfg(feature = "cuda")]
mod kernels;
#[cfg(feature = "cuda")]
mod limits;
#[cfg(feature = "cuda")]
mod report;

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn tell_commit() {
    // Outside a git checkout the commit stays unknown.
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let changed = git(&[
            "status",
            "--porcelain",
            "--",
            "src",
            "cuda",
            "Cargo.toml",
            "Cargo.lock",
        ]);
        println!("cargo::rustc-env=DSF_GIT_COMMIT={commit}");
        println!(
            "cargo::rustc-env=DSF_GIT_DIRTY={}",
            changed.is_some_and(|c| !c.is_empty())
        );
    }
    for watched in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", watched]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=cuda");
}

fn main() {
    tell_commit();
    #[cfg(feature = "cuda")]
    for error in kernels::build(std::path::Path::new(env!("CARGO_MANIFEST_DIR")))
        .err()
        .unwrap_or_default()
    {
        println!("cargo::error={error}");
    }
}
