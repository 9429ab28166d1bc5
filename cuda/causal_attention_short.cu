// Causal attention, all three gradients of sequences of at most 64 queries and 64 keys and heads of any width, in one
// launch with one block per sequence; the method is explained in causal_attention.cuh. Weights stay in registers, so
// that they and the products of gradients and values are computed once.
#include "causal_attention.cuh"

template <class T, class P>
DEVICE void differentiate(const Arguments<T>& given, Ptr<T> gq, Ptr<T> gk, Ptr<T> gv) {
    constexpr int COLUMNS = 64;
    constexpr uint32_t STRIDE = KEYS + PAD_ACROSS;
    using OfQueries = Walk<T, P, Result::GQ, KEYS, COLUMNS, STRIDE>;
    using OfKeys = Walk<T, P, Result::GK, KEYS, COLUMNS, STRIDE>;
    using OfValues = Walk<T, P, Result::GV, KEYS, COLUMNS, STRIDE>;
    SHARED(T, staged, STAGED / sizeof(T));
    SHARED(T, weights, KEYS * STRIDE);
    SHARED(uint32_t, reach, KEYS);
    SHARED(float, parts, OfKeys::Tile::ACROSS * KEYS);
    Inputs<T> in = given.of(blockIdx.x);
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
    for (uint32_t c = 0; c < in.v.width; c += COLUMNS) of_values.columns(visible, c, gv);
    pairs.clear();
    of_keys.tile.multiply(pairs, in.gy, 0, in.v, 0);
    of_keys.tile.drop(pairs, kept);
    of_keys.tile.differentiate(pairs, of, 0, 0, in.scale);
    of_keys.tile.leave(pairs);
    for (uint32_t c = 0; c < in.k.width; c += COLUMNS) of_keys.columns(visible, c, gk);
    for (uint32_t c = 0; c < in.k.width; c += COLUMNS) of_queries.columns(visible, c, gq);
}

#define SHORT(io, T, P)                                                                                  \
    KERNEL_FITTING(causal_attention_short_##io, THREADS, RESIDENT(2), ARGUMENT_TENSORS(T), Global<T> gq, \
                   Global<T> gk, Global<T> gv, ARGUMENT_SIZES) {                                         \
        differentiate<T, P>(ARGUMENTS(T), gq, gk, gv);                                                   \
    }

SHORT(f32, float, Tf32x3)
SHORT(tf32, float, Tf32)
SHORT(bf16, bf16, Bf16)
