// Causal convolution of every channel with its own long kernel: y_t = sum over lags of k_lag u_{t-lag}.
//
// Bound by arithmetic: half of L times L multiply-adds for each channel and sequence, in f32. A block has
// 64 outputs of 32 channels, and goes through the other index in chunks of 32, whose rows and taps it
// shares. A thread has one channel and eight consecutive outputs; of eight taps and fifteen rows in
// registers it makes 64 products. Each chunk is summed by itself before it is added to the total, which
// keeps rounding errors of long sums small. The gradient of u is the same sum with time mirrored. For the
// gradient of the kernel the outputs are lags; `pieces` of the batch are summed by blocks of their own.
#include "device.cuh"

constexpr int CHANNELS = LONG_CONV_CHANNELS;  // of a block
constexpr int RUN = LONG_CONV_RUN;        // outputs of a thread
constexpr int RUNS = LONG_CONV_RUNS;       // of a block
constexpr int OUTPUTS = RUN * RUNS;
constexpr int CHUNK = LONG_CONV_CHUNK;
constexpr int WINDOW = 2 * RUN - 1;  // rows that a run of outputs and a run of taps meet in
constexpr int ROWS = OUTPUTS + CHUNK - 1;
constexpr int THREADS = CHANNELS * RUNS;

// The sizes of a sequence, and the direction of its time.
struct Sequence {
    uint64_t index;
    uint32_t len, width;
    bool mirrored;

    // The offset of a channel at a time; false if it does not exist.
    DEVICE bool find(int64_t time, uint32_t channel, uint64_t& at) const {
        if (time < 0 || time >= len || channel >= width) return false;
        at = (index * len + (mirrored ? len - 1 - time : time)) * width + channel;
        return true;
    }
};

DEVICE uint32_t channel_of(uint32_t lane) { return blockIdx.y * CHANNELS + lane; }

// Loads `count` rows of the block's channels from time `first` on, zero outside the sequence.
template <class T>
DEVICE void share_rows(Ptr<float> to, Ptr<const T> x, Sequence sequence, int64_t first, uint32_t count) {
    for (uint32_t i = threadIdx.x; i < count * CHANNELS; i += THREADS) {
        uint64_t at;
        float value = 0.0f;
        if (sequence.find(first + i / CHANNELS, channel_of(i % CHANNELS), at)) value = to_float(x[at]);
        to[i] = value;
    }
}

// Loads the taps of a chunk of lags, zero beyond the last; neighbours in memory fall into different banks.
DEVICE void share_taps(Ptr<float> to, Ptr<const float> kernel, uint32_t first, uint32_t width, uint32_t taps) {
    for (uint32_t i = threadIdx.x; i < CHUNK * CHANNELS; i += THREADS) {
        uint32_t lag = first + i % CHUNK, channel = channel_of(i / CHUNK);
        float tap = 0.0f;
        if (lag < taps && channel < width) tap = kernel[uint64_t(channel) * taps + lag];
        to[i % CHUNK * (CHANNELS + 1) + i / CHUNK] = tap;
    }
}

// parts_i += sum over j of factor_j row_{first + step (i - j)}, for step 1 or -1.
template <int STEP>
DEVICE void multiply(float (&parts)[RUN], const float (&factors)[RUN], Ptr<float> rows, uint32_t first) {
    float window[WINDOW];
#pragma unroll
    for (int m = 0; m < WINDOW; ++m) window[m] = rows[(first + m) * CHANNELS + threadIdx.x % CHANNELS];
#pragma unroll
    for (int j = 0; j < RUN; ++j)
#pragma unroll
        for (int i = 0; i < RUN; ++i) parts[i] += factors[j] * window[RUN - 1 + STEP * (i - j)];
}

// y of (batch, len, width) from x of the same sizes; both mirrored: the gradient of x from that of y.
template <class T>
DEVICE void convolve(Ptr<const T> x, Ptr<const float> kernel, Ptr<T> y, uint32_t len, uint32_t width,
                     uint32_t taps, bool mirrored) {
    SHARED(float, rows, ROWS * CHANNELS);
    SHARED(float, weights, CHUNK * (CHANNELS + 1));
    uint32_t tiles = (len + OUTPUTS - 1) / OUTPUTS;
    uint32_t first = blockIdx.x % tiles * OUTPUTS;
    uint32_t lane = threadIdx.x % CHANNELS, start = threadIdx.x / CHANNELS * RUN;
    Sequence sequence = {blockIdx.x / tiles, len, width, mirrored};
    float sums[RUN] = {};
    uint32_t reach = min(taps, first + OUTPUTS);
    for (uint32_t lag = 0; lag < reach; lag += CHUNK) {
        __syncthreads();
        share_rows(rows, x, sequence, int64_t(first) - lag - (CHUNK - 1), ROWS);
        share_taps(weights, kernel, lag, width, taps);
        __syncthreads();
        float parts[RUN] = {};
        for (uint32_t l = 0; l < CHUNK; l += RUN) {
            float factors[RUN];
#pragma unroll
            for (int j = 0; j < RUN; ++j) factors[j] = weights[(l + j) * (CHANNELS + 1) + lane];
            multiply<1>(parts, factors, rows, start + CHUNK - RUN - l);
        }
#pragma unroll
        for (int i = 0; i < RUN; ++i) sums[i] += parts[i];
    }
#pragma unroll
    for (int i = 0; i < RUN; ++i) {
        uint64_t at;
        if (sequence.find(int64_t(first) + start + i, channel_of(lane), at)) y[at] = from_float<T>(sums[i]);
    }
}

// parts (pieces, width, taps): sums over time and over `each` sequences of gy_t u_{t-lag}.
template <class T>
DEVICE void correlate(Ptr<const T> u, Ptr<const T> gy, Ptr<float> to, uint32_t batch, uint32_t len,
                      uint32_t width, uint32_t taps, uint32_t each) {
    SHARED(float, rows, ROWS * CHANNELS);
    SHARED(float, slopes, CHUNK * CHANNELS);
    uint32_t first = blockIdx.x * OUTPUTS;
    uint32_t lane = threadIdx.x % CHANNELS, start = threadIdx.x / CHANNELS * RUN;
    float sums[RUN] = {};
    uint32_t from = blockIdx.z * each;
    for (uint32_t index = from; index < min(from + each, batch); ++index) {
        Sequence sequence = {index, len, width, false};
        for (uint32_t time = first; time < len; time += CHUNK) {
            __syncthreads();
            share_rows(slopes, gy, sequence, time, CHUNK);
            share_rows(rows, u, sequence, int64_t(time) - first - (OUTPUTS - 1), ROWS);
            __syncthreads();
            float parts[RUN] = {};
            for (uint32_t t = 0; t < CHUNK; t += RUN) {
                float factors[RUN];
#pragma unroll
                for (int j = 0; j < RUN; ++j) factors[j] = slopes[(t + j) * CHANNELS + lane];
                multiply<-1>(parts, factors, rows, t + OUTPUTS - RUN - start);
            }
#pragma unroll
            for (int i = 0; i < RUN; ++i) sums[i] += parts[i];
        }
    }
    uint32_t channel = channel_of(lane);
    if (channel >= width) return;
#pragma unroll
    for (int i = 0; i < RUN; ++i) {
        uint32_t lag = first + start + i;
        if (lag < taps) to[(uint64_t(blockIdx.z) * width + channel) * taps + lag] = sums[i];
    }
}

#define LONG_CONV(io, T)                                                                                  \
    KERNEL(long_conv_##io, THREADS, Global<const T> x, Global<const float> kernel, Global<T> y,           \
           uint32_t len, uint32_t width, uint32_t taps, uint32_t mirrored) {                              \
        convolve<T>(x, kernel, y, len, width, taps, mirrored != 0);                                       \
    }                                                                                                     \
    KERNEL(long_conv_kernel_##io, THREADS, Global<const T> u, Global<const T> gy, Global<float> parts,    \
           uint32_t batch, uint32_t len, uint32_t width, uint32_t taps, uint32_t each) {                  \
        correlate<T>(u, gy, parts, batch, len, width, taps, each);                                        \
    }

LONG_CONV(f32, float)
LONG_CONV(bf16, bf16)
