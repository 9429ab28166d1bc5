//! Compiles `cuda/*.cu`, each to one fatbin, and passes them to the library as `kernels.rs`.

use crate::limits::Limits;
use crate::report::{self, Usage};
use crate::sizes;
use std::collections::hash_map::DefaultHasher;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, thread};

/// Compute capabilities that get machine code; later GPUs compile the intermediate code (PTX) of the last.
const ARCHS: &str = "75,80,86,89,90,100,120";
/// Parallel compilers: a kernel takes some seconds per GPU and up to 1 GB.
const JOBS: usize = 2;
const FLAGS: [&str; 6] = ["--fatbin", "-O3", "-std=c++17", "--compress-mode=size", "-Xptxas", "-v"];

/// One `.cu` file and its outputs.
struct KernelFile {
    stem: String,
    source: PathBuf,
    fatbin: PathBuf,
    /// Output of nvcc, which includes the report of ptxas.
    log: PathBuf,
    /// Hash of all inputs of the other two files; written last.
    key: PathBuf,
}

/// Compiler, arguments and folders.
struct Setup {
    nvcc: String,
    arguments: Vec<String>,
    /// Header of the sizes that kernels share with their launches.
    sizes: PathBuf,
    /// Hash of the compiler's version, the arguments and the sizes.
    base: u64,
}

fn variable(name: &str) -> Result<String, String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).map_err(|_| "the feature `cuda` is built by `make cuda` (cuda/cargo.sh)".to_owned())
}

fn io<T>(path: &Path, result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|e| format!("{}: {e}", path.display()))
}

fn hash(parts: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

impl Setup {
    fn read(out: &Path) -> Result<Self, String> {
        println!("cargo::rerun-if-env-changed=DSF_CUDA_ARCHS");
        let archs = env::var("DSF_CUDA_ARCHS").unwrap_or_else(|_| ARCHS.to_owned());
        let archs: Vec<&str> = archs.split(',').map(str::trim).collect();
        let mut arguments: Vec<String> = FLAGS.iter().map(|&f| f.to_owned()).collect();
        for (i, arch) in archs.iter().enumerate() {
            let code = if i + 1 == archs.len() { format!("[sm_{arch},compute_{arch}]") } else { format!("sm_{arch}") };
            arguments.push(format!("-gencode=arch=compute_{arch},code={code}"));
        }
        let nvcc = variable("NVCC")?;
        let version = Command::new(&nvcc).arg("--version").output();
        let version = version.map_err(|e| format!("cannot run {nvcc}: {e}"))?;
        let base = hash(&(&arguments, version.stdout, sizes::header()));
        let header = out.join("sizes.cuh");
        io(&header, fs::write(&header, sizes::header()))?;
        Ok(Self { nvcc, arguments, sizes: header, base })
    }
}

/// Returns the `.cu` files of a folder, sorted by name.
fn kernels(folder: &Path, out: &Path) -> Result<Vec<KernelFile>, String> {
    let mut found = Vec::new();
    for entry in io(folder, fs::read_dir(folder))? {
        let source = io(folder, entry)?.path();
        let stem = source.file_stem().and_then(|s| s.to_str());
        if let (Some("cu"), Some(stem)) = (source.extension().and_then(|e| e.to_str()), stem) {
            let product = |ending: &str| out.join(format!("{stem}.{ending}"));
            found.push(KernelFile {
                stem: stem.to_owned(),
                fatbin: product("fatbin"),
                log: product("log"),
                key: product("key"),
                source,
            });
        }
    }
    found.sort_by(|a, b| a.stem.cmp(&b.stem));
    Ok(found)
}

/// Returns the texts of a source and of all headers that it includes by `#include "..."`.
fn contents(source: &Path) -> Result<Vec<String>, String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![source.to_owned()]);
    let mut texts = Vec::new();
    while let Some(path) = open.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let text = io(&path, fs::read_to_string(&path))?;
        for line in text.lines().filter(|l| l.trim_start().starts_with('#')) {
            let name = line.contains("include").then(|| line.split('"').nth(1));
            if let (Some(Some(name)), Some(folder)) = (name, path.parent()) {
                let header = folder.join(name);
                // A header that is missing here belongs to the toolkit; otherwise nvcc reports it.
                if header.is_file() {
                    open.push(header);
                }
            }
        }
        texts.push(text);
    }
    Ok(texts)
}

/// Compiles one file, unless its inputs are unchanged.
fn compile(kernel: &KernelFile, setup: &Setup) -> Result<(), String> {
    let key = hash(&(setup.base, contents(&kernel.source)?)).to_string();
    if fs::read_to_string(&kernel.key).is_ok_and(|made_from| made_from == key) {
        return Ok(());
    }
    let _ = fs::remove_file(&kernel.key); // a failed compiler may leave a partial file
    let name = format!("cuda/{}.cu", kernel.stem);
    let mut command = Command::new(&setup.nvcc);
    command.args(&setup.arguments).arg("-include").arg(&setup.sizes).arg("-o").arg(&kernel.fatbin).arg(&kernel.source);
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    let log = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if !output.status.success() {
        let said = log.lines().filter(|l| !l.starts_with("ptxas info"));
        eprintln!("{}", said.collect::<Vec<_>>().join("\n"));
        return Err(format!("{name} does not compile; nvcc's words are below"));
    }
    io(&kernel.log, fs::write(&kernel.log, log))?;
    io(&kernel.key, fs::write(&kernel.key, key))
}

/// Compiles all changed files, two at a time, and returns every error.
fn compile_all(kernels: &[KernelFile], setup: &Setup) -> Result<(), Vec<String>> {
    let (queue, errors) = (Mutex::new(kernels.iter()), Mutex::new(Vec::new()));
    let next = || queue.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(kernel) = next() {
                    if let (Err(e), Ok(mut all)) = (compile(kernel, setup), errors.lock()) {
                        all.push(e);
                    }
                }
            });
        }
    });
    match errors.into_inner() {
        Ok(errors) if errors.is_empty() => Ok(()),
        Ok(errors) => Err(errors),
        Err(_) => Err(vec!["a thread that compiles kernels broke off".to_owned()]),
    }
}

/// Returns the module that the library includes.
fn rust(kernels: &[KernelFile]) -> String {
    let entry = |k: &KernelFile| {
        let (stem, fatbin) = (&k.stem, k.fatbin.display().to_string());
        format!("    ({stem:?}, include_bytes!({fatbin:?})),\n")
    };
    let entries: String = kernels.iter().map(entry).collect();
    format!(
        "/// The kernels of `cuda/NAME.cu` as a fatbin, by NAME.\n\
         pub static MODULES: &[(&str, &[u8])] = &[\n{entries}];\n"
    )
}

fn usages(kernels: &[KernelFile]) -> Result<Vec<Usage>, String> {
    let mut all = Vec::new();
    for kernel in kernels {
        let log = io(&kernel.log, fs::read_to_string(&kernel.log))?;
        // Warnings are repeated for each GPU.
        let warnings: BTreeSet<&str> = log.lines().filter(|l| l.contains("warning")).collect();
        for warning in warnings {
            println!("cargo::warning=cuda/{}.cu: {warning}", kernel.stem);
        }
        all.extend(report::parse(&kernel.stem, &log));
    }
    Ok(all)
}

/// Compiles the kernels, writes `kernels.rs` and the report, and checks every kernel's limit. Each error is one
/// sentence.
pub fn build(root: &Path) -> Result<(), Vec<String>> {
    let one = |e| vec![e];
    for name in ["DSF_CUDA_VERSION", "CUDA_COMPUTE_CAP"] {
        println!("cargo::rustc-env={name}={}", variable(name).map_err(one)?);
    }
    let out = PathBuf::from(variable("OUT_DIR").map_err(one)?);
    let shown = PathBuf::from(variable("DSF_CUDA_OUT").map_err(one)?).join("kernels.csv");
    let setup = Setup::read(&out).map_err(one)?;
    let folder = root.join("cuda");
    let kernels = kernels(&folder, &out).map_err(one)?;
    compile_all(&kernels, &setup)?;
    let usages = usages(&kernels).map_err(one)?;
    io(&shown, fs::write(&shown, report::csv(&usages))).map_err(one)?;
    let module = out.join("kernels.rs");
    io(&module, fs::write(&module, rust(&kernels))).map_err(one)?;
    let limits = folder.join("limits.toml");
    let text = io(&limits, fs::read_to_string(&limits)).map_err(one)?;
    let limits = Limits::parse(&text).map_err(|e| one(format!("cuda/limits.toml: {e}")))?;
    let offences = limits.offences(&usages);
    offences.is_empty().then_some(()).ok_or(offences)
}
