// Depthwise causal convolution over time: y_t = b + sum_back w[:, K-1-back] x_{t-back}, any K.
//
// Bound by memory bandwidth: forward reads x and writes y, backward reads x and gy and writes gx. A
// thread owns VEC consecutive channels (16 bytes of f32 if the width allows) and a run of steps,
// whose loads are independent; a block owns 16 groups of channels and 8 runs, and shares its
// weights. The rows before a run (after it in the backward pass) are read again, from cache.
// Gradients of weights are summed over the steps of a block, in order, and written as one partial
// sum per block.
#include "device.cuh"

constexpr int FORWARD_RUN = 4, BACKWARD_RUN = 8;  // steps of a thread
constexpr int TAPS = 4;    // taps taken together
constexpr int LANES = 16;  // groups of channels of a block
constexpr int RUNS = 8;    // runs of a block

template <int VEC>
struct Channels {
    float v[VEC];
};

template <int VEC, class T>
DEVICE Channels<VEC> load(Ptr<T> p) {
    Channels<VEC> x;
    if constexpr (VEC == 4) {
        Four four = load4(p);
#pragma unroll
        for (int c = 0; c < VEC; ++c) x.v[c] = four.v[c];
    } else {
        x.v[0] = to_float(p[0]);
    }
    return x;
}

template <int VEC, class T>
DEVICE void store(Ptr<T> p, Channels<VEC> x) {
    if constexpr (VEC == 4)
        store4(p, {x.v[0], x.v[1], x.v[2], x.v[3]});
    else
        p[0] = from_float<T>(x.v[0]);
}

// The position of a thread: its first channel, the offset of that channel at its first step, and
// the range of existing steps from .. to relative to that one, empty for threads outside.
struct Place {
    uint32_t lane, channel;
    int64_t origin;
    int from, to;

    DEVICE bool inside() const { return to > 0; }
    DEVICE bool has(int step) const { return step >= from && step < to; }
};

template <int VEC, int RUN>
DEVICE Place place(uint32_t batch, uint32_t len, uint32_t width) {
    uint32_t of_sequence = (len + RUN - 1) / RUN;
    uint32_t run = blockIdx.x * RUNS + threadIdx.x / LANES;
    uint32_t lane = threadIdx.x % LANES;
    uint32_t channel = (blockIdx.y * LANES + lane) * VEC;
    uint32_t sequence = run / of_sequence, first = run % of_sequence * RUN;
    bool inside = sequence < batch && channel < width;
    return {lane * VEC, channel, (int64_t(sequence) * len + first) * width + channel, -int(first),
            inside ? int(len - first) : -int(first)};
}

// Loads the weights of the block's channels for the steps back .. back + TAPS ago, zero beyond the
// last; called by all threads.
template <int VEC>
DEVICE void weigh(Ptr<float> weights, Ptr<const float> w, uint32_t back, uint32_t width, uint32_t taps) {
    constexpr uint32_t CHANNELS = LANES * VEC;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < CHANNELS * TAPS; i += LANES * RUNS) {
        uint32_t channel = blockIdx.y * CHANNELS + i / TAPS, ago = back + i % TAPS;
        float weight = 0.0f;
        if (channel < width && ago < taps) weight = w[uint64_t(channel) * taps + taps - 1 - ago];
        weights[i % TAPS * CHANNELS + i / TAPS] = weight;
    }
    __syncthreads();
}

template <int VEC, class T>
DEVICE void forward(Ptr<const T> x, Ptr<const float> w, Ptr<const float> b, Ptr<T> y, uint32_t batch,
                    uint32_t len, uint32_t width, uint32_t taps) {
    SHARED(float, weights, TAPS * LANES * VEC);
    constexpr int RUN = FORWARD_RUN;
    Place at = place<VEC, RUN>(batch, len, width);
    Channels<VEC> sums[RUN];
    Channels<VEC> bias = {};
    if (b != nullptr && at.inside()) bias = load<VEC>(b + at.channel);
#pragma unroll
    for (int i = 0; i < RUN; ++i) sums[i] = bias;
    for (uint32_t back = 0; back < taps; back += TAPS) {
        weigh<VEC>(weights, w, back, width, taps);
        Channels<VEC> weight[TAPS];
#pragma unroll
        for (int j = 0; j < TAPS; ++j) weight[j] = load<VEC>(weights + (j * LANES * VEC + at.lane));
#pragma unroll
        for (int s = 1 - TAPS; s < RUN; ++s) {
            int step = s - int(back);
            if (!at.has(step)) continue;
            Channels<VEC> row = load<VEC>(x + (at.origin + int64_t(step) * width));
#pragma unroll
            for (int j = 0; j < TAPS; ++j) {
                if (s + j < 0 || s + j >= RUN) continue;
#pragma unroll
                for (int c = 0; c < VEC; ++c) sums[s + j].v[c] += weight[j].v[c] * row.v[c];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < RUN; ++i)
        if (i < at.to) store<VEC>(y + (at.origin + int64_t(i) * width), sums[i]);
}

// Adds `sums` over the block's runs; the first threads write those of its channels, `stride` apart.
template <int VEC>
DEVICE void write_part(Ptr<float> shared, Channels<VEC> sums, uint32_t width, Ptr<float> to, uint32_t stride) {
    constexpr uint32_t CHANNELS = LANES * VEC;
    __syncthreads();
#pragma unroll
    for (int c = 0; c < VEC; ++c) shared[threadIdx.x * VEC + c] = sums.v[c];
    __syncthreads();
    uint32_t channel = blockIdx.y * CHANNELS + threadIdx.x;
    if (threadIdx.x < CHANNELS && channel < width) {
        float sum = 0.0f;
#pragma unroll
        for (uint32_t run = 0; run < RUNS; ++run) sum += shared[run * CHANNELS + threadIdx.x];
        to[uint64_t(channel) * stride] = sum;
    }
}

// gx, gw_parts (blocks, C K) and gb_parts (blocks, C) may be absent.
template <int VEC, class T>
DEVICE void backward(Ptr<const T> x, Ptr<const float> w, Ptr<const T> gy, Ptr<T> gx, Ptr<float> gw_parts,
                     Ptr<float> gb_parts, uint32_t batch, uint32_t len, uint32_t width, uint32_t taps) {
    SHARED(float, weights, TAPS * LANES * VEC);
    SHARED(float, shared, RUNS * LANES * VEC);
    constexpr int RUN = BACKWARD_RUN;
    Place at = place<VEC, RUN>(batch, len, width);
    Channels<VEC> rows[RUN] = {}, grads[RUN] = {}, bias = {};
#pragma unroll
    for (int i = 0; i < RUN; ++i)
        if (i < at.to) rows[i] = load<VEC>(x + (at.origin + int64_t(i) * width));
    for (uint32_t back = 0; back < taps; back += TAPS) {
        weigh<VEC>(weights, w, back, width, taps);
        Channels<VEC> weight[TAPS], sums[TAPS] = {};
#pragma unroll
        for (int j = 0; j < TAPS; ++j) weight[j] = load<VEC>(weights + (j * LANES * VEC + at.lane));
#pragma unroll
        for (int s = 0; s < RUN + TAPS - 1; ++s) {
            int step = s + int(back);
            if (step >= at.to) continue;
            Channels<VEC> g = load<VEC>(gy + (at.origin + int64_t(step) * width));
            if (s < RUN && back == 0)
#pragma unroll
                for (int c = 0; c < VEC; ++c) bias.v[c] += g.v[c];
#pragma unroll
            for (int j = 0; j < TAPS; ++j) {
                if (s - j < 0 || s - j >= RUN) continue;
#pragma unroll
                for (int c = 0; c < VEC; ++c) {
                    grads[s - j].v[c] += weight[j].v[c] * g.v[c];
                    sums[j].v[c] += rows[s - j].v[c] * g.v[c];
                }
            }
        }
        if (gw_parts != nullptr) {
            Ptr<float> part = gw_parts + uint64_t(blockIdx.x) * width * taps;
#pragma unroll
            for (int j = 0; j < TAPS; ++j)
                if (back + j < taps) write_part<VEC>(shared, sums[j], width, part + (taps - 1 - back - j), taps);
        }
    }
    if (gb_parts != nullptr) write_part<VEC>(shared, bias, width, gb_parts + uint64_t(blockIdx.x) * width, 1);
    if (gx == nullptr) return;
#pragma unroll
    for (int i = 0; i < RUN; ++i)
        if (i < at.to) store<VEC>(gx + (at.origin + int64_t(i) * width), grads[i]);
}

#define CONV(vec, io, T)                                                                                 \
    KERNEL(causal_conv1d_forward_##vec##_##io, LANES * RUNS, Global<const T> x, Global<const float> w,   \
           Global<const float> b, Global<T> y, uint32_t batch, uint32_t len, uint32_t width,             \
           uint32_t taps) {                                                                              \
        forward<vec, T>(x, w, b, y, batch, len, width, taps);                                            \
    }                                                                                                    \
    KERNEL(causal_conv1d_backward_##vec##_##io, LANES * RUNS, Global<const T> x, Global<const float> w,  \
           Global<const T> gy, Global<T> gx, Global<float> gw_parts, Global<float> gb_parts,             \
           uint32_t batch, uint32_t len, uint32_t width, uint32_t taps) {                                \
        backward<vec, T>(x, w, gy, gx, gw_parts, gb_parts, batch, len, width, taps);                     \
    }

CONV(1, f32, float)
CONV(4, f32, float)
CONV(1, bf16, bf16)
CONV(4, bf16, bf16)
