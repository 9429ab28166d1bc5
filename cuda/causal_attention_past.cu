#include "causal_attention.cuh"

ATTEND_ALL(gk, GK)
ATTEND_ALL(gv, GV)

// gy . y of each row, a warp each.
template <class T>
DEVICE void dots(Ptr<const T> gy, Ptr<const T> y, Ptr<float> to, uint32_t rows, uint32_t width) {
    uint32_t row = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (row >= rows) return;
    uint64_t first = uint64_t(row) * width;
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x % WARP; i < width; i += WARP) sum += to_float(gy[first + i]) * to_float(y[first + i]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) to[row] = sum;
}

#define DOTS(io, T)                                                                                      \
    KERNEL(causal_attention_dots_##io, THREADS, Global<const T> gy, Global<const T> y, Global<float> to, \
           uint32_t rows, uint32_t width) {                                                              \
        dots<T>(gy, y, to, rows, width);                                                                 \
    }

DOTS(f32, float)
DOTS(bf16, bf16)
