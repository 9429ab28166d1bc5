// Causal attention, all three gradients of sequences of at most 64 queries and 64 keys and heads of any width, in one
// launch with one block per sequence; the method is explained in causal_attention.cuh. Weights stay in registers, so that
// they and the products of gradients and values are computed once.
#include "causal_attention.cuh"

template <class T, class P>
DEVICE void differentiate(Ptr<const T> q, Ptr<const T> k, Ptr<const T> v, Ptr<const T> gy,
                          Ptr<const uint32_t> positions, Ptr<const float> stats, Ptr<const float> dots,
                          const GivenMask& mask, Ptr<T> gq, Ptr<T> gk, Ptr<T> gv, uint32_t heads, uint32_t rows,
                          uint32_t len, uint32_t key_width, uint32_t value_width, uint32_t rule, uint32_t by_four,
                          float scale, Ptr<const uint32_t> links, uint32_t links_each, uint32_t window,
                          uint32_t globals, uint32_t slopes, Ptr<const float> bias, uint32_t distances) {
    constexpr int COLUMNS = 64;
    constexpr uint32_t STRIDE = KEYS + PAD_ACROSS;
    using OfQueries = Walk<T, P, Result::GQ, KEYS, COLUMNS, STRIDE>;
    using OfKeys = Walk<T, P, Result::GK, KEYS, COLUMNS, STRIDE>;
    using OfValues = Walk<T, P, Result::GV, KEYS, COLUMNS, STRIDE>;
    SHARED(T, staged, STAGED / sizeof(T));
    SHARED(T, weights, KEYS * STRIDE);
    SHARED(uint32_t, reach, KEYS);
    SHARED(float, parts, OfKeys::Tile::ACROSS * KEYS);
    Inputs<T> in = inputs<T>(blockIdx.x, q, k, v, gy, positions, stats, dots, mask, heads, rows, len, key_width, value_width,
                             rule, by_four, scale, links, links_each, window, globals, slopes, bias, distances);
    uint32_t warp = threadIdx.x / WARP, down = KEYS / OfKeys::Tile::PM;
    uint32_t row = warp % down * OfKeys::Tile::PM, column = warp / down * OfKeys::Tile::PN;
    OfValues of_values = {in, {in, staged, weights, reach, parts, row, column}};
    OfKeys of_keys = {in, {in, staged, weights, reach, parts, row, column}};
    OfQueries of_queries = {in, {in, staged, weights, reach, parts, row, column}};
    uint32_t visible = of_values.tile.look(0), kept = of_values.tile.draw(0, 0);
    typename OfKeys::Pairs of, pairs;
    of.clear();
    of_keys.tile.multiply(of, in.q, 0, in.k, 0);
    of_keys.tile.weigh(of, 0, 0);
    pairs = of;
    of_values.tile.drop(pairs, kept);
    of_values.tile.leave(pairs);
    for (uint32_t c = 0; c < value_width; c += COLUMNS) of_values.columns(visible, c, gv);
    pairs.clear();
    of_keys.tile.multiply(pairs, in.gy, 0, in.v, 0);
    of_keys.tile.drop(pairs, kept);
    of_keys.tile.differentiate(pairs, of, 0, 0, scale);
    of_keys.tile.leave(pairs);
    for (uint32_t c = 0; c < key_width; c += COLUMNS) of_keys.columns(visible, c, gk);
    for (uint32_t c = 0; c < key_width; c += COLUMNS) of_queries.columns(visible, c, gq);
}

#define SHORT(io, T, P)                                                                                       \
    KERNEL_FITTING(causal_attention_short_##io, THREADS, RESIDENT(2), Global<const T> q, Global<const T> k,   \
                   Global<const T> v, Global<const T> gy, Global<const uint32_t> positions,                   \
                   Global<const float> stats, Global<const float> dots, MASK, Global<T> gq, Global<T> gk,     \
                   Global<T> gv, uint32_t heads, uint32_t rows, uint32_t len, uint32_t key_width,             \
                   uint32_t value_width, uint32_t rule, uint32_t by_four, float scale,                        \
                   Global<const uint32_t> links, uint32_t links_each, uint32_t window, uint32_t globals,      \
                   uint32_t slopes, Global<const float> bias, uint32_t distances) {                           \
        differentiate<T, P>(q, k, v, gy, positions, stats, dots, GIVEN_MASK, gq, gk, gv, heads, rows, len,    \
                            key_width, value_width, rule, by_four, scale, links, links_each, window, globals, \
                            slopes, bias, distances);                                                         \
    }

SHORT(f32, float, Tf32x3)
SHORT(tf32, float, Tf32)
SHORT(bf16, bf16, Bf16)
