// The split of sequences (batch, len, width) into tensors (batch, width) per step, 64 of them per
// launch, and its gradient.
//
// Bound by memory bandwidth, two words per element: a copy.
#include "walk.cuh"

constexpr int STEPS = TIME_STEPS_STEPS;

template <class T>
DEVICE void forward(Ptr<const T> x, Table<T, STEPS> steps, uint32_t begin, uint32_t len,
                    uint32_t rows, uint32_t width, uint32_t each) {
    Ptr<T> to = steps[blockIdx.z];
    uint32_t t = begin + blockIdx.z;
    tile(
        rows, width, each,
        [&](uint32_t row, uint32_t column) {
            return to_float(x[(uint64_t(row) * len + t) * width + column]);
        },
        [&](uint32_t row, uint32_t column, float now) {
            to[uint64_t(row) * width + column] = from_float<T>(now);
        });
}

// A step without a gradient is null, and gets zeros.
template <class T>
DEVICE void backward(Table<const T, STEPS> grads, Ptr<T> gx, uint32_t begin, uint32_t len,
                     uint32_t rows, uint32_t width, uint32_t each) {
    Ptr<const T> from = grads[blockIdx.z];
    uint32_t t = begin + blockIdx.z;
    tile(
        rows, width, each,
        [&](uint32_t row, uint32_t column) {
            return from == nullptr ? 0.0f : to_float(from[uint64_t(row) * width + column]);
        },
        [&](uint32_t row, uint32_t column, float now) {
            gx[(uint64_t(row) * len + t) * width + column] = from_float<T>(now);
        });
}

#define TIME_STEPS(io, T)                                                                        \
    KERNEL(time_steps_forward_##io, TILE, Global<const T> x, Table<T, STEPS> steps,              \
           uint32_t begin, uint32_t len, uint32_t rows, uint32_t width, uint32_t each) {         \
        forward<T>(x, steps, begin, len, rows, width, each);                                     \
    }                                                                                            \
    KERNEL(time_steps_backward_##io, TILE, Table<const T, STEPS> grads, Global<T> gx,            \
           uint32_t begin, uint32_t len, uint32_t rows, uint32_t width, uint32_t each) {         \
        backward<T>(grads, gx, begin, len, rows, width, each);                                   \
    }

TIME_STEPS(f32, float)
TIME_STEPS(bf16, bf16)
