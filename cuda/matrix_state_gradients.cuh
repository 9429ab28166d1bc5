// The gradients of everything but the values, for all spans at once, given the state S before a span and the gradient G
// of that after it. With P, R and the decays of matrix_state_factors.cuh,
//
//   gq_i = F_i f_i S go_i + sum_{l <= i} f_{l+1} ... f_i (k_l (v_l . go_i) + a_l (P_l . go_i)),
//   gb_i = F_i S R_i + sum_{l < i} f_{l+1} ... f_{i-1} (k_l (v_l . R_i) + a_l (P_l . R_i)),
//   gk_l = D_l G v_l + sum_{i >= l} f_{l+1} ... f_i q_i (v_l . go_i) + sum_{i > l} f_{l+1} ... f_{i-1} b_i (v_l . R_i),
//
// ga_l as gk_l with P_l in place of v_l, and gg_j is the sum of all products of this kind, such as
// q_i f_{l+1} ... f_i k_l (v_l . go_i), whose decays include f_j. None of it is a difference, so strong decays cost no
// digits.
//
// A block has 64 features of a span. Products with S, G and among the given numbers take 4 e multiply-adds a feature and
// event on tensor cores (2 e without a rank-one part). Then one half of each warp takes k and the other a, with a feature
// per thread, and walks all pairs of events in some fourteen instructions each. Registers limit how many blocks fit.
#pragma once

#include "matrix_state.cuh"

constexpr uint32_t SIDE = MATRIX_STATE_SIDE;        // features of a block
constexpr uint32_t SIDE_PITCH = SIDE + PAD_ALONG;
static_assert(SIDE == 16 * WARPS, "a tile of features a warp");
constexpr uint32_t WIDTH = 32;                      // columns at a time
constexpr uint32_t WIDTH_PITCH = WIDTH + PAD_ALONG;

// Results of the walks: states before spans and gradients after them, P and R.
struct Found {
    Ptr<const float> before, after, projections, of_projections;
};

// Gradients, null if they are not needed. Shared decays have one gradient for each 16 features.
template <class T>
struct Grads {
    Ptr<T> q, k, a, b;
    Ptr<float> g;  // (B, L, s, m), or (tiles of 16 features, B, L, s, 1)
};

// The pairs of events of a feature, for a thread.
template <bool RANK>
struct Pairs {
    float q[SPAN], b[SPAN], g[SPAN];  // gradients
    float decay[SPAN];                // from after the current event l to event i
    Ptr<float> decays, queries, bs;   // (SPAN, SIDE_PITCH), from this feature on

    // Adds the terms of x at event L; `of_q` and `of_b` are the products with go_i and R_i, `end` that with G. Returns the
    // gradient of x. Called for L from 15 down to 0, then for -1, the state before the span.
    template <int L, class Q, class B>
    DEVICE float add(float x, Q of_q, B of_b, float end) {
        if constexpr (L + 1 < int(SPAN)) {
            float next = decays[(L + 1) * SIDE_PITCH];
#pragma unroll
            for (int i = L + 1; i < int(SPAN); ++i) decay[i] = i == L + 1 ? next : next * decay[i];
        }
        float sum = L + 1 < int(SPAN) ? decay[SPAN - 1] * end : end;
#pragma unroll
        for (int i = int(SPAN) - 1; i > L; --i) {
            float product = decay[i] * of_q(i), query = queries[i * SIDE_PITCH];
            q[i] += x * product;
            sum += query * product;
            g[i] += x * sum;
            if constexpr (RANK) {
                float before = i == L + 1 ? 1.0f : decay[i - 1], other = bs[i * SIDE_PITCH];
                product = before * of_b(i);
                b[i] += x * product;
                sum += other * product;
            }
        }
        if constexpr (L >= 0) {
            float product = of_q(L), query = queries[L * SIDE_PITCH];
            q[L] += x * product;
            sum += query * product;
        }
        return sum;
    }
};

template <class T, bool RANK>
struct GradientBlock {
    static constexpr uint32_t ROWS = Sides<RANK>::ROWS;

    const Inputs<T>& in;
    const Found& found;
    uint32_t span, first;
    Ptr<float> left, right;     // (ROWS, WIDTH_PITCH): v and P, go and R
    Ptr<float> vectors;         // (ROWS, SIDE_PITCH): k and a, in the same place
    Ptr<float> dots;            // (ROWS, SPAN, ROWS / SPAN): v or P by l, with go_i and R_i
    Ptr<float> before, after;   // (ROWS, SIDE_PITCH): S go_i and S R_i, G v_l and G P_l
    Ptr<float> rows;            // (3, SPAN, SIDE_PITCH): decays, q, b
    Ptr<uint32_t> moments;      // (2, SPAN): times of steps, rows of queries

    DEVICE uint32_t time(uint32_t j) const {
        uint32_t t = moments[j];
        return t;
    }
    DEVICE uint32_t row(uint32_t j) const {
        uint32_t r = moments[SPAN + j];
        return r;
    }
    // Ends with a barrier.
    DEVICE void stage_moments() const {
        uint32_t j = threadIdx.x % SPAN, e = span * SPAN + j;
        if (threadIdx.x < 2 * SPAN) moments[threadIdx.x] = threadIdx.x < SPAN ? in.time(e) : in.row(e);
        __syncthreads();
    }
    // Without a rank-one part the second half of a warp repeats the first.
    static DEVICE bool owns() { return RANK || threadIdx.x % WARP < 16; }
    DEVICE void stage_rows() const {
        for (uint32_t n = threadIdx.x; n < SPAN * SIDE; n += THREADS) {
            uint32_t j = n / SIDE, i = first + n % SIDE, at = j * SIDE_PITCH + n % SIDE;
            uint32_t t = time(j);
            rows[at] = in.decay(t, i);
            rows[SPAN * SIDE_PITCH + at] = in.of_row(in.q, row(j), in.keys, i);
            if constexpr (RANK) rows[2 * SPAN * SIDE_PITCH + at] = in.of_rank(in.b, t, i);
        }
    }
    DEVICE void stage_columns(Ptr<const T> go, uint32_t from) const {
        for (uint32_t n = threadIdx.x; n < SPAN * WIDTH; n += THREADS) {
            uint32_t j = n / WIDTH, column = from + n % WIDTH, at = j * WIDTH_PITCH + n % WIDTH;
            uint32_t t = time(j);
            left[at] = in.of_step(in.v, t, in.values, column);
            right[at] = in.of_row(go, row(j), in.values, column);
            if constexpr (RANK) {
                left[SPAN * WIDTH_PITCH + at] = in.of_step(found.projections, t, in.values, column);
                right[SPAN * WIDTH_PITCH + at] = in.of_step(found.of_projections, t, in.values, column);
            }
        }
    }
    // An element of a stored state of this span.
    DEVICE float state(Ptr<const float> from, uint32_t i, uint32_t column) const {
        if (i >= in.keys || column >= in.values) return 0.0f;
        float x = from[in.state(span, i, column)];
        return x;
    }
    // Writes the products of the tensor cores to shared memory. Returns the sum of S G over all columns for the feature of
    // this lane, that of lane % 16 in the warp's tile. Ends with a barrier.
    DEVICE float multiply(Ptr<const T> go) const {
        uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, mine = first + warp * 16;
        WarpTile<16, ROWS> of_before, of_after;
        WarpTile<ROWS, 8> of_dots;
        of_before.clear();
        of_after.clear();
        of_dots.clear();
        float corner[16] = {};
#pragma unroll 1
        for (uint32_t from = 0; from < in.values; from += WIDTH) {
            stage_columns(go, from);
            __syncthreads();
            Columns<float> by_left = {left, WIDTH_PITCH}, by_right = {right, WIDTH_PITCH};
            if (mine < in.keys) {
                auto s = computed([&](uint32_t i, uint32_t c) { return state(found.before, mine + i, from + c); });
                auto g = computed([&](uint32_t i, uint32_t c) { return state(found.after, mine + i, from + c); });
                // First, since its loads are many at once, and the products then find the states in the cache.
#pragma unroll
                for (uint32_t i = 0; i < 16; ++i) corner[i] += s.at(i, lane) * g.at(i, lane);
                of_before.template add_product<Exact>(s, 0, by_right, 0, 0, WIDTH);
                of_after.template add_product<Exact>(g, 0, by_left, 0, 0, WIDTH);
            }
            if (warp * 8 < ROWS) {
                Rows<float> lefts = {left, WIDTH_PITCH};
                of_dots.template add_product<Exact>(lefts, 0, by_right, warp * 8, 0, WIDTH);
            }
            __syncthreads();
        }
        float mine_of = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            float sum = warp_sum(corner[i]);
            if (lane % 16 == i) mine_of = sum;
        }
        of_before.each([&](uint32_t i, uint32_t n, float sum) { before[n * SIDE_PITCH + warp * 16 + i] = sum; });
        of_after.each([&](uint32_t i, uint32_t n, float sum) { after[n * SIDE_PITCH + warp * 16 + i] = sum; });
        if (warp * 8 < ROWS)
            of_dots.each([&](uint32_t x, uint32_t n, float sum) {
                uint32_t y = warp * 8 + n;
                dots[(x * SPAN + y % SPAN) * (ROWS / SPAN) + y / SPAN] = sum;
            });
        __syncthreads();
        return mine_of;
    }
    // Keys, and vectors a, of the span, in the place of the columns. A barrier before and after.
    DEVICE void stage_vectors() const {
        for (uint32_t n = threadIdx.x; n < SPAN * SIDE; n += THREADS) {
            uint32_t j = n / SIDE, i = first + n % SIDE, at = j * SIDE_PITCH + n % SIDE, t = time(j);
            vectors[at] = in.of_step(in.k, t, in.keys, i);
            if constexpr (RANK) vectors[SPAN * SIDE_PITCH + at] = in.of_rank(in.a, t, i);
        }
        __syncthreads();
    }
    // All pairs of k or a at event L or an earlier one. The gradient takes the place of the product with G.
    template <int L>
    DEVICE void walk(Pairs<RANK>& pairs, bool of_a, uint32_t side) const {
        if constexpr (L >= 0) {
            uint32_t x = of_a ? SPAN + L : L, at = x * SIDE_PITCH + side;
            Ptr<float> dot = dots + x * ROWS;
            float grad = pairs.template add<L>(
                value_at(vectors, at), [&](int i) { return value_at(dot, i * (ROWS / SPAN)); },
                [&](int i) { return value_at(dot, i * (ROWS / SPAN) + 1); }, value_at(after, at));
            __syncwarp();
            if (owns()) after[at] = grad;
            __syncwarp();
            walk<L - 1>(pairs, of_a, side);
        }
    }
    // The gradients of queries, b and decays take their places.
    DEVICE void put(const Pairs<RANK>& pairs, bool of_a, uint32_t side) const {
        constexpr uint32_t EACH = SPAN * SIDE_PITCH;
#pragma unroll
        for (uint32_t j = 0; j < SPAN; ++j) {
            float q = pairs.q[j], b = pairs.b[j], g = pairs.g[j];
            if constexpr (RANK) {
                q += shuffle_xor(q, 16);
                b += shuffle_xor(b, 16);
                g += shuffle_xor(g, 16);
            }
            if (of_a || !owns()) continue;
            rows[j * SIDE_PITCH + side] = g;
            rows[EACH + j * SIDE_PITCH + side] = q;
            if constexpr (RANK) rows[2 * EACH + j * SIDE_PITCH + side] = b;
        }
    }
    DEVICE void write(const Grads<T>& grads) const {
        constexpr uint32_t EACH = SPAN * SIDE_PITCH;
        for (uint32_t n = threadIdx.x; n < SPAN * SIDE; n += THREADS) {
            uint32_t j = n / SIDE, i = first + n % SIDE, from = j * SIDE_PITCH + n % SIDE;
            uint32_t t = time(j), query = row(j);
            if (i >= in.keys) continue;
            if (grads.q != nullptr && query != NONE)
                grads.q[in.at(in.rows, query, in.keys, i)] = from_float<T>(value_at(rows, EACH + from));
            if (t == NONE) continue;
            uint64_t at = in.at(in.len, t, in.keys, i);
            if (grads.k != nullptr) grads.k[at] = from_float<T>(value_at(after, from));
            if (RANK && grads.a != nullptr) grads.a[at] = from_float<T>(value_at(after, EACH + from));
            if (RANK && grads.b != nullptr) grads.b[at] = from_float<T>(value_at(rows, 2 * EACH + from));
            if (grads.g != nullptr && in.decays != 1) grads.g[at] = value_at(rows, from);
        }
        if (grads.g == nullptr || in.decays != 1) return;
        uint64_t all = uint64_t(gridDim.x) / in.spans() * in.len;
        for (uint32_t n = threadIdx.x; n < SPAN * WARPS; n += THREADS) {
            uint32_t j = n / WARPS, tile = n % WARPS, t = time(j);
            if (t == NONE || first + tile * 16 >= in.keys) continue;
            float sum = 0.0f;
            for (uint32_t i = 0; i < 16; ++i) sum += value_at(rows, j * SIDE_PITCH + tile * 16 + i);
            grads.g[(first / 16 + tile) * all + in.at(in.len, t, 1, 0)] = sum;
        }
    }
};

template <class T, bool RANK>
DEVICE void gradients(Inputs<T> in, Ptr<const T> go, const Found& found, const Grads<T>& grads) {
    constexpr uint32_t ROWS = Sides<RANK>::ROWS;
    static_assert(2 * ROWS * WIDTH_PITCH >= ROWS * SIDE_PITCH, "vectors take the place of columns");
    SHARED(float, columns, 2 * ROWS * WIDTH_PITCH);
    SHARED(float, dots, ROWS * ROWS);
    SHARED(float, before, ROWS * SIDE_PITCH);
    SHARED(float, after, ROWS * SIDE_PITCH);
    SHARED(float, rows, (RANK ? 3 : 2) * SPAN * SIDE_PITCH);
    SHARED(uint32_t, moments, 2 * SPAN);
    uint32_t spans = in.spans();
    in.start(blockIdx.x / spans);
    GradientBlock<T, RANK> block{in, found, blockIdx.x % spans, blockIdx.y * SIDE, columns, columns + ROWS * WIDTH_PITCH,
                                 columns, dots, before, after, rows, moments};
    block.stage_moments();
    block.stage_rows();
    float corner = block.multiply(go);
    block.stage_vectors();
    uint32_t lane = threadIdx.x % WARP, side = threadIdx.x / WARP * 16 + lane % 16;
    bool of_a = RANK && lane >= 16;
    if (block.first + threadIdx.x / WARP * 16 < in.keys) {
        Pairs<RANK> pairs = {{}, {}, {}, {}, rows + side, rows + (SPAN * SIDE_PITCH + side),
                             rows + (RANK ? 2 * SPAN * SIDE_PITCH + side : 0)};
        block.template walk<int(SPAN) - 1>(pairs, of_a, side);
        pairs.template add<-1>(
            of_a ? 0.0f : 1.0f, [&](int i) { return value_at(before, i * SIDE_PITCH + side); },
            [&](int i) { return value_at(before, (SPAN + i) * SIDE_PITCH + side); }, corner);
        __syncwarp();
        block.put(pairs, of_a, side);
    }
    __syncthreads();
    block.write(grads);
}
