// A residual connection: scale x + branch times its mask, with one trained scale for the whole
// tensor.
//
// Bound by memory bandwidth: forward reads two numbers for each one that it writes; backward reads
// x and the gradient and writes those of x and of the branch, while blocks sum the gradient of the
// scale, whose partial sums sums.cu adds. A mask costs 25 integer instructions per number, as long
// as its memory in bf16.
#include "mask.cuh"

constexpr int THREADS = RESIDUAL_THREADS;

// Four elements from `first` on; zero beyond the last.
template <class T>
DEVICE Four read(Ptr<const T> x, uint64_t first, uint32_t count, bool vector) {
    if (vector && first + 4 <= count) return load4(x + first);
    Four values = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + i < count) values.v[i] = to_float(x[first + i]);
    return values;
}

template <class T>
DEVICE void write(Ptr<T> x, uint64_t first, uint32_t count, bool vector, Four values) {
    if (vector && first + 4 <= count) return store4(x + first, values);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + i < count) x[first + i] = from_float<T>(values.v[i]);
}

template <class T>
DEVICE void forward(Ptr<const T> x, Ptr<const T> branch, Ptr<const float> scale,
                    const GivenMask& given, Ptr<T> y, uint32_t count, bool vector) {
    uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (first >= count) return;
    Four values = read<T>(x, first, count, vector), more = read<T>(branch, first, count, vector);
    float by = 1.0f;
    if (scale != nullptr) by = scale[0];
    Mask mask = read_mask(given);
    Four factors = {1.0f, 1.0f, 1.0f, 1.0f};
    if (mask.any) factors = mask_factors(mask, first / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) values.v[i] = by * values.v[i] + more.v[i] * factors.v[i];
    write<T>(y, first, count, vector, values);
}

// The elements are divided among blocks; each writes a partial sum of the gradient of the scale.
template <class T>
DEVICE void backward(Ptr<const T> x, Ptr<const float> scale, const GivenMask& given, Ptr<const T> gy,
                     Ptr<T> gx, Ptr<T> g_branch, Ptr<float> parts, uint32_t count, bool vector) {
    float by = scale[0], sum = 0.0f;
    Mask mask = read_mask(given);
    uint64_t stride = uint64_t(gridDim.x) * THREADS * 4;
    uint64_t begin = (uint64_t(blockIdx.x) * THREADS + threadIdx.x) * 4;
    for (uint64_t first = begin; first < count; first += stride) {
        Four values = read<T>(x, first, count, vector), grad = read<T>(gy, first, count, vector);
        Four scaled, dropped, factors = {1.0f, 1.0f, 1.0f, 1.0f};
        if (mask.any) factors = mask_factors(mask, first / 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum += values.v[i] * grad.v[i];
            scaled.v[i] = by * grad.v[i];
            dropped.v[i] = grad.v[i] * factors.v[i];
        }
        write<T>(gx, first, count, vector, scaled);
        write<T>(g_branch, first, count, vector, dropped);
    }
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

#define RESIDUAL(io, T)                                                                          \
    KERNEL(residual_forward_##io, THREADS, Global<const T> x, Global<const T> branch,            \
           Global<const float> scale, MASK, Global<T> y, uint32_t count, uint32_t vector) {      \
        forward<T>(x, branch, scale, GIVEN_MASK, y, count, vector != 0);                         \
    }                                                                                            \
    KERNEL(residual_backward_##io, THREADS, Global<const T> x, Global<const float> scale,        \
           MASK, Global<const T> gy, Global<T> gx, Global<T> g_branch, Global<float> parts,      \
           uint32_t count, uint32_t vector) {                                                    \
        backward<T>(x, scale, GIVEN_MASK, gy, gx, g_branch, parts, count, vector != 0);          \
    }

RESIDUAL(f32, float)
RESIDUAL(bf16, bf16)
