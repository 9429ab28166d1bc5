//! What ptxas says about each kernel (`-Xptxas -v`), and the limits that hold a kernel to it.

use std::fmt::Write;

/// One function, compiled for one GPU: a kernel, or a device function that was not inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The `.cu` file, without folder and ending.
    pub file: String,
    /// The name as the linker knows it: mangled, unless it is `extern "C"`.
    pub kernel: String,
    /// As nvcc writes it: `sm_90`.
    pub arch: String,
    /// Of a thread; none for device functions, which use those of their kernel.
    pub registers: Option<u32>,
    /// Static shared memory of a block, bytes.
    pub shared: u32,
    /// Local memory of a thread, bytes: arrays that found no registers, and spills.
    pub stack: u32,
    /// Stores and loads of registers that did not fit, bytes together.
    pub spills: u32,
}

/// The number before `unit` in a comma-separated line, such as 12 in "Used 12 registers, ...".
fn before(line: &str, unit: &str) -> Option<u32> {
    let part = line.split(',').find(|part| part.contains(unit))?;
    let number = part[..part.find(unit)?].trim_end().rsplit(' ').next()?;
    number.parse().ok()
}

/// The text between the first two `'` of a line, and that between the next two.
fn quoted(line: &str) -> Option<(&str, &str)> {
    let mut parts = line.split('\'');
    Some((parts.nth(1)?, parts.nth(1)?))
}

/// Reads the report of one file, whatever nvcc and its parts print in between.
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

/// The report as a table for people and spreadsheets.
pub fn csv(usages: &[Usage]) -> String {
    let mut text = String::from("file,kernel,arch,registers,shared,stack,spills\n");
    for u in usages {
        let registers = u.registers.map_or(String::new(), |r| r.to_string());
        let (file, kernel, arch) = (&u.file, &u.kernel, &u.arch);
        let (shared, stack, spills) = (u.shared, u.stack, u.spills);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{file},{kernel},{arch},{registers},{shared},{stack},{spills}"
        );
    }
    text
}
