// Layer normalisation, also of a sum of two tensors, forward and backward.
//
// Bound by memory bandwidth: forward reads x (and y) and writes the norm (and the sum), backward
// reads x (or the sum) and the gradients of the outputs and writes that of x (and of y); arithmetic
// is some 15 instructions per element. A row of up to 1024 numbers stays in the registers of a
// warp, or of half a warp up to 64, with four consecutive numbers per lane and load; everything is
// read once. Gradients of weight and bias are summed in registers over the rows of a block, then
// over blocks by sums.cu. Other widths have a block per row, which reads its row from the cache
// again: 40 %.
#include "row.cuh"

// Normalises x in place to (x - mean) / sqrt(var + eps); returns the factor.
template <int LANES, int K>
DEVICE float normalise(Row<LANES, K>& row, uint32_t width, float eps) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum += row.part[k].v[i];
    float mean = group_sum<LANES>(sum) / float(width), squares = 0.0f;
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            row.part[k].v[i] = row.column(k) < width ? row.part[k].v[i] - mean : 0.0f;
            squares += row.part[k].v[i] * row.part[k].v[i];
        }
    float inverse = rsqrtf(group_sum<LANES>(squares) / float(width) + eps);
    row.scale(inverse);
    return inverse;
}

// Without y, x alone is normalised; the sum is written unless its pointer is null. Each group of
// lanes has one row; groups beyond the last one repeat it and write nothing.
template <int LANES, int K, class T>
DEVICE void forward(Ptr<const T> x, Ptr<const T> y, Ptr<const float> weight, Ptr<const float> bias,
                    Ptr<T> sum, Ptr<T> normed, uint32_t rows, uint32_t width, float eps) {
    uint32_t row = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    bool inside = row < rows;
    uint64_t at = uint64_t(inside ? row : rows - 1) * width;
    Row<LANES, K> values, factors;
    values.template load<T>(x + at, width);
    if (y != nullptr) values.template add<T>(y + at, width);
    if (sum != nullptr && inside) values.template store<T>(sum + at, width);
    normalise(values, width, eps);
    factors.template load<float>(weight, width);
    values.multiply(factors);
    values.template add<float>(bias, width);
    if (inside) values.template store<T>(normed + at, width);
}

// gx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps) + gradient of the sum, g = gy weight.
// Rows are divided among blocks; parts_w and parts_b (blocks, width) receive their sums of gy xhat
// and gy.
template <int LANES, int K, class T>
DEVICE void backward(Ptr<const T> x, Ptr<const T> y, Ptr<const float> weight, Ptr<const T> g_sum,
                     Ptr<const T> gy, Ptr<T> gx, Ptr<T> gx_too, Ptr<float> parts_w,
                     Ptr<float> parts_b, uint32_t rows, uint32_t width, float eps) {
    constexpr uint32_t GROUPS = THREADS / LANES;
    Row<LANES, K> sum_w = {}, sum_b = {};
    for (uint32_t first = blockIdx.x * GROUPS; first < rows; first += gridDim.x * GROUPS) {
        uint32_t row = first + threadIdx.x / LANES;
        bool inside = row < rows;
        uint64_t at = uint64_t(inside ? row : rows - 1) * width;
        Row<LANES, K> values, grad, slopes;
        values.template load<T>(x + at, width);
        if (y != nullptr) values.template add<T>(y + at, width);
        grad.template load<T>(gy + at, width);
        slopes.template load<float>(weight, width);
        float inverse = normalise(values, width, eps);
        float along_mean = 0.0f, along_normed = 0.0f;
#pragma unroll
        for (int k = 0; k < K; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float normed = values.part[k].v[i], g = inside ? grad.part[k].v[i] : 0.0f;
                sum_w.part[k].v[i] += g * normed;
                sum_b.part[k].v[i] += g;
                g *= slopes.part[k].v[i];
                slopes.part[k].v[i] = g;
                along_mean += g;
                along_normed += g * normed;
            }
        along_mean = group_sum<LANES>(along_mean) / float(width);
        along_normed = group_sum<LANES>(along_normed) / float(width);
#pragma unroll
        for (int k = 0; k < K; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                slopes.part[k].v[i] =
                    (slopes.part[k].v[i] - along_mean - values.part[k].v[i] * along_normed) * inverse;
        if (g_sum != nullptr) slopes.template add<T>(g_sum + at, width);
        if (inside) slopes.template store<T>(gx + at, width);
        if (inside && gx_too != nullptr) slopes.template store<T>(gx_too + at, width);
    }
    write_sum<LANES, K>(sum_w, parts_w + uint64_t(blockIdx.x) * width, width);
    write_sum<LANES, K>(sum_b, parts_b + uint64_t(blockIdx.x) * width, width);
}

// Any width: one block per row, one number per thread and step.
template <class T>
struct Long {
    Ptr<const T> x, y;
    uint32_t width;
    float mean, inverse;

    DEVICE float sum(uint32_t c) const {
        return to_float(x[c]) + (y == nullptr ? 0.0f : to_float(y[c]));
    }
    DEVICE float normed(uint32_t c) const { return (sum(c) - mean) * inverse; }

    DEVICE void measure(float eps) {
        float total = 0.0f, squares = 0.0f;
        for (uint32_t c = threadIdx.x; c < width; c += THREADS) total += sum(c);
        mean = block_sum<THREADS>(total) / float(width);
        for (uint32_t c = threadIdx.x; c < width; c += THREADS) {
            float apart = sum(c) - mean;
            squares += apart * apart;
        }
        inverse = rsqrtf(block_sum<THREADS>(squares) / float(width) + eps);
    }
};

template <class T>
DEVICE Long<T> long_row(Ptr<const T> x, Ptr<const T> y, uint64_t at, uint32_t width) {
    Ptr<const T> none = nullptr;
    return {x + at, y == nullptr ? none : y + at, width, 0.0f, 0.0f};
}

template <class T>
DEVICE void forward_any(Ptr<const T> x, Ptr<const T> y, Ptr<const float> weight, Ptr<const float> bias,
                        Ptr<T> sum, Ptr<T> normed, uint32_t width, float eps) {
    uint64_t at = uint64_t(blockIdx.x) * width;
    Long<T> row = long_row<T>(x, y, at, width);
    row.measure(eps);
    for (uint32_t c = threadIdx.x; c < width; c += THREADS) {
        if (sum != nullptr) sum[at + c] = from_float<T>(row.sum(c));
        normed[at + c] = from_float<T>(row.normed(c) * weight[c] + bias[c]);
    }
}

template <class T>
DEVICE void backward_any(Ptr<const T> x, Ptr<const T> y, Ptr<const float> weight, Ptr<const T> g_sum,
                         Ptr<const T> gy, Ptr<T> gx, Ptr<T> gx_too, Ptr<float> parts_w,
                         Ptr<float> parts_b, uint32_t rows, uint32_t width, float eps) {
    Ptr<float> sum_w = parts_w + uint64_t(blockIdx.x) * width;
    Ptr<float> sum_b = parts_b + uint64_t(blockIdx.x) * width;
    for (uint32_t i = blockIdx.x; i < rows; i += gridDim.x) {
        uint64_t at = uint64_t(i) * width;
        Long<T> row = long_row<T>(x, y, at, width);
        row.measure(eps);
        float along_mean = 0.0f, along_normed = 0.0f;
        for (uint32_t c = threadIdx.x; c < width; c += THREADS) {
            float slope = to_float(gy[at + c]), normed = row.normed(c);
            bool begun = i != blockIdx.x;
            sum_w[c] = (begun ? float(sum_w[c]) : 0.0f) + slope * normed;
            sum_b[c] = (begun ? float(sum_b[c]) : 0.0f) + slope;
            along_mean += slope * weight[c];
            along_normed += slope * weight[c] * normed;
        }
        along_mean = block_sum<THREADS>(along_mean) / float(width);
        along_normed = block_sum<THREADS>(along_normed) / float(width);
        for (uint32_t c = threadIdx.x; c < width; c += THREADS) {
            float g = to_float(gy[at + c]) * weight[c];
            g = (g - along_mean - row.normed(c) * along_normed) * row.inverse;
            if (g_sum != nullptr) g += to_float(g_sum[at + c]);
            gx[at + c] = from_float<T>(g);
            if (gx_too != nullptr) gx_too[at + c] = from_float<T>(g);
        }
    }
}

#define FORWARD(name, T, call)                                                                      \
    KERNEL(name, THREADS, Global<const T> x, Global<const T> y, Global<const float> weight,         \
           Global<const float> bias, Global<T> sum, Global<T> normed, uint32_t rows, uint32_t width, \
           float eps) {                                                                             \
        call;                                                                                       \
    }

#define BACKWARD(name, T, call)                                                                   \
    KERNEL(name, THREADS, Global<const T> x, Global<const T> y, Global<const float> weight,       \
           Global<const T> g_sum, Global<const T> gy, Global<T> gx, Global<T> gx_too,             \
           Global<float> parts_w, Global<float> parts_b, uint32_t rows, uint32_t width, float eps) { \
        call;                                                                                     \
    }

#define SHORT(most, LANES, K, io, T)                                                         \
    FORWARD(forward_##most##_##io, T,                                                        \
            (forward<LANES, K, T>(x, y, weight, bias, sum, normed, rows, width, eps)))       \
    BACKWARD(backward_##most##_##io, T,                                                      \
             (backward<LANES, K, T>(x, y, weight, g_sum, gy, gx, gx_too, parts_w, parts_b,   \
                                    rows, width, eps)))

#define ALL(io, T)                                                                                   \
    SHORT(64, 16, 1, io, T)                                                                          \
    SHORT(128, 32, 1, io, T)                                                                         \
    SHORT(256, 32, 2, io, T)                                                                         \
    SHORT(512, 32, 4, io, T)                                                                         \
    SHORT(1024, 32, 8, io, T)                                                                        \
    FORWARD(forward_any_##io, T, (forward_any<T>(x, y, weight, bias, sum, normed, width, eps)))      \
    BACKWARD(backward_any_##io, T, (backward_any<T>(x, y, weight, g_sum, gy, gx, gx_too, parts_w,    \
                                                    parts_b, rows, width, eps)))

ALL(f32, float)
ALL(bf16, bf16)
