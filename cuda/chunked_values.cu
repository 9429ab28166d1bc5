// Chunked causal sums, backward: the gradients of values and decays, and the contribution of 32
// channels to those of scores (which chunked_keys.cu adds up).
//
// The bound: 2 n + 70 products a step and channel on tensor cores, and inside leaves 8.5 pairs a
// step and channel of about 12 instructions each, half of them for sums over channels (which are
// folded: 16 sums in 16 shuffles). At n = 256 the products weigh more (0.15 ms at (64, 512, 512, 256)
// with three of tf32, beside 0.11 ms to read both states), at n = 64 the pairs.
//
// The gradient of the exponent of a step is the sum of the terms that its decay multiplies, without
// cancellation: pairs inside the leaf, rows of the leaf that read earlier steps, steps of the leaf
// that are read later, and terms that pass through the whole leaf.
#include "chunked.cuh"

// x[i] summed over the warp, to lanes 2 i and 2 i + 1.
template <int COUNT>
DEVICE float fold(float (&x)[COUNT]) {
    if constexpr (COUNT == 1) {
        return x[0] + shuffle_xor(x[0], 1);
    } else {
        bool upper = lane() & COUNT;
        float half[COUNT / 2];
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) {
            float keep = upper ? x[i + COUNT / 2] : x[i], give = upper ? x[i] : x[i + COUNT / 2];
            half[i] = keep + shuffle_xor(give, COUNT);
        }
        return fold(half);
    }
}

template <class T>
struct Outs {
    Ptr<T> gx, gstep;
    // (sequences, chunks, 4, d), (parts, sequences, rows, 64)
    Ptr<float> grate, gscores;
};

// The shared memory of a block.
struct Tiles {
    Slots slots;
    Ptr<float> values, rows /* gradients */, slab, totals, passed /* [row's leaf][leaf] */, written, whole;
};

// sums += (rows of A at 16 w) (state), the rows of A from `from`.
template <class P, class T, class F>
DEVICE void times_state(WarpTile<LEAF, WIDTH>& sums, const Work& work, const Tiles& at, Ptr<const T> from,
                        F offset, Ptr<const float> state, uint32_t states, uint32_t channels) {
    Ptr<float> factor = at.slab, tile = at.slab + CHUNK * ALONG;
    for (uint32_t k = 0; k < states; k += WIDTH) {
        load_tile<WIDTH>(factor, ALONG, CHUNK, from, offset, k, states);
        States of = {work.place(), k, states, channels};
        load_tile<WIDTH>(tile, ACROSS, WIDTH, state, of, work.part * WIDTH, channels);
        __syncthreads();
        Rows<float> left = {factor, ALONG}, right = {tile, ACROSS};
        sums.template add_product<P>(left, leaf() * LEAF, right, 0, 0, WIDTH);
        __syncthreads();
    }
}

// Terms that pass through the whole chunk, from the state before it to the state after it; a
// quarter of n per warp.
DEVICE float passing_chunk(const Work& work, const Tiles& at, Ptr<const float> before,
                           Ptr<const float> after, uint32_t states, uint32_t channels) {
    float sum = 0.0f;
    if (work.channel() < channels)
        for (uint32_t k = leaf(); k < states; k += LEAVES) {
            uint64_t i = (work.place() * states + k) * channels + work.channel();
            sum += value_at(before, i) * value_at(after, i);
        }
    at.whole[leaf() * WIDTH + lane()] = sum;
    __syncthreads();
    float all = 0.0f, decay = 1.0f;
    for (uint32_t i = 0; i < LEAVES; ++i) {
        all += value_at(at.whole, i * WIDTH + lane());
        decay *= value_at(at.totals, i * WIDTH + lane());
    }
    return all * decay;
}

// Terms that pass through this whole leaf, from states or leaves before it to leaves or states
// after it.
DEVICE float passing_leaf(const Tiles& at) {
    auto total = [&](uint32_t i) { return value_at(at.totals, i * WIDTH + lane()); };
    float sum = 0.0f;
    for (uint32_t later = leaf() + 1; later < LEAVES; ++later) {
        float here = value_at(at.passed, (later * LEAVES + leaf()) * WIDTH + lane());
        for (uint32_t i = leaf(); i < later; ++i) here *= total(i);
        sum += here;
    }
    for (uint32_t earlier = 0; earlier < leaf(); ++earlier) {
        float here = value_at(at.written, earlier * WIDTH + lane());
        for (uint32_t i = earlier + 1; i < LEAVES; ++i) here *= total(i);
        sum += here;
    }
    return sum;
}

// The gradients of scores between leaves, and inside them if nothing decays.
template <class P, bool DECAYS>
DEVICE void score_gradients(const Work& work, const Tiles& at, Ptr<float> gscores, uint64_t first_row) {
    uint32_t mine = leaf() * LEAF;
#pragma unroll 1
    for (uint32_t j = 0; j < leaf() + !DECAYS; ++j) {
        WarpTile<LEAF, LEAF> sums;
        sums.clear();
        Rows<float> left = {at.rows, ACROSS};
        auto right = computed([&](uint32_t c, uint32_t s) {
            float x = at.values[(j * LEAF + s) * ACROSS + c];
            if (DECAYS)
                for (uint32_t i = j + 1; i < leaf(); ++i) x *= value_at(at.totals, i * WIDTH + c);
            return x;
        });
        sums.template add_product<P>(left, mine, right, 0, 0, WIDTH);
        sums.each([&](uint32_t i, uint32_t s, float sum) {
            uint32_t row = at.slots.row(mine + i);
            if (row != NONE) gscores[(first_row + row) * CHUNK + j * LEAF + s] = sum;
        });
    }
}

// The sums that reach the start of this leaf, for its rows. Writes the terms that pass through each
// leaf to them.
template <class P>
DEVICE void reach(WarpTile<LEAF, WIDTH>& sums, const Tiles& at) {
    uint32_t mine = leaf() * LEAF;
    Rows<float> weights = {at.slab, WIDE}, values = {at.values, ACROSS};
    for (uint32_t j = 0; j < leaf(); ++j) {
        sums.dot_columns([&](uint32_t i, uint32_t c) { return value_at(at.rows, (mine + i) * ACROSS + c); },
                         [&](uint32_t c, float dot) { at.passed[(leaf() * LEAVES + j) * WIDTH + c] = dot; });
        sums.scale_columns([&](uint32_t c) { return value_at(at.totals, j * WIDTH + c); });
        sums.template add_product<P>(weights, mine, values, 0, j * LEAF, j * LEAF + LEAF);
    }
}

// The gradients of the values that this leaf sends, from those of the state after the chunk.
template <class P, bool DECAYS>
DEVICE void sent(WarpTile<LEAF, WIDTH>& sums, const Tiles& at) {
    uint32_t mine = leaf() * LEAF;
    Columns<float> weights = {at.slab, WIDE};
    Rows<float> rows = {at.rows, ACROSS};
    if constexpr (DECAYS)
        sums.dot_columns([&](uint32_t i, uint32_t c) { return value_at(at.values, (mine + i) * ACROSS + c); },
                         [&](uint32_t c, float dot) { at.written[leaf() * WIDTH + c] = dot; });
#pragma unroll 1
    for (uint32_t k = LEAVES; k > leaf() + DECAYS; --k) {
        uint32_t j = k - 1;
        if constexpr (DECAYS)
            sums.scale_columns([&](uint32_t c) { return value_at(at.totals, j * WIDTH + c); });
        sums.template add_product<P>(weights, mine, rows, 0, j * LEAF, j * LEAF + LEAF);
    }
}

// Inside this leaf, pair by pair: adds to the gradients of its values and exponents, and writes
// those of scores. `rows` holds the sums that reached each row times its gradient.
template <class T>
DEVICE void inside(const Work& work, const Tiles& at, Ptr<const T> gy, Ptr<float> gscores,
                   uint64_t first_row, uint64_t part_row, uint32_t d, const float (&v)[LEAF],
                   const float (&decay)[LEAF], float (&gv)[LEAF], float (&ge)[LEAF]) {
    uint32_t mine = leaf() * LEAF;
    for (uint32_t slot = mine; slot < mine + LEAF; ++slot) {
        uint32_t row = at.slots.row(slot), time = at.slots.time(slot);
        if (row == NONE) break;
        float now = 0.0f;
        if (work.channel() < d) now = value_at(gy, (first_row + row) * d + work.channel());
        float product[LEAF];
#pragma unroll
        for (int s = LEAF - 1; s >= 0; --s) {
            bool seen = uint32_t(s) <= time;
            float weight = at.slab[slot * WIDE + mine + s];  // zero beyond the row
            gv[s] += weight * now;
            product[s] = seen ? now * v[s] : 0.0f;
            if (seen) now *= decay[s];
        }
        float passed = at.rows[slot * ACROSS + lane()];
#pragma unroll
        for (uint32_t s = 0; s < LEAF; ++s) {
            if (s <= time) ge[s] += passed;
            float weight = at.slab[slot * WIDE + mine + s];
            passed += weight * product[s];
        }
        float sum = fold(product);
        uint32_t s = lane() / 2;
        if (lane() % 2 == 0) gscores[(part_row + row) * CHUNK + mine + s] = sum;
    }
}

// Converts the gradients of values and exponents to those of x, step and rate.
template <class T, bool DECAYS>
DEVICE void write(const Work& work, const Drive<T, DECAYS>& drive, const Outs<T>& outs, bool add,
                  const float (&gv)[LEAF], const float (&ge)[LEAF]) {
    uint32_t d = drive.channels;
    if (work.channel() >= d) return;
    float rate = 0.0f, grate = 0.0f;
    if (DECAYS) rate = value_at(drive.rate, work.channel());
#pragma unroll
    for (uint32_t i = 0; i < LEAF; ++i) {
        if (work.first() + i >= drive.len) continue;
        uint64_t at = drive.at(work.sequence, work.first() + i, work.channel());
        if constexpr (DECAYS) {
            float x = value_at(drive.x, at), step = value_at(drive.step, at);
            put_rounded(outs.gx, at, step * gv[i], add);
            put_rounded(outs.gstep, at, x * gv[i] + rate * ge[i], add);
            grate += step * ge[i];
        } else {
            put_rounded(outs.gx, at, gv[i], add);
        }
    }
    if (DECAYS) put(outs.grate, (work.place() * LEAVES + leaf()) * d + work.channel(), grate, add);
}

// One round of rows.
template <class T, class P, bool DECAYS>
DEVICE void gradient_round(const Work& work, const Tiles& at, Drive<T, DECAYS> drive, const Rowed& rowed,
                           Ptr<const T> b, Ptr<const T> c, Ptr<const T> gy, Ptr<const float> scores,
                           Ptr<const float> before, Ptr<const float> after, const Outs<T>& outs,
                           uint32_t states, uint32_t round) {
    uint32_t d = drive.channels, mine = leaf() * LEAF;
    uint64_t first_row = uint64_t(work.sequence) * rowed.rows;
    uint64_t sequences = gridDim.x / (work.chunks * ((d + WIDTH - 1) / WIDTH));
    uint64_t part_row = work.part * sequences * rowed.rows + first_row;
    at.slots.fill(work, rowed, round);
    float v[LEAF], decay[LEAF];
    drive.load(work.sequence, work.first(), work.channel(), v, decay);
    at.totals[leaf() * WIDTH + lane()] = put_left(at.values, ACROSS, v, decay, 1.0f);
    put_right(at.rows, ACROSS, at.slots, gy, first_row, work.channel(), d, decay, 1.0f);
    WarpTile<LEAF, WIDTH> reached, gradients;
    reached.clear();
    gradients.clear();
    SlotRows of_rows = {at.slots, work.sequence, rowed.rows, states};
    Steps of_steps = {work.sequence, work.start, drive.len, states};
    if (DECAYS && work.chunk > 0) times_state<P>(reached, work, at, c, of_rows, before, states, d);
    bool continues = round == 0 && work.chunk + 1 < work.chunks;
    if (continues) times_state<P>(gradients, work, at, b, of_steps, after, states, d);
    SlotRows of_scores = {at.slots, work.sequence, rowed.rows, CHUNK};
    load_tile<CHUNK>(at.slab, WIDE, CHUNK, scores, of_scores, 0, CHUNK);
    __syncthreads();
    if constexpr (DECAYS) reach<P>(reached, at);
    sent<P, DECAYS>(gradients, at);
    score_gradients<P, DECAYS>(work, at, outs.gscores, part_row);
    __syncthreads();
    // In place: gradients of rows are replaced by their products with the sums that reached them,
    // values by their gradients.
    if constexpr (DECAYS)
        reached.each([&](uint32_t i, uint32_t c, float sum) { at.rows[(mine + i) * ACROSS + c] *= sum; });
    gradients.each([&](uint32_t i, uint32_t c, float sum) { at.values[(mine + i) * ACROSS + c] = sum; });
    __syncwarp();
    float gv[LEAF], ge[LEAF], left[LEAF];
    float product = 1.0f;
#pragma unroll
    for (int s = LEAF - 1; s >= 0; --s) {
        float gradient = at.values[(mine + s) * ACROSS + lane()];
        gv[s] = product * gradient;
        left[s] = gv[s] * v[s];
        product *= decay[s];
    }
    if constexpr (DECAYS) {
        float passed = passing_leaf(at);
        if (continues && work.chunk > 0) passed += passing_chunk(work, at, before, after, states, d);
#pragma unroll
        for (uint32_t s = 0; s < LEAF; ++s) {
            ge[s] = passed;
            passed += left[s];
        }
        inside(work, at, gy, outs.gscores, first_row, part_row, d, v, decay, gv, ge);
    }
    write<T, DECAYS>(work, drive, outs, round > 0, gv, ge);
}

template <class T, class P, bool DECAYS>
DEVICE void gradient(Ptr<const T> b, Ptr<const T> c, Ptr<const T> gy, Drive<T, DECAYS> drive, Rowed rowed,
                     Ptr<const float> scores, Ptr<const float> before, Ptr<const float> after,
                     Outs<T> outs, uint32_t states) {
    SHARED(uint32_t, words, SLOT_WORDS);
    SHARED(float, values, CHUNK * ACROSS);
    SHARED(float, rows, CHUNK * ACROSS);
    SHARED(float, slab, CHUNK * WIDE);
    SHARED(float, sums, (LEAVES * LEAVES + 3 * LEAVES) * WIDTH);
    Ptr<float> totals = sums, passed = totals + LEAVES * WIDTH, written = passed + LEAVES * LEAVES * WIDTH;
    Tiles at = {Slots(words), values, rows, slab, totals, passed, written, written + LEAVES * WIDTH};
    Work work((drive.len + CHUNK - 1) / CHUNK, (drive.channels + WIDTH - 1) / WIDTH);
    uint32_t rounds = max(at.slots.find(work, rowed), 1u);
    for (uint32_t round = 0; round < rounds; ++round)
        gradient_round<T, P, DECAYS>(work, at, drive, rowed, b, c, gy, scores, before, after, outs, states,
                                     round);
}

#define GRADIENTS(io, T, P, name, DECAYS)                                                          \
    KERNEL_FITTING(chunked_values_##name##_##io, THREADS, 2, Global<const T> b, Global<const T> c, \
           Global<const T> gy, Global<const T> x, Global<const T> step, Global<const float> rate,  \
           Global<const uint32_t> positions, Global<const float> scores,                           \
           Global<const float> before, Global<const float> after, Global<T> gx, Global<T> gstep,   \
           Global<float> grate, Global<float> gscores, uint32_t len, uint32_t channels,            \
           uint32_t rows, uint32_t shared, uint32_t states) {                                      \
        gradient<T, P, DECAYS>(b, c, gy, {x, step, rate, len, channels},                           \
                               {positions, rows, shared}, scores, before, after,                   \
                               {gx, gstep, grate, gscores}, states);                               \
    }

GRADIENTS(f32, float, Tf32x3, ssd, true)
GRADIENTS(f32, float, Tf32x3, sum, false)
GRADIENTS(tf32, float, Tf32, ssd, true)
GRADIENTS(tf32, float, Tf32, sum, false)
GRADIENTS(bf16, bf16, Tf32, ssd, true)
GRADIENTS(bf16, bf16, Tf32, sum, false)
