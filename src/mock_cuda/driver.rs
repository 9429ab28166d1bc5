//! The driver's functions, with their names and arguments in `cuda.h`.

use crate::answer::{broken, log, require, Answer, Code};
use crate::elf::Image;
use crate::gpu;
use crate::graph::Graph;
use crate::kernel::Launch;
use crate::state::{is_pinned, Context, Driver, DRIVER};
use crate::stream::{Action, Capture, Event, Source, Stream};
use std::ffi::{c_char, c_void, CStr};
use std::sync::{Arc, PoisonError};

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MOST_DYNAMIC_SHARED: i32 = 8;

/// Defines exported functions of a library. Each takes the driver's lock, and returns 0 or the number of an error.
macro_rules! library {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) |$driver:ident| $body:block)*) => {
        $(
            #[no_mangle]
            unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
                $crate::driver::call(stringify!($name), |$driver| $body)
            }
        )*
    };
}
pub(crate) use library;

/// Runs a call, and records the rule that it breaks, if it does.
pub(crate) fn call(name: &str, work: impl FnOnce(&mut Driver) -> Answer) -> i32 {
    if std::env::var_os("DSF_MOCK_CUDA_TRACE").is_some_and(|traced| *traced == *name) {
        log("trace", format_args!("{name}\n{}", std::backtrace::Backtrace::force_capture()));
    }
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    let Err(refusal) = work(&mut driver) else {
        return 0;
    };
    if let Some(rule) = refusal.rule {
        log("fault", format_args!("{name}: {rule}"));
    }
    match name {
        _ if name.starts_with("cublas") => 13,  // CUBLAS_STATUS_EXECUTION_FAILED
        _ if name.starts_with("curand") => 999, // CURAND_STATUS_INTERNAL_ERROR
        _ => refusal.code as i32,
    }
}

/// Writes a result to the caller's place for it.
///
/// # Safety
///
/// `place` may be written.
unsafe fn give<T>(place: *mut T, value: T) -> Answer {
    require(!place.is_null(), Code::InvalidValue, "no place for the result")?;
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

impl Driver {
    /// Waits for everything in a context, as calls do that synchronise it.
    pub(crate) fn synchronize(&mut self, context: u64, call: &str) -> Answer {
        for handle in self.streams.handles() {
            let stream = self.streams.get(handle)?;
            if stream.context == context {
                stream.outside_captures(call)?;
                self.finish(handle, u64::MAX)?;
            }
        }
        Ok(())
    }

    /// Queues a copy to the device.
    fn copy_in(&mut self, stream: u64, to: u64, from: *const u8, bytes: usize) -> Answer {
        self.current()?;
        if bytes == 0 {
            return Ok(());
        }
        self.usable(to, bytes)?;
        let pinned = is_pinned(&self.host, from as u64, bytes);
        if !pinned {
            self.streams.get(stream)?.outside_captures("a copy from memory that is not page-locked")?;
        }
        let from = match pinned {
            true => Source::Pinned(from as u64),
            // SAFETY: the caller passes that many bytes, which CUDA copies before it returns.
            false => Source::Staged(unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec()),
        };
        self.queue(stream, Action::ToDevice { from, to, bytes })
    }

    /// Queues a copy to the host, and waits for it if the memory is not page-locked.
    fn copy_out(&mut self, stream: u64, from: u64, to: u64, bytes: usize) -> Answer {
        self.current()?;
        if bytes == 0 {
            return Ok(());
        }
        self.usable(from, bytes)?;
        let pinned = is_pinned(&self.host, to, bytes);
        if !pinned {
            self.streams.get(stream)?.outside_captures("a copy to memory that is not page-locked")?;
        }
        self.queue(stream, Action::ToHost { from, to, bytes })?;
        match pinned {
            true => Ok(()),
            false => self.finish(stream, u64::MAX),
        }
    }

    /// Allocates memory for what a stream runs from now on.
    fn allocate(&mut self, stream: u64, bytes: usize) -> Answer<u64> {
        let context = self.current()?;
        self.streams.get(stream)?;
        if bytes == 0 {
            return Ok(0);
        }
        let mut found = self.memory.allocate(context, bytes, self.limit);
        if found.is_err() {
            self.finish_all()?; // what was freed while work was pending is free now
            found = self.memory.allocate(context, bytes, self.limit);
        }
        let address = found?;
        if let Some(capture) = &mut self.streams.get(stream)?.capture {
            capture.allocated.insert(address);
            capture.memory.push(address);
            self.memory.end(address)?;
            self.queue(stream, Action::Allocate(address))?;
        }
        Ok(address)
    }

    /// Frees memory once a stream has run what it holds.
    fn free(&mut self, stream: u64, address: u64) -> Answer {
        self.current()?;
        if address == 0 {
            return Ok(());
        }
        let block = self.memory.block(address)?;
        if block.freed {
            return Err(broken(Code::InvalidValue, format!("the memory at {address:#x} is freed twice")));
        }
        let captured = self.streams.get(stream)?.capture.as_mut();
        if let Some(capture) = captured {
            if !capture.allocated.remove(&address) {
                capture.invalid = true;
                let rule = "memory that was allocated before a capture is freed in it";
                return Err(broken(Code::InvalidValue, rule));
            }
            block.freed = true;
            return self.queue(stream, Action::Free(address));
        }
        block.freed = true;
        self.queue(stream, Action::Release(address))
    }

    /// Releases the memory of a graph, unless another can use it.
    fn release(&mut self, graph: Graph) -> Answer {
        graph.released().into_iter().try_for_each(|address| self.memory.release(address))
    }

    /// Ends a capture, and returns the handle of its graph.
    fn end_capture(&mut self, stream: u64) -> Answer<u64> {
        self.current()?;
        let Some(capture) = self.streams.get(stream)?.capture.take() else {
            return Err(broken(Code::InvalidValue, "the stream is not being captured"));
        };
        let same = capture.thread == std::thread::current().id();
        require(same, Code::InvalidValue, "a capture must end in the thread in which it began")?;
        let (invalid, kept) = (capture.invalid, capture.allocated.len());
        let graph = Graph::of(capture);
        if !invalid && kept == 0 {
            return Ok(self.graphs.open(graph));
        }
        self.release(graph)?;
        match invalid {
            true => Err(Code::CaptureInvalidated.into()),
            false => Err(broken(Code::InvalidValue, "a capture leaves memory that it has not freed")),
        }
    }
}

library! {
    fn cuInit(flags: u32) |driver| {
        require(flags == 0, Code::InvalidValue, "flags of cuInit must be 0")?;
        driver.initialised = true;
        Ok(())
    }

    fn cuDriverGetVersion(version: *mut i32) |_driver| {
        // SAFETY: the caller's place for one number.
        unsafe { give(version, gpu::VERSION) }
    }

    fn cuGetErrorName(code: i32, words: *mut *const c_char) |_driver| {
        // SAFETY: the caller's place for one pointer.
        unsafe { give(words, Code::words(code).0.as_ptr().cast()) }
    }

    fn cuGetErrorString(code: i32, words: *mut *const c_char) |_driver| {
        // SAFETY: as above.
        unsafe { give(words, Code::words(code).1.as_ptr().cast()) }
    }

    fn cuDeviceGetCount(count: *mut i32) |driver| {
        driver.ready()?;
        // SAFETY: the caller's place for one number.
        unsafe { give(count, driver.gpus as i32) }
    }

    fn cuDeviceGet(device: *mut i32, ordinal: i32) |driver| {
        driver.gpu(ordinal)?;
        // SAFETY: as above.
        unsafe { give(device, ordinal) }
    }

    fn cuDeviceGetName(name: *mut c_char, room: i32, device: i32) |driver| {
        driver.gpu(device)?;
        let length = gpu::NAME.len().min(usize::try_from(room).unwrap_or(0).saturating_sub(1));
        // SAFETY: the caller's buffer has that much room, and one byte more for the zero.
        unsafe {
            std::ptr::copy_nonoverlapping(gpu::NAME.as_ptr(), name.cast::<u8>(), length);
            give(name.add(length), 0)
        }
    }

    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) |driver| {
        driver.gpu(device)?;
        // SAFETY: the caller's place for one number.
        unsafe { give(value, gpu::attribute(attribute)) }
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) |driver| {
        driver.gpu(device)?;
        // SAFETY: as above.
        unsafe { give(bytes, driver.limit) }
    }

    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) |driver| {
        let gpu = driver.gpu(device)?;
        let open = driver.contexts.handles();
        let mut found = None;
        for handle in open {
            if driver.contexts.get(handle)?.gpu == gpu {
                found = Some(handle);
            }
        }
        let handle = found.unwrap_or_else(|| driver.contexts.open(Context { gpu, retained: 0, failed: None }));
        driver.contexts.get(handle)?.retained += 1;
        // SAFETY: the caller's place for one handle.
        unsafe { give(context, handle) }
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) |driver| {
        let gpu = driver.gpu(device)?;
        for handle in driver.contexts.handles() {
            let context = driver.contexts.get(handle)?;
            if context.gpu == gpu && context.retained > 0 {
                context.retained -= 1;
                return Ok(());
            }
        }
        Err(broken(Code::InvalidContext, "the context is released more often than it was retained"))
    }

    fn cuCtxSetCurrent(context: u64) |driver| {
        driver.ready()?;
        driver.set_current(context)
    }

    fn cuCtxGetCurrent(context: *mut u64) |driver| {
        driver.ready()?;
        // SAFETY: the caller's place for one handle.
        unsafe { give(context, Driver::current_handle()) }
    }

    fn cuCtxSynchronize() |driver| {
        let context = driver.current()?;
        driver.synchronize(context, "cuCtxSynchronize")
    }

    fn cuStreamCreate(stream: *mut u64, _flags: u32) |driver| {
        let context = driver.current()?;
        let handle = driver.streams.open(Stream::of(context));
        // SAFETY: the caller's place for one handle.
        unsafe { give(stream, handle) }
    }

    fn cuStreamDestroy_v2(stream: u64) |driver| {
        driver.current()?;
        driver.streams.get(stream)?.outside_captures("cuStreamDestroy")?;
        driver.finish(stream, u64::MAX)?;
        driver.streams.close(stream).map(drop)
    }

    fn cuStreamSynchronize(stream: u64) |driver| {
        driver.current()?;
        driver.streams.get(stream)?.outside_captures("cuStreamSynchronize")?;
        driver.finish(stream, u64::MAX)
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) |driver| {
        driver.current()?;
        driver.streams.get(stream)?.outside_captures("cuStreamWaitEvent")?;
        match driver.events.get(event)?.recorded {
            // It runs at once, since the stream that waits for it could.
            Some((stream, place)) => driver.finish(stream, place),
            None => Ok(()),
        }
    }

    fn cuStreamBeginCapture_v2(stream: u64, mode: i32) |driver| {
        driver.current()?;
        require(mode == 1, Code::InvalidValue, "captures here are of mode THREAD_LOCAL")?;
        let stream = driver.streams.get(stream)?;
        stream.outside_captures("cuStreamBeginCapture")?;
        stream.capture = Some(Capture::by_this_thread());
        Ok(())
    }

    fn cuStreamEndCapture(stream: u64, graph: *mut u64) |driver| {
        // SAFETY: the caller's place for one handle.
        unsafe { give(graph, 0)? };
        let handle = driver.end_capture(stream)?;
        // SAFETY: as above.
        unsafe { give(graph, handle) }
    }

    fn cuStreamIsCapturing(stream: u64, status: *mut i32) |driver| {
        driver.current()?;
        let capture = driver.streams.get(stream)?.capture.as_ref();
        let found = capture.map_or(0, |capture| 1 + i32::from(capture.invalid));
        // SAFETY: the caller's place for one number.
        unsafe { give(status, found) }
    }

    fn cuEventCreate(event: *mut u64, _flags: u32) |driver| {
        driver.current()?;
        let handle = driver.events.open(Event::default());
        // SAFETY: the caller's place for one handle.
        unsafe { give(event, handle) }
    }

    fn cuEventRecord(event: u64, stream: u64) |driver| {
        driver.current()?;
        driver.streams.get(stream)?.outside_captures("cuEventRecord")?;
        driver.events.get(event)?.passed = None;
        driver.queue(stream, Action::Record(event))?;
        let place = driver.streams.get(stream)?.last();
        driver.events.get(event)?.recorded = Some((stream, place));
        Ok(())
    }

    fn cuEventSynchronize(event: u64) |driver| {
        driver.current_outside_captures()?;
        match driver.events.get(event)?.recorded {
            Some((stream, place)) => driver.finish(stream, place),
            None => Ok(()),
        }
    }

    fn cuEventQuery(event: u64) |driver| {
        driver.current_outside_captures()?;
        match driver.events.get(event)?.recorded {
            // A program that asks again and again must see an end.
            Some((stream, place)) => driver.finish(stream, place),
            None => Ok(()),
        }
    }

    fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: u64, end: u64) |driver| {
        driver.current()?;
        let (start, end) = (driver.events.get(start)?.passed, driver.events.get(end)?.passed);
        let (Some(start), Some(end)) = (start, end) else {
            return Err(Code::NotReady.into());
        };
        // SAFETY: the caller's place for one number.
        unsafe { give(milliseconds, 1e3 * end.saturating_duration_since(start).as_secs_f32()) }
    }

    fn cuEventDestroy_v2(event: u64) |driver| {
        driver.current()?;
        driver.events.close(event).map(drop)
    }

    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64) |driver| {
        let found = driver.allocate(stream, bytes)?;
        // SAFETY: the caller's place for one address.
        unsafe { give(address, found) }
    }

    fn cuMemFreeAsync(address: u64, stream: u64) |driver| {
        driver.free(stream, address)
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) |driver| {
        let context = driver.current_outside_captures()?;
        require(bytes > 0, Code::InvalidValue, "cuMemAlloc of 0 bytes")?;
        let found = driver.memory.allocate(context, bytes, driver.limit)?;
        // SAFETY: the caller's place for one address.
        unsafe { give(address, found) }
    }

    fn cuMemFree_v2(address: u64) |driver| {
        driver.current_outside_captures()?;
        require(!driver.memory.block(address)?.freed, Code::InvalidValue, "memory is freed twice")?;
        driver.finish_all()?;
        driver.memory.release(address)
    }

    fn cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, _flags: u32) |driver| {
        driver.current_outside_captures()?;
        // In words of eight bytes, and never empty.
        let words = vec![0u64; bytes.div_ceil(8).max(1)].leak();
        let address = words.as_mut_ptr();
        driver.host.insert(address as u64, 8 * words.len());
        // SAFETY: the caller's place for one address.
        unsafe { give(memory, address.cast()) }
    }

    fn cuMemFreeHost(memory: *mut c_void) |driver| {
        driver.current_outside_captures()?;
        let Some(bytes) = driver.host.remove(&(memory as u64)) else {
            return Err(broken(Code::InvalidValue, "page-locked memory that was not allocated, or is freed twice"));
        };
        driver.finish_all()?;
        // SAFETY: leaked by `cuMemHostAlloc` with that many words.
        drop(unsafe { Vec::from_raw_parts(memory.cast::<u64>(), bytes / 8, bytes / 8) });
        Ok(())
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |driver| {
        let context = driver.current()?;
        // SAFETY: the caller's places for two numbers.
        unsafe {
            give(free, driver.limit.saturating_sub(driver.memory.used(context)))?;
            give(total, driver.limit)
        }
    }

    fn cuDeviceGetDefaultMemPool(pool: *mut u64, device: i32) |driver| {
        let gpu = driver.gpu(device)?;
        // SAFETY: the caller's place for one handle.
        unsafe { give(pool, 1 + gpu as u64) }
    }

    fn cuMemPoolSetAttribute(pool: u64, _attribute: i32, _value: *mut c_void) |driver| {
        driver.ready()?;
        require(pool >= 1 && pool <= driver.gpus as u64, Code::InvalidValue, "no such memory pool")
    }

    fn cuMemPoolTrimTo(pool: u64, _keep: usize) |driver| {
        driver.ready()?;
        require(pool >= 1 && pool <= driver.gpus as u64, Code::InvalidValue, "no such memory pool")
    }

    fn cuDeviceGraphMemTrim(device: i32) |driver| {
        driver.gpu(device).map(drop)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, stream: u64) |driver| {
        driver.copy_in(stream, to, from, bytes)
    }

    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) |driver| {
        driver.copy_out(stream, from, to, bytes)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) |driver| {
        driver.current()?;
        if bytes == 0 {
            return Ok(());
        }
        driver.usable(from, bytes)?;
        driver.usable(to, bytes)?;
        driver.queue(stream, Action::OnDevice { from, to, bytes })
    }

    fn cuMemsetD8Async(at: u64, value: u8, bytes: usize, stream: u64) |driver| {
        driver.current()?;
        if bytes == 0 {
            return Ok(());
        }
        driver.usable(at, bytes)?;
        driver.queue(stream, Action::Clear { at, value, bytes })
    }

    fn cuModuleLoadData(module: *mut u64, image: *const u8) |driver| {
        driver.current_outside_captures()?;
        // SAFETY: the caller passes a whole image.
        let image = unsafe { Image::read(image, gpu::CAPABILITY) }?;
        let loaded = driver.kernels.load(image)?;
        let context = driver.current()?;
        let handle = driver.modules.open((context, loaded));
        // SAFETY: the caller's place for one handle.
        unsafe { give(module, handle) }
    }

    fn cuModuleUnload(module: u64) |driver| {
        driver.current_outside_captures()?;
        driver.modules.close(module).map(drop)
    }

    fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) |driver| {
        driver.current()?;
        // SAFETY: the caller passes text that ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let (context, module) = driver.modules.get(module)?;
        let (context, found) = (*context, driver.kernels.function(module, &name)?);
        let handle = driver.functions.open((context, Arc::new(found)));
        // SAFETY: the caller's place for one handle.
        unsafe { give(function, handle) }
    }

    fn cuFuncSetAttribute(function: u64, attribute: i32, value: i32) |driver| {
        driver.current()?;
        let (context, function) = driver.functions.get(function)?.clone();
        driver.same_context(context, "kernel")?;
        require(attribute == MOST_DYNAMIC_SHARED, Code::InvalidValue, "an attribute that the mock driver does not know")?;
        let bytes = usize::try_from(value);
        function.ask(bytes.map_err(|_| broken(Code::InvalidValue, "a negative number of bytes"))?)
    }

    fn cuLaunchKernel(
        function: u64, blocks_x: u32, blocks_y: u32, blocks_z: u32, threads_x: u32, threads_y: u32, threads_z: u32,
        shared: u32, stream: u64, values: *const *const u8, extra: *const c_void,
    ) |driver| {
        driver.current()?;
        require(extra.is_null(), Code::InvalidValue, "arguments are passed by their addresses here")?;
        let (context, function) = driver.functions.get(function)?.clone();
        driver.same_context(context, "kernel")?;
        let (blocks, threads) = ([blocks_x, blocks_y, blocks_z], [threads_x, threads_y, threads_z]);
        // SAFETY: the caller passes an address for each parameter.
        let launch = unsafe { Launch::new(function, blocks, threads, shared, values) };
        for address in launch.check()? {
            driver.usable(address, 0).map_err(|refusal| {
                broken(refusal.code, format!("{}: {}", launch.function.name(), refusal.rule.unwrap_or_default()))
            })?;
        }
        driver.queue(stream, Action::Launch(launch))
    }

    fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, _flags: u64) |driver| {
        driver.current()?;
        let graph = driver.graphs.get(graph)?;
        log("graph", &graph);
        let made = graph.clone();
        let handle = driver.executables.open(made);
        // SAFETY: the caller's place for one handle.
        unsafe { give(executable, handle) }
    }

    fn cuGraphLaunch(executable: u64, stream: u64) |driver| {
        driver.current()?;
        driver.streams.get(stream)?.outside_captures("cuGraphLaunch")?;
        let nodes = driver.executables.get(executable)?.nodes.clone();
        driver.queue(stream, Action::Replay(nodes))
    }

    fn cuGraphDestroy(graph: u64) |driver| {
        driver.finish_all()?;
        let graph = driver.graphs.close(graph)?;
        driver.release(graph)
    }

    fn cuGraphExecDestroy(executable: u64) |driver| {
        driver.finish_all()?;
        let graph = driver.executables.close(executable)?;
        driver.release(graph)
    }

    fn cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) |driver| {
        let kinds: Vec<_> = driver.graphs.get(graph)?.nodes.iter().map(Action::kind).collect();
        if nodes.is_null() {
            // SAFETY: the caller's place for one number.
            return unsafe { give(count, kinds.len()) };
        }
        // SAFETY: the caller's places: a number, and as many handles.
        unsafe {
            require(count.read() >= kinds.len(), Code::InvalidValue, "fewer places than the graph has nodes")?;
            for (i, kind) in kinds.into_iter().enumerate() {
                give(nodes.add(i), driver.nodes.open(kind))?;
            }
        }
        Ok(())
    }

    fn cuGraphNodeGetType(node: u64, kind: *mut i32) |driver| {
        let found = *driver.nodes.get(node)?;
        // SAFETY: the caller's place for one number.
        unsafe { give(kind, found) }
    }
}
