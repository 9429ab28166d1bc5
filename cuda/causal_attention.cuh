// Attention over the past, and its gradients, as one walk over tiles of (queries x keys).
//
// A block owns a tile of the result's rows and a range of its columns, and walks over the other side:
//   Y:  y_i  = sum_j w_ij v_j      rows are queries, the walk is over keys
//   GQ: gq_i = sum_j g_ij k_j      the same
//   GK: gk_j = sum_i g_ij q_i      rows are keys, the walk is over queries
//   GV: gv_j = sum_i w_ij gy_i     the same
// with w the dropped weights and g the gradients of the scores. For each tile of pairs: the products
// q_i . k_j and gy_i . v_j (whichever are needed) in slices of the width; then w or g in registers,
// left in shared memory; then their product with slices of the walked side. Nothing of size L x L
// leaves the block, and no sum is shared by two blocks.
//
// Wide results are split over blocks, each of which computes the pairs again: at most 4/3 of the
// least work at n = 256, d = 512 forward.
#pragma once

#include "mask.cuh"
#include "mma.cuh"

// As in src/ops/causal_attention/launch.rs.
constexpr uint32_t SOFTMAX = 0, LINEAR_NORMALISED = 1, PLAIN = 2;

enum class Result { Y, GQ, GK, GV };

constexpr int THREADS = 256;
constexpr int KEYS = 64;
constexpr uint32_t STAGED = 18432;  // bytes of what is staged at a time

// A row-major matrix of one sequence.
template <class T>
struct Matrix {
    Ptr<const T> p;
    uint32_t rows, width;
    bool by_four;  // rows are aligned to four elements

    // Elements (row, column ..), zero outside; column is a multiple of 4.
    DEVICE Four four(uint32_t row, uint32_t column) const {
        Four x = {0.0f, 0.0f, 0.0f, 0.0f};
        if (row >= rows) return x;
        Ptr<const T> at = p + uint64_t(row) * width;
        if (by_four) {
            if (column < width) x = load4(at + column);
            return x;
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i)
            if (column + i < width) x.v[i] = to_float(at[column + i]);
        return x;
    }
};

// R rows and C columns to shared memory, whose rows lie `stride` apart.
template <int R, int C, class T>
DEVICE void stage(Ptr<T> to, uint32_t stride, const Matrix<T>& from, uint32_t row, uint32_t column) {
    constexpr uint32_t FOURS = R * C / 4;
#pragma unroll
    for (uint32_t start = 0; start < FOURS; start += THREADS) {
        uint32_t i = start + threadIdx.x, r = i / (C / 4), c = i % (C / 4) * 4;
        if (FOURS % THREADS == 0 || i < FOURS) store4(to + (r * stride + c), from.four(row + r, column + c));
    }
}

DEVICE uint32_t up_to_16(uint32_t x) { return (x + 15) / 16 * 16; }

// The factors of two neighbours.
DEVICE void mask_pair(const Mask& mask, uint64_t element, float (&factors)[2]) {
    uint32_t word = uint32_t(element) % 4;
    Four four = mask_factors(mask, element / 4);
    factors[0] = word < 2 ? (word == 0 ? four.v[0] : four.v[1]) : (word == 2 ? four.v[2] : four.v[3]);
    factors[1] = word == 0 ? four.v[1] : word == 1 ? four.v[2] : four.v[3];
    if (word == 3) factors[1] = mask_factors(mask, element / 4 + 1).v[0];
}

// What a block is given; the sequence's part of each tensor.
template <class T>
struct Inputs {
    Matrix<T> q, k, v, gy;
    Ptr<const uint32_t> positions;  // null: row i is time i
    // of each query: the log of the softmax's sum to the base 2, or one over the sum of scores
    Ptr<const float> stats;
    Ptr<const float> dots;  // gy_i . y_i
    Mask mask;
    uint64_t first_pair;  // the mask's element for query 0 and key 0
    uint32_t rule;
    float scale;  // of the products of queries and keys
};

template <class T, Result OF, int QUERIES, int COLUMNS>
struct Walk {
    using P = typename Products<T>::Type;
    static constexpr bool OVER_KEYS = OF == Result::Y || OF == Result::GQ;
    static constexpr bool GRADIENT = OF == Result::GQ || OF == Result::GK;  // of scores
    static constexpr int ROWS = OVER_KEYS ? QUERIES : KEYS;
    // warps of pairs (queries x keys) and of the result
    static constexpr int PM = QUERIES == 64 ? 32 : 16, ACROSS = THREADS / WARP / (QUERIES / PM), PN = KEYS / ACROSS;
    static constexpr int RM = ROWS == 64 ? 32 : 16, RN = COLUMNS / (THREADS / WARP / (ROWS / RM));
    static constexpr int SLOTS = PM / 8;  // queries of which a lane holds pairs
    // slices of the width, and of the walked side
    static constexpr uint32_t SLICE = 128 / sizeof(T), SLICE_STRIDE = SLICE + 16 / sizeof(T);
    static constexpr uint32_t COLUMN_STRIDE = COLUMNS + 8;
    static constexpr uint32_t DEPTH = COLUMNS > 64 ? 64 / sizeof(T) : OVER_KEYS ? KEYS : QUERIES;
    static constexpr uint32_t SLAB = DEPTH < (OVER_KEYS ? KEYS : QUERIES) ? DEPTH : (OVER_KEYS ? KEYS : QUERIES);
    static constexpr uint32_t WEIGHT_STRIDE = KEYS + (OVER_KEYS && sizeof(T) == 4 ? PAD_ALONG : PAD_ACROSS);
    static_assert((QUERIES + KEYS) * SLICE_STRIDE * sizeof(T) <= STAGED, "two slices");
    static_assert(SLAB * COLUMN_STRIDE * sizeof(T) <= STAGED, "a slab of the walked side");

    using Pairs = WarpTile<PM, PN>;

    const Inputs<T>& in;
    Ptr<T> staged, weights;
    Ptr<uint32_t> reach;  // how many keys each query of the tile sees
    Ptr<float> parts;     // (ACROSS, QUERIES)
    uint32_t query_row, key_column;  // of this warp's pairs
    WarpTile<RM, RN> result;
    float top[SLOTS], sum[SLOTS];  // of Y: of each query, the largest score and the sum of weights

    // f(slot, local query) for each query of which this lane holds pairs.
    template <class F>
    DEVICE void each_query(F f) const {
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) f(slot, query_row + lane_group() + 8 * slot);
    }

    // Fills `reach`; the largest of them.
    DEVICE uint32_t look(uint32_t first_query) {
        __syncthreads();
        if (threadIdx.x < QUERIES) {
            uint32_t query = first_query + threadIdx.x, sees = 0;
            if (query < in.q.rows) {
                sees = query + 1;
                if (in.positions != nullptr) sees = in.positions[query] + 1;
            }
            reach[threadIdx.x] = sees;
        }
        __syncthreads();
        uint32_t most = 0;
        for (int i = 0; i < QUERIES; ++i) most = max(most, uint32_t(reach[i]));
        return most;
    }

    // pairs += a_i . b_j
    DEVICE void multiply(Pairs& pairs, const Matrix<T>& a, uint32_t query, const Matrix<T>& b, uint32_t key) {
        Ptr<T> left = staged, right = staged + QUERIES * SLICE_STRIDE;
        for (uint32_t first = 0; first < a.width; first += SLICE) {
            __syncthreads();
            stage<QUERIES, SLICE>(left, SLICE_STRIDE, a, query, first);
            stage<KEYS, SLICE>(right, SLICE_STRIDE, b, key, first);
            __syncthreads();
            pairs.template add_product<P>(Rows<T>{left, SLICE_STRIDE}, query_row, Columns<T>{right, SLICE_STRIDE},
                                          key_column, 0, min(SLICE, up_to_16(a.width - first)));
        }
    }

    // x(slot, local query, local key, score) for each pair of the lane; 0 takes the place of what is not seen.
    template <class F>
    DEVICE void each_pair(Pairs& pairs, uint32_t first_key, F f) const {
        each_query([&](int slot, uint32_t query) {
            uint32_t sees = reach[query];
#pragma unroll
            for (int j = 0; j < PN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float& x = pairs.sum[slot / 2][j][slot % 2 * 2 + e];
                    bool seen = first_key + key_column + 8 * j + 2 * lane_quad() + e < sees;
                    x = f(slot, query, x, seen);
                }
        });
    }

    // The largest or the sum of `x` over all lanes with pairs of a query.
    template <class F>
    DEVICE void over_keys(float (&x)[SLOTS], F join) {
        each_query([&](int slot, uint32_t query) {
            x[slot] = join(x[slot], shuffle_xor(x[slot], 1));
            x[slot] = join(x[slot], shuffle_xor(x[slot], 2));
            if (lane_quad() == 0) parts[key_column / PN * QUERIES + query] = x[slot];
        });
        __syncthreads();
        each_query([&](int slot, uint32_t query) {
            x[slot] = parts[query];
#pragma unroll
            for (int i = 1; i < ACROSS; ++i) x[slot] = join(x[slot], float(parts[i * QUERIES + query]));
        });
    }

    // Of Y: scores to weights whose sum is still to be taken out; what was summed before follows
    // the largest score.
    DEVICE void weigh_online(Pairs& pairs, uint32_t first_key) {
        if (in.rule == SOFTMAX) {
            float scale = in.scale * LOG2E, now[SLOTS], before[SLOTS];
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) now[slot] = before[slot] = top[slot];
            each_pair(pairs, first_key, [&](int slot, uint32_t, float x, bool seen) {
                x = seen ? x * scale : -INFINITY;
                now[slot] = fmaxf(now[slot], x);
                return x;
            });
            over_keys(now, [](float x, float y) { return fmaxf(x, y); });
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) {
                top[slot] = now[slot];
                // a query that has seen nothing yet
                if (now[slot] == -INFINITY) now[slot] = 0.0f;
                float share = exp2_fast(before[slot] - now[slot]);
                sum[slot] *= share;
#pragma unroll
                for (int j = 0; j < RN / 8; ++j)
#pragma unroll
                    for (int e = 0; e < 2; ++e) result.sum[slot / 2][j][slot % 2 * 2 + e] *= share;
            }
            each_pair(pairs, first_key, [&](int slot, uint32_t, float x, bool) {
                x = exp2_fast(x - now[slot]);
                sum[slot] += x;
                return x;
            });
        } else {
            each_pair(pairs, first_key, [&](int slot, uint32_t, float x, bool seen) {
                x = seen ? x * in.scale : 0.0f;
                sum[slot] += x;
                return x;
            });
        }
    }

    // Scores to final weights.
    DEVICE void weigh(Pairs& pairs, uint32_t first_query, uint32_t first_key) const {
        float stats[SLOTS];
        read(in.stats, first_query, stats);
        float scale = in.rule == SOFTMAX ? in.scale * LOG2E : in.scale;
        each_pair(pairs, first_key, [&](int slot, uint32_t, float x, bool seen) {
            if (!seen) return 0.0f;
            if (in.rule == SOFTMAX) return exp2_fast(x * scale - stats[slot]);
            return in.rule == PLAIN ? x * scale : x * scale * stats[slot];
        });
    }

    // Of each query of the lane, a number; 0 without numbers and beyond the queries.
    DEVICE void read(Ptr<const float> from, uint32_t first_query, float (&to)[SLOTS]) const {
        each_query([&](int slot, uint32_t query) {
            to[slot] = 0.0f;
            if (from != nullptr && first_query + query < in.q.rows) to[slot] = from[first_query + query];
        });
    }

    // Products gy_i . v_j, dropped, to gradients of scores; `weights` are those of a softmax.
    DEVICE void differentiate(Pairs& pairs, const Pairs& weights, uint32_t first_query, uint32_t first_key) const {
        float stats[SLOTS], dots[SLOTS];
        read(in.stats, first_query, stats);
        read(in.dots, first_query, dots);
        each_query([&](int slot, uint32_t query) {
            uint32_t sees = reach[query];
            float share = in.rule == LINEAR_NORMALISED ? stats[slot] : 1.0f;
#pragma unroll
            for (int j = 0; j < PN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    int at = slot % 2 * 2 + e;
                    float slope = in.rule == SOFTMAX ? weights.sum[slot / 2][j][at] : share;
                    float& x = pairs.sum[slot / 2][j][at];
                    bool seen = first_key + key_column + 8 * j + 2 * lane_quad() + e < sees;
                    x = seen ? (x - dots[slot]) * slope : 0.0f;
                }
        });
    }

    // Multiplies by the dropout mask.
    DEVICE void drop(Pairs& pairs, uint32_t first_query, uint32_t first_key) const {
        if (!in.mask.any) return;
        each_query([&](int slot, uint32_t query) {
            uint64_t row = in.first_pair + uint64_t(first_query + query) * in.k.rows;
#pragma unroll
            for (int j = 0; j < PN / 8; ++j) {
                float factors[2];
                mask_pair(in.mask, row + first_key + key_column + 8 * j + 2 * lane_quad(), factors);
#pragma unroll
                for (int e = 0; e < 2; ++e) pairs.sum[slot / 2][j][slot % 2 * 2 + e] *= factors[e];
            }
        });
    }

    // Adds what a tile of pairs gives to the result; `sees` keys are seen by some of its queries.
    DEVICE void add(uint32_t first_query, uint32_t first_key, uint32_t sees, uint32_t column) {
        Pairs pairs;
        pairs.clear();
        if (!GRADIENT || in.rule == SOFTMAX) multiply(pairs, in.q, first_query, in.k, first_key);
        if constexpr (OF == Result::Y) weigh_online(pairs, first_key);
        if constexpr (OF == Result::GV) weigh(pairs, first_query, first_key);
        if constexpr (GRADIENT) {
            Pairs products;
            products.clear();
            multiply(products, in.gy, first_query, in.v, first_key);
            drop(products, first_query, first_key);
            if (in.rule == SOFTMAX) weigh(pairs, first_query, first_key);
            differentiate(products, pairs, first_query, first_key);
            pairs = products;
        } else {
            drop(pairs, first_query, first_key);
        }
        pairs.each([&](uint32_t i, uint32_t j, float x) {
            weights[(query_row + i) * WEIGHT_STRIDE + key_column + j] = from_float<T>(x);
        });
        walk(first_query, first_key, sees, column);
    }

    // result += weights (or their transpose) times the walked side
    DEVICE void walk(uint32_t first_query, uint32_t first_key, uint32_t sees, uint32_t column) {
        const Matrix<T>& side = OF == Result::Y    ? in.v
                                : OF == Result::GQ ? in.k
                                : OF == Result::GK ? in.q
                                                   : in.gy;
        uint32_t first = OVER_KEYS ? first_key : first_query;
        uint32_t depth = OVER_KEYS ? min(uint32_t(KEYS), sees - first_key) : min(uint32_t(QUERIES), in.q.rows - first_query);
        uint32_t warp = threadIdx.x / WARP, row = warp % (ROWS / RM) * RM, to = warp / (ROWS / RM) * RN;
        for (uint32_t d = 0; d < depth; d += SLAB) {
            __syncthreads();
            stage<SLAB, COLUMNS>(staged, COLUMN_STRIDE, side, first + d, column);
            __syncthreads();
            uint32_t end = min(SLAB, up_to_16(depth - d));
            Rows<T> right = {staged, COLUMN_STRIDE};
            if constexpr (OVER_KEYS)
                result.template add_product<P>(Rows<T>{weights + d, WEIGHT_STRIDE}, row, right, to, 0, end);
            else
                result.template add_product<P>(Columns<T>{weights + d * WEIGHT_STRIDE, WEIGHT_STRIDE}, row, right, to, 0, end);
        }
    }

    // Takes the sums out, and writes what the way back needs of them.
    DEVICE void finish(uint32_t first_query, Ptr<float> stats) {
        if (in.rule == PLAIN) return;
        over_keys(sum, [](float x, float y) { return x + y; });
        each_query([&](int slot, uint32_t query) {
            float share = 1.0f / sum[slot];
#pragma unroll
            for (int j = 0; j < RN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) result.sum[slot / 2][j][slot % 2 * 2 + e] *= share;
            bool mine = stats != nullptr && key_column == 0 && lane_quad() == 0;
            if (mine && first_query + query < in.q.rows)
                stats[first_query + query] = in.rule == SOFTMAX ? top[slot] + log2f(sum[slot]) : share;
        });
    }

    // The tile's rows of the result, columns from `column` on; `stats` is of Y, and may be null.
    DEVICE void run(uint32_t tile, uint32_t column, Ptr<T> to, Ptr<float> stats) {
        result.clear();
        if constexpr (OVER_KEYS) {
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) {
                top[slot] = -INFINITY;
                sum[slot] = 0.0f;
            }
            uint32_t sees = look(tile * QUERIES);
            for (uint32_t key = 0; key < sees; key += KEYS) add(tile * QUERIES, key, sees, column);
            if constexpr (OF == Result::Y) finish(tile * QUERIES, stats);
        } else {
            // without positions, earlier queries see nothing of these keys
            uint32_t start = in.positions != nullptr ? 0 : tile * KEYS / QUERIES * QUERIES;
            for (uint32_t query = start; query < in.q.rows; query += QUERIES) {
                uint32_t sees = look(query);
                if (sees > tile * KEYS) add(query, tile * KEYS, sees, column);
            }
        }
        write(tile * ROWS, column, to);
    }

    DEVICE void write(uint32_t first, uint32_t column, Ptr<T> to) {
        const Matrix<T>& like = OF == Result::Y ? in.v : OF == Result::GV ? in.v : in.q;
        uint32_t rows = OVER_KEYS ? in.q.rows : in.k.rows, width = like.width;
        float scale = GRADIENT ? in.scale : 1.0f;
        uint32_t warp = threadIdx.x / WARP, row = warp % (ROWS / RM) * RM, right = warp / (ROWS / RM) * RN;
        result.each([&](uint32_t i, uint32_t j, float x) {
            uint32_t r = first + row + i, c = column + right + j;
            if (r < rows && c < width) to[uint64_t(r) * width + c] = from_float<T>(x * scale);
        });
    }
};

// Block (sequence and tile, range of columns); later tiles, of which queries see more, come first.
template <class T, Result OF, int QUERIES, int COLUMNS>
DEVICE void attend(Ptr<const T> q, Ptr<const T> k, Ptr<const T> v, Ptr<const T> gy,
                   Ptr<const uint32_t> positions, Ptr<const float> stats, Ptr<const float> dots,
                   Ptr<const uint32_t> mask, Ptr<T> to, Ptr<float> stats_to, uint32_t heads, uint32_t rows,
                   uint32_t len, uint32_t key_width, uint32_t value_width, uint32_t rule, uint32_t by_four,
                   float scale) {
    using W = Walk<T, OF, QUERIES, COLUMNS>;
    SHARED(T, staged, STAGED / sizeof(T));
    SHARED(T, weights, QUERIES * W::WEIGHT_STRIDE);
    SHARED(uint32_t, reach, QUERIES);
    SHARED(float, parts, W::ACROSS * QUERIES);
    uint32_t of = W::OVER_KEYS ? rows : len, tiles = (of + W::ROWS - 1) / W::ROWS;
    uint32_t sequence = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    if (W::OVER_KEYS) tile = tiles - 1 - tile;
    uint64_t item = sequence;
    bool fours = by_four != 0;
    Inputs<T> in = {{q + item * rows * key_width, rows, key_width, fours},
                    {k + item * len * key_width, len, key_width, fours},
                    {v + item * len * value_width, len, value_width, fours},
                    {nullptr, rows, value_width, fours},
                    nullptr, nullptr, nullptr, read_mask(mask), item * rows * len, rule, scale};
    if (gy != nullptr) in.gy.p = gy + item * rows * value_width;
    if (positions != nullptr) in.positions = positions + uint64_t(sequence / heads) * rows;
    if (stats != nullptr) in.stats = stats + item * rows;
    if (dots != nullptr) in.dots = dots + item * rows;
    if (stats_to != nullptr) stats_to = stats_to + item * rows;
    if (blockIdx.y > 0) stats_to = nullptr;
    uint32_t width = OF == Result::Y || OF == Result::GV ? value_width : key_width;
    uint32_t warp = threadIdx.x / WARP, down = QUERIES / W::PM;
    W walk = {in, staged, weights, reach, parts, warp % down * W::PM, warp / down * W::PN};
    walk.run(tile, blockIdx.y * COLUMNS, to + item * of * width, stats_to);
}

#define ATTEND(name, OF, queries, columns, io, T)                                                             \
    KERNEL(causal_attention_##name##_##queries##_##columns##_##io, THREADS, Global<const T> q,                \
           Global<const T> k, Global<const T> v, Global<const T> gy, Global<const uint32_t> positions,        \
           Global<const float> stats, Global<const float> dots, Global<const uint32_t> mask, Global<T> to,    \
           Global<float> stats_to, uint32_t heads, uint32_t rows, uint32_t len, uint32_t key_width,           \
           uint32_t value_width, uint32_t rule, uint32_t by_four, float scale) {                              \
        attend<T, Result::OF, queries, columns>(q, k, v, gy, positions, stats, dots, mask, to, stats_to,      \
                                                heads, rows, len, key_width, value_width, rule, by_four,      \
                                                scale);                                                       \
    }

#define ATTEND_ALL(name, OF)                \
    ATTEND(name, OF, 16, 64, f32, float)    \
    ATTEND(name, OF, 16, 256, f32, float)   \
    ATTEND(name, OF, 64, 64, f32, float)    \
    ATTEND(name, OF, 64, 256, f32, float)   \
    ATTEND(name, OF, 16, 64, bf16, bf16)    \
    ATTEND(name, OF, 16, 256, bf16, bf16)   \
    ATTEND(name, OF, 64, 64, bf16, bf16)    \
    ATTEND(name, OF, 64, 256, bf16, bf16)
