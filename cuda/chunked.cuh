// Causal sums with separable scores, y_t[c] = sum_{s <= t} (c_t . b_s) e^{P_t[c] - P_s[c]} v_s[c]:
// the common code of the kernels of src/ops/runtime/chunked.
//
// A sequence is divided into chunks of 64 steps, and those into four leaves of 16. A leaf sends
// `left`, its values decayed to its end, and receives at its start; in between are whole leaves,
// whose decays are one factor per channel. So sums over leaves are matrix products, scaled column
// by column from leaf to leaf: sum = total_J sum + G_IJ left_J. Inside a leaf, a thread runs
// through the steps of its channel. Only products of decays occur, so nothing overflows.
//
// Threads: one warp per leaf, one lane for each of 32 channels. Rows (the times at which y is
// computed) are assigned to slots, 16 per leaf; if a leaf has more rows (repeated positions), there
// are several rounds.
#pragma once

#include "mma.cuh"

constexpr uint32_t CHUNK = 64;
constexpr uint32_t LEAF = 16;
constexpr uint32_t LEAVES = CHUNK / LEAF;
constexpr uint32_t WIDTH = 32;
constexpr uint32_t THREADS = LEAVES * WARP;

// Leading dimensions of tiles in shared memory, 32 and 64 wide.
constexpr uint32_t ALONG = WIDTH + PAD_ALONG;
constexpr uint32_t ACROSS = WIDTH + PAD_ACROSS;
constexpr uint32_t WIDE = CHUNK + PAD_ALONG;
constexpr uint32_t WIDE_ACROSS = CHUNK + PAD_ACROSS;

// P is the rounding of factors of products, of mma.cuh. Those with states, scores and decayed values, which
// are f32, are rounded to tf32, not bf16, for tensors of bf16 as well: gradients are sums of terms of both
// signs, in which eight times larger rounding errors would show.

constexpr uint32_t NONE = ~0u;
constexpr uint64_t NOWHERE = ~uint64_t(0);

DEVICE uint32_t leaf() { return threadIdx.x / WARP; }
DEVICE uint32_t lane() { return threadIdx.x % WARP; }

// The work of a block: a range of channels of a chunk of a sequence.
struct Work {
    uint32_t sequence, chunk, part, start, chunks;

    DEVICE Work(uint32_t chunks, uint32_t parts) : chunks(chunks) {
        part = blockIdx.x % parts;
        chunk = blockIdx.x / parts % chunks;
        sequence = blockIdx.x / parts / chunks;
        start = chunk * CHUNK;
    }
    // The index of the chunk among those of all sequences.
    DEVICE uint64_t place() const { return uint64_t(sequence) * chunks + chunk; }
    // The first step of this thread's leaf.
    DEVICE uint32_t first() const { return start + leaf() * LEAF; }
    DEVICE uint32_t channel() const { return part * WIDTH + lane(); }
};

// The summed values: v = x, or v = step x with decays e^{step rate}.
template <class T, bool DECAYS>
struct Drive {
    Ptr<const T> x, step;
    Ptr<const float> rate;
    uint32_t len, channels;

    DEVICE uint64_t at(uint32_t sequence, uint32_t time, uint32_t channel) const {
        return (uint64_t(sequence) * len + time) * channels + channel;
    }

    // Loads the values and decays of a leaf, from step `first` on; beyond the end, values are 0 and
    // decays 1.
    DEVICE void load(uint32_t sequence, uint32_t first, uint32_t channel, float (&v)[LEAF],
                     float (&decay)[LEAF]) const {
        float power = 0.0f;
        if (DECAYS && channel < channels) power = LOG2E * value_at(rate, channel);
#pragma unroll
        for (uint32_t i = 0; i < LEAF; ++i) {
            bool inside = first + i < len && channel < channels;
            v[i] = inside ? value_at(x, at(sequence, first + i, channel)) : 0.0f;
            decay[i] = 1.0f;
            if (DECAYS && inside) {
                float delta = value_at(step, at(sequence, first + i, channel));
                v[i] *= delta;
                decay[i] = exp2_fast(delta * power);
            }
        }
    }
};

// Row i of the tile begins at from[offset(i)] (zero: NOWHERE); COLUMNS of the `width` elements of a
// row, from `first` on, zero beyond.
template <uint32_t COLUMNS, class P, class F>
DEVICE void load_tile(Ptr<float> to, uint32_t stride, uint32_t rows, P from, F offset,
                      uint32_t first, uint32_t width) {
    if (width % 4 == 0 && aligned4(from)) {
        for (uint32_t e = threadIdx.x; e < rows * (COLUMNS / 4); e += THREADS) {
            uint32_t i = e / (COLUMNS / 4), j = e % (COLUMNS / 4) * 4;
            uint64_t at = offset(i);
            Four x = {{0.0f, 0.0f, 0.0f, 0.0f}};
            if (at != NOWHERE && first + j < width) x = load4(from + (at + first + j));
            store4(to + (i * stride + j), x);
        }
        return;
    }
#pragma unroll 1
    for (uint32_t e = threadIdx.x; e < rows * COLUMNS; e += THREADS) {
        uint32_t i = e / COLUMNS, j = e % COLUMNS;
        uint64_t at = offset(i);
        float x = 0.0f;
        if (at != NOWHERE && first + j < width) x = value_at(from, at + first + j);
        to[i * stride + j] = x;
    }
}

// The offset of a step's elements, for load_tile.
struct Steps {
    uint64_t sequence;
    uint32_t start, len, width;
    DEVICE uint64_t operator()(uint32_t i) const {
        return start + i < len ? (sequence * len + start + i) * width : NOWHERE;
    }
};

// The offset of the rows of a state from `first` on, for load_tile.
struct States {
    uint64_t place;
    uint32_t first, states, channels;
    DEVICE uint64_t operator()(uint32_t i) const {
        return first + i < states ? (place * states + first + i) * channels : NOWHERE;
    }
};

// The rows of y: every step, or those at `positions`, of which `shared` consecutive sequences have
// one list.
struct Rowed {
    Ptr<const uint32_t> positions;
    uint32_t rows, shared;

    // The first row at `time` or later.
    DEVICE uint32_t first_at(uint32_t sequence, uint32_t time) const {
        if (positions == nullptr) return time < rows ? time : rows;
        uint64_t list = uint64_t(sequence / shared) * rows;
        uint32_t low = 0, high = rows;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            uint32_t now = positions[list + middle];
            if (now < time)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
    DEVICE uint32_t time_of(uint32_t sequence, uint32_t row) const {
        if (positions == nullptr) return row;
        uint32_t time = positions[uint64_t(sequence / shared) * rows + row];
        return time;
    }
};

constexpr uint32_t SLOT_WORDS = LEAVES + 1 + 2 * CHUNK;

// The rows in the slots of a chunk, in shared memory.
struct Slots {
    Ptr<uint32_t> bounds, rows, times;

    DEVICE explicit Slots(Ptr<uint32_t> words)
        : bounds(words), rows(words + (LEAVES + 1)), times(words + (LEAVES + 1 + CHUNK)) {}

    // The number of rounds. Called by all threads; ends with a barrier.
    DEVICE uint32_t find(const Work& work, const Rowed& rowed) const {
        if (threadIdx.x <= LEAVES)
            bounds[threadIdx.x] = rowed.first_at(work.sequence, work.start + threadIdx.x * LEAF);
        __syncthreads();
        uint32_t rounds = 0;
        for (uint32_t i = 0; i < LEAVES; ++i) {
            uint32_t low = bounds[i], high = bounds[i + 1];
            rounds = max(rounds, (high - low + LEAF - 1) / LEAF);
        }
        return rounds;
    }

    // Fills the slots of a round. Called by all threads; a barrier before and after.
    DEVICE void fill(const Work& work, const Rowed& rowed, uint32_t round) const {
        __syncthreads();
        if (threadIdx.x < CHUNK) {
            uint32_t i = threadIdx.x / LEAF, low = bounds[i], high = bounds[i + 1];
            uint32_t row = low + round * LEAF + threadIdx.x % LEAF;
            bool used = row < high;
            rows[threadIdx.x] = used ? row : NONE;
            uint32_t time = NONE;
            if (used) time = rowed.time_of(work.sequence, row) - work.start - i * LEAF;
            times[threadIdx.x] = time;
        }
        __syncthreads();
    }

    // The index among the rows of all sequences; NONE for an empty slot.
    DEVICE uint32_t row(uint32_t slot) const {
        uint32_t row = rows[slot];
        return row;
    }
    // The time of a slot's row, as a step of its leaf.
    DEVICE uint32_t time(uint32_t slot) const {
        uint32_t time = times[slot];
        return time;
    }
};

// The offset of the elements of a slot's row, for load_tile.
struct SlotRows {
    Slots slots;
    uint64_t sequence;
    uint32_t rows, width;
    DEVICE uint64_t operator()(uint32_t slot) const {
        uint32_t row = slots.row(slot);
        return row == NONE ? NOWHERE : (sequence * rows + row) * width;
    }
};

// For this thread's leaf, writes the values decayed to its end, times `after`; returns the decay of
// the whole leaf.
DEVICE float put_left(Ptr<float> to, uint32_t stride, const float (&v)[LEAF],
                      const float (&decay)[LEAF], float after) {
    float product = after;
#pragma unroll
    for (int i = LEAF - 1; i >= 0; --i) {
        to[(leaf() * LEAF + i) * stride + lane()] = product * v[i];
        product *= decay[i];
    }
    return product;
}

// For this thread's leaf, writes the gradients of its rows decayed to its start, times `before`.
template <class T>
DEVICE void put_right(Ptr<float> to, uint32_t stride, const Slots& slots, Ptr<const T> gy,
                      uint64_t first_row, uint32_t channel, uint32_t channels,
                      const float (&decay)[LEAF], float before) {
    uint32_t slot = leaf() * LEAF, end = slot + LEAF;
    float product = before;
#pragma unroll
    for (uint32_t i = 0; i < LEAF; ++i) {
        product *= decay[i];
        while (slot < end && slots.time(slot) == i) {
            float g = 0.0f;
            if (channel < channels) g = value_at(gy, (first_row + slots.row(slot)) * channels + channel);
            to[slot * stride + lane()] = product * g;
            ++slot;
        }
    }
    for (; slot < end; ++slot) to[slot * stride + lane()] = 0.0f;
}

DEVICE float whole_leaf(const float (&decay)[LEAF]) {
    float product = 1.0f;
#pragma unroll
    for (uint32_t i = 0; i < LEAF; ++i) product *= decay[i];
    return product;
}

// Writes in the first round, adds in later rounds.
DEVICE void put(Ptr<float> to, uint64_t i, float x, bool add) {
    if (add) x += value_at(to, i);
    to[i] = x;
}
template <class T>
DEVICE void put_rounded(Ptr<T> to, uint64_t i, float x, bool add) {
    if (add) x += value_at(to, i);
    to[i] = from_float<T>(x);
}
