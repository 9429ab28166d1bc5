// Rows of a matrix in registers: up to 1024 numbers in the lanes of a warp, or up to 64 in half a
// warp, with four consecutive numbers per lane and load.
#pragma once

#include "device.cuh"

// Threads per block; LANES of them share a row.
constexpr int THREADS = ROW_THREADS;

// The sum over LANES consecutive lanes, in all of them.
template <int LANES>
DEVICE float group_sum(float x) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

// The maximum over LANES consecutive lanes, in all of them; NaN is ignored.
template <int LANES>
DEVICE float group_max(float x) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) x = fmaxf(x, shuffle_xor(x, mask));
    return x;
}

// A row in the registers of LANES lanes, zero beyond its width.
template <int LANES, int K>
struct Row {
    Four part[K];

    static DEVICE uint32_t column(int k) { return (k * LANES + threadIdx.x % LANES) * 4; }

    template <class T>
    DEVICE void load(Ptr<const T> from, uint32_t width) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            part[k] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (column(k) < width) part[k] = load4(from + column(k));
        }
    }

    template <class T>
    DEVICE void add(Ptr<const T> from, uint32_t width) {
        Row more;
        more.load(from, width);
#pragma unroll
        for (int k = 0; k < K; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) part[k].v[i] += more.part[k].v[i];
    }

    DEVICE void scale(float by) {
#pragma unroll
        for (int k = 0; k < K; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) part[k].v[i] *= by;
    }

    DEVICE void multiply(const Row& by) {
#pragma unroll
        for (int k = 0; k < K; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i) part[k].v[i] *= by.part[k].v[i];
    }

    template <class T>
    DEVICE void store(Ptr<T> to, uint32_t width) const {
#pragma unroll
        for (int k = 0; k < K; ++k)
            if (column(k) < width) store4(to + column(k), part[k]);
    }
};

// The groups add their partial sums over rows one after another; the last group writes the sum.
template <int LANES, int K>
DEVICE void write_sum(const Row<LANES, K>& part, Ptr<float> to, uint32_t width) {
    SHARED(float, sums, LANES * K * 4);
    constexpr uint32_t GROUPS = THREADS / LANES;
    uint32_t group = threadIdx.x / LANES;
    for (uint32_t turn = 0; turn < GROUPS; ++turn) {
        if (turn == group) {
#pragma unroll
            for (int k = 0; k < K; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    uint32_t c = Row<LANES, K>::column(k) + i;
                    float before = turn == 0 ? 0.0f : sums[c];
                    sums[c] = before + part.part[k].v[i];
                }
        }
        __syncthreads();
    }
    for (uint32_t c = threadIdx.x; c < width; c += THREADS) to[c] = sums[c];
    __syncthreads();
}
