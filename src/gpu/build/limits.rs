//! `cuda/limits.toml`: how much local memory a kernel may use before the build fails.

use super::report::Usage;
use toml::{Table, Value};

/// Most bytes of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    stack: u32,
    spills: u32,
}

/// A kernel that may use more than the others, and where.
#[derive(Debug)]
struct Exception {
    kernel: String,
    /// One GPU only, such as `sm_75`; all of them if there is none.
    arch: Option<String>,
    limit: Limit,
}

/// The limits of all kernels.
#[derive(Debug)]
pub struct Limits {
    default: Limit,
    exceptions: Vec<Exception>,
}

/// What is left of a table after its keys were taken out: what nobody asked for.
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

fn bytes(table: &mut Table, key: &str, place: &str) -> Result<Option<u32>, String> {
    let Some(value) = table.remove(key) else {
        return Ok(None);
    };
    let number = value.as_integer().and_then(|n| u32::try_from(n).ok());
    let refused = || format!("{place}: `{key}` must be a number of bytes, not {value}");
    number.map(Some).ok_or_else(refused)
}

fn default_limit(table: &mut Table) -> Result<Limit, String> {
    let place = "[default]";
    let Some(Value::Table(mut given)) = table.remove("default") else {
        return Err("there is no [default]".to_owned());
    };
    let limit = Limit {
        stack: bytes(&mut given, "stack", place)?.unwrap_or(0),
        spills: bytes(&mut given, "spills", place)?.unwrap_or(0),
    };
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
    let limit = Limit {
        stack: bytes(&mut given, "stack", &place)?.unwrap_or(default.stack),
        spills: bytes(&mut given, "spills", &place)?.unwrap_or(default.spills),
    };
    let arch = text(&mut given, "arch", &place)?;
    nothing_else(&given, &place)?;
    Ok(Exception {
        kernel,
        arch,
        limit,
    })
}

impl Limits {
    /// Reads the file's text. Errors: what is missing, unknown or of the wrong kind, in a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table: Table = text.parse().map_err(|e| format!("{e}"))?;
        let default = default_limit(&mut table)?;
        let exceptions = match table.remove("exception") {
            None => Vec::new(),
            Some(Value::Array(list)) => list
                .into_iter()
                .map(|value| exception(value, default))
                .collect::<Result<_, _>>()?,
            Some(_) => return Err("write an exception as [[exception]]".to_owned()),
        };
        nothing_else(&table, "the file")?;
        Ok(Self {
            default,
            exceptions,
        })
    }

    fn of(&self, usage: &Usage) -> Limit {
        let here = |e: &&Exception| {
            e.kernel == usage.kernel && e.arch.as_ref().is_none_or(|arch| *arch == usage.arch)
        };
        let of_arch = self
            .exceptions
            .iter()
            .filter(|e| e.arch.is_some())
            .find(here);
        let found = of_arch.or_else(|| self.exceptions.iter().find(here));
        found.map_or(self.default, |e| e.limit)
    }

    /// One sentence for each kernel and GPU above its limit, and each exception for no kernel.
    pub fn offences(&self, usages: &[Usage]) -> Vec<String> {
        let mut found = Vec::new();
        for usage in usages {
            let most = self.of(usage);
            if usage.stack > most.stack || usage.spills > most.spills {
                let (file, kernel, arch) = (&usage.file, &usage.kernel, &usage.arch);
                found.push(format!(
                    "cuda/{file}.cu: {kernel} uses {} bytes of stack and {} of spills on {arch}; its \
                     limits in cuda/limits.toml are {} and {}",
                    usage.stack, usage.spills, most.stack, most.spills
                ));
            }
        }
        for Exception { kernel, .. } in &self.exceptions {
            if !usages.iter().any(|u| u.kernel == *kernel) {
                found.push(format!(
                    "cuda/limits.toml: there is no kernel {kernel} that its exception could be for"
                ));
            }
        }
        found
    }
}
