//! The project's own source files, for tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders of `src/` that are packages: `crate` is their own root there.
pub const PACKAGES: [&str; 6] = ["emulation", "fft", "gpu", "mock_cuda", "ops", "simd"];

/// A file under `src/` or `cuda/`.
pub struct Source {
    /// Relative to the package, with `/`.
    pub path: String,
    pub text: String,
    /// Compiled for tests only.
    pub test: bool,
}

/// Every Rust and CUDA file, by path.
pub fn all() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["src", "cuda"] {
        collect(&root.join(folder), &mut paths);
    }
    paths.sort();
    let read = |path: &PathBuf| Source {
        path: path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/"),
        text: fs::read_to_string(path).unwrap(),
        test: false,
    };
    let mut sources: Vec<Source> = paths.iter().map(read).collect();
    let modules: Vec<String> = sources.iter().flat_map(test_modules).collect();
    for source in &mut sources {
        let inside = |m: &String| source.path == format!("{m}.rs") || source.path.starts_with(&format!("{m}/"));
        let for_tests = ["src/tests/", "src/emulation/", "src/mock_cuda/"];
        let in_tests = for_tests.iter().any(|at| source.path.starts_with(at));
        source.test = in_tests || modules.iter().any(inside);
    }
    sources
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return; // a package without CUDA sources
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let code = ["rs", "cu", "cuh", "h", "hpp"];
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|e| code.iter().any(|c| e == *c)) {
            paths.push(path);
        }
    }
}

/// Paths, without ending, of the modules that a file declares for tests only.
fn test_modules(source: &Source) -> Vec<String> {
    let folder = source.path.strip_suffix(".rs").unwrap_or(&source.path);
    let folder = ["/mod", "/lib", "/main"].iter().find_map(|name| folder.strip_suffix(name)).unwrap_or(folder);
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter(|w| tests_only(w[0]));
    let names = pairs.filter_map(|w| w[1].strip_suffix(';')?.split_once("mod "));
    names.map(|(_, name)| format!("{folder}/{name}")).collect()
}

/// Whether an attribute keeps what follows out of the program.
fn tests_only(line: &str) -> bool {
    line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test,")
}

impl Source {
    /// Number and text of the lines that are compiled into the program: no comments, no items
    /// for tests.
    pub fn code(&self) -> Vec<(usize, &str)> {
        let mut code = Vec::new();
        let mut lines = self.text.lines().enumerate();
        while let Some((i, line)) = lines.next() {
            let bare = line.trim_start();
            if tests_only(bare) {
                let indent = &line[..line.len() - bare.len()];
                let closing = format!("{indent}}}");
                let first = lines.next().map_or("", |(_, l)| l);
                if first.ends_with('{') {
                    lines.find(|(_, l)| *l == closing);
                }
            } else if !bare.starts_with("//") {
                code.push((i + 1, line));
            }
        }
        code
    }

    /// [`Self::code`] as one text.
    pub fn code_text(&self) -> String {
        let lines: Vec<&str> = self.code().into_iter().map(|(_, line)| line).collect();
        lines.join("\n")
    }
}

#[test]
fn test_items_and_comments_are_no_code() {
    let text =
        "use a;\n// b\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n#[cfg(all(test, unix))]\nuse e;\nfn d() {}\n";
    let source = Source { path: "src/x.rs".into(), text: text.into(), test: false };
    assert_eq!(source.code(), [(1, "use a;"), (9, "fn d() {}")]);
}

#[test]
fn modules_for_tests_are_found_in_other_files() {
    let sources = all();
    let test = |path: &str| sources.iter().find(|s| s.path == path).map(|s| s.test);
    assert_eq!(test("src/ops/runtime/check/mod.rs"), Some(true));
    assert_eq!(test("src/tasks/mqar/tests/mod.rs"), Some(true));
    assert_eq!(test("src/tests/sources.rs"), Some(true));
    assert_eq!(test("src/tasks/mqar/native.rs"), Some(false));
}
