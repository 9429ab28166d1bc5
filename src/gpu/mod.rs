//! Memory and kernels of a GPU. What runs them is a [`Machine`]: cudarc in builds with the `cuda`
//! feature, and in tests an emulation of the kernels' own source on the CPU.
//!
//! Kernels are launched by name with typed arguments, so that everything above, grid sizes and the
//! order of arguments included, is the same code on both machines.

// Without CUDA, only tests construct a GPU.
#![cfg_attr(not(any(test, feature = "cuda")), allow(dead_code))]

mod arg;
mod memory;
mod product;

#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
mod cuda;

#[cfg(feature = "cuda")]
mod cuda;

#[cfg(test)]
pub(crate) mod emulated;

pub(crate) use arg::{Arg, Pointer};
use candle_core::{bail, DType, Result, Storage, Tensor};
pub(crate) use memory::{Buffer, View};
pub(crate) use product::{Matrix, Product};
use std::sync::{Arc, Mutex, PoisonError};

/// Threads of a warp.
pub(crate) const WARP: usize = 32;

/// A kernel: the file of `cuda/` that holds it, and its name there.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    module: &'static str,
    name: String,
}

impl Kernel {
    /// The kernel `name` of `cuda/MODULE.cu`.
    pub(crate) fn new(module: &'static str, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { module, name }
    }

    /// The version of a kernel for tensors of `io`: `NAME_f32` or `NAME_bf16`.
    pub(crate) fn of(module: &'static str, name: &str, io: DType) -> Self {
        Self::new(module, format!("{name}_{}", io.as_str()))
    }
}

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Blocks along x, y and z; at most 65,535 along y and z.
    pub(crate) blocks: [usize; 3],
    /// Threads of a block: a multiple of [`WARP`].
    pub(crate) threads: usize,
    /// Bytes of dynamic shared memory of a block.
    pub(crate) shared: usize,
}

impl Grid {
    /// Blocks in a row.
    pub(crate) fn of(blocks: usize, threads: usize) -> Self {
        Self {
            blocks: [blocks, 1, 1],
            threads,
            shared: 0,
        }
    }

    /// A thread for each of `count` elements, in blocks of 256.
    pub(crate) fn for_each(count: usize) -> Self {
        const THREADS: usize = 256;
        Self::of(count.div_ceil(THREADS), THREADS)
    }
}

/// What can hold memory and run kernels, in the order in which they are launched.
trait Machine: Send + Sync {
    /// Memory for `count` elements; what they are is not defined, in tests NaN.
    fn allocate(&self, dtype: DType, count: usize) -> Result<Storage>;
    /// Where the first element lies.
    fn address(&self, storage: &Storage) -> Result<u64>;
    fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()>;
    fn multiply(&self, product: Product, to: &mut Buffer) -> Result<()>;
    /// A copy of some elements.
    fn copy(&self, view: View) -> Result<Storage>;
    /// Memory that holds the given numbers.
    fn upload(&self, values: &[u32]) -> Result<Storage>;
    /// Puts numbers of four bytes into memory that exists.
    fn write(&self, values: &[u32], to: View) -> Result<()>;
    /// What `work` launches, without running it.
    fn record(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>>;
}

/// Launches that can be made again, with whatever the memory they read holds by then.
pub(crate) trait Recording {
    fn replay(&self) -> Result<()>;
}

/// A GPU, or what stands for one.
#[derive(Clone)]
pub(crate) struct Gpu(Arc<Shared>);

struct Shared {
    machine: Box<dyn Machine>,
    /// The step that dropout masks are drawn for, in memory of the GPU.
    step: Mutex<Option<(u64, Storage)>>,
}

/// The GPU that holds `x`, if one does.
pub(crate) fn of(x: &Tensor) -> Option<Gpu> {
    #[cfg(test)]
    if emulated::active() && x.device().is_cpu() {
        return Some(emulated::gpu());
    }
    cuda::of(x)
}

pub(crate) use cuda::{open, products_in_tf32, token};

impl Gpu {
    fn new(machine: impl Machine + 'static) -> Self {
        Self(Arc::new(Shared {
            machine: Box::new(machine),
            step: Mutex::default(),
        }))
    }

    /// Lets `read` see two words of memory, low and high, that hold `step`. Kernels that take their
    /// step from there are right in a recording too, if [`Self::set_step`] precedes each replay.
    pub(crate) fn with_step<T>(
        &self,
        step: u64,
        read: impl FnOnce(View) -> Result<T>,
    ) -> Result<T> {
        self.set_step(step)?;
        match &*self.0.step.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((_, words)) => read(View::new(self.0.machine.address(words)?, DType::U32, 0, 2)?),
            None => bail!("no step was set"),
        }
    }

    /// Sets the step of the kernels launched or replayed from now on.
    pub(crate) fn set_step(&self, step: u64) -> Result<()> {
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

    /// What `work` launches, for [`Recording::replay`]; nothing of it runs now. All memory that it
    /// allocates is freed when it ends.
    pub(crate) fn record(
        &self,
        mut work: impl FnMut() -> Result<()>,
    ) -> Result<Box<dyn Recording>> {
        self.0.machine.record(&mut work)
    }

    /// Puts numbers of four bytes into memory that exists.
    pub(crate) fn write(&self, values: &[u32], to: View) -> Result<()> {
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

    /// Memory for `count` elements that a kernel will write.
    pub(crate) fn alloc(&self, dtype: DType, count: usize) -> Result<Buffer> {
        Buffer::new(self, self.0.machine.allocate(dtype, count)?, dtype, count)
    }

    /// A copy of some elements.
    pub(crate) fn copy(&self, view: View) -> Result<Buffer> {
        let storage = self.0.machine.copy(view)?;
        Buffer::new(self, storage, view.dtype(), view.len())
    }

    /// Memory that holds `values`.
    pub(crate) fn upload(&self, values: &[u32]) -> Result<Buffer> {
        let storage = self.0.machine.upload(values)?;
        Buffer::new(self, storage, DType::U32, values.len())
    }

    /// The elements of a contiguous tensor, while a guard holds its `storage`.
    pub(crate) fn view<'a>(
        &self,
        storage: &'a Storage,
        layout: &candle_core::Layout,
    ) -> Result<View<'a>> {
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

    /// Runs a kernel. The grid and the arguments fit the kernel, or this is an error (in tests; on a
    /// GPU, nobody notices).
    pub(crate) fn launch(&self, kernel: Kernel, grid: Grid, args: &[Arg]) -> Result<()> {
        if let Some(size) = args.iter().find_map(Arg::too_large) {
            let name = kernel.name;
            bail!("{name}: a size of {size}, but kernels count in 32 bits");
        }
        if grid.blocks.contains(&0) {
            return Ok(()); // nothing to do
        }
        self.0.machine.launch(&kernel, grid, args)
    }

    /// A matrix product, or many.
    pub(crate) fn multiply(&self, product: Product, to: &mut Buffer) -> Result<()> {
        product.check(to)?;
        self.0.machine.multiply(product, to)
    }
}
