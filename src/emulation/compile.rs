//! Compilation of `cuda/NAME.cu` to a shared library of the host.

use super::MOST_SHARED;
use candle_core::{bail, Result};
use dsf_gpu::SHARED;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

/// Folder of the project, two levels above this crate's.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Locks of files being created, since several tests of one process may need the same file.
static TURNS: LazyLock<Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>> = LazyLock::new(Mutex::default);

/// Folder of the project's kernels.
pub(super) fn sources() -> PathBuf {
    Path::new(PROJECT).join("cuda")
}

/// Folder of the emulated GPU's headers.
fn emulation() -> PathBuf {
    sources().join("emulation")
}

/// Compiles a file of kernels and returns the library, which is cached by the hash of the sources.
pub(super) fn compile(source: &Path) -> Result<PathBuf> {
    // One checkout may be tested for several architectures.
    let folder = Path::new(PROJECT).join("target/emulation").join(std::env::consts::ARCH);
    std::fs::create_dir_all(&folder)?;
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let sizes = sizes(&folder)?;
    let headers = [headers(&sources())?, headers(&emulation())?].concat();
    let hash = hash(&[&headers[..], &[source.to_owned(), sizes.clone()]].concat())?;
    made(folder.join(format!("{stem}-{hash}.so")), |library| {
        let header = precompiled(&folder)?;
        gpp(|gpp| {
            gpp.arg("-shared")
                // never unload the library: on 64-bit ARM, glibc 2.36 places the thread-local variables of a library
                // near address zero if it is loaded after another one was unloaded
                .arg("-Wl,-z,nodelete")
                .arg("-include")
                .arg(header)
                .arg("-include")
                .arg(&sizes)
                .args(["-x", "c++"])
                .arg(source)
                .arg("-o")
                .arg(library)
        })
    })
}

/// Returns a header with the sizes that kernels share with their launches.
fn sizes(folder: &Path) -> Result<PathBuf> {
    let text = dsf_gpu::sizes::header();
    let hash = hex::encode(&Sha256::digest(&text)[..8]);
    made(folder.join(format!("sizes-{hash}.cuh")), |header| Ok(std::fs::write(header, &text)?))
}

/// Returns a header that includes the whole emulation, beside its precompiled form, which g++ reads instead: parsing
/// the standard library takes longer than compiling most kernels.
fn precompiled(folder: &Path) -> Result<PathBuf> {
    let hash = hash(&headers(&emulation())?)?;
    let header = made(folder.join(format!("emulation-{hash}.hpp")), |header| {
        let all = emulation().join("emulation.hpp");
        Ok(std::fs::write(header, format!("#include \"{}\"\n", all.display()))?)
    })?;
    made(header.with_extension("hpp.gch"), |file| {
        gpp(|gpp| gpp.args(["-x", "c++-header"]).arg(&header).arg("-o").arg(file))
    })?;
    Ok(header)
}

/// Returns the headers in a folder.
fn headers(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut headers: Vec<_> =
        std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?;
    headers.retain(|path| path.extension().is_some_and(|e| e == "cuh" || e == "hpp"));
    headers.sort();
    Ok(headers)
}

/// Returns a prefix of the hash of some files.
fn hash(files: &[PathBuf]) -> Result<String> {
    let mut digest = Sha256::new();
    for file in files {
        let read = std::fs::read(file);
        digest.update(read.map_err(|e| candle_core::Error::msg(format!("{}: {e}", file.display())))?);
    }
    Ok(hex::encode(&digest.finalize()[..8]))
}

/// Returns `file`, created by `make` if it is missing.
fn made(file: PathBuf, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let turn = TURNS.lock().unwrap().entry(file.clone()).or_default().clone();
    let _alone = turn.lock().unwrap();
    if !file.exists() {
        // Renamed into place when complete, since another process may create the same file at the same time.
        let folder = file.parent().unwrap_or(Path::new("."));
        let partial = tempfile::NamedTempFile::new_in(folder)?;
        make(partial.path())?;
        partial.persist(&file).map_err(|e| e.error)?;
    }
    Ok(file)
}

/// Runs g++ with the options that all files and the precompiled header share, and those that `finish` adds.
fn gpp(finish: impl FnOnce(&mut Command) -> &mut Command) -> Result<()> {
    let mut gpp = Command::new("g++");
    // compiles in two thirds of the time of -O2, and runs only for seconds
    gpp.args(["-std=c++17", "-O1", "-fPIC", "-ffp-contract=off"])
        // each library has its own table of kernels
        .args(["-fvisibility=hidden", "-fno-gnu-unique"])
        .args(["-Wall", "-Werror", "-Wno-unknown-pragmas"])
        .args(
            [("SHARED_BYTES", SHARED), ("MOST_SHARED_BYTES", MOST_SHARED)]
                .map(|(name, bytes)| format!("-D{name}={bytes}")),
        )
        .arg("-I")
        .arg(sources());
    let output = finish(&mut gpp).output().map_err(|e| candle_core::Error::msg(format!("g++ does not start: {e}")))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
