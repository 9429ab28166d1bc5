//! Writes the git commit into the binary, so that every result can name what produced it.

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

/// What `dsf devices` says a build for GPUs is for, and where its binary looks for CUDA's libraries.
#[cfg(feature = "cuda")]
fn tell_cuda() -> Result<(), String> {
    let variable = |name| {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var(name)
            .map_err(|_| "the feature `cuda` is built by `make cuda` (cuda/cargo.sh)".to_owned())
    };
    for name in ["DSF_CUDA_VERSION", "CUDA_COMPUTE_CAP"] {
        println!("cargo::rustc-env={name}={}", variable(name)?);
    }
    let rpath = variable("DSF_CUDA_RPATH")?;
    println!("cargo::rustc-link-arg-bins=-Wl,-rpath,{rpath}");
    Ok(())
}

fn main() {
    tell_commit();
    #[cfg(feature = "cuda")]
    if let Err(error) = tell_cuda() {
        println!("cargo::error={error}");
    }
}
