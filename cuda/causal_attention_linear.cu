// Kernels around the chunked sum, for linear attention with a normaliser: a column of ones is
// appended to the values, and its sum is the divisor. Intermediate results are f32, as the gradient
// of a weight is a small difference of two numbers.
//
// Bound by memory bandwidth: each kernel reads and writes rows once, coalesced (one warp per row of
// the result).
#include "device.cuh"

// A matrix of `width` + 1 columns: those of x, then a column of ones.
template <class T>
DEVICE void append_ones(Ptr<const T> x, Ptr<float> wide, uint32_t count, uint32_t width) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    uint32_t row = i / (width + 1), column = i % (width + 1);
    float value = 1.0f;
    if (column < width) value = to_float(x[uint64_t(row) * width + column]);
    wide[i] = value;
}

// The first `width` of `width` + 1 columns.
template <class T>
DEVICE void leave_last(Ptr<const float> wide, Ptr<T> x, uint32_t count, uint32_t width) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float value = wide[uint64_t(i / width) * (width + 1) + i % width];
    x[i] = from_float<T>(value);
}

// y = the first columns divided by the last; `shares` = 1 / the last column.
template <class T>
DEVICE void divide(Ptr<const float> wide, Ptr<T> y, Ptr<float> shares, uint32_t rows, uint32_t width) {
    uint32_t row = warp_of_grid(), lane = threadIdx.x % WARP;
    if (row >= rows) return;
    uint64_t from = uint64_t(row) * (width + 1), to = uint64_t(row) * width;
    float sum = wide[from + width], share = 1.0f / sum;
    for (uint32_t j = lane; j < width; j += WARP) {
        float value = wide[from + j];
        y[to + j] = from_float<T>(value * share);
    }
    if (lane == 0) shares[row] = share;
}

// The gradients of all columns before the division.
template <class T>
DEVICE void divide_back(Ptr<const T> gy, Ptr<const T> y, Ptr<const float> shares, Ptr<float> gwide,
                        uint32_t rows, uint32_t width) {
    uint32_t row = warp_of_grid(), lane = threadIdx.x % WARP;
    if (row >= rows) return;
    uint64_t to = uint64_t(row) * (width + 1), from = uint64_t(row) * width;
    float share = shares[row], dot = 0.0f;
    for (uint32_t j = lane; j < width; j += WARP) {
        float g = to_float(gy[from + j]);
        dot += g * to_float(y[from + j]);
        gwide[to + j] = g * share;
    }
    dot = warp_sum(dot);
    if (lane == 0) gwide[to + width] = -dot * share;
}

#define LINEAR(io, T)                                                                              \
    KERNEL(linear_append_ones_##io, 256, Global<const T> x, Global<float> wide, uint32_t count,        \
           uint32_t width) {                                                                       \
        append_ones<T>(x, wide, count, width);                                                     \
    }                                                                                              \
    KERNEL(linear_leave_last_##io, 256, Global<const float> wide, Global<T> x, uint32_t count,         \
           uint32_t width) {                                                                       \
        leave_last<T>(wide, x, count, width);                                                      \
    }                                                                                              \
    KERNEL(linear_divide_##io, 256, Global<const float> wide, Global<T> y, Global<float> shares,       \
           uint32_t rows, uint32_t width) {                                                        \
        divide<T>(wide, y, shares, rows, width);                                                   \
    }                                                                                              \
    KERNEL(linear_divide_back_##io, 256, Global<const T> gy, Global<const T> y,                    \
           Global<const float> shares, Global<float> gwide, uint32_t rows, uint32_t width) {           \
        divide_back<T>(gy, y, shares, gwide, rows, width);                                         \
    }

LINEAR(f32, float)
LINEAR(bf16, bf16)
