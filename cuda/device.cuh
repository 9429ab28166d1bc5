// Sizes in capitals such as DEVICE_WARP come from src/gpu/sizes.rs, which the launches read as well.
//
// The language of all kernels: plain CUDA C++ with the few names below, so that the same source
// runs on a GPU (nvcc) and, thread by thread and checked, on a CPU (emulation/).
//
// Rules for kernels
// - Pointers to tensors are Global<T> in the parameters and Ptr<T> in device functions; elements are
//   read into typed locals (`float x = p[i];`, never `auto`). Parameters are Global<T>, uint32_t,
//   float or Table<T, N>; offsets into tensors are computed in 64 bits.
// - Shared memory is SHARED(T, name, count) or dynamic_shared<T>(byte offset, count), 48 KiB a block; a launch may ask for
//   more if the GPU has it.
// - Threads per block are a multiple of 32; warp functions are called by all lanes of a warp.
// - No atomics on floats: partial sums are written out and added in a fixed order.
#pragma once

#ifdef __CUDACC__

#include <cuda_bf16.h>

#include <cstdint>

#define DEVICE __device__ __forceinline__

// A kernel with at most `threads` threads per block.
#define KERNEL(name, threads, ...) extern "C" __global__ void __launch_bounds__(threads) name(__VA_ARGS__)

// A kernel of which `blocks` blocks must fit on a multiprocessor. The compiler then uses registers
// up to that limit, where it would otherwise aim for more blocks and spill.
#define KERNEL_FITTING(name, threads, blocks, ...) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__)

#define SHARED(T, name, count) __shared__ __align__(16) T name[count]

using bf16 = __nv_bfloat16;

template <class T>
using Ptr = T*;
template <class T>
using Global = T* __restrict__;

// Pointers passed by value, for kernels over many tensors.
template <class T, int N>
struct Table {
    T* at[N];
    DEVICE T* operator[](int i) const { return at[i]; }
};

// A table that a kernel indexes at run time, as a parameter. Any other would be copied to local memory for that.
#define INDEXED(...) const __grid_constant__ Table<__VA_ARGS__>

template <class T>
DEVICE T* dynamic_shared(uint32_t offset, uint32_t) {
    extern __shared__ __align__(16) unsigned char dynamic_bytes[];
    return reinterpret_cast<T*>(dynamic_bytes + offset);
}

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(bf16 x) { return __bfloat162float(x); }
template <class T>
DEVICE T from_float(float x);
template <>
DEVICE float from_float<float>(float x) { return x; }
template <>
DEVICE bf16 from_float<bf16>(float x) { return __float2bfloat16_rn(x); }

template <class T>
DEVICE T shuffle(T x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
template <class T>
DEVICE T shuffle_xor(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
template <class T>
DEVICE T shuffle_up(T x, int by) { return __shfl_up_sync(0xffffffffu, x, by); }
template <class T>
DEVICE T shuffle_down(T x, int by) { return __shfl_down_sync(0xffffffffu, x, by); }

// N registers of each lane of a warp.
template <int N>
struct Lanes {
    uint32_t mine[N];
    DEVICE uint32_t get(int i, int lane) const { return shuffle(mine[i], lane); }
};
// Every lane of the warp shares its registers with all others; all lanes then read from each other
// equally often.
template <int N>
DEVICE Lanes<N> trade(Lanes<N> mine) { return mine; }

// Two bf16 in a register, the first in its lower half.
DEVICE uint32_t pair(float low, float high) {
    __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&x);
}
DEVICE uint32_t pair(bf16 low, bf16 high) {
    __nv_bfloat162 x(low, high);
    return *reinterpret_cast<uint32_t*>(&x);
}
DEVICE uint32_t pair_at(const float* p) { return pair(p[0], p[1]); }
DEVICE uint32_t pair_at(const bf16* p) { return *reinterpret_cast<const uint32_t*>(p); }

// 2^x, within 2 ulp; results below 2^-126 are 0.
DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

struct alignas(16) Four {
    float v[4];
};

// Four consecutive elements, unconverted; p is aligned to their size.
template <class T>
struct Packed {
    uint32_t word[sizeof(T)];
};
DEVICE Packed<float> load_packed(const float* p) {
    uint4 x = *reinterpret_cast<const uint4*>(p);
    return {x.x, x.y, x.z, x.w};
}
DEVICE Packed<bf16> load_packed(const bf16* p) {
    uint2 x = *reinterpret_cast<const uint2*>(p);
    return {x.x, x.y};
}
DEVICE void store_packed(float* p, Packed<float> x) {
    *reinterpret_cast<uint4*>(p) = make_uint4(x.word[0], x.word[1], x.word[2], x.word[3]);
}
DEVICE void store_packed(bf16* p, Packed<bf16> x) {
    *reinterpret_cast<uint2*>(p) = make_uint2(x.word[0], x.word[1]);
}

// True if four elements from p on may be loaded at once.
template <class T>
DEVICE bool aligned4(const T* p) { return reinterpret_cast<uintptr_t>(p) % (4 * sizeof(T)) == 0; }

// Loads four consecutive elements at once; p is aligned to their size.
DEVICE Four load4(const float* p) {
    float4 x = *reinterpret_cast<const float4*>(p);
    return {x.x, x.y, x.z, x.w};
}
DEVICE Four load4(const bf16* p) {
    uint2 x = *reinterpret_cast<const uint2*>(p);
    return {__uint_as_float(x.x << 16), __uint_as_float(x.x & 0xffff0000u),
            __uint_as_float(x.y << 16), __uint_as_float(x.y & 0xffff0000u)};
}
DEVICE void store4(float* p, Four x) {
    *reinterpret_cast<float4*>(p) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
}
DEVICE void store4(bf16* p, Four x) {
    __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(x.v[0], x.v[1]),
                               __floats2bfloat162_rn(x.v[2], x.v[3])};
    *reinterpret_cast<uint2*>(p) = *reinterpret_cast<uint2*>(pairs);
}

#else
#include "emulation/emulation.hpp"
#endif

// Four elements in the format of memory.
DEVICE Packed<float> packed(float a, float b, float c, float d) {
    return {{__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)}};
}
DEVICE Packed<bf16> packed(bf16 a, bf16 b, bf16 c, bf16 d) { return {{pair(a, b), pair(c, d)}}; }

// An element as a number.
template <class P>
DEVICE float value_at(P p, uint64_t i) { return to_float(p[i]); }

constexpr int WARP = DEVICE_WARP;
constexpr float LOG2E = 1.4426950408889634f;

// Starts a copy of a float to shared memory, or of 0 if `is_inside` is false, for which `from` is some valid address.
// Later instructions do not wait for it, and it takes no register.
DEVICE void copy_async(Ptr<float> to, Ptr<const float> from, bool is_inside) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t at = uint32_t(__cvta_generic_to_shared(to)), bytes = is_inside ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
#else
    float x = 0.0f;
    if (is_inside) x = from[0];
    to[0] = x;
#endif
}

// The same for four consecutive elements, at addresses that are multiples of their size.
template <class T>
DEVICE void copy_four_async(Ptr<T> to, Ptr<const T> from, bool is_inside) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    constexpr uint32_t BYTES = 4 * sizeof(T);
    uint32_t at = uint32_t(__cvta_generic_to_shared(to)), bytes = is_inside ? BYTES : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
#else
    Packed<T> x = {};
    if (is_inside) x = load_packed(from);
    store_packed(to, x);
#endif
}

// Waits for this thread's copies; a barrier then shows them to the block.
DEVICE void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Ends a group of this thread's copies, which may be empty.
DEVICE void end_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of this thread's copies but the last.
DEVICE void wait_for_earlier_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

DEVICE float warp_sum(float x) {
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

DEVICE float warp_max(float x) {
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) x = fmaxf(x, shuffle_xor(x, mask));
    return x;
}

// The sum over a block of THREADS threads, in all of them. A barrier before and after.
template <int THREADS>
DEVICE float block_sum(float x) {
    constexpr int WARPS = THREADS / WARP;
    SHARED(float, parts, WARPS);
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = x;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; ++i) sum += parts[i];
    return sum;
}

// The index of a warp in a grid, whose threads may be too many for 32 bits.
DEVICE uint32_t warp_of_grid() { return blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP; }

// The maximum over a block of THREADS threads, in all of them; NaN is ignored. A barrier before and
// after.
template <int THREADS>
DEVICE float block_max(float x) {
    constexpr int WARPS = THREADS / WARP;
    SHARED(float, parts, WARPS);
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = x;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; ++i) x = fmaxf(x, parts[i]);
    return x;
}

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + exp2_fast(-LOG2E * x)); }
