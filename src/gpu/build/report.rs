//! Resource usage of each kernel, parsed from the report of ptxas (`-Xptxas -v`).

use std::fmt::Write;

/// One function, compiled for one GPU: a kernel, or a device function that was not inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The `.cu` file, without folder and extension.
    pub file: String,
    /// Symbol name: mangled, unless it is `extern "C"`.
    pub kernel: String,
    /// Architecture in nvcc's notation: `sm_90`.
    pub arch: String,
    /// Registers per thread; `None` for device functions, which use those of their kernel.
    pub registers: Option<u32>,
    /// Static shared memory per block, in bytes.
    pub shared: u32,
    /// Local memory per thread, in bytes: arrays that are not in registers, and spills.
    pub stack: u32,
    /// Spill stores and loads together, in bytes.
    pub spills: u32,
}

/// Returns the number before `unit` in a comma-separated line, such as 12 in "Used 12 registers, ...".
fn before(line: &str, unit: &str) -> Option<u32> {
    let part = line.split(',').find(|part| part.contains(unit))?;
    let number = part[..part.find(unit)?].trim_end().rsplit(' ').next()?;
    number.parse().ok()
}

/// Returns the first two texts in single quotes of a line.
fn quoted(line: &str) -> Option<(&str, &str)> {
    let mut parts = line.split('\'');
    Some((parts.nth(1)?, parts.nth(1)?))
}

/// Parses the report of one file, ignoring all other output of nvcc.
pub fn parse(file: &str, text: &str) -> Vec<Usage> {
    let mut found: Vec<Usage> = Vec::new();
    let (mut arch, mut function) = (String::new(), String::new());
    for line in text.lines() {
        if line.contains("Compiling entry function") {
            if let Some((name, target)) = quoted(line) {
                (function, arch) = (name.to_owned(), target.to_owned());
            }
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            name.trim().clone_into(&mut function);
        } else if let Some(stack) = before(line, " bytes stack frame") {
            let stores = before(line, " bytes spill stores").unwrap_or(0);
            let loads = before(line, " bytes spill loads").unwrap_or(0);
            found.push(Usage {
                file: file.to_owned(),
                kernel: function.clone(),
                arch: arch.clone(),
                registers: None,
                shared: 0,
                stack,
                spills: stores + loads,
            });
        } else if let Some((_, used)) = line.split_once("Used ") {
            if let Some(usage) = found.last_mut() {
                usage.registers = before(used, " registers");
                usage.shared = before(used, " bytes smem").unwrap_or(0);
            }
        }
    }
    found
}

/// Formats the report as CSV.
pub fn csv(usages: &[Usage]) -> String {
    let mut text = String::from("file,kernel,arch,registers,shared,stack,spills\n");
    for u in usages {
        let registers = u.registers.map_or(String::new(), |r| r.to_string());
        let (file, kernel, arch) = (&u.file, &u.kernel, &u.arch);
        let (shared, stack, spills) = (u.shared, u.stack, u.spills);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{file},{kernel},{arch},{registers},{shared},{stack},{spills}");
    }
    text
}
