// A tile of pairs of queries and keys: their scores, their weights, and the gradients of both.
#pragma once

#include "mask.cuh"
#include "mma.cuh"

// Compiled for `blocks` blocks per multiprocessor, if there are tensor cores.
#if TENSOR_CORES || !defined(__CUDA_ARCH__)
#define RESIDENT(blocks) blocks
#else
#define RESIDENT(blocks) 1
#endif

// As in src/ops/causal_attention/cuda/mod.rs.
constexpr uint32_t SOFTMAX = 0, LINEAR_NORMALISED = 1, PLAIN = 2;

constexpr int THREADS = CAUSAL_ATTENTION_THREADS;
constexpr int KEYS = CAUSAL_ATTENTION_KEYS;
constexpr int NARROW = 16;  // columns of heads that are staged without the rest of a slice
constexpr uint32_t STAGED = 18432;  // bytes of what is staged at a time

// The index, in rows of one head, of the first row of a head of a sequence, with heads side by side.
DEVICE uint32_t first_of(uint32_t sequence, uint32_t heads, uint32_t rows) {
    return sequence / heads * rows * heads + sequence % heads;
}

// A row-major matrix of one head of one sequence.
template <class T>
struct Matrix {
    Ptr<const T> p;  // of all heads of all sequences, as the kernel gets it: it needs no register
    uint32_t first, heads;  // the first of its rows among all, and from one of them to the next
    uint32_t rows, width;
    bool by_four;  // rows are aligned to four elements

    // Elements (row, column ..), zero outside; column is a multiple of 4.
    DEVICE Packed<T> four(uint32_t row, uint32_t column) const {
        Packed<T> x = {};
        if (row >= rows || column >= width) return x;
        Ptr<const T> at = p + (uint64_t(first + row * heads) * width + column);
        T none = from_float<T>(0.0f), one = none, two = none, three = none;
        if (column + 1 < width) one = at[1];
        if (column + 2 < width) two = at[2];
        if (column + 3 < width) three = at[3];
        T first = at[0];
        return packed(first, one, two, three);
    }
};

// Starts to copy R rows and C columns to shared memory by a block of COPIERS threads, with rows `stride` apart;
// wait_for_copies() ends it. A thread copies the same columns of every row.
template <int R, int C, int COPIERS = THREADS, class T>
DEVICE void stage(Ptr<T> to, uint32_t stride, const Matrix<T>& from, uint32_t row, uint32_t column) {
    constexpr uint32_t FOURS = C / 4, ROWS = COPIERS / FOURS;  // of a row, and rows that are copied at a time
    static_assert(COPIERS % FOURS == 0, "whole rows at a time");
    uint32_t first = threadIdx.x / FOURS, at = threadIdx.x % FOURS * 4, c = column + at;
    Ptr<T> place = to + (first * stride + at);
    if (!from.by_four) {
#pragma unroll 1
        for (uint32_t r = first; r < R; r += ROWS, place = place + ROWS * stride) store_packed(place, from.four(row + r, c));
        return;
    }
    // advanced row by row, and past the end only where nothing is read
    uint64_t step = uint64_t(from.heads) * from.width, begin = uint64_t(from.first) * from.width + c;
#pragma unroll
    for (uint32_t i = 0; i < (R + ROWS - 1) / ROWS; ++i) {
        uint32_t r = first + i * ROWS;
        if (R % ROWS != 0 && r >= R) break;
        bool is_inside = row + r < from.rows && c < from.width;
        copy_four_async<T>(place + i * ROWS * stride, from.p + (is_inside ? begin + (row + r) * step : 0), is_inside);
    }
}

// The same for `count` of C columns, which narrow heads have; the others are left as they are.
template <int R, int C, class T>
DEVICE void stage_some(Ptr<T> to, uint32_t stride, const Matrix<T>& from, uint32_t row, uint32_t column, uint32_t count) {
    if (count <= NARROW)
        stage<R, NARROW>(to, stride, from, row, column);
    else
        stage<R, C>(to, stride, from, row, column);
}

DEVICE uint32_t up_to_16(uint32_t x) { return (x + 15) / 16 * 16; }

// tile += A B, in groups of STEPS steps: more would take too many registers.
template <class P, int STEPS, class Tile, class A, class B>
DEVICE void add_product(Tile& tile, const A& a, uint32_t row, const B& b, uint32_t column, uint32_t end) {
#pragma unroll STEPS
    for (uint32_t k = 0; k < end; k += P::K) tile.template add_product<P>(a, row, b, column, k, k + P::K);
}

// Two bits: which of two consecutive elements the mask keeps.
DEVICE uint32_t kept_pair(const Mask& mask, uint64_t element) {
    uint32_t word = uint32_t(element) % 4;
    Four four = mask_factors(mask, element / 4);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) bits |= uint32_t(four.v[i] > 0.0f) << i;
    bits >>= word;
    if (word == 3) bits |= uint32_t(mask_factors(mask, element / 4 + 1).v[0] > 0.0f) << 1;
    return bits & 3;
}

// The inputs of a block, from which it finds its sequence in each tensor. Pointers are those of the kernel, to all
// sequences, and need no registers.
template <class T>
struct Inputs {
    Matrix<T> q, k, v, gy;
    Ptr<const uint32_t> positions;  // null: row i is time i
    // for each query, the base-2 logarithm of the softmax's normaliser, or the reciprocal of the
    // sum of scores
    Ptr<const float> stats;
    Ptr<const float> dots;  // gy_i . y_i
    GivenMask mask;
    uint32_t sequence;  // batch and head
    uint32_t rule;
    float scale;  // of the products of queries and keys
    // The pattern of a softmax.
    uint32_t window, globals;  // no window: 0
    Ptr<const uint32_t> links;  // (len, links_each)
    uint32_t links_each;
    uint32_t slopes;  // whether scores fall with distance, by a slope of their head
    Ptr<const float> bias;  // null, or what is added to the scores at each of `distances`, the last one at greater ones, too
    uint32_t distances, heads;

    // Whether weights depend on more than scores and the number of keys that a query attends to.
    DEVICE bool patterned() const { return window != 0 || slopes != 0 || bias != nullptr; }

    // Whether no key before the window is attended to.
    DEVICE bool narrow() const { return window != 0 && globals == 0 && links_each == 0; }

    // The first key of the first tile that a tile of queries from `first_query` on attends to. Without positions, the
    // first query has the earliest window.
    DEVICE uint32_t first_key(uint32_t first_query) const {
        if (!narrow() || positions != nullptr || first_query + 1 <= window) return 0;
        return (first_query + 1 - window) / KEYS * KEYS;
    }

    // The queries that may attend to the tile of keys from `first_key` on: without positions no earlier ones, nor later
    // ones than a window.
    DEVICE uint32_t first_query(uint32_t first_key) const { return positions != nullptr ? 0 : first_key; }
    DEVICE uint32_t end_of_queries(uint32_t first_key) const {
        return narrow() && positions == nullptr ? min(q.rows, first_key + KEYS - 1 + window) : q.rows;
    }

    // Whether a query at the last of `visible` keys attends to `key`.
    DEVICE bool attends(uint32_t visible, uint32_t key) const {
        if (key >= visible) return false;
        if (window == 0 || visible - key <= window) return true;
        if (key < globals || visible <= globals) return true;
        for (uint32_t i = 0; i < links_each; ++i)
            if (links[uint64_t(visible - 1) * links_each + i] == key) return true;
        return false;
    }
};

// What every kernel is given beside the places of its results: tensors of all sequences, and sizes.
template <class T>
struct Arguments {
    Ptr<const T> q, k, v, gy;
    Ptr<const uint32_t> positions;
    Ptr<const float> stats, dots;
    GivenMask mask;
    uint32_t heads, rows, len, key_width, value_width, rule, by_four;
    float scale;
    Ptr<const uint32_t> links;
    uint32_t links_each, window, globals, slopes;
    Ptr<const float> bias;
    uint32_t distances;

    // The inputs of the blocks of one sequence.
    DEVICE Inputs<T> of(uint32_t sequence) const {
        bool fours = by_four != 0;
        uint32_t query = first_of(sequence, heads, rows), key = first_of(sequence, heads, len);
        return {{q, query, heads, rows, key_width, fours},
                {k, key, heads, len, key_width, fours},
                {v, key, heads, len, value_width, fours},
                {gy, query, heads, rows, value_width, fours},
                positions, stats, dots, mask, sequence, rule, scale,
                window, globals, links, links_each, slopes, bias, distances, heads};
    }
};

// The same as parameters of a kernel, before and after its results, and as an argument.
#define ARGUMENT_TENSORS(T)                                                      \
    Global<const T> q, Global<const T> k, Global<const T> v, Global<const T> gy, \
        Global<const uint32_t> positions, Global<const float> stats, Global<const float> dots, MASK
#define ARGUMENT_SIZES                                                                                     \
    uint32_t heads, uint32_t rows, uint32_t len, uint32_t key_width, uint32_t value_width, uint32_t rule,  \
        uint32_t by_four, float scale, Global<const uint32_t> links, uint32_t links_each, uint32_t window, \
        uint32_t globals, uint32_t slopes, Global<const float> bias, uint32_t distances
#define ARGUMENTS(T)                                                                                         \
    (Arguments<T>{q, k, v, gy, positions, stats, dots, GIVEN_MASK, heads, rows, len, key_width, value_width, \
              rule, by_four, scale, links, links_each, window, globals, slopes, bias, distances})

// The pairs of a block that a lane holds, in the layout of WarpTile, and the data that all lanes share. Weights and
// gradients are stored there in type S. P: the rounding of factors, of mma.cuh. OF_WARP: the queries of a warp.
template <class T, class P, int QUERIES, uint32_t WEIGHT_STRIDE, bool GRADIENT, class S = T, int WARPS = THREADS / WARP,
          int OF_WARP = QUERIES == 64 ? 32 : 16>
struct Tile {
    // queries and keys of a warp, and how many warps share a query
    static constexpr int PM = OF_WARP, ACROSS = WARPS / (QUERIES / PM), PN = KEYS / ACROSS;
    static constexpr int SLOTS = PM / 8;  // queries of which a lane holds pairs
    // slices of the width
    static constexpr uint32_t SLICE = 128 / sizeof(T), SLICE_STRIDE = SLICE + 16 / sizeof(T);
    static constexpr int STEPS = GRADIENT || sizeof(T) == 4 ? 1 : 2;
    static_assert((QUERIES + KEYS) * SLICE_STRIDE * sizeof(T) <= STAGED, "two slices");

    using Pairs = WarpTile<PM, PN>;

    const Inputs<T>& in;
    Ptr<T> staged;
    Ptr<S> weights;
    Ptr<uint32_t> reach;  // the number of keys that each query of the tile attends to
    Ptr<float> parts;     // (ACROSS, QUERIES)
    uint32_t query_row, key_column;  // of this warp's pairs

    // f(slot, local query) for each query of which this lane holds pairs.
    template <class F>
    DEVICE void each_query(F f) const {
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) f(slot, query_row + lane_group() + 8 * slot);
    }

    // Fills `reach`; returns its maximum.
    DEVICE uint32_t look(uint32_t first_query) {
        __syncthreads();
        if (threadIdx.x < QUERIES) {
            uint32_t query = first_query + threadIdx.x, visible = 0;
            if (query < in.q.rows) {
                visible = query + 1;
                if (in.positions != nullptr)
                    visible = in.positions[uint64_t(in.sequence / in.heads) * in.q.rows + query] + 1;
            }
            reach[threadIdx.x] = visible;
        }
        __syncthreads();
        uint32_t lane = threadIdx.x % WARP;
        uint32_t one = reach[lane % QUERIES], other = reach[(lane + WARP) % QUERIES], most = max(one, other);
#pragma unroll
        for (int by = WARP / 2; by > 0; by /= 2) most = max(most, shuffle_xor(most, by));
        return most;
    }

    // pairs += a_i . b_j
    DEVICE void multiply(Pairs& pairs, const Matrix<T>& a, uint32_t query, const Matrix<T>& b, uint32_t key) {
        Ptr<T> left = staged, right = staged + QUERIES * SLICE_STRIDE;
#pragma unroll 1
        for (uint32_t first = 0; first < a.width; first += SLICE) {
            __syncthreads();
            stage_some<QUERIES, SLICE>(left, SLICE_STRIDE, a, query, first, a.width - first);
            stage_some<KEYS, SLICE>(right, SLICE_STRIDE, b, key, first, a.width - first);
            wait_for_copies();
            __syncthreads();
            Rows<T> a_rows = {left, SLICE_STRIDE};
            Columns<T> b_columns = {right, SLICE_STRIDE};
            uint32_t end = min(SLICE, up_to_16(a.width - first));
            add_product<P, STEPS>(pairs, a_rows, query_row, b_columns, key_column, end);
        }
    }

    // x = f(slot, local query, local key, x, unmasked) for each pair of the lane. PATTERNED: see Inputs; without a
    // pattern, what it takes is compiled out, which is most of the instructions.
    template <bool PATTERNED, class F>
    DEVICE void each_pair(Pairs& pairs, uint32_t first_key, F f) const {
        each_query([&](int slot, uint32_t query) {
            uint32_t visible = reach[query];
#pragma unroll
            for (int j = 0; j < PN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float& x = pairs.sum[slot / 2][j][slot % 2 * 2 + e];
                    uint32_t key = key_column + 8 * j + 2 * lane_quad() + e;
                    bool unmasked = first_key + key < visible;
                    if constexpr (PATTERNED) unmasked = in.attends(visible, first_key + key);
                    x = f(slot, query, key, x, unmasked);
                }
        });
    }

    // The slope of this head: the decrease of the score per step of distance, in powers of 2.
    DEVICE float slope() const {
        if (in.slopes == 0) return 0.0f;
        return LOG2E * exp2f(-8.0f * float(in.sequence % in.heads + 1) / float(in.heads));
    }

    // The score of a softmax, in powers of 2, from the product of a query and a key.
    template <bool PATTERNED>
    DEVICE float score(float x, uint32_t query, uint32_t key, float slope) const {
        x *= in.scale * LOG2E;
        if constexpr (!PATTERNED) return x;
        uint32_t distance = reach[query] - 1 - key;
        if (slope != 0.0f) x -= slope * float(distance);
        // the head is found again for each pair, since there are registers for no more
        if (in.bias != nullptr)
            x += in.bias[in.sequence % in.heads * in.distances + min(distance, in.distances - 1)] * LOG2E;
        return x;
    }

    // The maximum or the sum of `x` over all lanes with pairs of a query.
    template <class F>
    DEVICE void over_keys(float (&x)[SLOTS], F join) const {
        each_query([&](int slot, uint32_t query) {
            x[slot] = join(x[slot], shuffle_xor(x[slot], 1));
            x[slot] = join(x[slot], shuffle_xor(x[slot], 2));
            if (ACROSS > 1 && lane_quad() == 0) parts[key_column / PN * QUERIES + query] = x[slot];
        });
        if constexpr (ACROSS == 1) return;
        __syncthreads();
        each_query([&](int slot, uint32_t query) {
            x[slot] = parts[query];
#pragma unroll
            for (int i = 1; i < ACROSS; ++i) x[slot] = join(x[slot], float(parts[i * QUERIES + query]));
        });
    }

    // Converts scores to normalised weights.
    DEVICE void weigh(Pairs& pairs, uint32_t first_query, uint32_t first_key) const {
        float stats[SLOTS];
        read(in.stats, first_query, stats);
        if (in.rule == SOFTMAX) {
            in.patterned() ? weigh_softmax<true>(pairs, first_key, stats) : weigh_softmax<false>(pairs, first_key, stats);
        } else {
            each_pair<false>(pairs, first_key, [&](int slot, uint32_t, uint32_t, float x, bool unmasked) {
                if (!unmasked) return 0.0f;
                return in.rule == PLAIN ? x * in.scale : x * in.scale * stats[slot];
            });
        }
    }

    template <bool PATTERNED>
    DEVICE void weigh_softmax(Pairs& pairs, uint32_t first_key, const float (&stats)[SLOTS]) const {
        float falls = slope();
        each_pair<PATTERNED>(pairs, first_key, [&](int slot, uint32_t query, uint32_t key, float x, bool unmasked) {
            return unmasked ? exp2_fast(score<PATTERNED>(x, query, first_key + key, falls) - stats[slot]) : 0.0f;
        });
    }

    // Reads one number for each query of the lane; 0 if `from` is null and beyond the queries.
    DEVICE void read(Ptr<const float> from, uint32_t first_query, float (&to)[SLOTS]) const {
        each_query([&](int slot, uint32_t query) {
            to[slot] = 0.0f;
            uint32_t i = first_query + query;
            if (from != nullptr && i < in.q.rows) to[slot] = from[uint64_t(in.sequence) * in.q.rows + i];
        });
    }

    // Converts the products gy_i . v_j, after dropout, to gradients of scores times `scale`. `of`: the weights of a
    // softmax, before dropout; other rules read nothing of it.
    DEVICE void differentiate(Pairs& pairs, const Pairs& of, uint32_t first_query, uint32_t first_key, float scale) const {
        float dots[SLOTS], slopes[SLOTS];
        read(in.dots, first_query, dots);
        read(in.rule == LINEAR_NORMALISED ? in.stats : nullptr, first_query, slopes);
        if (in.rule == SOFTMAX) {
            // The weight of a masked pair is 0.
            each_query([&](int slot, uint32_t) {
#pragma unroll
                for (int j = 0; j < PN / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float& x = pairs.sum[slot / 2][j][slot % 2 * 2 + e];
                        x = (x - dots[slot]) * of.sum[slot / 2][j][slot % 2 * 2 + e] * scale;
                    }
            });
        } else {
            each_pair<false>(pairs, first_key, [&](int slot, uint32_t, uint32_t, float x, bool unmasked) {
                float slope = in.rule == PLAIN ? scale : slopes[slot] * scale;
                return unmasked ? (x - dots[slot]) * slope : 0.0f;
            });
        }
    }

    // Writes the pairs to shared memory.
    DEVICE void leave(const Pairs& pairs) const {
        each_query([&](int slot, uint32_t query) {
            Ptr<S> row = weights + (query * WEIGHT_STRIDE + key_column + 2 * lane_quad());
#pragma unroll
            for (int j = 0; j < PN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    row[8 * j + e] = from_float<S>(pairs.sum[slot / 2][j][slot % 2 * 2 + e]);
        });
    }

    // Writes the gradients of the scores of a tile of pairs, times `scale`, to shared memory.
    DEVICE void gradients(Pairs& pairs, uint32_t first_query, uint32_t first_key, float scale) {
        // random bits before the products: the generator takes registers
        uint32_t kept = draw(first_query, first_key);
        Pairs of;
        of.clear();
        if (in.rule == SOFTMAX) {
            multiply(of, in.q, first_query, in.k, first_key);
            weigh(of, first_query, first_key);
        }
        pairs.clear();
        multiply(pairs, in.gy, first_query, in.v, first_key);
        drop(pairs, kept);
        differentiate(pairs, of, first_query, first_key, scale);
        leave(pairs);
    }

    // Two bits for every two pairs of the lane, set for pairs that dropout keeps; all set if there is no dropout.
    DEVICE uint32_t draw(uint32_t first_query, uint32_t first_key) const {
        if (in.mask.step == nullptr) return ~0u;
        Mask mask = read_mask(in.mask);
        uint64_t row = uint64_t(in.sequence) * in.q.rows + first_query + query_row + lane_group();
        uint64_t first = row * in.k.rows + first_key + key_column + 2 * lane_quad();
        uint32_t kept = 0;
        // in a loop that is not unrolled: the generator is long
#pragma unroll 1
        for (uint32_t n = 0; n < SLOTS * PN / 8; ++n)
            kept |= kept_pair(mask, first + uint64_t(n / (PN / 8) * 8) * in.k.rows + n % (PN / 8) * 8) << 2 * n;
        return kept;
    }

    // Multiplies by the dropout mask.
    DEVICE void drop(Pairs& pairs, uint32_t kept) const {
        if (in.mask.step == nullptr) return;
#pragma unroll
        for (uint32_t n = 0; n < SLOTS * PN / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                int slot = n / (PN / 8);
                float factor = kept >> (2 * n + e) & 1 ? in.mask.scale : 0.0f;
                pairs.sum[slot / 2][n % (PN / 8)][slot % 2 * 2 + e] *= factor;
            }
    }
};
