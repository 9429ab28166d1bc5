// The cross entropy of rows of logits that a product has just written, the correctness of each row,
// and the gradient of the logits.
//
// In the whole head, products take 6 d FLOP per logit. In addition the logits are written (4
// bytes), read here, and their gradients written (2 bytes in bf16) and read by two products: 12 to
// 16 bytes per logit that stay in the L2 cache, as the caller makes tiles of rows that fit. A block
// has one row, whose second reading comes from its L1 cache; two exponentials per logit are 9 us
// for 2048 x 8192. With 50,304 classes few rows fit, and every tile reads and writes the gradient
// of the weight: tiles of 2 d rows then leave the cache, at 20 bytes per logit.
#include "loss.cuh"
#include "maps.cuh"

constexpr int THREADS = CROSS_ENTROPY_THREADS;
constexpr int MANY = 8;  // logits of a thread that share one change of the largest

// The largest logit, the first class that has it, and the sum of e^(x - largest).
struct Found {
    float top;
    uint32_t at;
    float sum;
};

DEVICE float scaled_to(float sum, float from, float to) { return sum * exp2_fast(LOG2E * (from - to)); }

DEVICE Found join(Found a, Found b) {
    bool first = a.top > b.top || (a.top == b.top && a.at < b.at);
    float top = fmaxf(a.top, b.top);
    return {top, first ? a.at : b.at, scaled_to(a.sum, a.top, top) + scaled_to(b.sum, b.top, top)};
}

DEVICE Found look_at(Ptr<const float> row, uint32_t classes) {
    Found found = {-3.402823466e38f, 0xffffffffu, 0.0f};
    for (uint32_t first = threadIdx.x; first < classes; first += MANY * THREADS) {
        float x[MANY], top = found.top;
#pragma unroll
        for (int i = 0; i < MANY; ++i) {
            uint32_t c = first + i * THREADS;
            x[i] = -INFINITY;
            if (c < classes) x[i] = row[c];
        }
#pragma unroll
        for (int i = 0; i < MANY; ++i) {
            if (x[i] > top) found.at = first + i * THREADS;
            top = fmaxf(top, x[i]);
        }
        found.sum = scaled_to(found.sum, found.top, top);
        found.top = top;
#pragma unroll
        for (int i = 0; i < MANY; ++i) found.sum += exp2_fast(LOG2E * (x[i] - top));
    }
    return found;
}

// The merged statistics of all threads of a block, in a fixed order, in all of them.
DEVICE Found joined(Found found) {
    constexpr int WARPS = THREADS / WARP;
    SHARED(float, tops, WARPS);
    SHARED(uint32_t, firsts, WARPS);
    SHARED(float, sums, WARPS);
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2)
        found = join(found, {shuffle_xor(found.top, mask), shuffle_xor(found.at, mask),
                             shuffle_xor(found.sum, mask)});
    if (threadIdx.x % WARP == 0) {
        tops[threadIdx.x / WARP] = found.top;
        firsts[threadIdx.x / WARP] = found.at;
        sums[threadIdx.x / WARP] = found.sum;
    }
    __syncthreads();
    found = {tops[0], firsts[0], sums[0]};
    for (int i = 1; i < WARPS; ++i) found = join(found, {tops[i], firsts[i], sums[i]});
    return found;
}

// Row `blockIdx.x` of a tile is row `first + blockIdx.x` of all. If requested, writes the gradient
// share (softmax - one hot), with share = 1 / number of all rows; it may overwrite the logits.
template <class T>
DEVICE void slopes_of(Ptr<float> logits, Ptr<const uint32_t> targets, Ptr<float> losses, Ptr<float> right,
                      Ptr<T> slopes, uint32_t first, uint32_t classes, float share) {
    uint64_t begin = uint64_t(blockIdx.x) * classes;
    Ptr<const float> row = logits + begin;
    uint32_t index = first + blockIdx.x, target = targets[index];
    float of_target = 0.0f;
    if (threadIdx.x == 0) of_target = row[target];
    Found found = joined(look_at(row, classes));
    if (threadIdx.x == 0) {
        losses[index] = logf(found.sum) + found.top - of_target;
        right[index] = found.at == target ? 1.0f : 0.0f;
    }
    if (slopes == nullptr) return;
    float factor = share / found.sum;
    for (uint32_t c = threadIdx.x; c < classes; c += THREADS) {
        float probability = exp2_fast(LOG2E * (row[c] - found.top)) * factor;
        slopes[begin + c] = from_float<T>(probability - (c == target ? share : 0.0f));
    }
}

// Overwrites the logits with their gradients, if `wanted`.
KERNEL(slopes_f32, THREADS, Global<float> logits, Global<const uint32_t> targets, Global<float> losses,
       Global<float> right, uint32_t wanted, uint32_t first, uint32_t classes, float share) {
    Ptr<float> none = nullptr;
    Ptr<float> slopes = wanted ? logits : none;
    slopes_of<float>(logits, targets, losses, right, slopes, first, classes, share);
}

KERNEL(slopes_bf16, THREADS, Global<float> logits, Global<const uint32_t> targets, Global<float> losses,
       Global<float> right, Global<bf16> slopes, uint32_t first, uint32_t classes, float share) {
    slopes_of<bf16>(logits, targets, losses, right, slopes, first, classes, share);
}

// The mean, by one block; kept in memory that outlives a recorded step, if there is some.
KERNEL(mean, 1024, Global<const float> x, Global<float> to, Global<float> kept, uint32_t count) {
    float sum = 0.0f;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < count; i += 1024) sum += x[i];
    sum = block_sum<1024>(sum);
    if (threadIdx.x > 0) return;
    to[0] = sum / float(count);
    if (kept == nullptr) return;
    keep(sum / float(count), kept);
}

// Multiplies tensors by a number in device memory. Each tensor has blocks of its own along y, and its number of
// elements.
#define SCALE(io, T)                                                                             \
    KERNEL(scale_##io, 256, Table<const T, MAPS> xs, Table<T, MAPS> ys, Global<const float> by,  \
           uint32_t a, uint32_t b, uint32_t c, uint32_t d) {                                     \
        uint32_t map = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;                    \
        Ptr<const T> x = one_of(map, xs);                                                        \
        Ptr<T> y = one_of(map, ys);                                                              \
        float factor = by[0];                                                                    \
        if (i < one_of(map, a, b, c, d)) y[i] = from_float<T>(to_float(x[i]) * factor);          \
    }

SCALE(f32, float)
SCALE(bf16, bf16)
