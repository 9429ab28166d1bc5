// The selective scan, forward: h_t = exp(delta_t a) h_{t-1} + delta_t u_t b_t, y_t = sum_k h_t c_t; and the same under
// other rules of discretisation, see selective_scan_rules.cuh.
//
// A block holds 64 channels x 8 states a warp of one sequence (16 warps at most) and walks time; a thread
// has 2 channels x 8 states in registers, a lane's channels being 32 apart. Every 8 steps it stages
// delta, delta u, b and c in shared memory, each read once by the block. The sums over states leave
// through shared memory, warp by warp in order; more than 128 states go to several blocks, whose parts
// `sum` adds in order.
//
// The bound is the exponential unit, 16 per clock and SM: a warp's step of 16 elements per thread takes it 128 cycles
// per scheduler. The same step issues 16 x (2 mul, ex2, 2 fma) + 4 + 4 loads and 2 stores of shared memory = 90
// instructions, and moves some (4 x 4 + 4 + 2) x 4 = 88 cycles of shared memory, which four schedulers share. Staging
// and sums add 10 %. Registers: 64 (32 for a and h), so that 1024 threads fit an SM. The compiler needs a launch bound
// for that: for some GPUs it would otherwise use 96.
//
// With few sequences, `ends` runs chunks of time in parallel, from a state of zero, and `join`
// computes the state before each chunk from these ends; then chunks are scanned like sequences.
// This doubles the exponentials. It takes decays whose product is a power, so not those of the bilinear rule.
#include "selective_scan.cuh"
#include "selective_scan_rules.cuh"

constexpr uint32_t STEPS = 8;       // staged at once
constexpr uint32_t WIDTH = 64;      // channels of a block
constexpr int STATES = 8;           // of a thread
constexpr uint32_t MAX_TILES = 16; // warps of a block
constexpr uint32_t DEPTH = MAX_TILES * STATES;

// The position of a thread, and its states.
struct Walker {
    uint32_t tile, channel, first_state;
    float al[2][STATES], h[2][STATES];

    // Consecutive lanes read consecutive rates, and exchange them through shared memory: WIDTH rows
    // of the block's states and one more.
    template <class T>
    DEVICE void start(const Inputs<T>& in, Ptr<float> rates) {
        tile = threadIdx.x / WARP;
        channel = blockIdx.y * WIDTH + threadIdx.x % WARP;
        uint32_t depth = blockDim.x / WARP * STATES;
        first_state = blockIdx.z * depth + tile * STATES;
        uint32_t i = threadIdx.x % depth, first = threadIdx.x / depth;
#pragma unroll 4
        for (uint32_t c = first; c < WIDTH; c += WARP / STATES)
            rates[c * (depth + 1) + i] = in.exponent(blockIdx.y * WIDTH + c, blockIdx.z * depth + i);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int k = 0; k < STATES; ++k) {
                float rate = rates[(threadIdx.x % WARP + j * WARP) * (depth + 1) + tile * STATES + k];
                al[j][k] = rate;
                h[j][k] = 0.0f;
            }
        __syncthreads();
    }
    template <class T>
    DEVICE void load(const Inputs<T>& in, Ptr<const float> from, uint32_t index, uint32_t count) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int k = 0; k < STATES; ++k)
                if (in.inside(first_state + k, channel + j * WARP)) {
                    float state = from[in.state(index, count, first_state + k, channel + j * WARP)];
                    h[j][k] = state;
                }
    }
    template <class T>
    DEVICE void store(const Inputs<T>& in, Ptr<float> to, uint32_t index, uint32_t count) const {
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int k = 0; k < STATES; ++k)
                if (in.inside(first_state + k, channel + j * WARP))
                    to[in.state(index, count, first_state + k, channel + j * WARP)] = h[j][k];
    }
};

// delta and what drives a channel, its product with u or u; in the backward pass, delta and the gradient of y.
template <class R, class T, bool BACK>
DEVICE void stage_channels(const Inputs<T>& in, uint32_t t0, Ptr<float> delta, Ptr<float> drive) {
#pragma unroll(BACK ? 1 : 2)
    for (uint32_t i = threadIdx.x; i < STEPS * WIDTH; i += blockDim.x) {
        uint32_t t = t0 + i / WIDTH, channel = blockIdx.y * WIDTH + i % WIDTH;
        float d = in.step(in.delta, t, channel, in.channels);
        delta[i] = d;
        if (BACK) drive[i] = in.read_out(in.gy, t, channel, in.channels);
        else drive[i] = in.step(in.u, t, channel, in.channels) * (R::SCALES_BY_STATE ? 1.0f : d);
    }
}

// One number for each state of the block: of b, or of c at times with a row.
template <class T, bool ROWS>
DEVICE void stage_states(const Inputs<T>& in, uint32_t t0, Ptr<const T> x, Ptr<float> to) {
    uint32_t depth = blockDim.x / WARP * STATES;
    uint32_t i = threadIdx.x % depth, first = threadIdx.x / depth;
    uint32_t state = blockIdx.z * depth + i;
#pragma unroll
    for (uint32_t s = 0; s < STEPS; s += WARP / STATES) {
        uint32_t t = t0 + first + s;
        to[(first + s) * DEPTH + i] =
            ROWS ? in.read_out(x, t, state, in.states) : in.step(x, t, state, in.states);
    }
}

template <class R, class T>
DEVICE void walk(Inputs<T> in, Ptr<const float> starts, Ptr<float> kept, Ptr<T> y, Ptr<float> parts,
                 uint32_t chunk, uint32_t chunks) {
    SHARED(float, delta, STEPS * WIDTH);
    SHARED(float, drive, STEPS * WIDTH);
    SHARED(float, b, STEPS * DEPTH);
    SHARED(float, c, STEPS * DEPTH);
    uint32_t tiles = blockDim.x / WARP, lane = threadIdx.x % WARP;
    auto sums = dynamic_shared<float>(0, tiles * STEPS * WIDTH + WIDTH); // or the rates
    in.sequence = blockIdx.x / chunks;
    uint32_t index = blockIdx.x % chunks, spans = (in.len + SPAN - 1) / SPAN;
    Walker walker;
    walker.start(in, sums);
    if (starts != nullptr) walker.load(in, starts, index, chunks);
    uint32_t last = min((index + 1) * chunk, in.len);
    for (uint32_t t0 = index * chunk; t0 < last; t0 += STEPS) {
        if (kept != nullptr && t0 % SPAN == 0) walker.store(in, kept, t0 / SPAN, spans);
        stage_channels<R, T, false>(in, t0, delta, drive);
        stage_states<T, false>(in, t0, in.b, b);
        stage_states<T, true>(in, t0, in.c, c);
        __syncthreads();
#pragma unroll 1
        for (uint32_t s = 0; s < STEPS; ++s) {
            float y0 = 0.0f, y1 = 0.0f;
            float d0 = delta[s * WIDTH + lane], d1 = delta[s * WIDTH + WARP + lane];
            float v0 = drive[s * WIDTH + lane], v1 = drive[s * WIDTH + WARP + lane];
#pragma unroll
            for (int four = 0; four < STATES / 4; ++four) {
                Four bs = load4(b + (s * DEPTH + walker.tile * STATES + four * 4));
                Four cs = load4(c + (s * DEPTH + walker.tile * STATES + four * 4));
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    int k = four * 4 + i;
                    float &h0 = walker.h[0][k], &h1 = walker.h[1][k];
                    float rate0 = walker.al[0][k], rate1 = walker.al[1][k];
                    float e0 = R::decay(d0, rate0), e1 = R::decay(d1, rate1);
                    h0 = e0 * h0 + R::scaled(v0, d0, rate0, e0) * bs.v[i];
                    h1 = e1 * h1 + R::scaled(v1, d1, rate1, e1) * bs.v[i];
                    y0 += h0 * cs.v[i];
                    y1 += h1 * cs.v[i];
                }
            }
            sums[(walker.tile * STEPS + s) * WIDTH + lane] = y0;
            sums[(walker.tile * STEPS + s) * WIDTH + WARP + lane] = y1;
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < STEPS * WIDTH; i += blockDim.x) {
            uint32_t row = in.row_at(t0 + i / WIDTH), channel = blockIdx.y * WIDTH + i % WIDTH;
            if (row == 0 || channel >= in.channels) continue;
            float sum = 0.0f;
            for (uint32_t tile = 0; tile < tiles; ++tile) sum += sums[tile * STEPS * WIDTH + i];
            uint64_t at = (uint64_t(in.sequence) * in.row_count + row - 1) * in.channels + channel;
            uint64_t part = uint64_t(gridDim.x / chunks) * in.row_count * in.channels * blockIdx.z;
            if (y != nullptr) y[at] = from_float<T>(sum);
            else parts[part + at] = sum;
        }
    }
}

// The last state of each chunk that starts from zero: `to` (B, chunks, n, d); and the sums of
// delta: (B, chunks, d). BACK runs in reverse time, driven by the gradient of y through c.
template <class R, class T, bool BACK>
DEVICE void ends(Inputs<T> in, Ptr<float> to, Ptr<float> delta_sums, uint32_t chunk, uint32_t chunks) {
    SHARED(float, delta, STEPS * WIDTH);
    SHARED(float, drive, STEPS * WIDTH);
    SHARED(float, b, STEPS * DEPTH);
    uint32_t lane = threadIdx.x % WARP;
    in.sequence = blockIdx.x / chunks;
    uint32_t index = blockIdx.x % chunks;
    Walker walker;
    walker.start(in, dynamic_shared<float>(0, blockDim.x / WARP * STATES * WIDTH + WIDTH));
    uint32_t first = index * chunk, last = min(first + chunk, in.len);
    uint32_t stages = (last - first + STEPS - 1) / STEPS;
    float sum0 = 0.0f, sum1 = 0.0f;
    for (uint32_t stage = 0; stage < stages; ++stage) {
        uint32_t t0 = first + (BACK ? stages - 1 - stage : stage) * STEPS;
        __syncthreads();
        stage_channels<R, T, BACK>(in, t0, delta, drive);
        stage_states<T, BACK>(in, t0, BACK ? in.c : in.b, b);
        __syncthreads();
#pragma unroll 1
        for (uint32_t step = 0; step < STEPS; ++step) {
            uint32_t s = BACK ? STEPS - 1 - step : step;
            float d0 = delta[s * WIDTH + lane], d1 = delta[s * WIDTH + WARP + lane];
            float v0 = drive[s * WIDTH + lane], v1 = drive[s * WIDTH + WARP + lane];
            sum0 += d0;
            sum1 += d1;
#pragma unroll
            for (int four = 0; four < STATES / 4; ++four) {
                Four bs = load4(b + (s * DEPTH + walker.tile * STATES + four * 4));
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    int k = four * 4 + i;
                    float &h0 = walker.h[0][k], &h1 = walker.h[1][k];
                    float rate0 = walker.al[0][k], rate1 = walker.al[1][k];
                    float e0 = R::decay(d0, rate0), e1 = R::decay(d1, rate1);
                    if (BACK) {
                        h0 = e0 * (h0 + v0 * bs.v[i]);
                        h1 = e1 * (h1 + v1 * bs.v[i]);
                    } else {
                        h0 = e0 * h0 + R::scaled(v0, d0, rate0, e0) * bs.v[i];
                        h1 = e1 * h1 + R::scaled(v1, d1, rate1, e1) * bs.v[i];
                    }
                }
            }
        }
    }
    walker.store(in, to, index, chunks);
    if (walker.first_state > 0) return;
    uint64_t at = uint64_t(blockIdx.x) * in.channels + walker.channel;
    if (walker.channel < in.channels) delta_sums[at] = sum0;
    if (walker.channel + WARP < in.channels) delta_sums[at + WARP] = sum1;
}

// Converts the final states of chunks that start from zero to the states before the chunks, in
// place.
template <bool BACK>
DEVICE void join_chunks(Ptr<const float> a, Ptr<const float> delta_sums, Ptr<float> states, uint32_t chunks,
                 uint32_t channels, uint32_t state_count, uint32_t count) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    uint32_t channel = i % channels, k = i / channels % state_count;
    uint64_t sequence = i / channels / state_count, size = uint64_t(state_count) * channels;
    float rate = a[uint64_t(channel) * state_count + k];
    float h = 0.0f;
    for (uint32_t step = 0; step < chunks; ++step) {
        uint64_t chunk = sequence * chunks + (BACK ? chunks - 1 - step : step);
        uint64_t at = chunk * size + uint64_t(k) * channels + channel;
        float sum = delta_sums[chunk * channels + channel], end = states[at];
        states[at] = h;
        h = exp2_fast(rate * LOG2E * sum) * h + end;
    }
}

// `resident` blocks of 512 threads fit an SM.
#define WALK(name, R, resident, T)                                                             \
    KERNEL_FITTING(walk_##name, MAX_TILES * WARP, resident, Global<const T> u,                 \
           Global<const T> delta, Global<const float> a, Global<const T> b, Global<const T> c, \
           Global<const uint32_t> rows, Global<const float> starts, Global<float> kept,        \
           Global<T> y, Global<float> parts, uint32_t len, uint32_t channels, uint32_t states, \
           uint32_t row_count, uint32_t chunk, uint32_t chunks) {                              \
        Inputs<T> in{u, delta, b, c, nullptr, a, rows, len, channels, states, row_count, 0};   \
        walk<R, T>(in, starts, kept, y, parts, chunk, chunks);                                 \
    }

#define ENDS(name, R, T)                                                                       \
    KERNEL(ends_##name, MAX_TILES * WARP, Global<const T> u, Global<const T> delta,           \
           Global<const float> a, Global<const T> b, Global<float> to, Global<float> sums,     \
           uint32_t len, uint32_t channels, uint32_t states, uint32_t row_count,               \
           uint32_t chunk, uint32_t chunks) {                                                  \
        Inputs<T> in{u, delta, b, nullptr, nullptr, a, nullptr, len, channels, states, row_count, 0}; \
        ends<R, T, false>(in, to, sums, chunk, chunks);                                        \
    }

// The decays of Hold are those of Euler.
#define ENDS_BACK(name, T)                                                                     \
    KERNEL(ends_back_##name, MAX_TILES * WARP, Global<const T> gy, Global<const T> delta,     \
           Global<const float> a, Global<const T> c, Global<const uint32_t> rows,              \
           Global<float> to, Global<float> sums, uint32_t len, uint32_t channels,              \
           uint32_t states, uint32_t row_count, uint32_t chunk, uint32_t chunks) {             \
        Inputs<T> in{nullptr, delta, nullptr, c, gy, a, rows, len, channels, states, row_count, 0}; \
        ends<Euler, T, true>(in, to, sums, chunk, chunks);                                     \
    }

#define SCAN(io, T)                  \
    WALK(io, Euler, 2, T)            \
    WALK(hold_##io, Hold, 1, T)      \
    WALK(bilinear_##io, Bilinear, 1, T) \
    ENDS(io, Euler, T)               \
    ENDS(hold_##io, Hold, T)         \
    ENDS_BACK(io, T)

SCAN(f32, float)
SCAN(bf16, bf16)

#define JOIN(name, BACK)                                                                        \
    KERNEL(name, 256, Global<const float> a, Global<const float> delta_sums, Global<float> states, \
           uint32_t chunks, uint32_t channels, uint32_t state_count, uint32_t count) {          \
        join_chunks<BACK>(a, delta_sums, states, chunks, channels, state_count, count);                \
    }

JOIN(join, false)
JOIN(join_back, true)

// Converts the ascending times of rows (B, R) to the rows of times, as in Inputs.
KERNEL(rows_of_times, 256, Global<const uint32_t> times, Global<uint32_t> rows, uint32_t len,
       uint32_t row_count, uint32_t count) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    uint64_t first = uint64_t(i / len) * row_count;
    uint32_t t = i % len, low = 0, high = row_count; // the first row at t or later
    while (low < high) {
        uint32_t middle = (low + high) / 2, time = times[first + middle];
        if (time < t) low = middle + 1;
        else high = middle;
    }
    uint32_t found = row_count;
    if (low < row_count) found = times[first + low];
    rows[i] = low < row_count && found == t ? low + 1 : 0;
}
