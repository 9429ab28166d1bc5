//! `cuda/limits.toml`: limits on local memory and registers of kernels, beyond which the build fails. Those on inner loops
//! are checked by `cuda/loops.py`.

use super::report::Usage;
use toml::{Table, Value};

/// Maximum bytes of local memory and registers per thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    stack: u32,
    spills: u32,
    registers: u32,
}

/// A kernel with limits of its own.
#[derive(Debug)]
struct Exception {
    /// Name, in which `*` matches any text.
    kernel: String,
    /// A single GPU, such as `sm_75`; `None` for all.
    arch: Option<String>,
    limit: Limit,
}

/// Limits of all kernels.
#[derive(Debug)]
pub struct Limits {
    default: Limit,
    exceptions: Vec<Exception>,
}

/// Returns an error if a table has remaining keys, after the known ones were removed.
fn nothing_else(table: &Table, place: &str) -> Result<(), String> {
    match table.keys().next() {
        Some(key) => Err(format!("{place}: unknown key `{key}`")),
        None => Ok(()),
    }
}

fn text(table: &mut Table, key: &str, place: &str) -> Result<Option<String>, String> {
    match table.remove(key) {
        None => Ok(None),
        Some(Value::String(s)) if !s.trim().is_empty() => Ok(Some(s)),
        Some(other) => Err(format!("{place}: `{key}` must be a text, not {other}")),
    }
}

fn number(table: &mut Table, key: &str, of: &str, place: &str) -> Result<Option<u32>, String> {
    let Some(value) = table.remove(key) else {
        return Ok(None);
    };
    let number = value.as_integer().and_then(|n| u32::try_from(n).ok());
    let refused = || format!("{place}: `{key}` must be a number of {of}, not {value}");
    number.map(Some).ok_or_else(refused)
}

/// Returns the limits of a table, completed by those of `usual`.
fn limit(table: &mut Table, usual: Limit, place: &str) -> Result<Limit, String> {
    let mut given = |key, of, usual| Ok::<_, String>(number(table, key, of, place)?.unwrap_or(usual));
    Ok(Limit {
        stack: given("stack", "bytes", usual.stack)?,
        spills: given("spills", "bytes", usual.spills)?,
        registers: given("registers", "registers", usual.registers)?,
    })
}

fn default_limit(table: &mut Table) -> Result<Limit, String> {
    let place = "[default]";
    let Some(Value::Table(mut given)) = table.remove("default") else {
        return Err("there is no [default]".to_owned());
    };
    let strictest = Limit { stack: 0, spills: 0, registers: 0 };
    if !given.contains_key("registers") {
        return Err(format!("{place}: it gives no `registers`"));
    }
    let limit = limit(&mut given, strictest, place)?;
    nothing_else(&given, place)?;
    Ok(limit)
}

fn exception(value: Value, default: Limit) -> Result<Exception, String> {
    let place = "[[exception]]";
    let Value::Table(mut given) = value else {
        return Err(format!("{place} must be a table"));
    };
    let kernel = text(&mut given, "kernel", place)?;
    let kernel = kernel.ok_or_else(|| format!("{place}: it names no `kernel`"))?;
    let place = format!("[[exception]] of {kernel}");
    let reason = text(&mut given, "reason", &place)?;
    reason.ok_or_else(|| format!("{place}: it gives no `reason`"))?;
    let limit = limit(&mut given, default, &place)?;
    let arch = text(&mut given, "arch", &place)?;
    nothing_else(&given, &place)?;
    Ok(Exception { kernel, arch, limit })
}

/// Whether `name` matches `pattern`, in which `*` matches any text.
fn fits(name: &str, pattern: &str) -> bool {
    let Some((beginning, rest)) = pattern.split_once('*') else {
        return name == pattern;
    };
    let Some(name) = name.strip_prefix(beginning) else {
        return false;
    };
    let mut ends = (0..=name.len()).filter_map(|at| name.get(at..));
    ends.any(|end| fits(end, rest))
}

impl Limits {
    /// Parses the file's text. The error describes what is missing, unknown or of the wrong type.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table: Table = text.parse().map_err(|e| format!("{e}"))?;
        let default = default_limit(&mut table)?;
        let exceptions = match table.remove("exception") {
            None => Vec::new(),
            Some(Value::Array(list)) => {
                list.into_iter().map(|value| exception(value, default)).collect::<Result<_, _>>()?
            }
            Some(_) => return Err("write an exception as [[exception]]".to_owned()),
        };
        table.remove("loops"); // of cuda/loops.py
        nothing_else(&table, "the file")?;
        Ok(Self { default, exceptions })
    }

    /// Returns the limit of a function. Among several matching exceptions the longest name wins, then one for a
    /// specific GPU.
    fn of(&self, usage: &Usage) -> Limit {
        let here =
            |e: &&Exception| fits(&usage.kernel, &e.kernel) && e.arch.as_ref().is_none_or(|arch| *arch == usage.arch);
        let found = self.exceptions.iter().filter(here);
        let found = found.max_by_key(|e| (e.kernel.len(), e.arch.is_some()));
        found.map_or(self.default, |e| e.limit)
    }

    /// Returns one sentence for each kernel and GPU above its limit, and for each exception that matches no kernel.
    pub fn offences(&self, usages: &[Usage]) -> Vec<String> {
        let mut found = Vec::new();
        for usage in usages {
            let most = self.of(usage);
            let (file, kernel, arch) = (&usage.file, &usage.kernel, &usage.arch);
            let registers = usage.registers.unwrap_or(0); // device functions use the registers of their kernel
            if registers > most.registers {
                found.push(format!(
                    "cuda/{file}.cu: {kernel} takes {registers} registers on {arch}; its limit in \
                     cuda/limits.toml is {}",
                    most.registers
                ));
            }
            if usage.stack > most.stack || usage.spills > most.spills {
                found.push(format!(
                    "cuda/{file}.cu: {kernel} uses {} bytes of stack and {} of spills on {arch}; its \
                     limits in cuda/limits.toml are {} and {}",
                    usage.stack, usage.spills, most.stack, most.spills
                ));
            }
        }
        for exception in &self.exceptions {
            if !usages.iter().any(|u| fits(&u.kernel, &exception.kernel)) {
                found.push(format!(
                    "cuda/limits.toml: there is no kernel {} that its exception could be for",
                    exception.kernel
                ));
            }
        }
        found
    }
}
