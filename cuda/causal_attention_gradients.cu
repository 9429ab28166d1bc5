// Causal attention, all three gradients in one pass over the pairs, for heads of at most 128 columns: five products of
// matrices for a pair, where the three kernels for wider heads take eight.
//
// A block owns a sequence, or one of `parts` parts of its tiles of 64 keys. It loads the keys and values of a tile, loops
// over the tiles of 64 queries that attend to them, and sums the gradients of keys and values in registers:
//   S = Q K^T, P = weights of S, gv += P^T gy, dP = gy V^T, dS = (dP - dots) P, gk += dS^T Q, gq += dS K
// The gradients of queries are summed over tiles of keys, in f32 in global memory: the sums of a block are its own, are
// read and written by the same thread each time, and those of several blocks are added in a fixed order (sums.cu).
//
// Shared memory holds a tile of each of q, k, v and gy at its whole width, and one tile of pairs: 46 to 154 KB, which a
// launch may ask for. Rows are apart as is best where both factors are read along them (S and dP); the right factors of
// the other products then meet two-way bank conflicts in f32.
#include "causal_attention_tile.cuh"

template <class T, class P, int DEPTH>
struct Gradients {
    static constexpr int QUERIES = 64;
    static constexpr uint32_t STRIDE = DEPTH + 16 / sizeof(T), PAIR_STRIDE = KEYS + PAD_ACROSS;
    static constexpr uint32_t ROWS = KEYS * STRIDE, PAIRS = QUERIES * PAIR_STRIDE;  // elements of a tile
    // rows and columns of a warp, of a gradient
    static constexpr int RM = 32, RN = DEPTH / (THREADS / WARP / (KEYS / RM));
    using Tile = ::Tile<T, P, QUERIES, PAIR_STRIDE, true>;
    using Pairs = typename Tile::Pairs;
    using Sum = WarpTile<RM, RN>;

    const Inputs<T>& in;
    Tile tile;
    Ptr<T> k, v, q, gy;
    Ptr<float> gq;  // of this block
    uint32_t row, column;
    Sum gk, gv;

    // pairs = a_i . b_j
    DEVICE void multiply(Pairs& pairs, Ptr<T> a, Ptr<T> b, uint32_t width) const {
        Rows<T> left = {a, STRIDE};
        Columns<T> right = {b, STRIDE};
        pairs.clear();
        add_product<P, Tile::STEPS>(pairs, left, tile.query_row, right, tile.key_column, up_to_16(width));
    }

    // sum += the pairs of a tile, or their transpose, times the first `rows` rows of `of`, whose first `width` columns are
    // not padding
    template <class Left>
    DEVICE void add(Sum& sum, const Left& left, Ptr<T> of, uint32_t rows, uint32_t width) const {
        if (column >= width) return;
        Rows<T> right = {of, STRIDE};
        add_product<P, 1>(sum, left, row, right, column, up_to_16(min(rows, uint32_t(KEYS))));
    }

    // f(element of a gradient in memory, sum) for each sum of this lane that belongs to a row of the tile from `first` on.
    template <class G, class F>
    DEVICE void each(Sum& sum, const Matrix<T>& of, Ptr<G> to, uint32_t first, F f) const {
        sum.each([&](uint32_t i, uint32_t j, float& x) {
            uint32_t r = first + row + i, c = column + j;
            if (r < of.rows && c < of.width) f(to + (uint64_t(of.first + r * of.heads) * of.width + c), x);
        });
    }

    // Adds what the queries from `first_query` on contribute, which attend to the first `visible` keys of the sequence, in
    // the order of the products above.
    DEVICE void add_queries(uint32_t first_query, uint32_t first_key, uint32_t visible) {
        uint32_t queries = in.q.rows - first_query;
        stage<QUERIES, DEPTH>(q, STRIDE, in.q, first_query, 0);
        stage<QUERIES, DEPTH>(gy, STRIDE, in.gy, first_query, 0);
        // random bits before the products: the generator takes registers
        uint32_t kept = tile.draw(first_query, first_key);
        wait_for_copies();
        __syncthreads();
        Pairs of, pairs;
        multiply(of, q, k, in.q.width);
        tile.weigh(of, first_query, first_key);
        pairs = of;
        tile.drop(pairs, kept);
        tile.leave(pairs);
        multiply(pairs, gy, v, in.v.width);
        tile.drop(pairs, kept);
        tile.differentiate(pairs, of, first_query, first_key, in.scale);
        Columns<T> transposed = {tile.weights, PAIR_STRIDE};
        Rows<T> upright = {tile.weights, PAIR_STRIDE};
        __syncthreads();
        add(gv, transposed, gy, queries, in.v.width);
        __syncthreads();
        tile.leave(pairs);
        __syncthreads();
        Sum sum;
        sum.clear();
        each(sum, in.q, gq, first_query, [](Ptr<float> at, float& x) { x = at[0]; });
        add(gk, transposed, q, queries, in.q.width);
        add(sum, upright, k, visible - first_key, in.q.width);
        each(sum, in.q, gq, first_query, [](Ptr<float> at, float& x) { at[0] = x; });
    }

    // Computes the gradients for a part of the tiles of keys: of each `parts` tiles one, from the front and from the back in
    // turn, since earlier keys are attended to by more queries.
    DEVICE void run(uint32_t part, uint32_t parts, Ptr<T> gk_to, Ptr<T> gv_to) {
        Sum none;
        none.clear();
        for (uint32_t query = 0; query < in.q.rows; query += QUERIES)
            each(none, in.q, gq, query, [](Ptr<float> at, float& x) { at[0] = x; });
#pragma unroll 1
        for (uint32_t round = 0; round * parts * KEYS < in.k.rows; ++round) {
            uint32_t key = (round * parts + (round % 2 == 0 ? part : parts - 1 - part)) * KEYS;
            if (key >= in.k.rows) continue;
            gk.clear();
            gv.clear();
            __syncthreads();
            stage<KEYS, DEPTH>(k, STRIDE, in.k, key, 0);
            stage<KEYS, DEPTH>(v, STRIDE, in.v, key, 0);
            uint32_t query = in.first_query(key), end = in.end_of_queries(key);
#pragma unroll 1
            for (; query < end; query += QUERIES) {
                uint32_t visible = tile.look(query);
                if (visible > key) add_queries(query, key, visible);
            }
            wait_for_copies();  // of keys that no query attends to
            each(gk, in.k, gk_to, key, [](Ptr<T> at, float& x) { at[0] = from_float<T>(x); });
            each(gv, in.v, gv_to, key, [](Ptr<T> at, float& x) { at[0] = from_float<T>(x); });
        }
    }
};

// Block (sequence and part of its keys). `gq`: (parts, all rows of q, width), in f32.
template <class T, class P, int DEPTH>
DEVICE void differentiate(const Arguments<T>& given, Ptr<float> gq, Ptr<T> gk, Ptr<T> gv, uint32_t parts) {
    using G = Gradients<T, P, DEPTH>;
    SHARED(uint32_t, reach, G::QUERIES);
    uint32_t sequence = blockIdx.x / parts, part = blockIdx.x % parts;
    Inputs<T> in = given.of(sequence);
    Ptr<T> tiles = dynamic_shared<T>(0, 4 * G::ROWS + G::PAIRS), pairs = tiles + 4 * G::ROWS;
    uint64_t of_part = uint64_t(gridDim.x / parts) * given.rows * given.key_width;
    uint32_t warp = threadIdx.x / WARP, down = G::QUERIES / G::Tile::PM, across = KEYS / G::RM;
    G of = {in,
            {in, tiles, pairs, reach, nullptr, warp % down * G::Tile::PM, warp / down * G::Tile::PN},
            tiles,
            tiles + G::ROWS,
            tiles + 2 * G::ROWS,
            tiles + 3 * G::ROWS,
            gq + part * of_part,
            warp % across * G::RM,
            warp / across * G::RN};
    of.run(part, parts, gk, gv);
}

#define GRADIENTS(depth, blocks, io, T, P)                                                          \
    KERNEL_FITTING(causal_attention_gradients_##depth##_##io, THREADS, blocks, ARGUMENT_TENSORS(T), \
                   Global<float> gq, Global<T> gk, Global<T> gv, uint32_t parts, ARGUMENT_SIZES) {  \
        differentiate<T, P, depth>(ARGUMENTS(T), gq, gk, gv, parts);                                \
    }

#define DEPTHS(io, T, P)                  \
    GRADIENTS(64, RESIDENT(2), io, T, P)  \
    GRADIENTS(128, RESIDENT(1), io, T, P)

DEPTHS(f32, float, Tf32x3)
DEPTHS(tf32, float, Tf32)
DEPTHS(bf16, bf16, Bf16)
