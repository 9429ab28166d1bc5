// Pooling over time: the mean, the last value or the maximum of each channel.
//
// Bound by memory bandwidth: mean and max read x once and write next to nothing, 4 or 2 bytes per
// element; the backward pass writes every element once and reads next to nothing. A block has
// `each` steps of 64 channels of a sequence, four consecutive channels per thread, sixteen steps at
// one time and four of those in flight; a second kernel merges the blocks' results in the order of
// the steps. Steps beyond the length of a sequence are not read.
#include "device.cuh"

constexpr int THREADS = POOL_THREADS;
constexpr int GROUPS = POOL_GROUPS;  // of four channels
constexpr int COLUMNS = 4 * GROUPS;
constexpr int STEPS = THREADS / GROUPS;
constexpr uint32_t NONE = 0xffffffffu;

// The length of sequence b, clamped to 1 ..= len.
DEVICE uint32_t steps_of(Ptr<const uint32_t> lengths, uint32_t b, uint32_t len) {
    if (lengths == nullptr) return len;
    uint32_t steps = lengths[b];
    return min(max(steps, 1u), len);
}

// Four channels of a row from `column` on, zero beyond the last.
template <class T>
DEVICE Four read(Ptr<const T> row, uint32_t column, uint32_t width, bool vector) {
    if (vector) return load4(row + column);
    Four x = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (column + i < width) x.v[i] = to_float(row[column + i]);
    return x;
}

// take(values, step) for this thread's steps of its block.
template <class T, class Take>
DEVICE void over_steps(Ptr<const T> x, uint32_t steps, uint32_t len, uint32_t width, uint32_t each,
                       bool vector, Take take) {
    uint32_t first = blockIdx.y * each, last = min(first + each, steps);
    uint32_t column = (blockIdx.z * GROUPS + threadIdx.x % GROUPS) * 4;
    if (column >= width) return;
    uint64_t start = uint64_t(blockIdx.x) * len;
#pragma unroll 4
    for (uint32_t step = first + threadIdx.x / GROUPS; step < last; step += STEPS)
        take(read<T>(x + (start + step) * width, column, width, vector), step);
}

// A row of sums for every `each` steps: parts (sequences, pieces, width).
template <class T>
DEVICE void sum_pieces(Ptr<const T> x, Ptr<const uint32_t> lengths, Ptr<float> parts, uint32_t len,
                       uint32_t width, uint32_t each, bool vector) {
    SHARED(float, sums, STEPS* COLUMNS);
    uint32_t steps = steps_of(lengths, blockIdx.x, len);
    if (blockIdx.y * each >= steps) return;
    Four sum = {0.0f, 0.0f, 0.0f, 0.0f};
    over_steps<T>(x, steps, len, width, each, vector, [&](Four now, uint32_t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum.v[i] += now.v[i];
    });
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[threadIdx.x * 4 + i] = sum.v[i];
    __syncthreads();
    uint32_t column = blockIdx.z * COLUMNS + threadIdx.x;
    if (threadIdx.x >= COLUMNS || column >= width) return;
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < STEPS; ++i) total += sums[i * COLUMNS + threadIdx.x];
    parts[(uint64_t(blockIdx.x) * gridDim.y + blockIdx.y) * width + column] = total;
}

template <class T>
DEVICE void mean(Ptr<const float> parts, Ptr<const uint32_t> lengths, Ptr<T> y, uint32_t count,
                 uint32_t len, uint32_t width, uint32_t each) {
    uint32_t e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= count) return;
    uint32_t b = e / width, pieces = (len + each - 1) / each;
    uint32_t steps = steps_of(lengths, b, len);
    float sum = 0.0f;
    for (uint32_t i = 0; i * each < steps; ++i)
        sum += parts[(uint64_t(b) * pieces + i) * width + e % width];
    y[e] = from_float<T>(sum / float(steps));
}

// The running maximum and its step.
struct Largest {
    float value;
    uint32_t step;

    // Ties go to the first; NaN counts as larger than any number.
    DEVICE void take(float x, uint32_t at) {
        bool larger = x > value || (x == value && at < step);
        bool missing = x != x && (value == value || at < step);
        if (at != NONE && (step == NONE || larger || missing)) {
            value = x;
            step = at;
        }
    }
};

template <class T>
DEVICE void max_pieces(Ptr<const T> x, Ptr<const uint32_t> lengths, Ptr<float> parts,
                       Ptr<uint32_t> steps_of_parts, uint32_t len, uint32_t width, uint32_t each, bool vector) {
    SHARED(float, values, STEPS* COLUMNS);
    SHARED(uint32_t, found, STEPS* COLUMNS);
    uint32_t steps = steps_of(lengths, blockIdx.x, len);
    if (blockIdx.y * each >= steps) return;
    Largest best[4] = {{0.0f, NONE}, {0.0f, NONE}, {0.0f, NONE}, {0.0f, NONE}};
    over_steps<T>(x, steps, len, width, each, vector, [&](Four now, uint32_t step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) best[i].take(now.v[i], step);
    });
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        values[threadIdx.x * 4 + i] = best[i].value;
        found[threadIdx.x * 4 + i] = best[i].step;
    }
    __syncthreads();
    uint32_t column = blockIdx.z * COLUMNS + threadIdx.x;
    if (threadIdx.x >= COLUMNS || column >= width) return;
    Largest all = {0.0f, NONE};
#pragma unroll
    for (int i = 0; i < STEPS; ++i)
        all.take(values[i * COLUMNS + threadIdx.x], found[i * COLUMNS + threadIdx.x]);
    uint64_t at = (uint64_t(blockIdx.x) * gridDim.y + blockIdx.y) * width + column;
    parts[at] = all.value;
    steps_of_parts[at] = all.step;
}

// `chosen` receives the steps of the maxima, for the backward pass.
template <class T>
DEVICE void largest(Ptr<const float> parts, Ptr<const uint32_t> steps_of_parts,
                    Ptr<const uint32_t> lengths, Ptr<T> y, Ptr<uint32_t> chosen, uint32_t count,
                    uint32_t len, uint32_t width, uint32_t each) {
    uint32_t e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= count) return;
    uint32_t b = e / width, pieces = (len + each - 1) / each;
    uint32_t steps = steps_of(lengths, b, len);
    Largest all = {0.0f, NONE};
    for (uint32_t i = 0; i * each < steps; ++i) {
        uint64_t at = (uint64_t(b) * pieces + i) * width + e % width;
        all.take(parts[at], steps_of_parts[at]);
    }
    y[e] = from_float<T>(all.value);
    chosen[e] = all.step;
}

template <class T>
DEVICE void last(Ptr<const T> x, Ptr<const uint32_t> lengths, Ptr<T> y, uint32_t count, uint32_t len,
                 uint32_t width) {
    uint32_t e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= count) return;
    uint32_t b = e / width;
    uint64_t step = steps_of(lengths, b, len) - 1;
    y[e] = x[(uint64_t(b) * len + step) * width + e % width];
}

// The gradient of x, four consecutive elements per thread. If `shared`, gy is divided equally among
// the steps of a sequence; otherwise one step gets it: that of `chosen`, or the last.
template <class T>
DEVICE void backward(Ptr<const T> gy, Ptr<const uint32_t> lengths, Ptr<const uint32_t> chosen, Ptr<T> gx,
                     uint32_t count, uint32_t len, uint32_t width, bool shared, bool vector) {
    uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (first >= count) return;
    uint64_t end = min(first + 4, uint64_t(count));
    Four values = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (first + i >= end) break;
        // aligned groups of four belong to one row
        uint32_t e = uint32_t(first) + i, row = vector ? uint32_t(first) / width : e / width;
        uint32_t b = row / len, step = row % len, steps = steps_of(lengths, b, len);
        uint64_t at = uint64_t(b) * width + (e - row * width);
        uint32_t only = steps - 1;
        if (chosen != nullptr) only = chosen[at];
        bool counts = shared ? step < steps : step == only;
        if (counts) values.v[i] = to_float(gy[at]) / (shared ? float(steps) : 1.0f);
    }
    if (vector) return store4(gx + first, values);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + i < end) gx[first + i] = from_float<T>(values.v[i]);
}

#define POOL(io, T)                                                                                \
    KERNEL(pool_sum_pieces_##io, THREADS, Global<const T> x, Global<const uint32_t> lengths,       \
           Global<float> parts, uint32_t len, uint32_t width, uint32_t each, uint32_t vector) {    \
        sum_pieces<T>(x, lengths, parts, len, width, each, vector != 0);                           \
    }                                                                                              \
    KERNEL(pool_mean_##io, 256, Global<const float> parts, Global<const uint32_t> lengths,         \
           Global<T> y, uint32_t count, uint32_t len, uint32_t width, uint32_t each) {             \
        mean<T>(parts, lengths, y, count, len, width, each);                                       \
    }                                                                                              \
    KERNEL(pool_max_pieces_##io, THREADS, Global<const T> x, Global<const uint32_t> lengths,       \
           Global<float> parts, Global<uint32_t> steps, uint32_t len, uint32_t width,              \
           uint32_t each, uint32_t vector) {                                                       \
        max_pieces<T>(x, lengths, parts, steps, len, width, each, vector != 0);                    \
    }                                                                                              \
    KERNEL(pool_max_##io, 256, Global<const float> parts, Global<const uint32_t> steps,            \
           Global<const uint32_t> lengths, Global<T> y, Global<uint32_t> chosen, uint32_t count,   \
           uint32_t len, uint32_t width, uint32_t each) {                                          \
        largest<T>(parts, steps, lengths, y, chosen, count, len, width, each);                     \
    }                                                                                              \
    KERNEL(pool_last_##io, 256, Global<const T> x, Global<const uint32_t> lengths, Global<T> y,    \
           uint32_t count, uint32_t len, uint32_t width) {                                         \
        last<T>(x, lengths, y, count, len, width);                                                 \
    }                                                                                              \
    KERNEL(pool_backward_##io, 256, Global<const T> gy, Global<const uint32_t> lengths,            \
           Global<const uint32_t> chosen, Global<T> gx, uint32_t count, uint32_t len,              \
           uint32_t width, uint32_t shared, uint32_t vector) {                                     \
        backward<T>(gy, lengths, chosen, gx, count, len, width, shared != 0, vector != 0);         \
    }

POOL(f32, float)
POOL(bf16, bf16)
