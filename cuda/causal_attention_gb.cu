// Causal attention, gradient of a bias by distance: the gradients of all scores, summed over the pairs at each
// distance.
//
// A block owns a tile of queries, loops over the keys that they attend to as in causal_attention.cuh, and writes sums
// of its own; those of all blocks are added in a fixed order (sums.cu). One thread sums one distance; pairs at the last
// distance or beyond, which may be most of them, are divided among all threads by query. The pairs cost as much as in
// the gradient of queries, and the sums 64 reads of shared memory for each distance and tile. Gradients are summed in
// f32: those of a query sum to zero, but not after rounding to bf16.
#include "causal_attention_tile.cuh"

template <class T, class P, int QUERIES>
DEVICE void sum_by_distance(const Arguments<T>& given, Ptr<float> to) {
    constexpr uint32_t STRIDE = KEYS + PAD_ACROSS, EACH = THREADS / QUERIES;
    using Tile = ::Tile<T, P, QUERIES, STRIDE, true, float>;
    SHARED(T, staged, STAGED / sizeof(T));
    SHARED(float, weights, QUERIES * STRIDE);
    SHARED(uint32_t, reach, QUERIES);
    SHARED(float, parts, Tile::ACROSS * QUERIES);
    SHARED(float, beyond, THREADS / WARP);
    uint32_t tiles = (given.rows + QUERIES - 1) / QUERIES;
    uint32_t sequence = blockIdx.x / tiles, first = blockIdx.x % tiles * QUERIES;
    Inputs<T> in = given.of(sequence);
    uint32_t heads = in.heads, distances = in.distances;
    uint32_t warp = threadIdx.x / WARP, down = QUERIES / Tile::PM, last = distances - 1;
    Tile tile = {in, staged, weights, reach, parts, warp % down * Tile::PM, warp / down * Tile::PN};
    // one row per tile of a sequence of the batch, one part of it per head
    Ptr<float> sums = to + (uint64_t(sequence / heads * tiles + blockIdx.x % tiles) * heads + sequence % heads) * distances;
    for (uint32_t distance = threadIdx.x; distance < last; distance += THREADS) sums[distance] = 0.0f;
    float far = 0.0f;
    uint32_t visible = tile.look(first), key = in.first_key(first);
#pragma unroll 1
    for (; key < visible; key += KEYS) {
        typename Tile::Pairs pairs;
        tile.gradients(pairs, first, key, 1.0f);
        __syncthreads();
        for (uint32_t distance = threadIdx.x; distance < last; distance += THREADS) {
            float sum = sums[distance];
#pragma unroll 4
            for (uint32_t query = 0; query < QUERIES; ++query) {
                uint32_t past = reach[query];  // number of keys; the one at this distance is past - 1 - distance
                if (past <= distance + key || past > distance + key + KEYS) continue;
                sum += weights[query * STRIDE + (past - 1 - distance - key)];
            }
            sums[distance] = sum;
        }
        uint32_t query = threadIdx.x / EACH, past = reach[query];
        for (uint32_t i = threadIdx.x % EACH; i < KEYS; i += EACH) {
            if (key + i + last >= past) break;
            far += weights[query * STRIDE + i];
        }
    }
    far = warp_sum(far);
    if (threadIdx.x % WARP == 0) beyond[warp] = far;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < THREADS / WARP; ++i) far += beyond[i];
    sums[last] = far;
}

#define SUM_BY_DISTANCE(queries, io, T, P)                                                                  \
    KERNEL_FITTING(causal_attention_gb_##queries##_##io, THREADS, 1, ARGUMENT_TENSORS(T), Global<float> to, \
                   ARGUMENT_SIZES) {                                                                        \
        sum_by_distance<T, P, queries>(ARGUMENTS(T), to);                                                   \
    }

SUM_BY_DISTANCE(16, f32, float, Tf32x3)
SUM_BY_DISTANCE(64, f32, float, Tf32x3)
SUM_BY_DISTANCE(16, tf32, float, Tf32)
SUM_BY_DISTANCE(64, tf32, float, Tf32)
SUM_BY_DISTANCE(16, bf16, bf16, Bf16)
SUM_BY_DISTANCE(64, bf16, bf16, Bf16)
