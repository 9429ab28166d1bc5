// A tensor taken apart along an axis, and parts put together, where absent ones are zero: one thread per element of the
// whole.
#include "maps.cuh"

// The part that holds a column of the whole, and the column there.
struct Piece {
    uint32_t part, column, width;
};

DEVICE Piece piece(uint32_t column, uint32_t width0, uint32_t width1, uint32_t width2, uint32_t width3) {
    if (column < width0) return {0, column, width0};
    column -= width0;
    if (column < width1) return {1, column, width1};
    column -= width1;
    if (column < width2) return {2, column, width2};
    return {3, column - width2, width3};
}

#define SPLIT(io, T)                                                                                         \
    KERNEL(take_apart_##io, 256, Global<const T> x, Table<T, MAPS> parts, uint32_t count, uint32_t width, \
           uint32_t width0, uint32_t width1, uint32_t width2, uint32_t width3) {                             \
        uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;                                                  \
        if (i >= count) return;                                                                              \
        Piece p = piece(i % width, width0, width1, width2, width3);                                          \
        T value = x[i];                                                                                      \
        one_of(p.part, parts)[uint64_t(i / width) * p.width + p.column] = value;                             \
    }                                                                                                        \
    KERNEL(put_together_##io, 256, Table<const T, MAPS> gparts, Global<T> gx, uint32_t count,              \
           uint32_t width, uint32_t width0, uint32_t width1, uint32_t width2, uint32_t width3) {             \
        uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;                                                  \
        if (i >= count) return;                                                                              \
        Piece p = piece(i % width, width0, width1, width2, width3);                                          \
        Ptr<const T> g = one_of(p.part, gparts);                                                             \
        float value = 0.0f;                                                                                  \
        if (g != nullptr) value = to_float(g[uint64_t(i / width) * p.width + p.column]);                     \
        gx[i] = from_float<T>(value);                                                                        \
    }

SPLIT(f32, float)
SPLIT(bf16, bf16)
