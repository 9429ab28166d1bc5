// Sums over the rows of up to four matrices, in a fixed order: partial sums of other kernels, and gradients of biases.
//
// Bound by memory bandwidth: every number is read once, 4 or 2 bytes, and next to nothing is
// written. A block sums `each` rows of 32 columns, a warp every sixteenth row, with eight loads in
// flight per thread: a sum of few partial sums, on few blocks, waits for its loads.
#include "maps.cuh"

constexpr int WARPS = SUMS_WARPS;
constexpr int BATCH = 8;  // loads in flight per thread

template <class T>
DEVICE void sum_rows(Ptr<const T> x, Ptr<float> sums, uint32_t rows, uint32_t width, uint32_t each) {
    SHARED(float, parts, WARPS * WARP);
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t column = blockIdx.y * WARP + lane;
    uint32_t first = blockIdx.x * each, last = min(first + each, rows);
    float sum = 0.0f;
    if (column < width) {
        uint32_t row = first + warp;
#pragma unroll 1
        for (; row + (BATCH - 1) * WARPS < last; row += BATCH * WARPS) {
            float some[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i) some[i] = to_float(x[uint64_t(row + i * WARPS) * width + column]);
#pragma unroll
            for (int i = 0; i < BATCH; ++i) sum += some[i];
        }
#pragma unroll 1
        for (; row < last; row += WARPS) sum += to_float(x[uint64_t(row) * width + column]);
    }
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (warp > 0 || column >= width) return;
    for (int i = 1; i < WARPS; ++i) sum += parts[i * WARP + lane];
    sums[uint64_t(blockIdx.x) * width + column] = sum;
}

// For each matrix its number of rows, its width and the number of rows that a block sums. The block index along z is
// the matrix.
#define SUM_ROWS(io, T)                                                                              \
    KERNEL(sum_rows_##io, WARPS * WARP, Table<const T, MAPS> xs, Table<float, MAPS> sums,            \
           uint32_t rows0, uint32_t rows1, uint32_t rows2, uint32_t rows3, uint32_t width0,          \
           uint32_t width1, uint32_t width2, uint32_t width3, uint32_t each0, uint32_t each1,        \
           uint32_t each2, uint32_t each3) {                                                         \
        uint32_t i = blockIdx.z, rows = one_of(i, rows0, rows1, rows2, rows3);                       \
        uint32_t each = one_of(i, each0, each1, each2, each3);                                       \
        if (blockIdx.x * uint64_t(each) >= rows) return;                                             \
        sum_rows<T>(one_of(i, xs), one_of(i, sums), rows, one_of(i, width0, width1, width2, width3), \
                    each);                                                                           \
    }

SUM_ROWS(f32, float)
SUM_ROWS(bf16, bf16)

// The sum of `part_count` parts of `count` numbers, in their order.
#define ADD_PARTS(io, T)                                                                                 \
    KERNEL(add_parts_##io, 256, Global<const float> parts, Global<T> sum, uint32_t part_count,           \
           uint32_t count) {                                                                             \
        uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;                                              \
        if (i >= count) return;                                                                          \
        float total = 0.0f;                                                                              \
        for (uint32_t part = 0; part < part_count; ++part) total += parts[uint64_t(part) * count + i];   \
        sum[i] = from_float<T>(total);                                                                   \
    }

ADD_PARTS(f32, float)
ADD_PARTS(bf16, bf16)
