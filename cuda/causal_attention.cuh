// Causal attention and its gradients, one by one, as one loop over tiles of (queries x keys). Where it applies,
// causal_attention_gradients.cu computes all gradients at once.
//
// A block owns a tile of the result's rows and a range of its columns, and loops over the other
// side:
//   Y:  y_i  = sum_j w_ij v_j      rows are queries, the loop is over keys
//   GQ: gq_i = sum_j g_ij k_j      rows are queries, the loop is over keys
//   GK: gk_j = sum_i g_ij q_i      rows are keys, the loop is over queries
//   GV: gv_j = sum_i w_ij gy_i     rows are keys, the loop is over queries
// with w the weights after dropout and g the gradients of the scores. For each tile of pairs, the
// kernel computes the products q_i . k_j and gy_i . v_j (those that are needed) in slices of the
// width; then w or g in registers, which are written to shared memory; then their product with
// slices of the other side. Nothing of size L x L leaves the block, and blocks share no sums.
//
// Wide results are divided among blocks, each of which computes the pairs again: at most 4/3 of the
// minimal work at n = 256, d = 512 forward.
#pragma once

#include "causal_attention_online.cuh"

enum class Result { Y, GQ, GK, GV };

// The distance between rows of the weights in shared memory, free of bank conflicts in the one product that a kernel
// computes from them.
template <class T, Result OF>
struct Stride {
    static constexpr uint32_t OF_WEIGHTS =
        KEYS + ((OF == Result::Y || OF == Result::GQ) && sizeof(T) == 4 ? PAD_ALONG : PAD_ACROSS);
};

template <class T, class P, Result OF, int QUERIES, int COLUMNS, uint32_t WEIGHT_STRIDE = Stride<T, OF>::OF_WEIGHTS>
struct Walk {
    static constexpr bool OVER_KEYS = OF == Result::Y || OF == Result::GQ;
    static constexpr bool GRADIENT = OF == Result::GQ || OF == Result::GK;  // of scores
    using Tile = ::Tile<T, P, QUERIES, WEIGHT_STRIDE, GRADIENT>;
    using Pairs = typename Tile::Pairs;
    // rows of the result, and of a warp
    static constexpr int ROWS = OVER_KEYS ? QUERIES : KEYS;
    static constexpr int RM = ROWS == 64 ? 32 : 16, RN = COLUMNS / (THREADS / WARP / (ROWS / RM));
    // slabs of the walked side
    static constexpr uint32_t COLUMN_STRIDE = COLUMNS + 8;
    static constexpr uint32_t WALKED = OVER_KEYS ? KEYS : QUERIES;  // of a tile
    static constexpr uint32_t FIT = (COLUMNS > 64 ? 64 : 128) / sizeof(T), SLAB = FIT < WALKED ? FIT : WALKED;
    static_assert(SLAB * COLUMN_STRIDE * sizeof(T) <= STAGED, "a slab of the walked side");

    const Inputs<T>& in;
    Tile tile;
    WarpTile<RM, RN> result;
    Online<Tile> online;  // of Y

    // Writes the weights of a tile of pairs, or the gradients of its scores, to shared memory.
    DEVICE void attend(uint32_t first_query, uint32_t first_key) {
        Pairs pairs;
        if constexpr (GRADIENT) {
            tile.gradients(pairs, first_query, first_key, in.scale);
        } else {
            uint32_t kept = tile.draw(first_query, first_key);
            pairs.clear();
            tile.multiply(pairs, in.q, first_query, in.k, first_key);
            if constexpr (OF == Result::Y)
                online.weigh(tile, pairs, first_key, result);
            else
                tile.weigh(pairs, first_query, first_key);
            tile.drop(pairs, kept);
            tile.leave(pairs);
        }
    }

    // Adds the contribution of a tile of pairs to the result; some of its queries attend to the first
    // `visible` keys of the sequence.
    DEVICE void add(uint32_t first_query, uint32_t first_key, uint32_t visible, uint32_t column) {
        attend(first_query, first_key);
        walk(first_query, first_key, visible, column);
    }

    // Computes the result for the only tile of a sequence, whose pairs are in shared memory, in the columns from
    // `column` on.
    DEVICE void columns(uint32_t visible, uint32_t column, Ptr<T> to) {
        result.clear();
        walk(0, 0, visible, column);
        write(0, column, to);
    }

    // result += weights (or their transpose) times the walked side
    DEVICE void walk(uint32_t first_query, uint32_t first_key, uint32_t visible, uint32_t column) {
        const Matrix<T>& side = OF == Result::Y    ? in.v
                                : OF == Result::GQ ? in.k
                                : OF == Result::GK ? in.q
                                                   : in.gy;
        uint32_t first = OVER_KEYS ? first_key : first_query;
        uint32_t depth = min(WALKED, OVER_KEYS ? visible - first_key : in.q.rows - first_query);
        uint32_t warp = threadIdx.x / WARP, row = warp % (ROWS / RM) * RM, to = warp / (ROWS / RM) * RN;
#pragma unroll 1
        for (uint32_t d = 0; d < depth; d += SLAB) {
            __syncthreads();
            stage_some<SLAB, COLUMNS>(tile.staged, COLUMN_STRIDE, side, first + d, column, side.width - column);
            wait_for_copies();
            __syncthreads();
            if (column + to >= side.width) continue;  // a warp whose columns are beyond the last
            uint32_t end = min(SLAB, up_to_16(depth - d));
            Rows<T> right = {tile.staged, COLUMN_STRIDE};
            if constexpr (OVER_KEYS) {
                Rows<T> left = {tile.weights + d, WEIGHT_STRIDE};
                add_product<P, 1>(result, left, row, right, to, end);
            } else {
                Columns<T> left = {tile.weights + d * WEIGHT_STRIDE, WEIGHT_STRIDE};
                add_product<P, 1>(result, left, row, right, to, end);
            }
        }
    }

    // Computes the tile's rows of the result, in the columns from `column` on; `stats` belongs to Y
    // and may be null.
    DEVICE void run(uint32_t index, uint32_t column, Ptr<T> to, Ptr<float> stats) {
        result.clear();
        if constexpr (OVER_KEYS) {
            online.start();
            uint32_t visible = tile.look(index * QUERIES), key = in.first_key(index * QUERIES);
#pragma unroll 1
            for (; key < visible; key += KEYS) add(index * QUERIES, key, visible, column);
            if constexpr (OF == Result::Y) online.finish(tile, result, index * QUERIES, stats);
        } else {
            uint32_t start = in.first_query(index * KEYS) / QUERIES * QUERIES, end = in.end_of_queries(index * KEYS);
            for (uint32_t query = start; query < end; query += QUERIES) {
                uint32_t visible = tile.look(query);
                if (visible > index * KEYS) add(query, index * KEYS, visible, column);
            }
        }
        write(index * ROWS, column, to);
    }

    DEVICE void write(uint32_t first, uint32_t column, Ptr<T> to) {
        uint32_t rows = OVER_KEYS ? in.q.rows : in.k.rows, width = (GRADIENT ? in.q : in.v).width;
        uint32_t from = OVER_KEYS ? in.q.first : in.k.first;
        uint32_t warp = threadIdx.x / WARP, row = warp % (ROWS / RM) * RM, right = warp / (ROWS / RM) * RN;
        result.each([&](uint32_t i, uint32_t j, float x) {
            uint32_t r = first + row + i, c = column + right + j;
            if (r < rows && c < width) to[uint64_t(from + r * in.heads) * width + c] = from_float<T>(x);
        });
    }
};

// Block (sequence and tile, range of columns). Later tiles, whose queries attend to more keys, run
// first.
template <class T, class P, Result OF, int QUERIES, int COLUMNS>
DEVICE void attend(const Arguments<T>& given, Ptr<T> to, Ptr<float> stats_to) {
    using W = Walk<T, P, OF, QUERIES, COLUMNS>;
    SHARED(T, staged, STAGED / sizeof(T));
    SHARED(T, weights, QUERIES * (Stride<T, OF>::OF_WEIGHTS));
    SHARED(uint32_t, reach, QUERIES);
    SHARED(float, parts, W::Tile::ACROSS * QUERIES);
    uint32_t of = W::OVER_KEYS ? given.rows : given.len, tiles = (of + W::ROWS - 1) / W::ROWS;
    uint32_t sequence = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    if (W::OVER_KEYS) tile = tiles - 1 - tile;
    Inputs<T> in = given.of(sequence);
    if (stats_to != nullptr) stats_to = stats_to + uint64_t(sequence) * given.rows;
    if (blockIdx.y > 0) stats_to = nullptr;
    uint32_t warp = threadIdx.x / WARP, down = QUERIES / W::Tile::PM;
    W walk = {in, {in, staged, weights, reach, parts, warp % down * W::Tile::PM, warp / down * W::Tile::PN}};
    walk.run(tile, blockIdx.y * COLUMNS, to, stats_to);
}

#define ATTEND(name, OF, queries, columns, blocks, io, T, P)                                          \
    KERNEL_FITTING(causal_attention_##name##_##queries##_##columns##_##io, THREADS, RESIDENT(blocks), \
                   ARGUMENT_TENSORS(T), Global<T> to, Global<float> stats_to, ARGUMENT_SIZES) {       \
        attend<T, P, Result::OF, queries, columns>(ARGUMENTS(T), to, stats_to);                       \
    }
