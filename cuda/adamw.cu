// A step of AdamW on up to 64 parameters at once.
//
// Bound by memory bandwidth: 28 bytes per number (read parameter, gradient and moments; write all
// but the gradient). A block has 2048 numbers of one parameter, eight per thread, with 32 loads in
// flight. Values that change from step to step are read from device memory, so that a captured
// launch can be replayed. Gradient clipping reads the gradients once more beforehand, 4 bytes per
// number, and sums the blocks' partial sums in one block: 60 us for the 70 M numbers of Pythia-70M,
// beside 500 us for the step.
#include "device.cuh"

constexpr int TENSORS = ADAMW_TENSORS;
constexpr uint32_t THREADS = ADAMW_THREADS, EACH = ADAMW_EACH;
// Number of words that describe a block.
constexpr uint32_t WORDS = ADAMW_WORDS;

// The sum of squares of a block's gradients, one of `parts` per block; 0 for a parameter without a
// gradient.
KERNEL(sum_squares, THREADS, Table<const float, TENSORS> grads, Global<const uint32_t> blocks,
       Global<float> parts) {
    uint32_t which = blocks[WORDS * blockIdx.x], first = blocks[WORDS * blockIdx.x + 1];
    uint32_t count = blocks[WORDS * blockIdx.x + 2];
    Ptr<const float> grad = grads[which];
    float sum = 0.0f;
    if (grad != nullptr) {
        float g[EACH];
#pragma unroll
        for (uint32_t i = 0; i < EACH; ++i) {
            uint32_t at = first + i * THREADS + threadIdx.x;
            g[i] = 0.0f;
            if (at < count) g[i] = grad[at];
        }
#pragma unroll
        for (uint32_t i = 0; i < EACH; ++i) sum += g[i] * g[i];
    }
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// The factor of the gradients that limits their global norm to `most`. It is computed by one block in f64, since a
// large model has tens of thousands of partial sums. NaN stays NaN.
KERNEL(clip_scale, THREADS, Global<const float> parts, Global<float> scale, uint32_t count, float most) {
    SHARED(double, sums, THREADS);
    double sum = 0.0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < count; i += THREADS) {
        float part = parts[i];
        sum += part;
    }
    sums[threadIdx.x] = sum;
    for (uint32_t half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            double more = sums[threadIdx.x + half];
            sum += more;
            sums[threadIdx.x] = sum;
        }
    }
    if (threadIdx.x > 0) return;
    float by = float(most / (sqrt(sum) + 1e-6));
    scale[0] = by > 1.0f ? 1.0f : by;
}

// g <- scale g, m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, theta <- theta decay - rate m / (sqrt(v) / correction
// + eps). `blocks` holds for each block its parameter, its first number, the size of the parameter and whether it
// decays; `rates` holds rate, correction and decay; a null `scale` means 1. The moments are all m, then all v. A
// parameter without a gradient does not change; nothing changes if `loss` is given and not finite.
KERNEL(step, THREADS, Table<float, TENSORS> parameters, Table<const float, TENSORS> grads,
       Table<float, TENSORS> moments, Global<const uint32_t> blocks, Global<const float> rates,
       Global<const float> scale, Global<const float> loss, float beta1, float beta2, float eps) {
    // Written so that NaN returns as well.
    if (loss != nullptr && !(fabsf(loss[0]) <= 3.4e38f)) return;
    uint32_t which = blocks[WORDS * blockIdx.x], first = blocks[WORDS * blockIdx.x + 1];
    uint32_t count = blocks[WORDS * blockIdx.x + 2], decays = blocks[WORDS * blockIdx.x + 3];
    Ptr<const float> grad = grads[which];
    if (grad == nullptr) return;
    Ptr<float> theta = parameters[which], m = moments[which], v = m + count;
    float by = 1.0f, decay = 1.0f;
    if (scale != nullptr) by = scale[0];
    if (decays != 0) decay = rates[2];
    float rate = rates[0], correction = rates[1];
    float x[EACH], g[EACH], mean[EACH], square[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; ++i) {
        uint32_t at = first + i * THREADS + threadIdx.x;
        x[i] = g[i] = mean[i] = square[i] = 0.0f;
        if (at < count) {
            x[i] = theta[at];
            g[i] = grad[at];
            mean[i] = m[at];
            square[i] = v[at];
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; ++i) {
        uint32_t at = first + i * THREADS + threadIdx.x;
        g[i] *= by;
        mean[i] = beta1 * mean[i] + (1.0f - beta1) * g[i];
        square[i] = beta2 * square[i] + (1.0f - beta2) * g[i] * g[i];
        x[i] = x[i] * decay - rate * mean[i] / (sqrtf(square[i]) / correction + eps);
        if (at < count) {
            theta[at] = x[i];
            m[at] = mean[i];
            v[at] = square[i];
        }
    }
}
