use super::*;
use dsf_gpu::{with_factors, Buffer, Factors, Gpu, Grid, Kernel, Matrix};
use std::fs;

mod mma;

/// Returns a GPU with one kernel from source text.
fn gpu_with(kernel: &str) -> (tempfile::TempDir, Gpu) {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("#include \"device.cuh\"\n{kernel}");
    fs::write(folder.path().join("planted.cu"), text).unwrap();
    let gpu = Emulation::of(folder.path().to_owned()).gpu();
    (folder, gpu)
}

/// Runs a kernel of 64 threads on y with `count` numbers.
fn run(kernel: &str, blocks: usize, count: usize) -> Result<Vec<f32>> {
    let (_folder, gpu) = gpu_with(kernel);
    let mut y = gpu.alloc(DType::F32, count)?;
    let planted = Kernel::new("planted", "planted");
    gpu.launch(planted, Grid::of(blocks, 64), &[(&mut y).into(), count.into()])?;
    y.into_tensor(count)?.to_vec1()
}

fn refused(kernel: &str, blocks: usize, count: usize, message: &str) {
    let error = run(kernel, blocks, count).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

/// Returns a kernel that sums 64 numbers through shared memory, with `barrier` between writing and reading.
fn summing(barrier: &str) -> String {
    format!(
        "KERNEL(planted, 64, Global<float> y, uint32_t count) {{
             SHARED(float, parts, 64);
             parts[threadIdx.x] = float(threadIdx.x);
             {barrier}
             float sum = 0.0f;
             for (int i = 0; i < 64; ++i) sum += parts[i];
             if (threadIdx.x < count) y[threadIdx.x] = sum;
         }}"
    )
}

#[test]
fn threads_share_memory_across_a_barrier() {
    assert_eq!(run(&summing("__syncthreads();"), 1, 3).unwrap(), [2016.0; 3]);
}

#[test]
fn a_missing_barrier_is_a_race() {
    refused(&summing(""), 1, 3, "race: thread");
}

#[test]
fn a_barrier_of_a_warp_orders_only_that_warp() {
    refused(&summing("__syncwarp();"), 1, 3, "race: thread");
    let within = "KERNEL(planted, 64, Global<float> y, uint32_t count) {
        SHARED(float, parts, 64);
        parts[threadIdx.x] = float(threadIdx.x);
        __syncwarp();
        y[threadIdx.x] = parts[threadIdx.x ^ 1];
    }";
    assert_eq!(run(within, 1, 64).unwrap()[..4], [1.0, 0.0, 3.0, 2.0]);
}

#[test]
fn a_shuffle_orders_no_memory() {
    let kernel = "KERNEL(planted, 64, Global<float> y, uint32_t count) {
        SHARED(float, parts, 64);
        parts[threadIdx.x] = shuffle_xor(float(threadIdx.x), 1);
        float other = shuffle_xor(1.0f, 1);
        y[threadIdx.x] = parts[threadIdx.x ^ 1] + other;
    }";
    refused(kernel, 1, 64, "race: thread");
}

#[test]
fn two_blocks_that_write_one_element_are_a_race() {
    let kernel = "KERNEL(planted, 64, Global<float> y, uint32_t count) {
        if (threadIdx.x < count) y[threadIdx.x] = 1.0f;
    }";
    assert_eq!(run(kernel, 1, 5).unwrap(), [1.0; 5]);
    refused(kernel, 2, 5, "race: thread 0 of block 1 writes what thread 0 of block 0");
}

#[test]
fn an_access_beyond_the_end_is_found() {
    let kernel = "KERNEL(planted, 64, Global<float> y, uint32_t count) {
        if (threadIdx.x <= count) y[threadIdx.x] = 1.0f;
    }";
    refused(kernel, 1, 5, "out of bounds: thread 5 of block 0 touches element 5 of argument 0, which has 5");
}

#[test]
fn an_access_beyond_shared_memory_is_found() {
    let kernel = "KERNEL(planted, 64, Global<float> y, uint32_t count) {
        SHARED(float, parts, 63);
        parts[threadIdx.x] = 1.0f;
    }";
    refused(kernel, 1, 5, "touches element 63 of shared memory");
}

#[test]
fn what_was_not_written_is_nan() {
    let kernel = "KERNEL(planted, 64, Global<float> y, uint32_t count) {
        SHARED(float, parts, 64);
        if (threadIdx.x == 1) y[1] = parts[7];
    }";
    let y = run(kernel, 1, 2).unwrap();
    assert!(y[0].is_nan() && y[1].is_nan());
}

/// Only the last elements of a tensor of 2^31 and more are computed, and those before stay zero. The index of a warp that
/// is computed from that of a thread wraps around where there are 2^32 threads.
#[test]
fn the_end_of_a_large_tensor_is_computed_alone() {
    const COUNT: usize = (1 << 31) + 64;
    let last = |kernel: &str, blocks: usize, count: usize| {
        at_ends(1, || {
            let (_folder, gpu) = gpu_with(kernel);
            let mut y = gpu.alloc(DType::BF16, count)?;
            let planted = Kernel::new("planted", "planted");
            gpu.launch(planted, Grid::of(blocks, 64), &[(&mut y).into(), count.into()])?;
            let y = y.into_tensor(count)?.narrow(0, count - 128, 128)?;
            y.to_dtype(DType::F32)?.to_vec1::<f32>()
        })
        .unwrap()
    };
    let each = "KERNEL(planted, 64, Global<bf16> y, uint32_t count) {
        uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < count) y[i] = from_float<bf16>(1.0f);
    }";
    assert_eq!(last(each, COUNT / 64, COUNT), [[0.0; 64], [1.0; 64]].concat());
    let by_warps = |index: &str| {
        let kernel = format!(
            "KERNEL(planted, 64, Global<bf16> y, uint32_t count) {{
                 uint32_t warp = {index};
                 if (warp < count && threadIdx.x % 32 == 0) y[warp] = from_float<bf16>(1.0f);
             }}"
        );
        const WARPS: usize = (1 << 27) + 2;
        last(&kernel, WARPS / 2, WARPS)[126..].to_vec()
    };
    assert_eq!(by_warps("(blockIdx.x * blockDim.x + threadIdx.x) / WARP"), [0.0; 2]);
    assert_eq!(by_warps("warp_of_grid()"), [1.0; 2]);
}

#[test]
fn a_barrier_that_some_threads_miss_is_found() {
    let kernel = "KERNEL(planted, 64, Global<float> y, uint32_t count) {
        if (threadIdx.x < 32) __syncthreads();
    }";
    refused(kernel, 1, 1, "deadlock: 32 of 64 threads of block 0");
}

#[test]
fn arguments_are_those_of_the_kernel() {
    let kernel = "KERNEL(planted, 64, Global<float> y, float count) {}";
    refused(kernel, 1, 1, "argument 1 is not the f32 that the kernel takes");
    let kernel = "KERNEL(planted, 64, Global<bf16> y, uint32_t count) {}";
    refused(kernel, 1, 1, "argument 0 has elements of 4 bytes, the kernel's have 2");
    let kernel = "KERNEL(planted, 32, Global<float> y, uint32_t count) {}";
    refused(kernel, 1, 1, "above the kernel's bound");
    let kernel = "KERNEL(other, 64, Global<float> y, uint32_t count) {}";
    refused(kernel, 1, 1, "planted: no such kernel");
}

#[test]
fn parts_of_a_buffer_are_buffers() {
    let gpu = Emulation::of(sources()).gpu();
    let words: Vec<u32> = (0..7).collect();
    let parts = gpu.upload(&words).unwrap().cut(&[2, 1, 4]).unwrap();
    let [first, middle, last] = <[_; 3]>::try_from(parts).ok().unwrap();
    gpu.write(&[8, 9], first.view()).unwrap();
    drop(first);
    let read = |part: Buffer| {
        let shape = (1, part.len());
        part.into_tensor(shape).unwrap().to_vec2::<u32>().unwrap()
    };
    let rest = last.cut(&[3, 1]).unwrap();
    assert_eq!(rest.into_iter().map(read).collect::<Vec<_>>(), [vec![vec![3, 4, 5]], vec![vec![6]]]);
    // A part is copied, since other parts may refer to the same memory.
    let address = middle.view().address();
    let copy = middle.into_storage().unwrap();
    assert_ne!(Machine::address(&Emulation::of(sources()), &copy).unwrap(), address);
    let Storage::Cpu(CpuStorage::U32(copy)) = copy else { panic!("the emulation has the memory of a CPU") };
    assert_eq!(copy, [2]);
}

#[test]
fn memory_that_is_written_has_one_name() {
    let kernel = "KERNEL(planted, 64, Global<const float> x, Global<float> y) {
        if (threadIdx.x == 0) y[0] = 1.0f + x[0];
    }";
    let (_folder, gpu) = gpu_with(kernel);
    let y = gpu.alloc(DType::F32, 1).unwrap();
    let args = [(&y).into(), (&y).into()];
    let error = gpu.launch(Kernel::new("planted", "planted"), Grid::of(1, 64), &args);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("another argument names the same memory"), "{error}");
}

#[test]
fn an_optional_tensor_that_is_not_there_is_not_read() {
    let kernel = "KERNEL(planted, 64, Global<const float> x) {
        float y = x[threadIdx.x];
        if (y > 0.0f) __syncthreads();
    }";
    let (_folder, gpu) = gpu_with(kernel);
    let planted = Kernel::new("planted", "planted");
    let error = gpu.launch(planted, Grid::of(1, 64), &[Arg::Null]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("follows a null pointer"), "{error}");
}

#[test]
fn a_block_has_48_kib_of_shared_memory() {
    let kernel = "KERNEL(planted, 64, Global<float> y, uint32_t count) {
        SHARED(float, parts, 12289);
        parts[0] = 1.0f;
    }";
    refused(kernel, 1, 1, "49156 bytes of shared memory, a block has 49152");
}

#[test]
fn lanes_trade_values() {
    let kernel = "KERNEL(planted, 64, Global<float> y, uint32_t count) {
        float lane = float(threadIdx.x % 32);
        float sum = warp_sum(lane) + block_sum<64>(1.0f);
        y[threadIdx.x] = sum + 1000.0f * shuffle_down(lane, 1) + 100000.0f * shuffle_up(lane, 1);
    }";
    let y = run(kernel, 1, 64).unwrap();
    let expected = |lane: usize| {
        let (below, above) = (lane.max(1) - 1, (lane + 1).min(31));
        (496 + 64 + 1000 * above + 100_000 * below) as f32
    };
    assert!(y.iter().enumerate().all(|(i, &y)| y == expected(i % 32)));
}

/// A number with 11 bits, and one with 24 that rounds to it.
const ROUND: f32 = 1.0 + 1.0 / 1024.0;
const LONG: f32 = ROUND + 3e-4;

/// Squares a number by a matrix product of this thread.
fn square(gpu: &Gpu, x: f32) -> f32 {
    let bits = gpu.upload(&[x.to_bits()]).unwrap();
    let x = View::new(bits.view().address(), DType::F32, 0, 1).unwrap();
    let mut y = gpu.alloc(DType::F32, 1).unwrap();
    let product = Product::one([1, 1, 1], Matrix::plain(x), Matrix::plain(x));
    gpu.multiply(product, &mut y).unwrap();
    y.into_tensor(1).unwrap().to_vec1().unwrap()[0]
}

#[test]
fn products_round_their_factors_where_their_thread_says_so() {
    let gpu = Emulation::of(sources()).gpu();
    let name = || Kernel::of_products("chunked", "scores", DType::F32).name;
    let inside = with_factors(Factors::Tf32, || {
        let other = std::thread::scope(|scope| scope.spawn(|| square(&gpu, LONG)).join());
        let within = with_factors(Factors::F32, || square(&gpu, LONG));
        assert_eq!([other.unwrap(), within], [LONG * LONG; 2]);
        assert_eq!(name(), "scores_tf32");
        square(&gpu, LONG)
    });
    assert_eq!(inside, ROUND * ROUND);
    assert_eq!(square(&gpu, LONG), LONG * LONG);
    assert_eq!(name(), "scores_f32");
    let failed = std::panic::catch_unwind(|| with_factors(Factors::Tf32, || panic!("in between")));
    assert!(failed.is_err() && square(&gpu, LONG) == LONG * LONG);
}

#[test]
fn a_recorded_product_keeps_its_factors() {
    let gpu = Emulation::of(sources()).gpu();
    let x = gpu.upload(&[LONG.to_bits()]).unwrap();
    let x = View::new(x.view().address(), DType::F32, 0, 1).unwrap();
    let mut y = gpu.alloc(DType::F32, 1).unwrap();
    let record = || {
        gpu.record(|| {
            let product = Product::one([1, 1, 1], Matrix::plain(x), Matrix::plain(x));
            gpu.multiply(product, &mut y)
        })
    };
    let recorded = with_factors(Factors::Tf32, record).unwrap();
    recorded.replay().unwrap();
    let y = y.into_tensor(1).unwrap();
    assert_eq!(y.to_vec1::<f32>().unwrap(), [ROUND * ROUND]);
}

#[test]
fn a_recording_frees_what_it_allocates_and_nothing_else() {
    let gpu = Emulation::of(sources()).gpu();
    let mut before = Some(gpu.upload(&[1, 2]).unwrap());
    let recorded = gpu.record(|| {
        before = None;
        Ok(())
    });
    let said = recorded.err().unwrap().to_string();
    assert!(said.contains("1 pieces of memory from before a recording"), "{said}");
    let of_its_own = gpu.record(|| gpu.alloc(DType::F32, 3).map(drop));
    assert!(of_its_own.is_ok());
}

#[test]
fn what_is_recorded_runs_when_it_is_replayed() {
    let kernel = "KERNEL(planted, 64, Global<const float> x, Global<float> y, uint32_t count) {
        if (threadIdx.x < count) y[threadIdx.x] = 2.0f * x[threadIdx.x];
    }";
    let (_folder, gpu) = gpu_with(kernel);
    let bits = |x: f32| x.to_bits();
    let x = gpu.upload(&[bits(1.0), bits(3.0)]).unwrap();
    let x = View::new(x.view().address(), DType::F32, 0, 2).unwrap().kept();
    let last = std::cell::Cell::new(0);
    let double = || -> Result<()> {
        let mut once = gpu.alloc(DType::F32, 2)?;
        let mut twice = gpu.alloc(DType::F32, 2)?;
        let planted = || Kernel::new("planted", "planted");
        gpu.launch(planted(), Grid::of(1, 64), &[x.into(), (&mut once).into(), 2usize.into()])?;
        gpu.launch(planted(), Grid::of(1, 64), &[(&once).into(), (&mut twice).into(), 2usize.into()])?;
        last.set(twice.view().address());
        Ok(())
    };
    let recording = gpu.record(double).unwrap();
    let results = View::new(last.get(), DType::F32, 0, 2).unwrap();
    let read = || gpu.copy(results).unwrap().into_tensor(2).unwrap().to_vec1::<f32>().unwrap();
    assert!(read()[0].is_nan(), "nothing ran yet");
    recording.replay().unwrap();
    assert_eq!(read(), [4.0, 12.0]);
    gpu.write(&[bits(5.0), bits(7.0)], x).unwrap();
    recording.replay().unwrap();
    assert_eq!(read(), [20.0, 28.0]);
    let upload = gpu.record(|| gpu.upload(&[1]).map(drop));
    assert!(upload.is_err_and(|e| e.to_string().contains("an upload while launches are recorded")));
}

#[test]
fn the_step_lies_in_memory_that_stays() {
    let gpu = Emulation::of(sources()).gpu();
    let read = |step: u64| {
        let view = gpu.step(step).unwrap();
        let words = gpu.copy(view).unwrap().into_tensor(2).unwrap();
        (view.address(), words.to_vec1::<u32>().unwrap())
    };
    let (place, words) = read(7);
    assert_eq!(words, [7, 0]);
    assert_eq!(read(3 << 32 | 5), (place, vec![5, 3]));
}
