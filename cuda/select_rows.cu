// y[b, r] = x[b, positions[b, r]], and its gradient: gx[b, t] is the sum of gy over the rows that
// selected t, in the order of the rows, however often a step was selected.
//
// Bound by memory bandwidth: the gradient has the size of the whole sequence, and writing it is the
// floor. If few rows are selected, each thread looks for those of its step itself. Of many, a kernel first links the
// rows of each step in a list (`first` of a step, `next` of a row; batch (L + R) R comparisons).
#include "walk.cuh"

// The end of a list.
constexpr uint32_t NONE = 0xffffffffu;

template <class T>
DEVICE void forward(Ptr<const T> x, Ptr<const uint32_t> positions, Ptr<T> y, uint32_t chosen,
                    uint32_t len, uint32_t rows, uint32_t width, uint32_t each) {
    tile(
        rows, width, each,
        [&](uint32_t row, uint32_t column) {
            uint64_t step = uint64_t(row / chosen) * len + positions[row];
            return to_float(x[step * width + column]);
        },
        [&](uint32_t row, uint32_t column, float now) {
            y[uint64_t(row) * width + column] = from_float<T>(now);
        });
}

// The first row from `row` on, of one sequence, that selected step t.
DEVICE uint32_t find(Ptr<const uint32_t> positions, uint32_t row, uint32_t chosen, uint32_t t) {
    for (; row < chosen; ++row)
        if (positions[row] == t) return row;
    return NONE;
}

// One thread for each step, then one for each row.
KERNEL(select_rows_lists, 256, Global<const uint32_t> positions, Global<uint32_t> first,
       Global<uint32_t> next, uint32_t batch, uint32_t len, uint32_t chosen) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < batch * len) {
        first[i] = find(positions + uint64_t(i / len) * chosen, 0, chosen, i % len);
        return;
    }
    i -= batch * len;
    if (i >= batch * chosen) return;
    uint32_t sequence = i / chosen;
    next[i] = find(positions + uint64_t(sequence) * chosen, i % chosen + 1, chosen, positions[i]);
}

template <class T>
DEVICE void backward(Ptr<const T> gy, Ptr<const uint32_t> first, Ptr<const uint32_t> next, Ptr<T> gx,
                     uint32_t chosen, uint32_t len, uint32_t rows, uint32_t width, uint32_t each) {
    tile(
        rows, width, each, [&](uint32_t step, uint32_t) { return uint32_t(first[step]); },
        [&](uint32_t step, uint32_t column, uint32_t row) {
            float sum = 0.0f;
            if (row != NONE) {
                uint64_t start = uint64_t(step / len) * chosen;
#pragma unroll 1
                for (; row != NONE; row = next[start + row])
                    sum += to_float(gy[(start + row) * width + column]);
            }
            gx[uint64_t(step) * width + column] = from_float<T>(sum);
        });
}

template <class T>
DEVICE void backward_few(Ptr<const T> gy, Ptr<const uint32_t> positions, Ptr<T> gx, uint32_t chosen, uint32_t len,
                         uint32_t rows, uint32_t width, uint32_t each) {
    tile(
        rows, width, each,
        [&](uint32_t step, uint32_t) {
            return find(positions + uint64_t(step / len) * chosen, 0, chosen, step % len);
        },
        [&](uint32_t step, uint32_t column, uint32_t row) {
            float sum = 0.0f;
            uint64_t start = uint64_t(step / len) * chosen;
#pragma unroll 1
            for (; row != NONE; row = find(positions + start, row + 1, chosen, step % len))
                sum += to_float(gy[(start + row) * width + column]);
            gx[uint64_t(step) * width + column] = from_float<T>(sum);
        });
}

#define SELECT(io, T)                                                                            \
    KERNEL(select_rows_forward_##io, TILE, Global<const T> x, Global<const uint32_t> positions,  \
           Global<T> y, uint32_t chosen, uint32_t len, uint32_t rows, uint32_t width,            \
           uint32_t each) {                                                                      \
        forward<T>(x, positions, y, chosen, len, rows, width, each);                             \
    }                                                                                            \
    KERNEL(select_rows_backward_##io, TILE, Global<const T> gy, Global<const uint32_t> first,    \
           Global<const uint32_t> next, Global<T> gx, uint32_t chosen, uint32_t len,             \
           uint32_t rows, uint32_t width, uint32_t each) {                                       \
        backward<T>(gy, first, next, gx, chosen, len, rows, width, each);                        \
    }                                                                                            \
    KERNEL(select_rows_backward_few_##io, TILE, Global<const T> gy,                              \
           Global<const uint32_t> positions, Global<T> gx, uint32_t chosen, uint32_t len,        \
           uint32_t rows, uint32_t width, uint32_t each) {                                       \
        backward_few<T>(gy, positions, gx, chosen, len, rows, width, each);                      \
    }

SELECT(f32, float)
SELECT(bf16, bf16)
