// Weights of attention while their normalisers are not known yet (the online softmax).
#pragma once

#include "causal_attention_tile.cuh"

// Of each query of a lane, the largest score so far and the sum of weights; a softmax's weights are relative to that score.
template <class Tile>
struct Online {
    static constexpr int SLOTS = Tile::SLOTS;
    float top[SLOTS], sum[SLOTS];

    DEVICE void start() {
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) {
            top[slot] = -INFINITY;
            sum[slot] = 0.0f;
        }
    }

    // Converts products of queries and keys to weights, and rescales `result`, the sums over earlier keys.
    template <class Result>
    DEVICE void weigh(const Tile& tile, typename Tile::Pairs& pairs, uint32_t first_key, Result& result) {
        if (tile.in.rule == SOFTMAX) {
            float now[SLOTS], before[SLOTS];
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) now[slot] = before[slot] = top[slot];
            tile.in.patterned() ? score<true>(tile, pairs, first_key, now) : score<false>(tile, pairs, first_key, now);
            tile.over_keys(now, [](float x, float y) { return fmaxf(x, y); });
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) {
                top[slot] = now[slot];
                // a query that has attended to nothing yet
                if (now[slot] == -INFINITY) now[slot] = 0.0f;
                float share = exp2_fast(before[slot] - now[slot]);
                sum[slot] *= share;
                scale(result, slot, share);
            }
            tile.template each_pair<false>(pairs, first_key, [&](int slot, uint32_t, uint32_t, float x, bool) {
                x = exp2_fast(x - now[slot]);
                sum[slot] += x;
                return x;
            });
        } else {
            tile.template each_pair<false>(pairs, first_key, [&](int slot, uint32_t, uint32_t, float x, bool unmasked) {
                x = unmasked ? x * tile.in.scale : 0.0f;
                sum[slot] += x;
                return x;
            });
        }
    }

    // Converts products to the scores of a softmax, -infinity where they are masked, and updates the largest of each
    // query.
    template <bool PATTERNED>
    DEVICE void score(const Tile& tile, typename Tile::Pairs& pairs, uint32_t first_key, float (&most)[SLOTS]) const {
        float falls = tile.slope();
        tile.template each_pair<PATTERNED>(
            pairs, first_key, [&](int slot, uint32_t query, uint32_t key, float x, bool unmasked) {
                x = unmasked ? tile.template score<PATTERNED>(x, query, first_key + key, falls) : -INFINITY;
                most[slot] = fmaxf(most[slot], x);
                return x;
            });
    }

    // Divides `result` by the normalisers, and writes the statistics for the backward pass.
    template <class Result>
    DEVICE void finish(const Tile& tile, Result& result, uint32_t first_query, Ptr<float> stats) {
        if (tile.in.rule == PLAIN) return;
        tile.over_keys(sum, [](float x, float y) { return x + y; });
        tile.each_query([&](int slot, uint32_t query) {
            float share = 1.0f / sum[slot];
            scale(result, slot, share);
            bool mine = stats != nullptr && tile.key_column == 0 && lane_quad() == 0;
            if (mine && first_query + query < tile.in.q.rows)
                stats[first_query + query] = tile.in.rule == SOFTMAX ? top[slot] + log2f(sum[slot]) : share;
        });
    }

    // Multiplies a row of `result`, whose rows are the queries.
    template <class Result>
    static DEVICE void scale(Result& result, int slot, float share) {
#pragma unroll
        for (int j = 0; j < Result::COLUMNS / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) result.sum[slot / 2][j][slot % 2 * 2 + e] *= share;
    }
};
