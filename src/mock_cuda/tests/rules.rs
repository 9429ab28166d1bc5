//! Each broken rule is refused with CUDA's error and named in the log.

#![allow(unsafe_code)] // calls the driver, with faults

use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;

// Links the library.
use dsf_mock_cuda as _;

extern "C" {
    fn cuInit(flags: u32) -> i32;
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) -> i32;
    fn cuCtxSetCurrent(context: u64) -> i32;
    fn cuCtxSynchronize() -> i32;
    fn cuStreamCreate(stream: *mut u64, flags: u32) -> i32;
    fn cuStreamDestroy_v2(stream: u64) -> i32;
    fn cuStreamSynchronize(stream: u64) -> i32;
    fn cuStreamBeginCapture_v2(stream: u64, mode: i32) -> i32;
    fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> i32;
    fn cuEventCreate(event: *mut u64, flags: u32) -> i32;
    fn cuEventRecord(event: u64, stream: u64) -> i32;
    fn cuEventSynchronize(event: u64) -> i32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> i32;
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64) -> i32;
    fn cuMemFreeAsync(address: u64, stream: u64) -> i32;
    fn cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, flags: u32) -> i32;
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, stream: u64) -> i32;
    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) -> i32;
    fn cuMemsetD8Async(at: u64, value: u8, bytes: usize, stream: u64) -> i32;
    fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, flags: u64) -> i32;
    fn cuGraphLaunch(executable: u64, stream: u64) -> i32;
    fn cuModuleLoadData(module: *mut u64, image: *const u8) -> i32;
    fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const u8) -> i32;
    fn cuFuncSetAttribute(function: u64, attribute: i32, value: i32) -> i32;
    fn cuLaunchKernel(
        function: u64,
        blocks_x: u32,
        blocks_y: u32,
        blocks_z: u32,
        threads_x: u32,
        threads_y: u32,
        threads_z: u32,
        shared: u32,
        stream: u64,
        values: *const *const u8,
        extra: *const c_void,
    ) -> i32;
}

const INVALID_VALUE: i32 = 1;
const NOT_INITIALIZED: i32 = 3;
const INVALID_DEVICE: i32 = 101;
const INVALID_CONTEXT: i32 = 201;
const INVALID_HANDLE: i32 = 400;
const NOT_FOUND: i32 = 500;
const ILLEGAL_ADDRESS: i32 = 700;
const CAPTURE_UNSUPPORTED: i32 = 900;
const CAPTURE_INVALIDATED: i32 = 901;

/// Attribute of a kernel: the bytes of dynamic shared memory that a launch may take.
const MOST_DYNAMIC_SHARED: i32 = 8;

/// Mode of captures that watch only the calls of their own thread.
const THREAD_LOCAL: i32 = 1;

/// Candle's addition, as PTX describes it.
const ADDITION: &[u8] = b".visible .entry badd_f32(\n\t.param .u64 badd_f32_param_0,\n\t.param .u64 badd_f32_param_1,
    .param .u64 badd_f32_param_2,\n\t.param .u64 badd_f32_param_3,\n\t.param .u64 badd_f32_param_4,
    .param .u64 badd_f32_param_5\n)\n{\n}\n\0";

/// The last line of the log.
fn last(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or_default().to_owned()
}

/// Returns what a call writes to its first argument.
fn made(call: impl FnOnce(*mut u64) -> i32) -> u64 {
    let mut handle = 0;
    assert_eq!(call(&raw mut handle), 0);
    handle
}

/// One test, since all threads of a process share the driver and its log.
#[test]
fn broken_rules_are_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    std::env::set_var("DSF_MOCK_CUDA_LOG", &log);
    std::env::set_var("DSF_MOCK_CUDA_GPUS", "2");
    let refused = |code: i32, expected: i32, rule: &str| {
        assert_eq!(code, expected, "{rule}");
        let line = last(&log);
        assert!(line.starts_with("fault: ") && line.contains(rule), "{line:?} does not say: {rule}");
    };
    // SAFETY: places for results are valid, and so is the memory behind addresses of the host.
    unsafe {
        refused(cuCtxSetCurrent(0), NOT_INITIALIZED, "cuInit has not been called");
        assert_eq!(cuInit(0), 0);
        refused(cuCtxSynchronize(), INVALID_CONTEXT, "no current context");
        let context = made(|place| cuDevicePrimaryCtxRetain(place, 0));
        assert_eq!(cuCtxSetCurrent(context), 0);
        refused(cuStreamSynchronize(context), INVALID_HANDLE, "no open stream");
        // Another GPU may use neither its streams nor its memory.
        let other = made(|place| cuDevicePrimaryCtxRetain(place, 1));
        assert_eq!(cuCtxSetCurrent(other), 0);
        let stream = made(|place| cuStreamCreate(place, 1));
        let memory = made(|place| cuMemAllocAsync(place, 16, stream));
        assert_eq!(cuCtxSetCurrent(context), 0);
        refused(cuMemsetD8Async(memory, 0, 16, stream), ILLEGAL_ADDRESS, "memory of another GPU");
        let mut place = 0;
        let own = made(|place| cuStreamCreate(place, 1));
        let memory = made(|place| cuMemAllocAsync(place, 16, own));
        refused(
            cuMemsetD8Async(memory, 0, 16, stream),
            INVALID_HANDLE,
            "the stream belongs to the context of another GPU",
        );
        refused(cuDevicePrimaryCtxRetain(&raw mut place, 2), INVALID_DEVICE, "there are 2 GPUs");

        let stream = made(|place| cuStreamCreate(place, 1));
        let memory = made(|place| cuMemAllocAsync(place, 16, stream));
        refused(cuMemsetD8Async(memory, 0, 17, stream), ILLEGAL_ADDRESS, "17 bytes");
        assert_eq!(cuMemFreeAsync(memory, stream), 0);
        refused(cuMemsetD8Async(memory, 0, 16, stream), ILLEGAL_ADDRESS, "memory that was freed");
        refused(cuMemFreeAsync(memory, stream), INVALID_VALUE, "freed twice");
        assert_eq!(cuStreamSynchronize(stream), 0);
        refused(cuMemFreeAsync(memory, stream), INVALID_VALUE, "no allocation begins");
        // No bytes are no fault, as on a GPU.
        assert_eq!(made(|place| cuMemAllocAsync(place, 0, stream)), 0);

        // A copy to page-locked memory has happened only after something waited for it.
        let mut host = null_mut();
        assert_eq!(cuMemHostAlloc(&raw mut host, 8, 0), 0);
        let memory = made(|place| cuMemAllocAsync(place, 8, stream));
        let event = made(|place| cuEventCreate(place, 0));
        assert_eq!(cuMemsetD8Async(memory, 7, 8, stream), 0);
        assert_eq!(cuMemcpyDtoHAsync_v2(host as u64, memory, 8, stream), 0);
        assert_eq!(cuEventRecord(event, stream), 0);
        assert_eq!(host.cast::<u8>().read(), 0);
        assert_eq!(cuEventSynchronize(event), 0);
        assert_eq!(host.cast::<u8>().read(), 7);

        // Each forbidden call makes a capture of its own invalid.
        let mut words = [1u8; 8];
        let mut graph = 0;
        let mut forbidden = |call: &mut dyn FnMut() -> i32, expected: i32, rule: &str| {
            assert_eq!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL), 0);
            refused(call(), expected, rule);
            cuStreamEndCapture(stream, &raw mut graph)
        };
        let mut upload = || cuMemcpyHtoDAsync_v2(memory, words.as_ptr(), 8, stream);
        assert_eq!(forbidden(&mut upload, CAPTURE_UNSUPPORTED, "not page-locked"), CAPTURE_INVALIDATED);
        let at = words.as_mut_ptr() as u64;
        let mut download = || cuMemcpyDtoHAsync_v2(at, memory, 8, stream);
        assert_eq!(forbidden(&mut download, CAPTURE_UNSUPPORTED, "not page-locked"), CAPTURE_INVALIDATED);
        let mut wait = || cuStreamSynchronize(stream);
        assert_eq!(forbidden(&mut wait, CAPTURE_UNSUPPORTED, "while the stream is captured"), CAPTURE_INVALIDATED);
        let mut wait = || cuCtxSynchronize();
        assert_eq!(forbidden(&mut wait, CAPTURE_UNSUPPORTED, "while the stream is captured"), CAPTURE_INVALIDATED);
        let mut load = || cuModuleLoadData(&raw mut *Box::leak(Box::new(0)), ADDITION.as_ptr());
        assert_eq!(forbidden(&mut load, CAPTURE_UNSUPPORTED, "this thread captures"), CAPTURE_INVALIDATED);
        let mut place = 0;
        let mut allocate = || cuMemAlloc_v2(&raw mut place, 8);
        assert_eq!(forbidden(&mut allocate, CAPTURE_UNSUPPORTED, "this thread captures"), CAPTURE_INVALIDATED);
        let mut free = || cuMemFreeAsync(memory, stream);
        assert_eq!(forbidden(&mut free, INVALID_VALUE, "allocated before a capture"), CAPTURE_INVALIDATED);
        assert_eq!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL), 0);
        made(|place| cuMemAllocAsync(place, 8, stream));
        refused(cuStreamEndCapture(stream, &raw mut graph), INVALID_VALUE, "has not freed");
        refused(cuStreamEndCapture(stream, &raw mut graph), INVALID_VALUE, "not being captured");

        // A graph reads its memory again in each launch; its log line counts the nodes.
        assert_eq!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL), 0);
        let inner = made(|place| cuMemAllocAsync(place, 8, stream));
        assert_eq!(cuMemsetD8Async(memory, 9, 8, stream), 0);
        assert_eq!(cuMemcpyDtoHAsync_v2(host as u64, memory, 8, stream), 0);
        assert_eq!(cuMemFreeAsync(inner, stream), 0);
        let graph = made(|place| cuStreamEndCapture(stream, place));
        let executable = made(|place| cuGraphInstantiateWithFlags(place, graph, 1));
        assert_eq!(last(&log), "graph: nodes=2 own=0 products=0 candle=0 copies=1 clears=1 allocations=1 frees=1");
        assert_eq!(cuGraphLaunch(executable, stream), 0);
        assert_eq!(host.cast::<u8>().read(), 7);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(host.cast::<u8>().read(), 9);
        refused(cuMemsetD8Async(inner, 0, 8, stream), ILLEGAL_ADDRESS, "memory that was freed");

        // Kernels: their names, grids and memory. After an illegal access the context is lost.
        let module = made(|place| cuModuleLoadData(place, ADDITION.as_ptr()));
        let mut function = 0;
        refused(cuModuleGetFunction(&raw mut function, module, c"bsub_f32".as_ptr().cast()), NOT_FOUND, "no kernel");
        let function = made(|place| cuModuleGetFunction(place, module, c"badd_f32".as_ptr().cast()));
        let launch_with = |blocks: u32, shared: u32, count: u64| {
            let arguments: [u64; 6] = [count, 1, 0, memory, memory, memory];
            let places = arguments.each_ref().map(|argument| std::ptr::from_ref(argument).cast::<u8>());
            cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, shared, stream, places.as_ptr(), null_mut())
        };
        let launch = |blocks: u32, count: u64| launch_with(blocks, 0, count);
        // More shared memory than every GPU has must be asked for, up to what an H100 has.
        let more = 64 << 10;
        refused(launch_with(1, more, 2), INVALID_VALUE, "65536 more in its launch");
        refused(cuFuncSetAttribute(function, MOST_DYNAMIC_SHARED, 256 << 10), INVALID_VALUE, "of at most 232448");
        refused(cuFuncSetAttribute(function, MOST_DYNAMIC_SHARED, -1), INVALID_VALUE, "a negative number");
        assert_eq!(cuFuncSetAttribute(function, MOST_DYNAMIC_SHARED, more as i32), 0);
        assert_eq!(launch_with(1, more, 2), 0);
        refused(launch_with(1, more + 1, 2), INVALID_VALUE, "65537 more in its launch");
        refused(launch(0, 2), INVALID_VALUE, "a grid of [0, 1, 1] blocks");
        assert_eq!(launch(1, 2), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(launch(1, 3), 0);
        refused(cuStreamSynchronize(stream), ILLEGAL_ADDRESS, "Candle's badd_f32: element 2 of 2");
        assert_eq!(cuStreamSynchronize(stream), ILLEGAL_ADDRESS);
        assert_eq!(cuStreamDestroy_v2(stream), ILLEGAL_ADDRESS);
    }
}
