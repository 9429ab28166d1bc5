// The RMS norm, gamma sqrt(d) x / sqrt(|x|² + root²), forward and backward; root = sqrt(d eps), 0 in Hawk.
//
// Bound by memory bandwidth: forward reads x and writes the norm, backward reads x and the gradient
// and writes that of x; arithmetic is some 12 instructions per element. Rows in registers and
// partial sums of the gradient of gamma are as in layer_norm.cu.
#include "row.cuh"

// sqrt(width) / sqrt(|x|² + root²), given the sum of squares of x / largest, as squares of x itself could overflow or
// underflow. With a root, numbers below 1 need no scaling; without, rows without a number above 2^-126 count as zero.
constexpr float TINY = 1.17549435e-38f;

DEVICE float inverse_of(float most, float root) {
    if (root > 0.0f) return 1.0f / fmaxf(most, 1.0f);
    return most < TINY ? 0.0f : 1.0f / most;
}

DEVICE float factor(float inverse, float squares, uint32_t width, float root) {
    root *= inverse;
    return inverse == 0.0f ? 0.0f : inverse * rsqrtf((squares + root * root) / float(width));
}

// Normalises x in place; returns the factor.
template <int LANES, int K>
DEVICE float normalise(Row<LANES, K>& row, uint32_t width, float root) {
    float most = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) most = fmaxf(most, fabsf(row.part[k].v[i]));
    float inverse = inverse_of(group_max<LANES>(most), root);
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float x = row.part[k].v[i] * inverse;
            squares += x * x;
        }
    float by = factor(inverse, group_sum<LANES>(squares), width, root);
    row.scale(by);
    return by;
}

// Each group of lanes has one row; groups beyond the last one repeat it and write nothing.
template <int LANES, int K, class T>
DEVICE void forward(Ptr<const T> x, Ptr<const float> gamma, Ptr<T> y, uint32_t rows, uint32_t width, float root) {
    uint32_t row = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    bool inside = row < rows;
    uint64_t at = uint64_t(inside ? row : rows - 1) * width;
    Row<LANES, K> values, factors;
    values.template load<T>(x + at, width);
    factors.template load<float>(gamma, width);
    normalise(values, width, root);
    values.multiply(factors);
    if (inside) values.template store<T>(y + at, width);
}

// gx = (g - n mean(g n)) f, with n = f x, the factor f, and g = gy gamma. Rows are divided
// among blocks; parts (blocks, width) receive their sums of gy n.
template <int LANES, int K, class T>
DEVICE void backward(Ptr<const T> x, Ptr<const float> gamma, Ptr<const T> gy, Ptr<T> gx,
                     Ptr<float> parts, uint32_t rows, uint32_t width, float root) {
    constexpr uint32_t GROUPS = THREADS / LANES;
    Row<LANES, K> sum = {};
    for (uint32_t first = blockIdx.x * GROUPS; first < rows; first += gridDim.x * GROUPS) {
        uint32_t row = first + threadIdx.x / LANES;
        bool inside = row < rows;
        uint64_t at = uint64_t(inside ? row : rows - 1) * width;
        Row<LANES, K> values, grad, slopes;
        values.template load<T>(x + at, width);
        grad.template load<T>(gy + at, width);
        slopes.template load<float>(gamma, width);
        float by = normalise(values, width, root), along = 0.0f;
#pragma unroll
        for (int k = 0; k < K; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float normed = values.part[k].v[i], g = inside ? grad.part[k].v[i] : 0.0f;
                sum.part[k].v[i] += g * normed;
                slopes.part[k].v[i] *= g;
                along += slopes.part[k].v[i] * normed;
            }
        along = group_sum<LANES>(along) / float(width);
#pragma unroll
        for (int k = 0; k < K; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                slopes.part[k].v[i] = (slopes.part[k].v[i] - values.part[k].v[i] * along) * by;
        if (inside) slopes.template store<T>(gx + at, width);
    }
    write_sum<LANES, K>(sum, parts + uint64_t(blockIdx.x) * width, width);
}

// Any width: one block per row, one number per thread and step; the factor, in all threads.
template <class T>
DEVICE float measure(Ptr<const T> x, uint32_t width, float root) {
    float most = 0.0f, squares = 0.0f;
    for (uint32_t c = threadIdx.x; c < width; c += THREADS) most = fmaxf(most, fabsf(to_float(x[c])));
    float inverse = inverse_of(block_max<THREADS>(most), root);
    for (uint32_t c = threadIdx.x; c < width; c += THREADS) {
        float scaled = to_float(x[c]) * inverse;
        squares += scaled * scaled;
    }
    return factor(inverse, block_sum<THREADS>(squares), width, root);
}

template <class T>
DEVICE void forward_any(Ptr<const T> x, Ptr<const float> gamma, Ptr<T> y, uint32_t width, float root) {
    uint64_t at = uint64_t(blockIdx.x) * width;
    float by = measure<T>(x + at, width, root);
    for (uint32_t c = threadIdx.x; c < width; c += THREADS)
        y[at + c] = from_float<T>(to_float(x[at + c]) * by * gamma[c]);
}

template <class T>
DEVICE void backward_any(Ptr<const T> x, Ptr<const float> gamma, Ptr<const T> gy, Ptr<T> gx,
                         Ptr<float> parts, uint32_t rows, uint32_t width, float root) {
    Ptr<float> sum = parts + uint64_t(blockIdx.x) * width;
    for (uint32_t i = blockIdx.x; i < rows; i += gridDim.x) {
        uint64_t at = uint64_t(i) * width;
        float by = measure<T>(x + at, width, root), along = 0.0f;
        for (uint32_t c = threadIdx.x; c < width; c += THREADS) {
            float slope = to_float(gy[at + c]), normed = to_float(x[at + c]) * by;
            sum[c] = (i == blockIdx.x ? 0.0f : float(sum[c])) + slope * normed;
            along += slope * gamma[c] * normed;
        }
        along = block_sum<THREADS>(along) / float(width);
        for (uint32_t c = threadIdx.x; c < width; c += THREADS) {
            float g = to_float(gy[at + c]) * gamma[c], normed = to_float(x[at + c]) * by;
            gx[at + c] = from_float<T>((g - normed * along) * by);
        }
    }
}

#define FORWARD(name, T, call)                                                             \
    KERNEL(name, THREADS, Global<const T> x, Global<const float> gamma, Global<T> y,       \
           uint32_t rows, uint32_t width, float root) {                                                \
        call;                                                                              \
    }

#define BACKWARD(name, T, call)                                                            \
    KERNEL(name, THREADS, Global<const T> x, Global<const float> gamma, Global<const T> gy, \
           Global<T> gx, Global<float> parts, uint32_t rows, uint32_t width, float root) {             \
        call;                                                                              \
    }

#define SHORT(most, LANES, K, io, T)                                              \
    FORWARD(rms_forward_##most##_##io, T, (forward<LANES, K, T>(x, gamma, y, rows, width, root))) \
    BACKWARD(rms_backward_##most##_##io, T,                                       \
             (backward<LANES, K, T>(x, gamma, gy, gx, parts, rows, width, root)))

#define ALL(io, T)                                                                         \
    SHORT(64, 16, 1, io, T)                                                                \
    SHORT(128, 32, 1, io, T)                                                               \
    SHORT(256, 32, 2, io, T)                                                               \
    SHORT(512, 32, 4, io, T)                                                               \
    SHORT(1024, 32, 8, io, T)                                                              \
    FORWARD(rms_forward_any_##io, T, (forward_any<T>(x, gamma, y, width, root)))                 \
    BACKWARD(rms_backward_any_##io, T, (backward_any<T>(x, gamma, gy, gx, parts, rows, width, root)))

ALL(f32, float)
ALL(bf16, bf16)
