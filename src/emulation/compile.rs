//! Compilation of `cuda/NAME.cu` to a shared library of the host.

use candle_core::{bail, Result};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

/// The project's folder, two above this crate's.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Held while a file is made: tests of one process that need the same one would all make it.
static TURNS: LazyLock<Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>> = LazyLock::new(Mutex::default);

/// The folder of the project's kernels.
pub(super) fn sources() -> PathBuf {
    Path::new(PROJECT).join("cuda")
}

/// The folder of what stands in for a GPU.
fn emulation() -> PathBuf {
    sources().join("emulation")
}

/// Compiles a file of kernels and returns the library; the result is cached by the hash of the
/// sources.
pub(super) fn compile(source: &Path) -> Result<PathBuf> {
    // One checkout may be tested for several processors.
    let folder = Path::new(PROJECT)
        .join("target/emulation")
        .join(std::env::consts::ARCH);
    std::fs::create_dir_all(&folder)?;
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let headers = [headers(&sources())?, headers(&emulation())?].concat();
    let hash = hash(&[&headers[..], &[source.to_owned()]].concat())?;
    made(folder.join(format!("{stem}-{hash}.so")), |library| {
        let header = precompiled(&folder)?;
        gpp(|gpp| {
            gpp.arg("-shared")
                // stays when it is closed: on 64-bit ARM, glibc 2.36 finds the thread-local variables of a library that is
                // loaded after another was unloaded at an address near zero
                .arg("-Wl,-z,nodelete")
                .arg("-include")
                .arg(header)
                .args(["-x", "c++"])
                .arg(source)
                .arg("-o")
                .arg(library)
        })
    })
}

/// A header that includes all of the emulation, beside its precompiled form, which g++ reads in its place: the templates of the
/// standard library take longer than most kernels.
fn precompiled(folder: &Path) -> Result<PathBuf> {
    let hash = hash(&headers(&emulation())?)?;
    let header = made(folder.join(format!("emulation-{hash}.hpp")), |header| {
        let all = emulation().join("emulation.hpp");
        Ok(std::fs::write(
            header,
            format!("#include \"{}\"\n", all.display()),
        )?)
    })?;
    made(header.with_extension("hpp.gch"), |file| {
        gpp(|gpp| {
            gpp.args(["-x", "c++-header"])
                .arg(&header)
                .arg("-o")
                .arg(file)
        })
    })?;
    Ok(header)
}

/// The headers in a folder.
fn headers(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut headers: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    headers.retain(|path| path.extension().is_some_and(|e| e == "cuh" || e == "hpp"));
    headers.sort();
    Ok(headers)
}

/// The beginning of the hash of some files.
fn hash(files: &[PathBuf]) -> Result<String> {
    let mut digest = Sha256::new();
    for file in files {
        let read = std::fs::read(file);
        digest
            .update(read.map_err(|e| candle_core::Error::msg(format!("{}: {e}", file.display())))?);
    }
    Ok(hex::encode(&digest.finalize()[..8]))
}

/// `file`, which `make` writes if it is not there yet.
fn made(file: PathBuf, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let turn = TURNS
        .lock()
        .unwrap()
        .entry(file.clone())
        .or_default()
        .clone();
    let _alone = turn.lock().unwrap();
    if !file.exists() {
        // Renamed into place when complete: another process may make the same file at the same time.
        let folder = file.parent().unwrap_or(Path::new("."));
        let partial = tempfile::NamedTempFile::new_in(folder)?;
        make(partial.path())?;
        partial.persist(&file).map_err(|e| e.error)?;
    }
    Ok(file)
}

/// Runs g++ with the options of all files, which are those of the precompiled header too, and those that `finish` adds.
fn gpp(finish: impl FnOnce(&mut Command) -> &mut Command) -> Result<()> {
    let mut gpp = Command::new("g++");
    // compiled in two thirds of the time of -O2, and run for seconds
    gpp.args(["-std=c++17", "-O1", "-fPIC", "-ffp-contract=off"])
        // each library has its own table of kernels
        .args(["-fvisibility=hidden", "-fno-gnu-unique"])
        .args(["-Wall", "-Werror", "-Wno-unknown-pragmas"])
        .arg("-I")
        .arg(sources());
    let output = finish(&mut gpp)
        .output()
        .map_err(|e| candle_core::Error::msg(format!("g++ does not start: {e}")))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
