// Causal attention, forward, of wide heads and of few queries; the method is explained in causal_attention.cuh. Also
// computes gy . y of each row.
//
// Floors on an H200. For (B, L, n, d) = (512, 64, 64, 64) in f32: memory, 33.5 MB or 8 us, twice the 4 us of its
// products (three of tf32 for one of f32). For (64, 512, 256, 512): the tensor cores, 147 us in f32 and 24 us in bf16,
// with pairs computed twice as d is split. For the first, which causal_attention_narrow.cu computes now, these kernels
// took an H100 29 us in f32 and 21 us in bf16. They do not reach their floors for three reasons: a block waits for each
// slice it stages, which only the other block of its multiprocessor (for d > 64 at 64 queries: none) hides; addresses and
// weights take many more instructions than the tensor cores' products; and these reach some 60 % of their rate from
// registers. A mask costs a Philox block for two pairs: as much again as n = d = 64.
//
// Blocks: 512 and 1024 for these sizes. For 4 to 64 query rows, tiles of 16 queries are used where
// tiles of 64 would leave multiprocessors idle: 512 blocks of 16 x 256 at (64, 512, 256, 512) with
// 64 rows.
#include "causal_attention.cuh"

#define FORWARD(io, T, P)              \
    ATTEND(y, Y, 16, 64, 2, io, T, P)  \
    ATTEND(y, Y, 16, 256, 2, io, T, P) \
    ATTEND(y, Y, 64, 64, 2, io, T, P)  \
    ATTEND(y, Y, 64, 256, 1, io, T, P)

FORWARD(f32, float, Tf32x3)
FORWARD(tf32, float, Tf32)
FORWARD(bf16, bf16, Bf16)

// gy . y of each row, one warp per row; `sequences` counts heads.
template <class T>
DEVICE void dots(Ptr<const T> gy, Ptr<const T> y, Ptr<float> to, uint32_t sequences, uint32_t heads, uint32_t rows,
                 uint32_t width) {
    uint32_t row = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (row >= sequences * rows) return;
    uint64_t first = uint64_t(first_of(row / rows, heads, rows) + row % rows * heads) * width;
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x % WARP; i < width; i += WARP)
        sum += to_float(gy[first + i]) * to_float(y[first + i]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) to[row] = sum;
}

#define DOTS(io, T)                                                                                      \
    KERNEL(causal_attention_dots_##io, THREADS, Global<const T> gy, Global<const T> y, Global<float> to, \
           uint32_t sequences, uint32_t heads, uint32_t rows, uint32_t width) {                          \
        dots<T>(gy, y, to, sequences, heads, rows, width);                                               \
    }

DOTS(f32, float)
DOTS(bf16, bf16)
