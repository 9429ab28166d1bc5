// Loops with several loads in flight, over time and over the rows of a matrix.
#pragma once

#include "device.cuh"

// step(i, load(i)) for i from `from` to `to`, in this order. While STEPS of them are computed, the
// loads of the next STEPS are in flight; past the end the last element is loaded again, which is
// cheaper than STEPS branches.
template <int STEPS, class Load, class Step>
DEVICE void walk(uint32_t from, uint32_t to, Load load, Step step) {
    using Loaded = decltype(load(from));
    if (from >= to) return;
    Loaded next[STEPS];
#pragma unroll
    for (int u = 0; u < STEPS; ++u) next[u] = load(min(from + u, to - 1));
    for (uint32_t i = from; i < to; i += STEPS) {
        Loaded now[STEPS];
#pragma unroll
        for (int u = 0; u < STEPS; ++u) now[u] = next[u];
        if (i + STEPS < to) {
#pragma unroll
            for (int u = 0; u < STEPS; ++u) next[u] = load(min(i + STEPS + u, to - 1));
        }
#pragma unroll
        for (int u = 0; u < STEPS; ++u)
            if (i + u < to) step(i + u, now[u]);
    }
}

// The reverse order: from `to` - 1 down to `from`.
template <int STEPS, class Load, class Step>
DEVICE void walk_back(uint32_t from, uint32_t to, Load load, Step step) {
    walk<STEPS>(
        0, to - from, [&](uint32_t i) { return load(to - 1 - i); },
        [&](uint32_t i, decltype(load(from)) now) { step(to - 1 - i, now); });
}

// A block of TILE threads processes `each` rows of 32 columns of a matrix, and a warp every eighth
// of these rows: step(row, column, load(row, column)) for each element. Blocks: rows along x,
// columns along y.
constexpr int TILE = WALK_TILE;

template <class Load, class Step>
DEVICE void tile(uint32_t rows, uint32_t width, uint32_t each, Load load, Step step) {
    constexpr uint32_t WARPS = TILE / WARP;
    uint32_t column = blockIdx.y * WARP + threadIdx.x % WARP;
    uint32_t first = blockIdx.x * each + threadIdx.x / WARP;
    uint32_t last = min(blockIdx.x * each + each, rows);
    if (column >= width || first >= last) return;
    walk<4>(
        0, (last - first + WARPS - 1) / WARPS,
        [&](uint32_t i) { return load(first + i * WARPS, column); },
        [&](uint32_t i, decltype(load(first, column)) now) { step(first + i * WARPS, column, now); });
}

// Adds the sums that the threads of a tile have taken over their rows, and writes the block's row
// of (blocks along x, width) partial sums. Called by all threads of the block.
DEVICE void write_column_sums(float sum, Ptr<float> parts, uint32_t width) {
    SHARED(float, sums, TILE);
    sums[threadIdx.x] = sum;
    __syncthreads();
    uint32_t column = blockIdx.y * WARP + threadIdx.x;
    if (threadIdx.x >= WARP || column >= width) return;
#pragma unroll
    for (int i = WARP; i < TILE; i += WARP) sum += sums[threadIdx.x + i];
    parts[uint64_t(blockIdx.x) * width + column] = sum;
}
