// A step of AdamW on up to 64 parameters at once.
//
// Memory is the bound: 28 bytes a number (read parameter, gradient and moments; write all but the
// gradient). A block has 2048 numbers of one parameter, eight a thread, 32 loads in flight. What changes
// from step to step is read from device memory, so a captured launch can be replayed. Predicted on an
// H200: 80 % of the floor at d = 512 (4 M numbers), 50 % at d = 64 (0.6 M, 4 us).
#include "device.cuh"

constexpr int TENSORS = 64;
constexpr uint32_t THREADS = 256, EACH = 8;
constexpr float BETA1 = 0.9f, BETA2 = 0.999f, EPS = 1e-8f;

// m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, theta <- theta decay - rate m / (sqrt(v) / correction
// + eps). `blocks`: for each block its parameter, its first number and how many the parameter has;
// `rates`: rate, correction, decay. Moments are first all m, then all v. Without a gradient nothing moves, nor does anything
// if `loss` is given and no number.
KERNEL(step, THREADS, Table<float, TENSORS> parameters, Table<const float, TENSORS> grads,
       Table<float, TENSORS> moments, Global<const uint32_t> blocks, Global<const float> rates,
       Global<const float> loss) {
    // Written so that it holds for NaN.
    if (loss != nullptr && !(fabsf(loss[0]) <= 3.4e38f)) return;
    uint32_t which = blocks[3 * blockIdx.x], first = blocks[3 * blockIdx.x + 1];
    uint32_t count = blocks[3 * blockIdx.x + 2];
    Ptr<const float> grad = grads[which];
    if (grad == nullptr) return;
    Ptr<float> theta = parameters[which], m = moments[which], v = m + count;
    float rate = rates[0], correction = rates[1], decay = rates[2];
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
        mean[i] = BETA1 * mean[i] + (1.0f - BETA1) * g[i];
        square[i] = BETA2 * square[i] + (1.0f - BETA2) * g[i] * g[i];
        x[i] = x[i] * decay - rate * mean[i] / (sqrtf(square[i]) / correction + EPS);
        if (at < count) {
            theta[at] = x[i];
            m[at] = mean[i];
            v[at] = square[i];
        }
    }
}

// The loss of a recorded step, put where it outlives the step.
KERNEL(keep_loss, 32, Global<const float> loss, Global<float> kept) {
    if (threadIdx.x == 0) kept[0] = loss[0];
}
