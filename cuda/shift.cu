// Sequences moved by one token: one thread per element.
#include "device.cuh"

#define SHIFT(io, T)                                                                                         \
    KERNEL(shift_forward_##io, 256, Global<const T> x, Global<T> y, uint32_t count, uint32_t len,            \
           uint32_t width) {                                                                                 \
        uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;                                                  \
        if (i >= count) return;                                                                              \
        bool is_first = i / width % len == 0;                                                                \
        float value = 0.0f;                                                                                  \
        if (!is_first) value = to_float(x[i - width]);                                                       \
        y[i] = from_float<T>(value);                                                                         \
    }                                                                                                        \
    KERNEL(shift_backward_##io, 256, Global<const T> gy, Global<T> gx, uint32_t count, uint32_t len,         \
           uint32_t width) {                                                                                 \
        uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;                                                  \
        if (i >= count) return;                                                                              \
        bool is_last = i / width % len == len - 1;                                                           \
        float value = 0.0f;                                                                                  \
        if (!is_last) value = to_float(gy[i + width]);                                                       \
        gx[i] = from_float<T>(value);                                                                        \
    }

SHIFT(f32, float)
SHIFT(bf16, bf16)
