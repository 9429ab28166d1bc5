// Elementwise ops with one operand broadcast along an axis: x + scale y, softplus(x + bias), heads
// times numbers.
//
// Bound by memory bandwidth: every operand is read once and every result written once. Sums over
// rows, the gradients of scale and bias, are taken in the same pass: each block writes a row of
// partial sums (`each` rows of 32 columns per block), which sums.cu adds in order. A thread stays
// in its column, so that no element needs a division, with four rows in flight.
#include "pointwise.cuh"
#include "walk.cuh"

struct Pair {
    float x, y;
};

template <class T>
DEVICE void add_scaled_forward(Ptr<const T> x, Ptr<const T> y, Ptr<const float> scale, Ptr<T> out,
                               uint32_t rows, uint32_t width, uint32_t each) {
    tile(
        rows, width, each,
        [&](uint32_t row, uint32_t column) {
            uint64_t at = uint64_t(row) * width + column;
            return Pair{to_float(x[at]), to_float(y[at])};
        },
        [&](uint32_t row, uint32_t column, Pair now) {
            float by = scale[column];
            out[uint64_t(row) * width + column] = from_float<T>(now.x + by * now.y);
        });
}

template <class T>
DEVICE void add_scaled_backward(Ptr<const T> y, Ptr<const float> scale, Ptr<const T> grad, Ptr<T> gx, Ptr<T> gy,
                                Ptr<float> parts, uint32_t rows, uint32_t width, uint32_t each) {
    float sum = 0.0f;
    tile(
        rows, width, each,
        [&](uint32_t row, uint32_t column) {
            uint64_t at = uint64_t(row) * width + column;
            return Pair{to_float(y[at]), to_float(grad[at])};
        },
        [&](uint32_t row, uint32_t column, Pair now) {
            float by = scale[column];
            uint64_t at = uint64_t(row) * width + column;
            gy[at] = from_float<T>(by * now.y);
            if (gx != nullptr) gx[at] = from_float<T>(now.y);
            sum += now.x * now.y;
        });
    write_column_sums(sum, parts, width);
}

// x has `given` columns: `width`, or one for all.
template <class T>
DEVICE void softplus_biased_forward(Ptr<const T> x, Ptr<const float> bias, Ptr<T> y, uint32_t given,
                                    uint32_t rows, uint32_t width, uint32_t each) {
    tile(
        rows, width, each,
        [&](uint32_t row, uint32_t column) {
            return to_float(x[uint64_t(row) * given + (given == width ? column : 0)]);
        },
        [&](uint32_t row, uint32_t column, float now) {
            float more = bias[column];
            y[uint64_t(row) * width + column] = from_float<T>(softplus(now + more));
        });
}

// `gx` is written if x has all columns.
template <class T>
DEVICE void softplus_biased_backward(Ptr<const T> x, Ptr<const float> bias, Ptr<const T> grad,
                                     Ptr<T> gx, Ptr<float> parts, uint32_t given, uint32_t rows,
                                     uint32_t width, uint32_t each) {
    float sum = 0.0f;
    tile(
        rows, width, each,
        [&](uint32_t row, uint32_t column) {
            uint64_t at = uint64_t(row) * width + column;
            return Pair{to_float(x[given == width ? at : row]), to_float(grad[at])};
        },
        [&](uint32_t row, uint32_t column, Pair now) {
            float more = bias[column];
            float slope = now.y * sigmoid(now.x + more);
            if (gx != nullptr) gx[uint64_t(row) * width + column] = from_float<T>(slope);
            sum += slope;
        });
    write_column_sums(sum, parts, width);
}

// The sum of term(i, load(i)) for i below `count`, by a warp, in all its lanes.
template <class Load, class Term>
DEVICE float sum_by_warp(uint32_t count, Load load, Term term) {
    float sum = 0.0f;
    uint32_t lane = threadIdx.x % WARP;
    if (lane < count)
        walk<4>(
            0, (count - lane + WARP - 1) / WARP, [&](uint32_t i) { return load(lane + i * WARP); },
            [&](uint32_t i, decltype(load(lane)) now) { sum += term(lane + i * WARP, now); });
    return warp_sum(sum);
}

// The gradient of an x with a single column; a warp for each row.
template <class T>
DEVICE void softplus_biased_rows(Ptr<const T> x, Ptr<const float> bias, Ptr<const T> grad, Ptr<T> gx,
                                 uint32_t rows, uint32_t width) {
    uint32_t row = warp_of_grid();
    if (row >= rows) return;
    float z = to_float(x[row]);
    float sum = sum_by_warp(
        width,
        [&](uint32_t column) {
            float more = bias[column];
            return Pair{to_float(grad[uint64_t(row) * width + column]), more};
        },
        [&](uint32_t, Pair now) { return now.x * sigmoid(z + now.y); });
    if (threadIdx.x % WARP == 0) gx[row] = from_float<T>(sum);
}

// x times the number of its head of `head` columns.
template <class T>
DEVICE void scale_heads_forward(Ptr<const T> x, Ptr<const T> scale, Ptr<T> y, uint32_t head,
                                uint32_t rows, uint32_t width, uint32_t each) {
    uint32_t heads = width / head;
    uint32_t own = (blockIdx.y * WARP + threadIdx.x % WARP) / head;
    tile(
        rows, width, each,
        [&](uint32_t row, uint32_t column) {
            return Pair{to_float(x[uint64_t(row) * width + column]),
                        to_float(scale[uint64_t(row) * heads + own])};
        },
        [&](uint32_t row, uint32_t column, Pair now) {
            y[uint64_t(row) * width + column] = from_float<T>(now.x * now.y);
        });
}

// One warp for each head of each row.
template <class T>
DEVICE void scale_heads_backward(Ptr<const T> x, Ptr<const T> scale, Ptr<const T> grad, Ptr<T> gx,
                                 Ptr<T> gs, uint32_t head, uint32_t pieces) {
    uint32_t piece = warp_of_grid();
    if (piece >= pieces) return;
    float by = to_float(scale[piece]);
    uint64_t start = uint64_t(piece) * head;
    float sum = sum_by_warp(
        head,
        [&](uint32_t i) { return Pair{to_float(x[start + i]), to_float(grad[start + i])}; },
        [&](uint32_t i, Pair now) {
            gx[start + i] = from_float<T>(now.y * by);
            return now.x * now.y;
        });
    if (threadIdx.x % WARP == 0) gs[piece] = from_float<T>(sum);
}

#define CHANNELS(io, T)                                                                           \
    KERNEL(add_scaled_forward_##io, TILE, Global<const T> x, Global<const T> y,                   \
           Global<const float> scale, Global<T> out, uint32_t rows, uint32_t width,               \
           uint32_t each) {                                                                       \
        add_scaled_forward<T>(x, y, scale, out, rows, width, each);                               \
    }                                                                                             \
    KERNEL(add_scaled_backward_##io, TILE, Global<const T> y, Global<const float> scale,          \
           Global<const T> grad, Global<T> gx, Global<T> gy, Global<float> parts, uint32_t rows,  \
           uint32_t width, uint32_t each) {                                                       \
        add_scaled_backward<T>(y, scale, grad, gx, gy, parts, rows, width, each);                 \
    }                                                                                             \
    KERNEL(softplus_biased_forward_##io, TILE, Global<const T> x, Global<const float> bias,       \
           Global<T> y, uint32_t given, uint32_t rows, uint32_t width, uint32_t each) {           \
        softplus_biased_forward<T>(x, bias, y, given, rows, width, each);                         \
    }                                                                                             \
    KERNEL(softplus_biased_backward_##io, TILE, Global<const T> x, Global<const float> bias,      \
           Global<const T> grad, Global<T> gx, Global<float> parts, uint32_t given,               \
           uint32_t rows, uint32_t width, uint32_t each) {                                        \
        softplus_biased_backward<T>(x, bias, grad, gx, parts, given, rows, width, each);          \
    }                                                                                             \
    KERNEL(softplus_biased_rows_##io, 256, Global<const T> x, Global<const float> bias,           \
           Global<const T> grad, Global<T> gx, uint32_t rows, uint32_t width) {                   \
        softplus_biased_rows<T>(x, bias, grad, gx, rows, width);                                  \
    }                                                                                             \
    KERNEL(scale_heads_forward_##io, TILE, Global<const T> x, Global<const T> scale,              \
           Global<T> y, uint32_t head, uint32_t rows, uint32_t width, uint32_t each) {            \
        scale_heads_forward<T>(x, scale, y, head, rows, width, each);                             \
    }                                                                                             \
    KERNEL(scale_heads_backward_##io, 256, Global<const T> x, Global<const T> scale,              \
           Global<const T> grad, Global<T> gx, Global<T> gs, uint32_t head, uint32_t pieces) {    \
        scale_heads_backward<T>(x, scale, grad, gx, gs, head, pieces);                            \
    }

CHANNELS(f32, float)
CHANNELS(bf16, bf16)
