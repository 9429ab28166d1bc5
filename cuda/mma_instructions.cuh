// The two tensor-core instructions that kernels use, and their equivalents without tensor cores. They are volatile: all
// lanes of a warp must execute them, so the compiler must not move one behind a branch.
#pragma once

#include "device.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define TENSOR_CORES 1
#else
#define TENSOR_CORES 0
#endif
// A GPU without tensor cores multiplies unrounded f32; the emulation rounds as tensor cores do.
#if defined(__CUDACC__) && !TENSOR_CORES
#define SPLIT 0
#else
#define SPLIT 1
#endif

// The elements of a lane: A (16 x K) rows g and g + 8; B (K x 8) column g; C (16 x 8) rows g and g
// + 8, columns 2 q and 2 q + 1.
DEVICE int lane_group() { return int(threadIdx.x % WARP) / 4; }
DEVICE int lane_quad() { return int(threadIdx.x % WARP) % 4; }

// x rounded to 10 bits of mantissa, ties away from zero; as bits.
DEVICE uint32_t tf32(float x) {
#if TENSOR_CORES
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
#else
    uint32_t bits = __float_as_uint(x);
    return x != x ? bits : (bits + 0x1000u) & 0xffffe000u;
#endif
}

#if TENSOR_CORES
// The fragments of COUNT matrices of 8 x 8 bf16 in shared memory, 2 or 4 of them: lane 8 m + r gives the address of row r
// of matrix m, a multiple of 16 bytes, and gets of each matrix the elements (g, 2 q) and (g, 2 q + 1), of its transpose
// if TRANSPOSED. A barrier must lie between the writes of the matrices and this.
template <int COUNT, bool TRANSPOSED>
DEVICE void load_matrices(uint32_t (&to)[COUNT], const bf16* row) {
    static_assert(COUNT == 2 || COUNT == 4, "two or four matrices");
    uint32_t at = uint32_t(__cvta_generic_to_shared(row));
    if constexpr (COUNT == 4 && TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
    else if constexpr (COUNT == 4)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
    else if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(at));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(at));
}
#endif

#if !TENSOR_CORES
// The value that tensor cores read from the bits of a tf32.
DEVICE float read_tf32(uint32_t x) {
    float y = __uint_as_float(x);
    return y != y || !SPLIT ? y : __uint_as_float(x & 0xffffe000u);
}

// c plus the products of a (at `left`) and b (at `right`), COUNT of them, each without an error.
#if SPLIT
// As tensor cores were measured to add (Fasi et al. 2021): all are cut, two bits below the last one of the largest in f32,
// and their sum is cut to f32, so that it is biased towards zero.
template <int COUNT>
DEVICE float added(float c, const float (&left)[COUNT], const float (&right)[COUNT]) {
    float parts[COUNT + 1];
    uint32_t largest = 0;
    parts[COUNT] = c;
    for (int k = 0; k < COUNT; ++k) parts[k] = left[k] * right[k];
    for (float part : parts) largest = max(largest, __float_as_uint(part) & 0x7f800000u);
    if (largest == 0x7f800000u || largest < (32u << 23)) {
        for (int k = 0; k < COUNT; ++k) c += parts[k];
        return c;
    }
    double unit = __uint_as_float(largest - (25u << 23)), units = 1 / unit;
    int32_t cut = 0;
    for (float part : parts) cut += int32_t(part * units);
    double whole = cut * unit;
    float sum = float(whole);
    bool away = sum < 0 ? sum < whole : sum > whole;
    return away ? __uint_as_float(__float_as_uint(sum) - 1) : sum;
}
#else
template <int COUNT>
DEVICE float added(float c, const float (&left)[COUNT], const float (&right)[COUNT]) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) c += left[k] * right[k];
    return c;
}
#endif
#endif

// c += a b with a (16 x 8) and b (8 x 8) of tf32: a0 (g, q), a1 (g + 8, q), a2 (g, q + 4),
// a3 (g + 8, q + 4); b0 (q, g), b1 (q + 4, g).
DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if TENSOR_CORES
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    Lanes<6> of = trade<6>({{a[0], a[1], a[2], a[3], b[0], b[1]}});
    int row = 4 * lane_group(), column = 8 * lane_quad();
    float upper[8], lower[8], left[8], right[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        int half = k / 4;
        upper[k] = read_tf32(of.get(2 * half, row + k % 4));
        lower[k] = read_tf32(of.get(2 * half + 1, row + k % 4));
        left[k] = read_tf32(of.get(4 + half, column + k % 4));
        right[k] = read_tf32(of.get(4 + half, column + 4 + k % 4));
    }
    c[0] = added(c[0], upper, left);
    c[1] = added(c[1], upper, right);
    c[2] = added(c[2], lower, left);
    c[3] = added(c[3], lower, right);
#endif
}

// c += a b with a (16 x 16) and b (16 x 8) of bf16, two neighbours along K a register: a0 (g, 2q),
// a1 (g + 8, 2q), a2 (g, 2q + 8), a3 (g + 8, 2q + 8); b0 (2q, g), b1 (2q + 8, g).
DEVICE void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if TENSOR_CORES
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    Lanes<6> of = trade<6>({{a[0], a[1], a[2], a[3], b[0], b[1]}});
    int row = 4 * lane_group(), column = 8 * lane_quad();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float upper[8], lower[8], left[8], right[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            int lane = k / 2, shift = 16 * (1 - k % 2);
            auto value = [&](int i, int from) {
                return __uint_as_float(of.get(i, from) << shift & 0xffff0000u);
            };
            upper[k] = value(2 * half, row + lane), lower[k] = value(2 * half + 1, row + lane);
            left[k] = value(4 + half, column + lane), right[k] = value(4 + half, column + 4 + lane);
        }
        c[0] = added(c[0], upper, left);
        c[1] = added(c[1], upper, right);
        c[2] = added(c[2], lower, left);
        c[3] = added(c[3], lower, right);
    }
#endif
}
