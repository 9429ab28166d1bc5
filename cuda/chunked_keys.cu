// Chunked causal sums, backward: the gradients of b and c, from those of scores and of the states
// at both ends of a chunk.
//
// The bound: 2 n products a step and channel for the states and 128 n a step for the scores, on
// tensor cores (0.15 ms at (64, 512, 512, 256) with three of tf32); both states are read once (0.11
// ms), inputs and the parts of the gradients of scores once for each 64 states, mostly from L2.
#include "chunked.cuh"

// The shared memory of a block: a tile of values and one of states, later one of b or c; gradients of scores.
struct Tiles {
    Ptr<float> values, states, wide, weights, totals;
};

// The product of the decays of the leaves after this one, or of those before it.
DEVICE float others(const Tiles& at, bool later) {
    float product = 1.0f;
    for (uint32_t i = 0; i < LEAVES; ++i)
        if (later ? i > leaf() : i < leaf()) product *= value_at(at.totals, i * WIDTH + lane());
    return product;
}

// sums += (values written by `fill` for each range of channels) (state)^T for 64 states from
// `first` on.
template <class P, class T, bool DECAYS, class F>
DEVICE void times_states(WarpTile<LEAF, CHUNK>& sums, const Work& work, const Tiles& at,
                         const Drive<T, DECAYS>& drive, Ptr<const float> state, uint32_t first,
                         uint32_t states, F fill) {
    for (uint32_t from = 0; from < drive.channels; from += WIDTH) {
        float v[LEAF], decay[LEAF];
        drive.load(work.sequence, work.first(), from + lane(), v, decay);
        at.totals[leaf() * WIDTH + lane()] = whole_leaf(decay);
        States of = {work.place(), first, states, drive.channels};
        load_tile<WIDTH>(at.states, ALONG, CHUNK, state, of, from, drive.channels);
        __syncthreads();
        fill(from + lane(), v, decay);
        __syncthreads();
        Rows<float> left = {at.values, ALONG};
        Columns<float> right = {at.states, ALONG};
        sums.template add_product<P>(left, leaf() * LEAF, right, 0, 0, WIDTH);
        __syncthreads();
    }
}

// Loads the gradients of scores, summed over all ranges of channels, zero for later steps.
DEVICE void load_weights(const Work& work, const Tiles& at, const Slots& slots, Ptr<const float> gscores,
                         uint32_t parts, uint64_t sequences, uint32_t rows) {
    for (uint32_t e = threadIdx.x; e < CHUNK * CHUNK; e += THREADS) {
        uint32_t slot = e / CHUNK, s = e % CHUNK, row = slots.row(slot);
        float sum = 0.0f;
        if (row != NONE && s <= slot / LEAF * LEAF + slots.time(slot))
            for (uint32_t part = 0; part < parts; ++part)
                sum += value_at(gscores, ((part * sequences + work.sequence) * rows + row) * CHUNK + s);
        at.weights[slot * WIDE + s] = sum;
    }
}

template <class T, class P, bool DECAYS>
DEVICE void keys(Ptr<const T> b, Ptr<const T> c, Ptr<const T> gy, Drive<T, DECAYS> drive, Rowed rowed,
                 Ptr<const float> before, Ptr<const float> after, Ptr<const float> gscores, Ptr<T> gb,
                 Ptr<T> gc, uint32_t states) {
    SHARED(uint32_t, words, SLOT_WORDS);
    SHARED(float, wide, CHUNK * WIDE_ACROSS);
    SHARED(float, weights, CHUNK * WIDE);
    SHARED(float, totals, LEAVES * WIDTH);
    static_assert(2 * ALONG == WIDE_ACROSS, "two tiles in the place of one");
    Ptr<float> values = wide;
    Tiles at = {values, values + CHUNK * ALONG, values, weights, totals};
    Work work((drive.len + CHUNK - 1) / CHUNK, (states + CHUNK - 1) / CHUNK);
    uint32_t parts = (drive.channels + WIDTH - 1) / WIDTH, first = work.part * CHUNK, mine = leaf() * LEAF;
    uint64_t sequences = gridDim.x / (work.chunks * ((states + CHUNK - 1) / CHUNK));
    uint64_t first_row = uint64_t(work.sequence) * rowed.rows;
    Slots slots(words);
    uint32_t rounds = slots.find(work, rowed);
    WarpTile<LEAF, CHUNK> of_b;
    of_b.clear();
    if (work.chunk + 1 < work.chunks)
        times_states<P>(of_b, work, at, drive, after, first, states,
                        [&](uint32_t, const float(&v)[LEAF], const float(&decay)[LEAF]) {
                            put_left(at.values, ALONG, v, decay, others(at, true));
                        });
    for (uint32_t round = 0; round < rounds; ++round) {
        slots.fill(work, rowed, round);
        WarpTile<LEAF, CHUNK> of_c;
        of_c.clear();
        if (work.chunk > 0)
            times_states<P>(of_c, work, at, drive, before, first, states,
                            [&](uint32_t channel, const float(&)[LEAF], const float(&decay)[LEAF]) {
                                put_right(at.values, ALONG, slots, gy, first_row, channel, drive.channels,
                                          decay, others(at, false));
                            });
        load_weights(work, at, slots, gscores, parts, sequences, rowed.rows);
        Steps steps = {work.sequence, work.start, drive.len, states};
        load_tile<CHUNK>(at.wide, WIDE_ACROSS, CHUNK, b, steps, first, states);
        __syncthreads();
        Rows<float> left = {at.weights, WIDE}, right = {at.wide, WIDE_ACROSS};
        of_c.template add_product<P>(left, mine, right, 0, 0, CHUNK);
        of_c.each([&](uint32_t i, uint32_t k, float sum) {
            uint32_t row = slots.row(mine + i);
            if (row != NONE && first + k < states)
                gc[(first_row + row) * states + first + k] = from_float<T>(sum);
        });
        __syncthreads();
        SlotRows of_rows = {slots, work.sequence, rowed.rows, states};
        load_tile<CHUNK>(at.wide, WIDE_ACROSS, CHUNK, c, of_rows, first, states);
        __syncthreads();
        Columns<float> turned = {at.weights, WIDE};
        of_b.template add_product<P>(turned, mine, right, 0, 0, CHUNK);
    }
    of_b.each([&](uint32_t i, uint32_t k, float sum) {
        uint32_t time = work.start + mine + i;
        if (time < drive.len && first + k < states)
            gb[(uint64_t(work.sequence) * drive.len + time) * states + first + k] = from_float<T>(sum);
    });
}

#define KEYS(io, T, P, name, DECAYS)                                                               \
    KERNEL_FITTING(chunked_keys_##name##_##io, THREADS, 2, Global<const T> b, Global<const T> c,   \
           Global<const T> gy, Global<const T> x, Global<const T> step, Global<const float> rate,  \
           Global<const uint32_t> positions, Global<const float> before,                           \
           Global<const float> after, Global<const float> gscores, Global<T> gb, Global<T> gc,     \
           uint32_t len, uint32_t channels, uint32_t rows, uint32_t shared, uint32_t states) {     \
        keys<T, P, DECAYS>(b, c, gy, {x, step, rate, len, channels}, {positions, rows, shared},    \
                           before, after, gscores, gb, gc, states);                                \
    }

KEYS(f32, float, Tf32x3, ssd, true)
KEYS(f32, float, Tf32x3, sum, false)
KEYS(tf32, float, Tf32, ssd, true)
KEYS(tf32, float, Tf32, sum, false)
KEYS(bf16, bf16, Tf32, ssd, true)
KEYS(bf16, bf16, Tf32, sum, false)
