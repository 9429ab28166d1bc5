// h f(g) with f = gelu or silu, times sigma(z) if there is an output gate; four elements per thread.
//
// Bound by memory bandwidth: 3 or 4 words per element forward, 5 or 7 backward. The four elements
// of a thread are a block apart, so that a warp's loads are contiguous whatever the alignment, and
// up to sixteen loads are in flight.
#include "pointwise.cuh"

constexpr int EACH = GATED_READOUT_EACH;

struct Inputs {
    float h, gate, output, grad;
};

// use(i, load(i)) for the elements of this thread.
template <class Load, class Use>
DEVICE void elements(uint32_t count, Load load, Use use) {
    uint64_t first = uint64_t(blockIdx.x) * (EACH * blockDim.x) + threadIdx.x;
    Inputs now[EACH];
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        uint64_t i = first + e * blockDim.x;
        now[e] = {};
        if (i < count) now[e] = load(i);
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        uint64_t i = first + e * blockDim.x;
        if (i < count) use(i, now[e]);
    }
}

template <class F, class T>
DEVICE void forward(Ptr<const T> h, Ptr<const T> gate, Ptr<const T> output, Ptr<T> y, uint32_t count) {
    elements(
        count,
        [&](uint64_t i) {
            float z = 0.0f;
            if (output != nullptr) z = to_float(output[i]);
            return Inputs{to_float(h[i]), to_float(gate[i]), z, 0.0f};
        },
        [&](uint64_t i, Inputs now) {
            float open = output != nullptr ? sigmoid(now.output) : 1.0f;
            y[i] = from_float<T>(now.h * F::value(now.gate) * open);
        });
}

template <class F, class T>
DEVICE void backward(Ptr<const T> h, Ptr<const T> gate, Ptr<const T> output, Ptr<const T> gy,
                     Ptr<T> gh, Ptr<T> gg, Ptr<T> gz, uint32_t count) {
    elements(
        count,
        [&](uint64_t i) {
            float z = 0.0f;
            if (output != nullptr) z = to_float(output[i]);
            return Inputs{to_float(h[i]), to_float(gate[i]), z, to_float(gy[i])};
        },
        [&](uint64_t i, Inputs now) {
            float open = output != nullptr ? sigmoid(now.output) : 1.0f;
            float value = F::value(now.gate);
            gh[i] = from_float<T>(now.grad * value * open);
            gg[i] = from_float<T>(now.grad * now.h * open * F::slope(now.gate, value));
            if (output != nullptr)
                gz[i] = from_float<T>(now.grad * now.h * value * Sigmoid::slope(now.output, open));
        });
}

#define READOUT(name, F, io, T)                                                                   \
    KERNEL(gated_readout_##name##_forward_##io, 256, Global<const T> h, Global<const T> gate,     \
           Global<const T> output, Global<T> y, uint32_t count) {                                 \
        forward<F, T>(h, gate, output, y, count);                                                 \
    }                                                                                             \
    KERNEL(gated_readout_##name##_backward_##io, 256, Global<const T> h, Global<const T> gate,    \
           Global<const T> output, Global<const T> gy, Global<T> gh, Global<T> gg, Global<T> gz,  \
           uint32_t count) {                                                                      \
        backward<F, T>(h, gate, output, gy, gh, gg, gz, count);                                   \
    }

READOUT(gelu, Gelu, f32, float)
READOUT(gelu, Gelu, bf16, bf16)
READOUT(silu, Silu, f32, float)
READOUT(silu, Silu, bf16, bf16)
