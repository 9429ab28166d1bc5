//! Emulated GPU: `cuda/NAME.cu`, compiled by the C++ compiler with `cuda/emulation`, runs on CPU tensors.
//! `cuda/emulation` checks every memory access for bounds and races.

#![allow(unsafe_code)] // loads a compiled library and passes it raw addresses

mod compile;
mod kept;
mod multiply;
mod record;

use candle_core::{bail, CpuStorage, DType, Result, Storage};
use compile::{compile, sources};
use dsf_gpu::{Arg, Carrier, Gpu, Grid, Kernel, Machine, Product, Recording, View};
use half::bf16;
use half::vec::HalfBitsVecExt;
use libloading::Library;
pub use multiply::tf32;
use record::{Action, Recorder};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, CStr, CString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

thread_local! {
    static LAUNCHES: Cell<usize> = const { Cell::new(0) };
    /// The blocks that [`at_ends`] asks for; 0 for all.
    static ENDS: Cell<usize> = const { Cell::new(0) };
}

/// Runs `f`; launches by this thread run only the last `blocks` blocks along the first dimension of a grid, products
/// compute with the last 4,096 rows, inner elements and matrices, and new memory holds zeros, which take no space until
/// they are written. The indices of kernels can so be tested with tensors that are larger than the memory of the
/// machine, of zeros but for the end.
pub fn at_ends<T>(blocks: usize, f: impl FnOnce() -> T) -> T {
    let before = ENDS.replace(blocks);
    let made = f();
    ENDS.set(before);
    made
}

/// The indices below `count` that a product computes with, along one of its dimensions.
fn computed(count: usize) -> std::ops::Range<usize> {
    const KEPT: usize = 4096;
    match ENDS.get() {
        0 => 0..count,
        _ => count.saturating_sub(KEPT)..count,
    }
}

/// Number of kernels and matrix products that this thread has launched.
pub fn launches() -> usize {
    LAUNCHES.get()
}

/// Runs `f` with this thread's ops on the emulated GPU.
pub fn emulated<T>(f: impl FnOnce() -> T) -> T {
    dsf_gpu::standing_in(gpu(), f)
}

/// Returns the emulated GPU of this thread; tests therefore do not affect each other.
fn gpu() -> Gpu {
    thread_local! {
        static GPU: Gpu = Emulation::default().gpu();
    }
    GPU.with(Gpu::clone)
}

/// Bytes of shared memory that a block of an H100 can have.
pub const MOST_SHARED: usize = 227 << 10;

/// An emulated GPU with kernels from a folder.
#[derive(Clone)]
pub struct Emulation(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    modules: Mutex<HashMap<String, Arc<Library>>>,
    recorder: Recorder,
}

impl Default for Emulation {
    /// Returns an emulated GPU with the project's kernels.
    fn default() -> Self {
        Self::of(sources())
    }
}

impl Emulation {
    /// Returns an emulated GPU with the kernels of `folder`.
    pub fn of(folder: PathBuf) -> Self {
        Self(Arc::new(Inner { folder, modules: Mutex::default(), recorder: Recorder::default() }))
    }

    /// Returns a handle to it.
    pub fn gpu(self) -> Gpu {
        Gpu::new(self)
    }

    fn module(&self, name: &str) -> Result<Arc<Library>> {
        let mut modules = self.0.modules.lock().unwrap();
        if let Some(module) = modules.get(name) {
            return Ok(module.clone());
        }
        let file = compile(&self.0.folder.join(format!("{name}.cu")))?;
        // SAFETY: the library is compiled from our sources; its constructors fill a table of kernels.
        let library = unsafe { Library::new(&file) }.map_err(candle_core::Error::wrap)?;
        let library = Arc::new(library);
        modules.insert(name.to_owned(), library.clone());
        Ok(library)
    }
}

/// Argument of a kernel, with the layout of `emulation::Argument`.
#[repr(C)]
struct Argument {
    kind: u32,
    element: u32,
    value: u64,
    count: u64,
}

/// Kind of a kernel's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Address of elements of that many bytes.
    Pointer(usize),
    /// A 32-bit whole number.
    U32,
    /// A 32-bit floating-point number.
    F32,
    /// A 64-bit floating-point number.
    F64,
    /// A number of addresses of elements.
    Table {
        /// Bytes of an element.
        element: usize,
        /// Number of addresses.
        count: usize,
    },
}

impl Parameter {
    /// Bytes that the parameter takes in a launch by the driver.
    pub fn bytes(self) -> usize {
        match self {
            Self::Pointer(_) | Self::F64 => 8,
            Self::U32 | Self::F32 => 4,
            Self::Table { count, .. } => 8 * count,
        }
    }

    fn of(described: &Argument) -> Result<Self> {
        let element = described.element as usize;
        Ok(match described.kind {
            0 => Self::Pointer(element),
            1 => Self::U32,
            2 => Self::F32,
            3 => Self::Table { element, count: described.count as usize },
            4 => Self::F64,
            kind => bail!("parameters have no kind {kind}"),
        })
    }
}

type Describe = unsafe extern "C" fn(*const c_char, *mut Argument, usize) -> c_int;
type Launch =
    unsafe extern "C" fn(*const c_char, *const u32, u32, u32, u32, *const Argument, usize, *mut c_char, usize) -> bool;

/// Converts an argument for the emulation; `tables` owns the entries that a table points to.
fn argument(arg: &Arg, tables: &mut Vec<Vec<Argument>>) -> Argument {
    let (kind, element, value, count) = match arg {
        Arg::Pointer(v) => (0, v.dtype().size_in_bytes(), v.address(), v.len()),
        Arg::Null | Arg::TooLarge(_) => (0, 0, 0, 0),
        Arg::U32(value) => (1, 0, u64::from(*value), 0),
        Arg::F32(value) => (2, 0, u64::from(value.to_bits()), 0),
        Arg::F64(value) => (4, 0, value.to_bits(), 0),
        Arg::Table(entries) => {
            let entries: Vec<_> = entries.iter().map(|e| argument(e, tables)).collect();
            let found = (3, 0, entries.as_ptr() as u64, entries.len());
            tables.push(entries);
            found
        }
    };
    Argument { kind, element: element as u32, value, count: count as u64 }
}

impl Emulation {
    /// Performs an action, or appends it to the recording in progress.
    fn take(&self, action: Action) -> Result<()> {
        match self.0.recorder.take(action) {
            Some(action) => self.perform(&action),
            None => Ok(()),
        }
    }

    fn perform(&self, action: &Action) -> Result<()> {
        match action {
            Action::Launch(kernel, grid, args) => self.run(kernel, *grid, args),
            Action::Multiply(product, to) => {
                multiply::run(*product, *to);
                Ok(())
            }
            Action::Copy(from, to) => {
                // SAFETY: both hold that many bytes, and nothing else refers to the new memory.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.address() as *const u8, to.address() as *mut u8, from.bytes());
                }
                Ok(())
            }
        }
    }

    /// Returns the kinds of a kernel's parameters.
    ///
    /// # Errors
    ///
    /// Fails if there is no such kernel, or if its file does not compile.
    pub fn parameters(&self, kernel: &Kernel) -> Result<Vec<Parameter>> {
        const MOST: usize = 64;
        let library = self.module(kernel.module)?;
        // SAFETY: the symbol has this type in cuda/emulation/launch.hpp.
        let describe = unsafe { library.get::<Describe>(b"emulation_parameters") };
        let describe = describe.map_err(candle_core::Error::wrap)?;
        let name = CString::new(kernel.name.as_str()).map_err(candle_core::Error::wrap)?;
        let mut described = [const { Argument { kind: 0, element: 0, value: 0, count: 0 } }; MOST];
        // SAFETY: there is room for that many.
        let count = unsafe { describe(name.as_ptr(), described.as_mut_ptr(), MOST) };
        let Some(described) = usize::try_from(count).ok().and_then(|count| described.get(..count)) else {
            bail!("cuda/{}.cu has no kernel {} of at most {MOST} parameters", kernel.module, kernel.name);
        };
        described.iter().map(Parameter::of).collect()
    }

    /// Runs a kernel to its end.
    ///
    /// # Errors
    ///
    /// Fails if the kernel breaks a rule that the emulation checks, or if its file does not compile.
    pub fn run(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()> {
        let library = self.module(kernel.module)?;
        // SAFETY: the symbol has this type in cuda/emulation/launch.hpp.
        let launch = unsafe { library.get::<Launch>(b"emulation_launch") };
        let launch = launch.map_err(candle_core::Error::wrap)?;
        let name = CString::new(kernel.name.as_str()).map_err(candle_core::Error::wrap)?;
        let mut tables = Vec::new();
        let args: Vec<_> = args.iter().map(|arg| argument(arg, &mut tables)).collect();
        let mut message = [0 as c_char; 512];
        // SAFETY: addresses and counts are those of live buffers, and the emulation checks each access against them.
        // Nothing else uses the memory during the call.
        let ran = unsafe {
            launch(
                name.as_ptr(),
                grid.blocks.map(|blocks| blocks as u32).as_ptr(),
                grid.threads as u32,
                grid.shared as u32,
                ENDS.get() as u32,
                args.as_ptr(),
                args.len(),
                message.as_mut_ptr(),
                message.len(),
            )
        };
        if !ran {
            // SAFETY: the emulation terminates its message with a zero.
            let message = unsafe { CStr::from_ptr(message.as_ptr()) };
            bail!("{}", message.to_string_lossy());
        }
        Ok(())
    }
}

impl Machine for Emulation {
    fn most_shared(&self) -> Result<usize> {
        Ok(MOST_SHARED)
    }

    fn allocate(&self, dtype: DType, count: usize) -> Result<Storage> {
        // The system provides the memory of zeros when it is first used.
        let zeros = ENDS.get() > 0;
        Ok(Storage::Cpu(match dtype {
            DType::F32 => CpuStorage::F32(vec![if zeros { 0.0 } else { f32::NAN }; count]),
            DType::BF16 => {
                CpuStorage::BF16(vec![if zeros { 0 } else { bf16::NAN.to_bits() }; count].reinterpret_into())
            }
            DType::U32 => CpuStorage::U32(vec![if zeros { 0 } else { u32::MAX }; count]),
            other => bail!("kernels do not know {other:?}"),
        }))
    }

    fn address(&self, storage: &Storage) -> Result<u64> {
        let Storage::Cpu(storage) = storage else {
            bail!("the emulation reads CPU tensors");
        };
        let address = match storage {
            CpuStorage::F32(values) => values.as_ptr() as u64,
            CpuStorage::BF16(values) => values.as_ptr() as u64,
            CpuStorage::U32(values) => values.as_ptr() as u64,
            _ => bail!("kernels do not know {:?}", storage_dtype(storage)),
        };
        kept::in_use(address as usize);
        Ok(address)
    }

    fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()> {
        LAUNCHES.set(LAUNCHES.get() + 1);
        let args = args.iter().map(Arg::kept).collect();
        self.take(Action::Launch(kernel.clone(), grid, args))
    }

    fn multiply(&self, product: Product, to: View) -> Result<()> {
        LAUNCHES.set(LAUNCHES.get() + 1);
        self.take(Action::Multiply(product.kept(), to.kept()))
    }

    fn copy(&self, view: View) -> Result<Storage> {
        let storage = self.allocate(view.dtype(), view.len())?;
        let to = View::new(self.address(&storage)?, view.dtype(), 0, view.len())?;
        self.take(Action::Copy(view.kept(), to))?;
        Ok(storage)
    }

    fn upload(&self, values: &[u32]) -> Result<Storage> {
        self.0.recorder.refuse("an upload")?;
        Ok(Storage::Cpu(CpuStorage::U32(values.to_vec())))
    }

    fn write(&self, values: &[u32], to: View) -> Result<()> {
        self.0.recorder.refuse("a write")?;
        // SAFETY: `to` holds as many 4-byte elements, and nothing reads it during the copy.
        unsafe {
            let to = to.address() as *mut u32;
            std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len());
        }
        Ok(())
    }

    fn carrier(&self, _: usize) -> Result<Box<dyn Carrier>> {
        Ok(Box::new(SyncCarrier { machine: self.clone(), number: None }))
    }

    fn record(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>> {
        self.0.recorder.record(self.clone(), work)
    }
}

/// Mailbox of the emulation, which copies synchronously.
struct SyncCarrier {
    machine: Emulation,
    number: Option<f32>,
}

impl Carrier for SyncCarrier {
    fn send(&mut self, parts: &[&[u32]], to: View) -> Result<()> {
        self.machine.write(&parts.concat(), to)
    }

    fn fetch(&mut self, from: View) -> Result<()> {
        self.machine.0.recorder.refuse("a copy to the host")?;
        // SAFETY: a live number, which nothing writes meanwhile.
        self.number = Some(unsafe { (from.address() as *const f32).read() });
        Ok(())
    }

    fn wait(&self) -> Result<f32> {
        let number = self.number;
        number.ok_or_else(|| candle_core::Error::msg("nothing was fetched"))
    }
}

fn storage_dtype(storage: &CpuStorage) -> DType {
    use candle_core::backend::BackendStorage;
    storage.dtype()
}

#[cfg(test)]
mod tests;
