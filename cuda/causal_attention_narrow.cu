// Causal attention, forward, of heads of at most 128 columns; causal_attention.cu has the kernels for wider ones and for
// few queries.
//
// A warp owns 16 queries and all 64 keys of a tile: their weights stay in registers, where they are the left factor of the
// product with values, and the largest score of a query takes two shuffles. Fragments of bf16 queries stay in registers,
// too. Values are copied during the product of queries and keys, and the keys of the next tile during the weights and the
// product with values. Three barriers a tile, which the blocks of a multiprocessor hide from each other: with 228 KB of
// shared memory four of up to 64 columns, or two.
//
// The order of keys in the product with values is such that neither the fragments of weights are exchanged nor f32 values
// meet bank conflicts: mma.cuh, right_fragment_of_pairs().
#include "causal_attention_online.cuh"

template <class T, class P, int DEPTH>
struct Narrow {
    static constexpr int COPIERS = CAUSAL_ATTENTION_NARROW_THREADS, QUERIES = 64, OF_WARP = 16;
    static constexpr int WARPS = QUERIES / OF_WARP, STEPS = DEPTH / P::K;
    static_assert(WARPS * WARP == COPIERS, "16 queries for each warp");
    static constexpr uint32_t STRIDE = DEPTH + 16 / sizeof(T), ROWS = KEYS * STRIDE;
    static constexpr bool QUERIES_STAY = P::K == 16;
    using Tile = ::Tile<T, P, QUERIES, 0, false, T, WARPS, OF_WARP>;
    using Pairs = typename Tile::Pairs;
    using Sum = WarpTile<OF_WARP, DEPTH>;

    const Inputs<T>& in;
    Tile tile;
    Rows<T> q;
    Columns<T> k;
    Rows<T> v;
    typename P::template Fragment<4> of_q[QUERIES_STAY ? STEPS : 1];
    Online<Tile> online;
    Sum sum;

    // pairs = q_i . k_j
    DEVICE void multiply(Pairs& pairs) {
        uint32_t end = up_to_16(in.q.width);
        pairs.clear();
        if constexpr (!QUERIES_STAY) {
            add_product<P, 1>(pairs, q, tile.query_row, k, 0, end);
        } else {
#pragma unroll
            for (uint32_t step = 0; step < STEPS; ++step) {
                if (step * P::K >= end) break;
#pragma unroll
                for (int j = 0; j < KEYS / 8; ++j)
                    P::multiply(pairs.sum[0][j], of_q[step], right_fragment<P>(k, step * P::K, 8 * j));
            }
        }
    }

    // sum += weights times values; `count` keys have a weight
    DEVICE void add_values(const Pairs& pairs, uint32_t count) {
#pragma unroll
        for (uint32_t key = 0; key < KEYS; key += P::K) {
            if (key >= count) break;
            auto left = pairs.template as_left<P>(key);
#pragma unroll
            for (uint32_t j = 0; j < DEPTH / 8; ++j) {
                // a branch for every four groups of columns, between which loads can move; columns beyond are padding
                if (j % 4 == 0 && 8 * j >= in.v.width) break;
                P::multiply(sum.sum[0][j], left, right_fragment_of_pairs<P>(v, key, 8 * j));
            }
        }
    }

    DEVICE void run(uint32_t first_query, Ptr<T> to, Ptr<float> stats) {
        uint32_t visible = tile.look(first_query), key = in.first_key(first_query);
        stage<QUERIES, DEPTH, COPIERS>(q.p, STRIDE, in.q, first_query, 0);
        stage<KEYS, DEPTH, COPIERS>(k.p, STRIDE, in.k, key, 0);
        sum.clear();
        online.start();
#pragma unroll 1
        for (bool is_first = true; key < visible; key += KEYS, is_first = false) {
            // random bits before the products: the generator takes registers
            uint32_t kept = tile.draw(first_query, key);
            wait_for_copies();
            __syncthreads();  // the keys are there, and nothing reads the values of the tile before
            stage<KEYS, DEPTH, COPIERS>(v.p, STRIDE, in.v, key, 0);
            end_copies();
            if constexpr (QUERIES_STAY) {
                if (is_first) {
#pragma unroll
                    for (int step = 0; step < STEPS; ++step)
                        of_q[step] = left_fragment<P>(q, tile.query_row, step * P::K);
                }
            }
            Pairs pairs;
            multiply(pairs);
            __syncthreads();
            bool is_last = key + KEYS >= visible;
            if (!is_last) stage<KEYS, DEPTH, COPIERS>(k.p, STRIDE, in.k, key + KEYS, 0);
            end_copies();
            online.weigh(tile, pairs, key, sum);
            tile.drop(pairs, kept);
            wait_for_earlier_copies();  // all but the next keys
            __syncthreads();
            add_values(pairs, min(visible - key, uint32_t(KEYS)));
        }
        online.finish(tile, sum, first_query, stats);
        sum.each([&](uint32_t i, uint32_t j, float x) {
            uint32_t r = first_query + tile.query_row + i;
            if (r < in.q.rows && j < in.v.width) to[uint64_t(in.q.first + r * in.heads) * in.v.width + j] = from_float<T>(x);
        });
    }
};

// Block (sequence and tile of queries). Later tiles, whose queries attend to more keys, run first.
template <class T, class P, int DEPTH>
DEVICE void attend(const Arguments<T>& given, Ptr<T> to, Ptr<float> stats_to) {
    using N = Narrow<T, P, DEPTH>;
    SHARED(uint32_t, reach, N::QUERIES);
    uint32_t tiles = (given.rows + N::QUERIES - 1) / N::QUERIES;
    uint32_t sequence = blockIdx.x / tiles, tile = tiles - 1 - blockIdx.x % tiles;
    Inputs<T> in = given.of(sequence);
    Ptr<T> staged = dynamic_shared<T>(0, 3 * N::ROWS);
    if (stats_to != nullptr) stats_to = stats_to + uint64_t(sequence) * given.rows;
    N of = {in,
            {in, staged, nullptr, reach, nullptr, threadIdx.x / WARP * N::OF_WARP, 0},
            {staged, N::STRIDE},
            {staged + N::ROWS, N::STRIDE},
            {staged + 2 * N::ROWS, N::STRIDE}};
    of.run(tile * N::QUERIES, to, stats_to);
}

#define NARROW_HEADS(depth, blocks, io, T, P)                                                       \
    KERNEL_FITTING(causal_attention_narrow_##depth##_##io, CAUSAL_ATTENTION_NARROW_THREADS, blocks, \
                   ARGUMENT_TENSORS(T), Global<T> to, Global<float> stats_to, ARGUMENT_SIZES) {     \
        attend<T, P, depth>(ARGUMENTS(T), to, stats_to);                                            \
    }

#define DEPTHS(io, T, P)                    \
    NARROW_HEADS(64, RESIDENT(4), io, T, P) \
    NARROW_HEADS(128, RESIDENT(2), io, T, P)

DEPTHS(f32, float, Tf32x3)
DEPTHS(tf32, float, Tf32)
DEPTHS(bf16, bf16, Bf16)
