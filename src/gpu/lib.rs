//! Memory and kernels of a GPU. A [`Machine`] runs them: cudarc in builds with the `cuda` feature, and
//! in tests an emulation that executes the source of the kernels on the CPU ([`standing_in`]).
//!
//! Kernels are launched by name with typed arguments. The code that chooses grid sizes and the order
//! of arguments is therefore the same on both machines.

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod arg;
mod buffer;
mod product;
mod view;

#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
mod cuda;

#[cfg(feature = "cuda")]
mod cuda;

pub use arg::Arg;
pub use buffer::Buffer;
use candle_core::{bail, DType, Result, Storage, Tensor};
pub use product::{with_factors, Factors, Matrix, Product};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
pub use view::View;

/// Threads of a warp.
pub const WARP: usize = 32;

/// A kernel, by its file in `cuda/` and its name in that file.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The file in `cuda/`, without its ending.
    pub module: &'static str,
    /// The name in that file.
    pub name: String,
}

impl Kernel {
    /// The kernel `name` of `cuda/MODULE.cu`.
    pub fn new(module: &'static str, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { module, name }
    }

    /// The instance of a kernel for tensors of type `io`: `NAME_f32` or `NAME_bf16`.
    pub fn of(module: &'static str, name: &str, io: DType) -> Self {
        Self::new(module, format!("{name}_{}", io.as_str()))
    }

    /// [`Self::of`] for a kernel that multiplies matrices: of tensors of f32, `NAME_tf32` where this thread's products round their factors
    /// ([`with_factors`]).
    pub fn of_products(module: &'static str, name: &str, io: DType) -> Self {
        match (io, product::factors()) {
            (DType::F32, Factors::Tf32) => Self::new(module, format!("{name}_tf32")),
            _ => Self::of(module, name, io),
        }
    }
}

/// The launch configuration of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// The number of blocks along x, y and z; at most 65,535 along y and z.
    pub blocks: [usize; 3],
    /// Threads per block: a multiple of [`WARP`].
    pub threads: usize,
    /// Bytes of dynamic shared memory per block.
    pub shared: usize,
}

impl Grid {
    /// A one-dimensional grid without dynamic shared memory.
    pub fn of(blocks: usize, threads: usize) -> Self {
        Self {
            blocks: [blocks, 1, 1],
            threads,
            shared: 0,
        }
    }

    /// One thread for each of `count` elements, in blocks of 256.
    pub fn for_each(count: usize) -> Self {
        const THREADS: usize = 256;
        Self::of(count.div_ceil(THREADS), THREADS)
    }
}

/// What a GPU's driver says of its speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chip {
    /// Multiprocessors.
    pub multiprocessors: usize,
    /// Lanes of f32 that a multiprocessor computes a cycle.
    pub lanes: usize,
    /// Cycles a second, at most.
    pub clock: f64,
    /// Bytes a second that its memory can move.
    pub bytes: f64,
}

/// A device that holds memory and runs kernels in the order of their launches.
pub trait Machine: Send + Sync {
    /// Memory for `count` elements with undefined values (NaN in tests).
    fn allocate(&self, dtype: DType, count: usize) -> Result<Storage>;
    /// The address of the first element.
    fn address(&self, storage: &Storage) -> Result<u64>;
    /// Runs a kernel after those launched before.
    fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()>;
    /// Computes matrix products whose sizes and types have been checked.
    fn multiply(&self, product: Product, to: View) -> Result<()>;
    /// A copy of the elements of a view.
    fn copy(&self, view: View) -> Result<Storage>;
    /// New memory that holds `values`.
    fn upload(&self, values: &[u32]) -> Result<Storage>;
    /// Copies numbers of four bytes to existing memory.
    fn write(&self, values: &[u32], to: View) -> Result<()>;
    /// Memory of the host for `words` words to a GPU and one number back.
    fn mailbox(&self, words: usize) -> Result<Box<dyn Mailbox>>;
    /// Does work like that which is recorded next. What it uploads beside the values of tensors is kept on the GPU, since
    /// nothing can be uploaded in a recording.
    fn warm_up(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        work()
    }
    /// Records the launches of `work` without running them.
    fn record(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>>;
}

/// Page-locked memory of the host: the GPU reads and writes it in the order of launches, while the host goes on.
pub trait Mailbox {
    /// Copies `words` to `to` after what was launched before. Before it is called again, what was launched behind it must be over, as
    /// [`Self::wait`] tells.
    fn send(&mut self, words: &[u32], to: View) -> Result<()>;
    /// Copies a number of f32 to the host, after what was launched before.
    fn fetch(&mut self, from: View) -> Result<()>;
    /// The number that was fetched last, once it has arrived.
    fn wait(&self) -> Result<f32>;
}

/// A recorded sequence of launches (a CUDA graph). Each replay reads the current contents of the
/// memory.
pub trait Recording {
    /// Launches all of it again.
    fn replay(&self) -> Result<()>;
}

/// A handle to a GPU, or to its emulation.
#[derive(Clone)]
pub struct Gpu(Arc<Shared>);

struct Shared {
    machine: Box<dyn Machine>,
    /// The training step that dropout masks are a function of, with its copy in memory of the GPU.
    step: Mutex<Option<(u64, Storage)>>,
}

thread_local! {
    static STANDING_IN: RefCell<Option<Gpu>> = const { RefCell::new(None) };
}

/// Runs `work` with `gpu`, which keeps its memory in tensors of the CPU, as the GPU that holds this thread's tensors
/// of the CPU. Tests emulate a GPU so.
pub fn standing_in<T>(gpu: Gpu, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Gpu>);
    impl Drop for Restore {
        fn drop(&mut self) {
            STANDING_IN.set(self.0.take());
        }
    }
    let _restore = Restore(STANDING_IN.replace(Some(gpu)));
    work()
}

/// The GPU that holds `x`; `None` for tensors on the CPU.
pub fn of(x: &Tensor) -> Option<Gpu> {
    match x.device().is_cpu() {
        true => STANDING_IN.with_borrow(Clone::clone),
        false => cuda::of(x),
    }
}

pub use cuda::{chip, open, token};
#[cfg(feature = "cuda")]
pub use cuda::{BUILT_WITH, CAPABILITY};

impl Gpu {
    /// The GPU that `machine` is.
    pub fn new(machine: impl Machine + 'static) -> Self {
        Self(Arc::new(Shared {
            machine: Box::new(machine),
            step: Mutex::default(),
        }))
    }

    /// Two words in memory of the GPU, low and high, that hold `step` for what is launched until another is asked for or set. A
    /// kernel that reads its step there stays correct in a recording if each replay is preceded by [`Self::set_step`], or writes the
    /// words itself and is followed by [`Self::step_is_written`].
    pub fn step(&self, step: u64) -> Result<View<'_>> {
        self.set_step(step)?;
        match &*self.0.step.lock().unwrap_or_else(PoisonError::into_inner) {
            // The words stay where they are as long as the GPU is held.
            Some((_, words)) => View::new(self.0.machine.address(words)?, DType::U32, 0, 2),
            None => bail!("no step was set"),
        }
    }

    /// Sets the step that kernels launched or replayed from now on read.
    pub fn set_step(&self, step: u64) -> Result<()> {
        let words = [step as u32, (step >> 32) as u32];
        let mut held = self.0.step.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *held {
            Some((current, _)) if *current == step => {}
            Some((current, storage)) => {
                let to = View::new(self.0.machine.address(storage)?, DType::U32, 0, 2)?;
                self.0.machine.write(&words, to)?;
                *current = step;
            }
            None => *held = Some((step, self.0.machine.upload(&words)?)),
        }
        Ok(())
    }

    /// Says that what has been launched writes `step` to the words of [`Self::step`].
    pub fn step_is_written(&self, step: u64) {
        let mut held = self.0.step.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((current, _)) = &mut *held {
            *current = step;
        }
    }

    /// Memory of the host for `words` words to the GPU and one number back.
    pub fn mailbox(&self, words: usize) -> Result<Box<dyn Mailbox>> {
        self.0.machine.mailbox(words)
    }

    /// Does `work` once by launches, before the same is recorded: a recording can load no kernel and upload nothing.
    pub fn warm_up(&self, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        self.0.machine.warm_up(&mut work)
    }

    /// Records the launches of `work` without running them. `work` must free all memory that it
    /// allocates, and none that was there before.
    pub fn record(&self, mut work: impl FnMut() -> Result<()>) -> Result<Box<dyn Recording>> {
        self.0.machine.record(&mut work)
    }

    /// Copies numbers of four bytes to existing memory.
    pub fn write(&self, values: &[u32], to: View) -> Result<()> {
        if to.len() != values.len() || to.dtype() == DType::BF16 {
            bail!(
                "{} words do not fit into {} of {:?}",
                values.len(),
                to.len(),
                to.dtype()
            );
        }
        self.0.machine.write(values, to)
    }

    /// Memory for `count` elements, with undefined values until a kernel writes them.
    pub fn alloc(&self, dtype: DType, count: usize) -> Result<Buffer> {
        Buffer::new(self, self.0.machine.allocate(dtype, count)?, dtype, count)
    }

    /// A copy of the elements of a view.
    pub fn copy(&self, view: View) -> Result<Buffer> {
        let storage = self.0.machine.copy(view)?;
        Buffer::new(self, storage, view.dtype(), view.len())
    }

    /// New memory that holds `values`.
    pub fn upload(&self, values: &[u32]) -> Result<Buffer> {
        let storage = self.0.machine.upload(values)?;
        Buffer::new(self, storage, DType::U32, values.len())
    }

    /// The elements of a contiguous tensor with the given storage and layout.
    pub fn view<'a>(&self, storage: &'a Storage, layout: &candle_core::Layout) -> Result<View<'a>> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            bail!("a kernel reads contiguous tensors only");
        };
        View::new(
            self.0.machine.address(storage)?,
            storage.dtype(),
            start,
            end - start,
        )
    }

    /// Calls `run` with the elements of a contiguous tensor, or with `None` without a tensor.
    pub fn with_tensor<T>(
        &self,
        x: Option<&Tensor>,
        run: impl FnOnce(Option<View>) -> Result<T>,
    ) -> Result<T> {
        let Some(x) = x else {
            return run(None);
        };
        let (storage, layout) = x.storage_and_layout();
        run(Some(self.view(&storage, layout)?))
    }

    /// Runs a kernel. Arguments or a grid that do not match the kernel are an error in the emulation, and
    /// undefined behaviour on a GPU.
    pub fn launch(&self, kernel: Kernel, grid: Grid, args: &[Arg]) -> Result<()> {
        if let Some(size) = args.iter().find_map(Arg::too_large) {
            let name = kernel.name;
            bail!("{name}: size {size} exceeds the 32 bits that kernels count in");
        }
        if grid.blocks.contains(&0) {
            return Ok(()); // nothing to do
        }
        self.0.machine.launch(&kernel, grid, args)
    }

    /// Computes a batch of matrix products.
    pub fn multiply(&self, product: Product, to: &mut Buffer) -> Result<()> {
        product.check(to.view())?;
        self.0.machine.multiply(product, to.view())
    }
}
