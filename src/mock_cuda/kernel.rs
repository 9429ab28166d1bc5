//! Modules, kernels and launches.

use crate::answer::{broken, require, Answer, Code};
use crate::elf::{Description, Image};
use crate::memory::Memory;
use crate::{candle, gpu};
use candle_core::DType;
use dsf_emulation::{Emulation, Parameter};
use dsf_gpu::{Arg, Grid, Kernel, View, SHARED};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Registers of a multiprocessor, which a block must not exceed.
const REGISTERS: usize = 65_536;

/// A loaded module.
pub(crate) struct Module {
    kernels: Vec<Description>,
    /// File of our kernels, without extension; `None` for Candle's.
    file: Option<&'static str>,
}

/// A kernel of a loaded module.
pub(crate) struct Function {
    description: Description,
    origin: Origin,
    /// Bytes of dynamic shared memory that were asked for.
    asked: AtomicUsize,
}

enum Origin {
    /// A kernel of `cuda/FILE.cu`, with its parameters there, its registers, and its bytes of shared memory.
    Own {
        kernel: Kernel,
        parameters: Vec<Parameter>,
        registers: usize,
        shared: usize,
    },
    Candle,
}

impl Function {
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.origin, Origin::Own { .. })
    }

    pub(crate) fn name(&self) -> &str {
        &self.description.name
    }

    /// Returns the bytes of shared memory that it declares.
    fn declared(&self) -> usize {
        if let Origin::Own { shared, .. } = &self.origin {
            *shared
        } else {
            0
        }
    }

    /// Allows launches with `bytes` of dynamic shared memory.
    pub(crate) fn ask(&self, bytes: usize) -> Answer {
        let name = self.name();
        let most = gpu::MOST_SHARED - self.declared();
        require(
            bytes <= most,
            Code::InvalidValue,
            &format!("{name}: {bytes} bytes of shared memory of at most {most}"),
        )?;
        self.asked.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Our kernels, emulated, and what the build reported of them.
#[derive(Default)]
pub(crate) struct Kernels {
    emulation: Emulation,
    report: Vec<Reported>,
}

/// A row of the table that the build writes.
struct Reported {
    file: &'static str,
    kernel: String,
    registers: usize,
    /// Bytes of shared memory that it declares.
    shared: usize,
}

impl Kernels {
    /// Reads the table of kernels once.
    fn report(&mut self) -> Answer<&[Reported]> {
        const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/cuda/kernels.csv");
        if self.report.is_empty() {
            let text = std::fs::read_to_string(TABLE)
                .map_err(|e| broken(Code::InvalidImage, format!("{TABLE}, which `make cuda` writes: {e}")))?;
            let mut files = HashMap::<String, &'static str>::new();
            for line in text.lines().skip(1) {
                let fields: Vec<_> = line.split(',').collect();
                if let [file, kernel, _, registers, shared, ..] = fields[..] {
                    let number = |text: &str| text.parse().unwrap_or(0);
                    let file = *files.entry(file.to_owned()).or_insert_with(|| file.to_owned().leak());
                    let (registers, shared) = (number(registers), number(shared));
                    self.report.push(Reported { file, kernel: kernel.to_owned(), registers, shared });
                }
            }
        }
        Ok(&self.report)
    }

    /// Loads a module. Our files are known by the names of their kernels.
    pub(crate) fn load(&mut self, image: Image) -> Answer<Module> {
        if image.is_ptx {
            return Ok(Module { kernels: image.kernels, file: None });
        }
        let names: BTreeSet<_> = image.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        let mut files = HashMap::<&'static str, BTreeSet<&str>>::new();
        for row in self.report()? {
            files.entry(row.file).or_default().insert(&row.kernel);
        }
        let found = files.iter().find(|(_, kernels)| **kernels == names).map(|(file, _)| *file);
        let Some(file) = found else {
            return Err(broken(Code::InvalidImage, format!("no file of cuda/ has just the kernels {names:?}")));
        };
        Ok(Module { kernels: image.kernels, file: Some(file) })
    }

    /// Returns a kernel of a module.
    pub(crate) fn function(&mut self, module: &Module, name: &str) -> Answer<Function> {
        let Some(description) = module.kernels.iter().find(|kernel| kernel.name == name).cloned() else {
            return Err(broken(Code::NotFound, format!("the module has no kernel {name}")));
        };
        let Some(file) = module.file else {
            return Ok(Function { description, origin: Origin::Candle, asked: AtomicUsize::new(0) });
        };
        let kernel = Kernel::new(file, name);
        let parameters = self.emulation.parameters(&kernel);
        let parameters = parameters.map_err(|e| broken(Code::InvalidImage, format!("cuda/{file}.cu: {e}")))?;
        let sizes: Vec<_> = parameters.iter().map(|parameter| parameter.bytes()).collect();
        if sizes != description.parameters {
            let compiled = description.parameters;
            let rule = format!("{name} of cuda/{file}.cu takes {sizes:?} bytes, its machine code {compiled:?}");
            return Err(broken(Code::InvalidImage, rule));
        }
        let mut report = self.report()?.iter();
        let row = report.find(|row| row.file == file && row.kernel == name);
        let (registers, shared) = row.map_or((0, 0), |row| (row.registers, row.shared));
        let origin = Origin::Own { kernel, parameters, registers, shared };
        Ok(Function { description, origin, asked: AtomicUsize::new(0) })
    }
}

/// A launch of a kernel.
pub(crate) struct Launch {
    pub(crate) function: Arc<Function>,
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    /// The bytes of each argument.
    pub(crate) arguments: Vec<Vec<u8>>,
}

/// Returns the address in eight bytes of an argument.
fn address(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

impl Launch {
    /// Returns a launch with arguments from the addresses of their values.
    ///
    /// # Safety
    ///
    /// `values` holds an address for each parameter, of as many bytes as the parameter has.
    pub(crate) unsafe fn new(
        function: Arc<Function>,
        blocks: [u32; 3],
        threads: [u32; 3],
        shared: u32,
        values: *const *const u8,
    ) -> Self {
        let sizes = function.description.parameters.iter().enumerate();
        // SAFETY: the caller's promise, which CUDA asks for as well.
        let arguments = sizes.map(|(i, &bytes)| unsafe { std::slice::from_raw_parts(*values.add(i), bytes).to_vec() });
        let arguments = arguments.collect();
        Self { function, blocks, threads, shared, arguments }
    }

    /// Checks the grid, and returns all addresses of memory among the arguments of one of our kernels.
    pub(crate) fn check(&self) -> Answer<Vec<u64>> {
        let name = self.function.name();
        let refuse = |why: String| Err(broken(Code::InvalidValue, format!("{name}: {why}")));
        let threads = self.threads.iter().product::<u32>();
        if self.blocks.contains(&0) || self.blocks[0] > i32::MAX as u32 || self.blocks[1..].iter().any(|&n| n > 65_535)
        {
            return refuse(format!("a grid of {:?} blocks", self.blocks));
        }
        if threads == 0 || threads > gpu::MOST_THREADS {
            return refuse(format!("blocks of {:?} threads", self.threads));
        }
        let (asked, declared) = (self.function.asked.load(Ordering::Relaxed), self.function.declared());
        let is_within = self.shared as usize + declared <= SHARED || self.shared as usize <= asked;
        if !is_within {
            return refuse(format!("{declared} bytes of shared memory, and {} more in its launch", self.shared));
        }
        let Origin::Own { parameters, registers, .. } = &self.function.origin else {
            return Ok(Vec::new());
        };
        // Registers are given to warps in eights per thread.
        if registers.next_multiple_of(8) * threads as usize > REGISTERS {
            return refuse(format!("{threads} threads of {registers} registers"));
        }
        let mut addresses = Vec::new();
        for (parameter, bytes) in parameters.iter().zip(&self.arguments) {
            if let Parameter::Pointer(_) | Parameter::Table { .. } = parameter {
                addresses.extend(bytes.chunks_exact(8).map(address).filter(|&address| address != 0));
            }
        }
        Ok(addresses)
    }

    pub(crate) fn run(&self, memory: &Memory, kernels: &Kernels) -> Answer {
        match &self.function.origin {
            Origin::Candle => candle::run(self, memory),
            Origin::Own { kernel, parameters, .. } => {
                let values = parameters.iter().zip(&self.arguments);
                let args = values.map(|(parameter, bytes)| argument(*parameter, bytes, memory));
                let args = args.collect::<Answer<Vec<_>>>()?;
                let blocks = self.blocks.map(|blocks| blocks as usize);
                let grid = Grid { blocks, threads: self.threads[0] as usize, shared: self.shared as usize };
                let ran = kernels.emulation.run(kernel, grid, &args);
                ran.map_err(|e| broken(Code::LaunchFailed, format!("cuda/{}.cu: {e}", kernel.module)))
            }
        }
    }
}

/// Returns an argument of the emulation. A pointer stands for the memory up to the end of its allocation, as the driver
/// knows no tensors.
fn argument(parameter: Parameter, bytes: &[u8], memory: &Memory) -> Answer<Arg<'static>> {
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    Ok(match parameter {
        Parameter::U32 => Arg::U32(word(bytes)),
        Parameter::F32 => Arg::F32(f32::from_bits(word(bytes))),
        Parameter::F64 => Arg::F64(f64::from_bits(address(bytes))),
        Parameter::Pointer(element) => pointer(address(bytes), element, memory)?,
        Parameter::Table { element, .. } => {
            let entries = bytes.chunks_exact(8).map(|entry| pointer(address(entry), element, memory));
            Arg::Table(entries.collect::<Answer<Vec<_>>>()?)
        }
    })
}

fn pointer(address: u64, element: usize, memory: &Memory) -> Answer<Arg<'static>> {
    if address == 0 {
        return Ok(Arg::Null);
    }
    let dtype = if element == 2 { DType::BF16 } else { DType::F32 };
    let view = View::new(address, dtype, 0, memory.room(address)? / element);
    view.map(Arg::Pointer).map_err(|e| broken(Code::InvalidValue, e.to_string()))
}
