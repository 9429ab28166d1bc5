//! Compilation of `cuda/NAME.cu` to a shared library of the host.

use candle_core::{bail, Result};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

/// The project's folder, two above this crate's.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Held while a library is compiled: tests of one process that need the same one would all compile it.
static TURNS: LazyLock<Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>> = LazyLock::new(Mutex::default);

/// The folder of the project's kernels.
pub(super) fn sources() -> PathBuf {
    Path::new(PROJECT).join("cuda")
}

/// Compiles a file of kernels and returns the library; the result is cached by the hash of the
/// sources.
pub(super) fn compile(source: &Path) -> Result<PathBuf> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|e| candle_core::Error::msg(format!("{}: {e}", path.display())))
    };
    let mut digest = Sha256::new();
    digest.update(read(source)?);
    for folder in [sources(), sources().join("emulation")] {
        let mut headers: Vec<_> = std::fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<_>>()?;
        headers.retain(|path| path.extension().is_some_and(|e| e == "cuh" || e == "hpp"));
        headers.sort();
        for header in headers {
            digest.update(read(&header)?);
        }
    }
    let hash = hex::encode(&digest.finalize()[..8]);
    // One checkout may be tested for several processors.
    let folder = Path::new(PROJECT)
        .join("target/emulation")
        .join(std::env::consts::ARCH);
    std::fs::create_dir_all(&folder)?;
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let file = folder.join(format!("{stem}-{hash}.so"));
    let turn = TURNS
        .lock()
        .unwrap()
        .entry(file.clone())
        .or_default()
        .clone();
    let _alone = turn.lock().unwrap();
    if !file.exists() {
        // Renamed into place when complete: another process may compile the same file at the same time.
        let partial = tempfile::NamedTempFile::new_in(&folder)?;
        let output = Command::new("g++")
            // compiled in two thirds of the time of -O2, and run for seconds
            .args(["-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off"])
            // each library has its own table of kernels
            .args(["-fvisibility=hidden", "-fno-gnu-unique"])
            // stays when it is closed: on 64-bit ARM, glibc 2.36 finds the thread-local variables of a library that is loaded
            // after another was unloaded at an address near zero
            .arg("-Wl,-z,nodelete")
            .args(["-Wall", "-Werror", "-Wno-unknown-pragmas", "-x", "c++"])
            .arg("-I")
            .arg(sources())
            .arg(source)
            .arg("-o")
            .arg(partial.path())
            .output()
            .map_err(|e| candle_core::Error::msg(format!("g++ does not start: {e}")))?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        partial.persist(&file).map_err(|e| e.error)?;
    }
    Ok(file)
}
