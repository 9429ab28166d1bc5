// Chunked causal sums, forward: scores, each chunk's contribution to the state (and, backward, to
// its gradient), the scan over chunks, rows.
//
// The bounds at (sequences, L, d, n) = (64, 512, 512, 256) in f32 on an H200: states cross
// memory four times, n d / 4 bytes a step (0.22 ms), inputs twice (0.07 ms); products are n a step
// and channel in chunked_forth and n + 24 in chunked_rows, three times over on tensor cores (0.11
// ms). At one chunk there are no states and products of scores alone. Scores are computed once for
// all channels. Fragments are rounded as they are loaded, some 48 instructions beside 12 products,
// so at n = 64 in one chunk instructions bound it. What would do better at long L: where sequences times
// d / 32 fill the GPU, one block could walk all chunks with its states in shared memory.
#include "chunked.cuh"

// scores[r][s] = c_r . b_s for the steps s <= time of row r in its chunk, else 0; (rows, 64).
template <class T, class P>
DEVICE void score(Ptr<const T> b, Ptr<const T> c, Rowed rowed, Ptr<float> scores, uint32_t len,
                  uint32_t states) {
    SHARED(uint32_t, words, SLOT_WORDS);
    SHARED(float, keys, CHUNK * ALONG);
    SHARED(float, queries, CHUNK * ALONG);
    Work work((len + CHUNK - 1) / CHUNK, 1);
    Slots slots(words);
    uint32_t rounds = slots.find(work, rowed);
    for (uint32_t round = 0; round < rounds; ++round) {
        slots.fill(work, rowed, round);
        WarpTile<LEAF, CHUNK> sums;
        sums.clear();
        for (uint32_t k = 0; k < states; k += WIDTH) {
            SlotRows at = {slots, work.sequence, rowed.rows, states};
            load_tile<WIDTH>(queries, ALONG, CHUNK, c, at, k, states);
            Steps steps = {work.sequence, work.start, len, states};
            load_tile<WIDTH>(keys, ALONG, CHUNK, b, steps, k, states);
            __syncthreads();
            Rows<float> left = {queries, ALONG};
            Columns<float> right = {keys, ALONG};
            sums.template add_product<P>(left, leaf() * LEAF, right, 0, 0, WIDTH);
            __syncthreads();
        }
        sums.each([&](uint32_t i, uint32_t s, float sum) {
            uint32_t slot = leaf() * LEAF + i, row = slots.row(slot);
            if (row == NONE) return;
            uint64_t at = (uint64_t(work.sequence) * rowed.rows + row) * CHUNK + s;
            scores[at] = s <= leaf() * LEAF + slots.time(slot) ? sum : 0.0f;
        });
    }
}

// The sums of rows [16 w, 16 w + 16) of `factor`, transposed, with the values of all leaves brought
// to the end of the chunk (forth) or its start (back).
template <class P, bool DECAYS, bool BACK>
DEVICE void join(WarpTile<LEAF, WIDTH>& sums, Ptr<float> factor, Ptr<float> values,
                 Ptr<float> totals) {
    Columns<float> left = {factor, WIDE_ACROSS};
    Rows<float> right = {values, ACROSS};
    for (uint32_t i = 0; i < LEAVES; ++i) {
        uint32_t j = BACK ? LEAVES - 1 - i : i;
        if constexpr (DECAYS)
            sums.scale_columns([&](uint32_t c) { return value_at(totals, j * WIDTH + c); });
        sums.template add_product<P>(left, leaf() * LEAF, right, 0, j * LEAF, j * LEAF + LEAF);
    }
}

// The contribution of a chunk to the state, own = sum_s b_s (v_s decayed to the end), and the decay
// of the whole chunk; for all chunks but the last.
template <class T, class P, bool DECAYS>
DEVICE void forth(Ptr<const T> b, Drive<T, DECAYS> drive, Ptr<float> own, Ptr<float> wholes,
                  uint32_t states) {
    SHARED(float, keys, CHUNK * WIDE_ACROSS);
    SHARED(float, values, CHUNK * ACROSS);
    SHARED(float, totals, LEAVES * WIDTH);
    uint32_t d = drive.channels, chunks = (drive.len + CHUNK - 1) / CHUNK;
    Work work(chunks - 1, (d + WIDTH - 1) / WIDTH);
    uint64_t place = uint64_t(work.sequence) * chunks + work.chunk;
    float v[LEAF], decay[LEAF];
    drive.load(work.sequence, work.first(), work.channel(), v, decay);
    totals[leaf() * WIDTH + lane()] = put_left(values, ACROSS, v, decay, 1.0f);
    __syncthreads();
    if (DECAYS && leaf() == 0 && work.channel() < d) {
        float whole = 1.0f;
        for (uint32_t i = 0; i < LEAVES; ++i) whole *= value_at(totals, i * WIDTH + lane());
        wholes[place * d + work.channel()] = whole;
    }
    for (uint32_t k = 0; k < states; k += CHUNK) {
        Steps steps = {work.sequence, work.start, drive.len, states};
        load_tile<CHUNK>(keys, WIDE_ACROSS, CHUNK, b, steps, k, states);
        __syncthreads();
        WarpTile<LEAF, WIDTH> sums;
        sums.clear();
        join<P, DECAYS, false>(sums, keys, values, totals);
        sums.each([&](uint32_t i, uint32_t c, float sum) {
            uint32_t state = k + leaf() * LEAF + i, channel = work.part * WIDTH + c;
            if (state < states && channel < d) own[(place * states + state) * d + channel] = sum;
        });
        __syncthreads();
    }
}

// The contribution of a chunk's rows to the gradient of the state before it, own = sum_r c_r (gy_r
// decayed to the start), and the decay of the whole chunk; for all chunks but the first.
template <class T, class P, bool DECAYS>
DEVICE void back(Ptr<const T> c, Ptr<const T> gy, Drive<T, DECAYS> drive, Rowed rowed, Ptr<float> own,
                 uint32_t states) {
    SHARED(uint32_t, words, SLOT_WORDS);
    SHARED(float, queries, CHUNK * WIDE_ACROSS);
    SHARED(float, values, CHUNK * ACROSS);
    SHARED(float, totals, LEAVES * WIDTH);
    uint32_t d = drive.channels, chunks = (drive.len + CHUNK - 1) / CHUNK;
    Work work(chunks - 1, (d + WIDTH - 1) / WIDTH);
    work.chunk += 1;
    work.start += CHUNK;
    uint64_t place = uint64_t(work.sequence) * chunks + work.chunk;
    uint64_t first_row = uint64_t(work.sequence) * rowed.rows;
    float v[LEAF], decay[LEAF];
    drive.load(work.sequence, work.first(), work.channel(), v, decay);
    totals[leaf() * WIDTH + lane()] = whole_leaf(decay);
    Slots slots(words);
    uint32_t rounds = max(slots.find(work, rowed), 1u);
    for (uint32_t round = 0; round < rounds; ++round) {
        slots.fill(work, rowed, round);
        put_right(values, ACROSS, slots, gy, first_row, work.channel(), d, decay, 1.0f);
        for (uint32_t k = 0; k < states; k += CHUNK) {
            SlotRows at = {slots, work.sequence, rowed.rows, states};
            load_tile<CHUNK>(queries, WIDE_ACROSS, CHUNK, c, at, k, states);
            __syncthreads();
            WarpTile<LEAF, WIDTH> sums;
            sums.clear();
            join<P, DECAYS, true>(sums, queries, values, totals);
            sums.each([&](uint32_t i, uint32_t column, float sum) {
                uint32_t state = k + leaf() * LEAF + i, channel = work.part * WIDTH + column;
                if (state < states && channel < d)
                    put(own, (place * states + state) * d + channel, sum, round > 0);
            });
            __syncthreads();
        }
    }
}

// y at the rows of a chunk.
template <class T, class P, bool DECAYS>
DEVICE void output(Ptr<const T> c, Drive<T, DECAYS> drive, Rowed rowed, Ptr<const float> scores,
                   Ptr<const float> before, Ptr<T> y, uint32_t states) {
    SHARED(uint32_t, words, SLOT_WORDS);
    SHARED(float, values, CHUNK * ACROSS);
    SHARED(float, reached, CHUNK * ACROSS);
    SHARED(float, slab, CHUNK * WIDE);  // scores; before that, queries and states
    SHARED(float, totals, LEAVES * WIDTH);
    Ptr<float> weights = slab, queries = slab, state = weights + CHUNK * ALONG;
    uint32_t d = drive.channels;
    Work work((drive.len + CHUNK - 1) / CHUNK, (d + WIDTH - 1) / WIDTH);
    Slots slots(words);
    uint32_t rounds = slots.find(work, rowed), mine = leaf() * LEAF;
    if (rounds == 0) return;
    float v[LEAF], decay[LEAF];
    drive.load(work.sequence, work.first(), work.channel(), v, decay);
    totals[leaf() * WIDTH + lane()] = put_left(values, ACROSS, v, decay, 1.0f);
    for (uint32_t round = 0; round < rounds; ++round) {
        slots.fill(work, rowed, round);
        WarpTile<LEAF, WIDTH> sums;
        sums.clear();
        for (uint32_t k = 0; k < states && work.chunk > 0; k += WIDTH) {
            SlotRows at = {slots, work.sequence, rowed.rows, states};
            load_tile<WIDTH>(queries, ALONG, CHUNK, c, at, k, states);
            States of = {work.place(), k, states, d};
            load_tile<WIDTH>(state, ACROSS, WIDTH, before, of, work.part * WIDTH, d);
            __syncthreads();
            Rows<float> left = {queries, ALONG}, right = {state, ACROSS};
            sums.template add_product<P>(left, mine, right, 0, 0, WIDTH);
            __syncthreads();
        }
        SlotRows at = {slots, work.sequence, rowed.rows, CHUNK};
        load_tile<CHUNK>(weights, WIDE, CHUNK, scores, at, 0, CHUNK);
        __syncthreads();
        Rows<float> left = {weights, WIDE}, right = {values, ACROSS};
        for (uint32_t j = 0; j < leaf() + !DECAYS; ++j) {
            if constexpr (DECAYS)
                sums.scale_columns([&](uint32_t c) { return value_at(totals, j * WIDTH + c); });
            sums.template add_product<P>(left, mine, right, 0, j * LEAF, j * LEAF + LEAF);
        }
        sums.each([&](uint32_t i, uint32_t c, float sum) { reached[(mine + i) * ACROSS + c] = sum; });
        __syncwarp();
        for (uint32_t slot = mine; slot < mine + LEAF; ++slot) {
            uint32_t row = slots.row(slot), time = slots.time(slot);
            if (row == NONE || work.channel() >= d) continue;
            float now = reached[slot * ACROSS + lane()];
            if constexpr (DECAYS) {
#pragma unroll
                for (uint32_t s = 0; s < LEAF; ++s) {
                    float weight = weights[slot * WIDE + mine + s];
                    if (s <= time) now = now * decay[s] + weight * v[s];
                }
            }
            uint64_t to = (uint64_t(work.sequence) * rowed.rows + row) * d + work.channel();
            y[to] = from_float<T>(now);
        }
    }
}

#define CAUSAL(io, T, OF_SCORES, P)                                                                \
    KERNEL_FITTING(chunked_scores_##io, THREADS, 2, Global<const T> b, Global<const T> c,          \
           Global<const uint32_t> positions, Global<float> scores, uint32_t len, uint32_t rows,    \
           uint32_t shared, uint32_t states) {                                                     \
        score<T, OF_SCORES>(b, c, {positions, rows, shared}, scores, len, states);                 \
    }                                                                                              \
    OVER_DRIVES(io, T, P, ssd, true)                                                               \
    OVER_DRIVES(io, T, P, sum, false)

#define OVER_DRIVES(io, T, P, name, DECAYS)                                                        \
    KERNEL_FITTING(chunked_forth_##name##_##io, THREADS, 2, Global<const T> b, Global<const T> x,  \
           Global<const T> step, Global<const float> rate, Global<float> own,                      \
           Global<float> wholes, uint32_t len, uint32_t channels, uint32_t states) {               \
        forth<T, P, DECAYS>(b, {x, step, rate, len, channels}, own, wholes, states);               \
    }                                                                                              \
    KERNEL_FITTING(chunked_back_##name##_##io, THREADS, 2, Global<const T> c, Global<const T> gy,  \
           Global<const T> x, Global<const T> step, Global<const float> rate,                      \
           Global<const uint32_t> positions, Global<float> own, uint32_t len, uint32_t channels,   \
           uint32_t rows, uint32_t shared, uint32_t states) {                                      \
        back<T, P, DECAYS>(c, gy, {x, step, rate, len, channels}, {positions, rows, shared}, own,  \
                           states);                                                                \
    }                                                                                              \
    KERNEL_FITTING(chunked_rows_##name##_##io, THREADS, 2, Global<const T> c, Global<const T> x,   \
           Global<const T> step, Global<const float> rate, Global<const uint32_t> positions,       \
           Global<const float> scores, Global<const float> before, Global<T> y, uint32_t len,      \
           uint32_t channels, uint32_t rows, uint32_t shared, uint32_t states) {                   \
        output<T, P, DECAYS>(c, {x, step, rate, len, channels}, {positions, rows, shared}, scores, \
                             before, y, states);                                                   \
    }

CAUSAL(f32, float, Tf32x3, Tf32x3)
CAUSAL(tf32, float, Tf32, Tf32)
CAUSAL(bf16, bf16, Bf16, Tf32)

// Replaces each chunk's contribution to the state by the state that enters the chunk, in place;
// `reverse`: from the last chunk to the first. `wholes` (sequences, chunks, d), if there are
// decays.
KERNEL(chunked_walk, 256, Global<float> states, Global<const float> wholes, uint32_t chunks,
       uint32_t size, uint32_t channels, uint32_t reverse) {
    uint32_t blocks = (size + blockDim.x - 1) / blockDim.x, sequence = blockIdx.x / blocks;
    uint32_t i = blockIdx.x % blocks * blockDim.x + threadIdx.x;
    if (i >= size) return;
    float state = 0.0f;
    for (uint32_t step = 0; step < chunks; ++step) {
        uint64_t place = uint64_t(sequence) * chunks + (reverse ? chunks - 1 - step : step);
        float leaves = 0.0f;
        if (step + 1 < chunks) {
            float whole = 1.0f;
            if (wholes != nullptr && step > 0) whole = value_at(wholes, place * channels + i % channels);
            leaves = whole * state + value_at(states, place * size + i);
        }
        states[place * size + i] = state;
        state = leaves;
    }
}
