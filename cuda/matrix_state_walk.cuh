// The walk over the states of a head, span by span: forward from S = 0, or back from the gradient G = 0.
//
// A block has N columns of all rows of the state in shared memory. In a span it multiplies the reads by the state and the
// mixing matrix by the values (back, the gradients of the result), which gives P and O (R and gv); then it updates the
// state by the writes. For each element of v this takes 4 m multiply-adds with a rank-one part and 2 m without, each as
// three products of tf32 on tensor cores. The first block of a head reads the factors from memory, those of other columns
// from L2. A span takes two barriers, so few and narrow heads are bound by latency.
#pragma once

#include "matrix_state.cuh"

template <uint32_t N>
constexpr uint32_t COLUMN_PITCH = N == 8 ? 8 : N + PAD_ACROSS;

template <bool RANK, uint32_t N>
struct Walk {
    static constexpr uint32_t ROWS = Sides<RANK>::ROWS, LAST = Sides<RANK>::LAST;
    static constexpr uint32_t PITCH = COLUMN_PITCH<N>;
    // Tiles of a warp in the product of reads and state.
    static constexpr uint32_t COLUMNS = RANK && N == 32 ? 16 : 8;
    static constexpr uint32_t TILES = ROWS / 16 * (N / COLUMNS);
    static constexpr uint32_t EACH = SPAN * N / THREADS;  // given numbers of a thread
    static_assert(TILES <= WARPS && SPAN * N % THREADS == 0, "a tile a warp, and equal shares");
};

// P (B, L, s, e) of f32, and the result or gv.
template <class T>
struct Written {
    Ptr<float> projections;
    Ptr<T> o;
};

template <class T, bool RANK, uint32_t N>
DEVICE void walk_spans(Inputs<T> in, Ptr<const T> given, const Factors& of, Ptr<float> kept, const Written<T>& to,
                       bool back) {
    using W = Walk<RANK, N>;
    constexpr uint32_t ROWS = W::ROWS, LAST = W::LAST, PITCH = W::PITCH, EACH = W::EACH;
    auto projects = [](uint32_t row) { return Sides<RANK>::projects(row); };
    SHARED(float, projected, SPAN * PITCH);
    SHARED(float, values, 2 * SPAN * PITCH);
    in.start(blockIdx.x);
    uint32_t first = blockIdx.y * N, warp = threadIdx.x / WARP, m = in.padded(), spans = in.spans();
    uint32_t mine = threadIdx.x % N, my_column = first + mine;  // N divides THREADS
    Ptr<float> state = dynamic_shared<float>(0, m * PITCH);
    for (uint32_t n = threadIdx.x; n < m * PITCH; n += THREADS) state[n] = 0.0f;
    // A given number: a value of a step or, back, the gradient of a row.
    auto load = [&](uint32_t span, float (&x)[EACH]) {
#pragma unroll
        for (uint32_t n = 0; n < EACH; ++n) {
            uint32_t e = span * SPAN + (n * THREADS + threadIdx.x) / N;
            float number = back ? in.of_row(given, in.row(e), in.values, my_column)
                                : in.of_step(given, in.time(e), in.values, my_column);
            x[n] = number;
        }
    };
    float next[EACH];
    load(back ? spans - 1 : 0, next);
#pragma unroll 1
    for (uint32_t step = 0; step < spans; ++step) {
        uint32_t span = back ? spans - 1 - step : step;
        bool is_last = step + 1 == spans;
        uint64_t place = in.place(span);
        Ptr<float> now = values + step % 2 * (SPAN * PITCH);
#pragma unroll
        for (uint32_t n = 0; n < EACH; ++n) now[(n * THREADS + threadIdx.x) / N * PITCH + mine] = next[n];
        __syncthreads();
        if (!is_last) load(back ? span - 1 : span + 1, next);
        if (kept != nullptr && my_column < in.values) {
            Ptr<float> to_column = kept + in.state(span, 0, my_column);
#pragma unroll 4
            for (uint32_t i = threadIdx.x / N; i < in.keys; i += THREADS / N) {
                float x = state[i * PITCH + mine];
                to_column[uint64_t(i) * in.values] = x;
            }
        }
        if (warp < W::TILES) {
            uint32_t row = warp % (ROWS / 16) * 16, column = warp / (ROWS / 16) * W::COLUMNS;
            WarpTile<16, W::COLUMNS> sums;
            sums.clear();
            Strided reads = {of.reads + place * ROWS * m, m, 1};
            sums.template add_product_ahead<Exact, 4>(reads, row, Rows<float>{state, PITCH}, column, m);
            // The last columns of M or, back, of its transpose.
            Ptr<float> matrix = of.mixing + (place * ROWS * ROWS + LAST * (back ? ROWS : 1));
            Strided mixing = {matrix, back ? 1 : ROWS, back ? ROWS : 1};
            sums.template add_product_ahead<Exact, 2>(mixing, row, Rows<float>{now, PITCH}, column, SPAN);
            sums.each([&](uint32_t i, uint32_t c, float sum) {
                uint32_t e = span * SPAN + i, at = first + column + c;
                if (projects(row)) projected[i * PITCH + column + c] = sum;
                if (at >= in.values) return;
                bool of_query = !projects(row) && !back;
                uint32_t index = of_query ? in.row(e) : in.time(e);
                if (index == NONE) return;
                uint64_t offset = in.at(of_query ? in.rows : in.len, index, in.values, at);
                if (projects(row)) {
                    if (to.projections != nullptr) to.projections[offset] = sum;
                } else if (to.o != nullptr) {
                    to.o[offset] = from_float<T>(sum);
                }
            });
        }
        __syncthreads();
        if (is_last) break;
        Ptr<float> written = of.writes + place * ROWS * m, whole = of.whole + place * m;
        for (uint32_t row = warp * 16; row < m; row += WARPS * 16) {
            WarpTile<16, N> sums;
            sums.each([&](uint32_t i, uint32_t c, float& sum) {
                float before = state[(row + i) * PITCH + c], decay = whole[row + i];
                sum = decay * before;
            });
            Strided writes = {written, 1, m};
            auto numbers = computed([&](uint32_t e, uint32_t c) {
                float x = projects(e) ? projected[e * PITCH + c] : now[(e - LAST) * PITCH + c];
                return x;
            });
            sums.template add_product_ahead<Exact, ROWS / 8>(writes, row, numbers, 0, ROWS);
            sums.each([&](uint32_t i, uint32_t c, float& sum) { state[(row + i) * PITCH + c] = sum; });
        }
    }
}
