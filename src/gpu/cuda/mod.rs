//! NVIDIA GPUs, through the same cudarc that Candle uses. The only module that calls the driver.

#![allow(unsafe_code)] // the driver and cuBLAS take raw addresses

mod capture;
mod mailbox;
mod multiply;

use super::{Arg, Carrier, Chip, Gpu, Grid, Kernel, Machine, Product, Recording, View, SHARED};
use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::{CudaDType, DeviceId, WrapErr};
use candle_core::{bail, CudaDevice, CudaStorage, DType, Device, Result, Shape, Storage, Tensor};
use cudarc::driver::{
    result, sys, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use half::bf16;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// CUDA version of the build, such as 13000 for 13.0.
pub const BUILT_WITH: &str = env!("DSF_CUDA_VERSION");
/// Lowest compute capability that Candle's kernels were built for, such as 80 for 8.0.
pub const CAPABILITY: &str = env!("CUDA_COMPUTE_CAP");

/// Open devices with the state of our kernels.
static OPEN: Mutex<Vec<(DeviceId, Gpu)>> = Mutex::new(Vec::new());

/// Loaded kernels by GPU and file. All devices of a GPU share the process's one context, so each file is loaded once.
/// The context lives as long as these modules, so that it is not created again between two runs.
static LOADED: LazyLock<Mutex<Modules>> = LazyLock::new(Mutex::default);

type Modules = HashMap<(usize, &'static str), Arc<CudaModule>>;

/// Locked for reading while a step is recorded, by one or several threads, and for writing while a device is opened or
/// closed. Opening and closing synchronise the whole context in places (cuBLAS does so when a handle is destroyed),
/// which CUDA forbids for every thread while one of the context's streams is being captured.
static CONTEXT: RwLock<()> = RwLock::new(());

/// Opens a GPU for Candle and for our kernels. Several devices of one GPU, opened by threads of one process, run in
/// parallel.
///
/// All work of a device runs on one stream, so no events are needed between allocations. The stream is a new one:
/// Candle's default is a different stream in every host thread, and a tensor dropped by another thread would be freed
/// while kernels still read it. The memory pool keeps freed memory, and cuBLAS has one fixed workspace: its results are
/// then reproducible bit by bit, and its launches can be captured in a graph.
pub fn open(ordinal: usize) -> Result<Device> {
    let _alone = CONTEXT.write().unwrap_or_else(PoisonError::into_inner);
    let device = Device::new_cuda_with_stream(ordinal)?;
    if let Device::Cuda(cuda) = &device {
        // SAFETY: everything runs on this device's one stream.
        unsafe { cuda.disable_event_tracking() };
        keep_memory(ordinal)?;
        multiply::keep_sums_whole(cuda)?;
        let gpu = Gpu::new(Cuda {
            _workspace: multiply::fix_workspace(cuda)?,
            device: cuda.clone(),
            functions: Mutex::default(),
        });
        lock(&OPEN).push((cuda.id(), gpu));
    }
    Ok(device)
}

/// Closes a device. If tensors of it remain, everything but their memory is leaked.
///
/// # Errors
/// Fails if a kernel failed in a way that ends the context of its GPU, so that this process cannot compute on it any
/// more.
pub fn close(device: Device) -> Result<()> {
    let _alone = CONTEXT.write().unwrap_or_else(PoisonError::into_inner);
    let Device::Cuda(cuda) = &device else {
        return Ok(());
    };
    let stream = cuda.cuda_stream();
    // Errors of earlier calls, such as a lack of memory, were returned to their callers and are cleared here.
    let _ = stream.context().check_err();
    let ended = stream.synchronize().w();
    lock(&OPEN).retain(|(id, _)| *id != cuda.id());
    let rest = cuda.clone();
    drop(device);
    // Objects left by a panic would close the rest when their thread ends, while other threads may be recording.
    if Arc::strong_count(&rest.cublas_handle()) > 2 {
        std::mem::forget(rest);
    }
    ended?;
    let number = i32::try_from(stream.context().ordinal()).map_err(candle_core::Error::wrap)?;
    let gpu = result::device::get(number).w()?;
    // SAFETY: frees memory kept by recordings; memory in use stays.
    unsafe { sys::cuDeviceGraphMemTrim(gpu) }.result().w()
}

/// Returns the driver's memory pool of a GPU.
fn pool(ordinal: usize) -> Result<sys::CUmemoryPool> {
    let ordinal = i32::try_from(ordinal).map_err(candle_core::Error::wrap)?;
    let device = result::device::get(ordinal).w()?;
    let mut pool = std::ptr::null_mut();
    // SAFETY: the device exists.
    unsafe { sys::cuDeviceGetDefaultMemPool(&mut pool, device) }.result().w()?;
    Ok(pool)
}

/// Returns the driver's data about a GPU; `None` for the CPU.
pub fn chip(device: &Device) -> Result<Option<Chip>> {
    use sys::CUdevice_attribute as Attribute;
    let Device::Cuda(device) = device else {
        return Ok(None);
    };
    let stream = device.cuda_stream();
    let read = |attribute| {
        let value = stream.context().attribute(attribute).w()?;
        usize::try_from(value).map_err(candle_core::Error::wrap)
    };
    let kilohertz = |attribute| Ok::<f64, candle_core::Error>(1e3 * read(attribute)? as f64);
    let major = read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let wires = read(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
    Ok(Some(Chip {
        multiprocessors: read(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        lanes: match (major, minor) {
            (7, _) | (8, 0) => 64,
            _ => 128,
        },
        clock: kilohertz(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        // Two transfers per cycle and wire.
        bytes: 2.0 * kilohertz(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)? * wires as f64 / 8.0,
    }))
}

/// Returns the driver's name of a GPU; `None` for the CPU.
pub fn name(device: &Device) -> Result<Option<String>> {
    let Device::Cuda(device) = device else {
        return Ok(None);
    };
    device.cuda_stream().context().name().w().map(Some)
}

/// Configures the driver's memory pool to keep freed memory.
fn keep_memory(ordinal: usize) -> Result<()> {
    let mut all = u64::MAX;
    // SAFETY: the pool belongs to the device, and the attribute is a u64.
    unsafe {
        sys::cuMemPoolSetAttribute(
            pool(ordinal)?,
            sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            (&raw mut all).cast(),
        )
    }
    .result()
    .w()
}

/// Releases freed memory that the driver's memory pool keeps.
fn release_memory(ordinal: usize) -> Result<()> {
    // SAFETY: the pool belongs to the device; memory in use stays.
    unsafe { sys::cuMemPoolTrimTo(pool(ordinal)?, 0) }.result().w()
}

/// Returns the GPU that holds `x`; `None` for tensors on the CPU.
pub(super) fn of(x: &Tensor) -> Option<Gpu> {
    let Device::Cuda(device) = x.device() else {
        return None;
    };
    let open = lock(&OPEN);
    let found = open.iter().find(|(id, _)| *id == device.id());
    found.map(|(_, gpu)| gpu.clone())
}

/// Returns an empty tensor on the device of `like`. Candle launches nothing for it, and its allocation is no node of a
/// recording.
pub fn empty(like: &CudaStorage) -> Result<(CudaStorage, Shape)> {
    let device = &like.device;
    // SAFETY: there is no element that could be read before it is written.
    let slice = unsafe { device.alloc::<f32>(0) }?;
    let storage = CudaStorage::wrap_cuda_slice(slice, device.clone());
    Ok((storage, Shape::from(0)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Cuda {
    device: CudaDevice,
    /// Workspace of cuBLAS, which lives as long as the device.
    _workspace: CudaSlice<u8>,
    /// Functions by module and name, since two modules may have kernels with the same name.
    functions: Mutex<HashMap<(&'static str, String), CudaFunction>>,
}

impl Cuda {
    fn stream(&self) -> Arc<CudaStream> {
        self.device.cuda_stream()
    }

    fn module(&self, name: &'static str) -> Result<Arc<CudaModule>> {
        let stream = self.stream();
        let context = stream.context();
        let key = (context.ordinal(), name);
        let mut loaded = lock(&LOADED);
        if let Some(module) = loaded.get(&key) {
            return Ok(module.clone());
        }
        let Some((_, binary)) = MODULES.iter().find(|(module, _)| *module == name) else {
            bail!("this build holds no kernels of cuda/{name}.cu");
        };
        let binary = Ptx::from_binary(binary.to_vec());
        let module = context.load_module(binary).w()?;
        loaded.insert(key, module.clone());
        Ok(module)
    }

    fn function(&self, kernel: &Kernel) -> Result<CudaFunction> {
        let key = (kernel.module, kernel.name.clone());
        if let Some(function) = lock(&self.functions).get(&key) {
            return Ok(function.clone());
        }
        let module = self.module(kernel.module)?;
        let function = module.load_function(&kernel.name).w()?;
        lock(&self.functions).insert(key, function.clone());
        Ok(function)
    }

    fn storage<T: CudaDType + DeviceRepr>(&self, count: usize) -> Result<Storage> {
        // SAFETY: every caller launches a kernel that writes the memory before anything reads it.
        let slice = unsafe { self.device.alloc::<T>(count.max(1)) }?;
        Ok(self.wrap(slice))
    }

    fn wrap<T: CudaDType>(&self, slice: CudaSlice<T>) -> Storage {
        Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, self.device.clone()))
    }
}

/// Kernel arguments for the driver, which takes the addresses of values that live until the launch.
enum Packed {
    Address(u64),
    U32(u32),
    F32(f32),
    F64(f64),
    Table(Vec<u64>),
}

impl Packed {
    fn of(arg: &Arg) -> Result<Self> {
        Ok(match arg {
            Arg::Pointer(view) => Self::Address(view.address()),
            Arg::Null => Self::Address(0),
            Arg::U32(value) => Self::U32(*value),
            Arg::F32(value) => Self::F32(*value),
            Arg::F64(value) => Self::F64(*value),
            Arg::Table(entries) => Self::Table(entries.iter().map(address_of).collect::<Result<_>>()?),
            Arg::TooLarge(_) => bail!("a size beyond 32 bits reached a launch"),
        })
    }
}

fn address_of(entry: &Arg) -> Result<u64> {
    match Packed::of(entry)? {
        Packed::Address(address) => Ok(address),
        _ => bail!("a table holds pointers"),
    }
}

impl Machine for Cuda {
    fn most_shared(&self) -> Result<usize> {
        let stream = self.stream();
        let most = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let bytes = stream.context().attribute(most).w()?;
        usize::try_from(bytes).map_err(candle_core::Error::wrap)
    }

    fn allocate(&self, dtype: DType, count: usize) -> Result<Storage> {
        match dtype {
            DType::F32 => self.storage::<f32>(count),
            DType::BF16 => self.storage::<bf16>(count),
            DType::U32 => self.storage::<u32>(count),
            other => bail!("kernels do not know {other:?}"),
        }
    }

    fn address(&self, storage: &Storage) -> Result<u64> {
        let Storage::Cuda(storage) = storage else {
            bail!("a kernel was given a tensor that is not on the GPU");
        };
        let stream = self.stream();
        Ok(match storage.dtype() {
            DType::F32 => storage.as_cuda_slice::<f32>()?.device_ptr(&stream).0,
            DType::BF16 => storage.as_cuda_slice::<bf16>()?.device_ptr(&stream).0,
            DType::U32 => storage.as_cuda_slice::<u32>()?.device_ptr(&stream).0,
            other => bail!("kernels do not know {other:?}"),
        })
    }

    fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<()> {
        let function = self.function(kernel)?;
        let stream = self.stream();
        if grid.shared > SHARED {
            let asked = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            stream.context().bind_to_thread().w()?;
            function.set_attribute(asked, grid.shared as i32).w()?;
        }
        let packed: Vec<_> = args.iter().map(Packed::of).collect::<Result<_>>()?;
        let mut launch = stream.launch_builder(&function);
        for arg in &packed {
            match arg {
                Packed::Address(value) => launch.arg(value),
                Packed::U32(value) => launch.arg(value),
                Packed::F32(value) => launch.arg(value),
                Packed::F64(value) => launch.arg(value),
                // The driver copies the whole parameter, from the address of its first entry.
                Packed::Table(entries) => launch.arg(&entries[0]),
            };
        }
        let [x, y, z] = grid.blocks.map(|blocks| blocks as u32);
        let config = LaunchConfig {
            grid_dim: (x, y, z),
            block_dim: (grid.threads as u32, 1, 1),
            shared_mem_bytes: grid.shared as u32,
        };
        // SAFETY: tests in the emulation check that the arguments match the kernel and that it stays within their
        // bounds. All memory is freed in stream order, hence after the launch.
        unsafe { launch.launch(config) }.w()?;
        Ok(())
    }

    fn multiply(&self, product: Product, to: View) -> Result<()> {
        multiply::run(&self.device, product, to)
    }

    fn copy(&self, view: View) -> Result<Storage> {
        let storage = self.allocate(view.dtype(), view.len())?;
        let to = self.address(&storage)?;
        let stream = self.stream();
        // SAFETY: both allocations hold that many bytes, and nothing else refers to the new one.
        unsafe {
            result::memcpy_dtod_async(to, view.address(), view.bytes(), stream.cu_stream()).w()?;
        }
        Ok(storage)
    }

    fn upload(&self, values: &[u32]) -> Result<Storage> {
        Ok(self.wrap(self.stream().clone_htod(values).w()?))
    }

    fn write(&self, values: &[u32], to: View) -> Result<()> {
        let stream = self.stream();
        // SAFETY: `to` holds as many 4-byte elements. When this returns, the driver has copied the pageable host memory
        // to a staging buffer.
        unsafe { result::memcpy_htod_async(to.address(), values, stream.cu_stream()) }.w()
    }

    fn carrier(&self, words: usize) -> Result<Box<dyn Carrier>> {
        Ok(Box::new(mailbox::Pinned::new(self.stream(), words)?))
    }

    fn warm_up(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        // Keeps the sizes and strides that Candle's own kernels read. Enabled only here, since they are never freed.
        let _kept = self.device.enable_cuda_graph_htod_cache();
        work()
    }

    fn record(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>> {
        let _kept = self.device.enable_cuda_graph_htod_cache();
        let stream = self.stream();
        let recorded = {
            let _unbroken = CONTEXT.read().unwrap_or_else(PoisonError::into_inner);
            capture::record(&stream, work)?
        };
        // The recording allocates its own memory, so the pool can release what earlier steps left in it.
        release_memory(stream.context().ordinal())?;
        Ok(recorded)
    }
}
