//! The GPU that the driver reports: an H100.

/// Compute capability, times ten.
pub(crate) const CAPABILITY: u32 = 90;
/// CUDA version that the driver supports, such as 13000 for 13.0.
pub(crate) const VERSION: i32 = 13_000;
pub(crate) const NAME: &str = "NVIDIA H100 80GB HBM3 (mock)";
/// Bytes of shared memory that a block can have.
pub(crate) const MOST_SHARED: usize = dsf_emulation::MOST_SHARED;
pub(crate) const MOST_THREADS: u32 = 1024;

/// Value of an attribute with the number that `cuda.h` gives it. Attributes that no H100 has are 0.
pub(crate) fn attribute(number: i32) -> i32 {
    match number {
        1 => MOST_THREADS as i32,     // MAX_THREADS_PER_BLOCK
        2 | 3 => 1024,                // MAX_BLOCK_DIM_X, _Y
        4 => 64,                      // MAX_BLOCK_DIM_Z
        5 => i32::MAX,                // MAX_GRID_DIM_X
        6 | 7 => 65_535,              // MAX_GRID_DIM_Y, _Z
        8 => dsf_gpu::SHARED as i32,  // MAX_SHARED_MEMORY_PER_BLOCK
        10 => 32,                     // WARP_SIZE
        12 => 65_536,                 // MAX_REGISTERS_PER_BLOCK
        13 => 1_980_000,              // CLOCK_RATE
        16 => 132,                    // MULTIPROCESSOR_COUNT
        36 => 2_619_000,              // MEMORY_CLOCK_RATE
        37 => 5_120,                  // GLOBAL_MEMORY_BUS_WIDTH
        39 => 2_048,                  // MAX_THREADS_PER_MULTIPROCESSOR
        75 => CAPABILITY as i32 / 10, // COMPUTE_CAPABILITY_MAJOR
        76 => CAPABILITY as i32 % 10, // COMPUTE_CAPABILITY_MINOR
        81 => 233_472,                // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        97 => MOST_SHARED as i32,     // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        31 | 41 | 83 | 115 => 1,      // CONCURRENT_KERNELS, UNIFIED_ADDRESSING, MANAGED_MEMORY, MEMORY_POOLS
        _ => 0,
    }
}
