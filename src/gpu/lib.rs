//! Memory and kernels of a GPU. A [`Machine`] runs them: cudarc in builds with the `cuda` feature, and
//! in tests an emulation that executes the source of the kernels on the CPU ([`standing_in`]).
//!
//! Kernels are launched by name with typed arguments. The code that chooses grid sizes and the order
//! of arguments is therefore the same on both machines.

mod arg;
mod buffer;
mod mailbox;
mod product;
pub mod sizes;
mod view;

#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
mod cuda;

#[cfg(feature = "cuda")]
mod cuda;

pub use arg::Arg;
pub use buffer::Buffer;
use candle_core::{bail, DType, Result, Storage, Tensor};
pub use mailbox::{Carrier, Mailbox};
pub use product::{factors, with_factors, Factors, Matrix, Product};
pub use sizes::device::WARP;
use std::cell::{Cell, RefCell};
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
pub use view::View;

/// A kernel, identified by its file in `cuda/` and its name.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// File in `cuda/`, without extension.
    pub module: &'static str,
    /// Name in that file.
    pub name: String,
}

impl Kernel {
    /// Returns the kernel `name` of `cuda/MODULE.cu`.
    pub fn new(module: &'static str, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { module, name }
    }

    /// Returns the instance of a kernel for tensors of type `io`: `NAME_f32` or `NAME_bf16`.
    pub fn of(module: &'static str, name: &str, io: DType) -> Self {
        Self::new(module, format!("{name}_{}", io.as_str()))
    }

    /// Returns [`Self::of`] for a kernel that multiplies matrices; for f32 tensors `NAME_tf32` if this thread's
    /// products round their factors ([`with_factors`]).
    pub fn of_products(module: &'static str, name: &str, io: DType) -> Self {
        match (io, product::factors()) {
            (DType::F32, Factors::Tf32) => Self::new(module, format!("{name}_tf32")),
            _ => Self::of(module, name, io),
        }
    }
}

/// Launch configuration of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Number of blocks along x, y and z; at most 65,535 along y and z.
    pub blocks: [usize; 3],
    /// Threads per block: a multiple of [`WARP`].
    pub threads: usize,
    /// Bytes of dynamic shared memory per block; at most [`Gpu::most_shared`] with what the kernel declares.
    pub shared: usize,
}

impl Grid {
    /// Returns a one-dimensional grid without dynamic shared memory.
    pub fn of(blocks: usize, threads: usize) -> Self {
        Self { blocks: [blocks, 1, 1], threads, shared: 0 }
    }

    /// Returns a grid with one thread for each of `count` elements, in blocks of 256.
    pub fn for_each(count: usize) -> Self {
        const THREADS: usize = 256;
        Self::of(count.div_ceil(THREADS), THREADS)
    }

    /// Returns [`Self::for_each`] for several arrays, the longest with `count` elements; each has its own blocks along
    /// y.
    pub fn for_each_of(arrays: usize, count: usize) -> Self {
        let mut grid = Self::for_each(count);
        grid.blocks[1] = arrays;
        grid
    }
}

/// Speed of a GPU, as reported by its driver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chip {
    /// Number of multiprocessors.
    pub multiprocessors: usize,
    /// f32 lanes per multiprocessor and cycle.
    pub lanes: usize,
    /// Maximum clock rate in Hz.
    pub clock: f64,
    /// Memory bandwidth in bytes per second.
    pub bytes: f64,
}

/// Bytes of shared memory that a block has on every GPU; more must be asked for.
pub const SHARED: usize = 48 << 10;

/// A device that holds memory and runs kernels in the order of their launches.
pub trait Machine: Send + Sync {
    /// Returns the bytes of shared memory that a block can have.
    fn most_shared(&self) -> Result<usize>;
    /// Allocates memory for `count` elements with undefined values (NaN in tests).
    fn allocate(&self, dtype: DType, count: usize) -> Result<Storage>;
    /// Returns the address of the first element.
    fn address(&self, storage: &Storage) -> Result<u64>;
    /// Runs a kernel after those launched before.
    fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()>;
    /// Computes matrix products whose sizes and types have been checked.
    fn multiply(&self, product: Product, to: View) -> Result<()>;
    /// Copies the elements of a view.
    fn copy(&self, view: View) -> Result<Storage>;
    /// Allocates memory that holds `values`.
    fn upload(&self, values: &[u32]) -> Result<Storage>;
    /// Copies 4-byte numbers to existing memory.
    fn write(&self, values: &[u32], to: View) -> Result<()>;
    /// Returns the implementation of a [`Mailbox`] for `words` words.
    fn carrier(&self, words: usize) -> Result<Box<dyn Carrier>>;
    /// Runs `work` once before the same work is recorded. Data that it uploads, apart from tensor values, are kept on
    /// the GPU, since a recording cannot upload anything.
    fn warm_up(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        work()
    }
    /// Records the launches of `work` without running them.
    fn record(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>>;
}

/// A recorded sequence of launches (a CUDA graph). Each replay reads the current contents of the memory.
pub trait Recording {
    /// Launches the sequence again.
    fn replay(&self) -> Result<()>;

    /// Number of launches, copies and clears in the sequence.
    fn nodes(&self) -> Result<usize>;
}

/// A handle to a GPU, or to its emulation.
#[derive(Clone)]
pub struct Gpu(Arc<Shared>);

struct Shared {
    machine: Box<dyn Machine>,
    /// Training step from which dropout masks are derived, for each launching thread, with its copy in GPU memory.
    steps: Mutex<HashMap<ThreadId, (u64, Storage)>>,
    /// Words that were uploaded once and never change.
    constants: Mutex<HashMap<Vec<u32>, Storage>>,
}

thread_local! {
    static STANDING_IN: RefCell<Option<Gpu>> = const { RefCell::new(None) };
    /// Whether this thread records launches.
    static RECORDING: Cell<bool> = const { Cell::new(false) };
    /// Place for the loss that this thread computes, until an op has taken it.
    static LOSS: Cell<Option<View<'static>>> = const { Cell::new(None) };
}

/// Runs `work` while `gpu`, which stores its memory in CPU tensors, stands in for the device of this thread's CPU
/// tensors. Tests emulate a GPU this way.
pub fn standing_in<T>(gpu: Gpu, work: impl FnOnce() -> T) -> T {
    struct RestoreStep(Option<Gpu>);
    impl Drop for RestoreStep {
        fn drop(&mut self) {
            STANDING_IN.set(self.0.take());
        }
    }
    let _restore = RestoreStep(STANDING_IN.replace(Some(gpu)));
    work()
}

/// Returns the GPU that holds `x`; `None` for tensors on the CPU.
pub fn of(x: &Tensor) -> Option<Gpu> {
    match x.device().is_cpu() {
        true => STANDING_IN.with_borrow(Clone::clone),
        false => cuda::of(x),
    }
}

pub use cuda::{chip, close, empty, name, open};
#[cfg(feature = "cuda")]
pub use cuda::{BUILT_WITH, CAPABILITY};

impl Gpu {
    /// Returns a handle to the GPU `machine`.
    pub fn new(machine: impl Machine + 'static) -> Self {
        Self(Arc::new(Shared { machine: Box::new(machine), steps: Mutex::default(), constants: Mutex::default() }))
    }

    /// Returns the bytes of shared memory that a block can have, [`SHARED`] or more.
    pub fn most_shared(&self) -> Result<usize> {
        self.0.machine.most_shared()
    }

    /// Returns two words in GPU memory, low and high, that hold `step` for the launches of this thread until the next
    /// call. Their address does not change. A kernel that reads its step from there is correct in a recording if,
    /// before each replay, the same thread calls this function with that step, or if the replay writes the words itself
    /// and [`Self::step_is_written`] is called after it.
    pub fn step(&self, step: u64) -> Result<View<'_>> {
        let words = [step as u32, (step >> 32) as u32];
        let machine = &self.0.machine;
        let mut held = self.steps();
        let (current, storage) = match held.entry(thread::current().id()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert((step, machine.upload(&words)?)),
        };
        let view = View::new(machine.address(storage)?, DType::U32, 0, 2)?;
        if *current != step {
            machine.write(&words, view)?;
            *current = step;
        }
        Ok(view)
    }

    fn steps(&self) -> MutexGuard<'_, HashMap<ThreadId, (u64, Storage)>> {
        self.0.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns words in GPU memory that are uploaded on first use and kept as long as the GPU.
    ///
    /// # Errors
    ///
    /// Fails in a recording if they have not been used before, since it cannot upload them.
    pub fn constants(&self, words: &[u32]) -> Result<View<'_>> {
        let machine = &self.0.machine;
        let mut kept = self.0.constants.lock().unwrap_or_else(PoisonError::into_inner);
        let address = match kept.get(words) {
            Some(storage) => machine.address(storage)?,
            None if RECORDING.get() => bail!("a recording cannot upload constants"),
            None => {
                let storage = machine.upload(words)?;
                let address = machine.address(&storage)?;
                kept.insert(words.to_vec(), storage);
                address
            }
        };
        View::new(address, DType::U32, 0, words.len())
    }

    /// Records that launches of this thread write `step` to its words of [`Self::step`].
    pub fn step_is_written(&self, step: u64) {
        if let Some((current, _)) = self.steps().get_mut(&thread::current().id()) {
            *current = step;
        }
    }

    /// Offers `to`, one f32, to the op that computes the loss in `work`: its kernel may keep the loss there unless `to`
    /// already holds a loss that is not finite. Returns whether an op has taken it.
    pub fn offer_loss<T>(&self, to: &Buffer, work: impl FnOnce() -> Result<T>) -> Result<(T, bool)> {
        let view = to.view();
        LOSS.set(Some(View::new(view.address(), view.dtype(), 0, view.len())?));
        let done = work();
        let left = self.take_loss();
        Ok((done?, left.is_none()))
    }

    /// Takes the place that [`Self::offer_loss`] offers; none outside of it.
    pub fn take_loss(&self) -> Option<View<'static>> {
        LOSS.take()
    }

    /// Allocates host memory for `words` words to the GPU and one number back.
    pub fn mailbox(&self, words: usize) -> Result<Mailbox> {
        Ok(Mailbox::new(words, self.0.machine.carrier(words)?))
    }

    /// Runs `work` once by launches before it is recorded: a recording can neither load kernels nor upload data.
    pub fn warm_up(&self, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        self.0.machine.warm_up(&mut work)
    }

    /// Records the launches of `work` without running them. `work` must free all memory that it allocates, and no
    /// memory allocated before.
    pub fn record(&self, mut work: impl FnMut() -> Result<()>) -> Result<Box<dyn Recording>> {
        struct Ended;
        impl Drop for Ended {
            fn drop(&mut self) {
                RECORDING.set(false);
            }
        }
        self.0.machine.record(&mut || {
            let _ended = Ended;
            RECORDING.set(true);
            work()
        })
    }

    /// Copies 4-byte numbers to existing memory.
    pub fn write(&self, values: &[u32], to: View) -> Result<()> {
        if to.len() != values.len() || to.dtype() == DType::BF16 {
            bail!("{} words do not fit into {} of {:?}", values.len(), to.len(), to.dtype());
        }
        self.0.machine.write(values, to)
    }

    /// Allocates memory for `count` elements; its values are undefined until a kernel writes them.
    pub fn alloc(&self, dtype: DType, count: usize) -> Result<Buffer> {
        Buffer::new(self, self.0.machine.allocate(dtype, count)?, dtype, count)
    }

    /// Copies the elements of a view.
    pub fn copy(&self, view: View) -> Result<Buffer> {
        let storage = self.0.machine.copy(view)?;
        Buffer::new(self, storage, view.dtype(), view.len())
    }

    /// Allocates memory that holds `values`.
    pub fn upload(&self, values: &[u32]) -> Result<Buffer> {
        let storage = self.0.machine.upload(values)?;
        Buffer::new(self, storage, DType::U32, values.len())
    }

    /// Returns the elements of a contiguous tensor with the given storage and layout.
    pub fn view<'a>(&self, storage: &'a Storage, layout: &candle_core::Layout) -> Result<View<'a>> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            bail!("a kernel reads contiguous tensors only");
        };
        View::new(self.0.machine.address(storage)?, storage.dtype(), start, end - start)
    }

    /// Calls `run` with the elements of a contiguous tensor, or with `None` without a tensor.
    pub fn with_tensor<T>(&self, x: Option<&Tensor>, run: impl FnOnce(Option<View>) -> Result<T>) -> Result<T> {
        let Some(x) = x else {
            return run(None);
        };
        let (storage, layout) = x.storage_and_layout();
        run(Some(self.view(&storage, layout)?))
    }

    /// Runs a kernel. A mismatch between the kernel and its arguments or grid is an error in the emulation, and
    /// undefined behaviour on a GPU.
    pub fn launch(&self, kernel: Kernel, grid: Grid, args: &[Arg]) -> Result<()> {
        if let Some(size) = args.iter().find_map(Arg::too_large) {
            let name = kernel.name;
            bail!("{name}: size {size} exceeds the 32 bits that kernels count in");
        }
        if grid.blocks.contains(&0) {
            return Ok(()); // an empty grid
        }
        self.0.machine.launch(&kernel, grid, args)
    }

    /// Computes a batch of matrix products.
    pub fn multiply(&self, product: Product, to: &mut Buffer) -> Result<()> {
        product.check(to.view())?;
        self.0.machine.multiply(product, to.view())
    }

    /// Computes a batch of matrix products, into the elements of `to` from `first` on.
    pub fn multiply_into(&self, product: Product, to: &mut Buffer, first: usize) -> Result<()> {
        let part = to.view().part(first, product.batch * product.rows * product.columns);
        product.check(part)?;
        self.0.machine.multiply(product, part)
    }
}
