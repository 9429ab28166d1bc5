// Gated linear units: a function of one half of each row, times the other half.
//
// Bound by memory bandwidth: forward reads two numbers for each one that it writes, backward reads
// three and writes two; the error function takes some 25 instructions, less than half of the memory
// time. Four consecutive elements per thread if halves are multiples of four.
#include "pointwise.cuh"

// The linear factor first, then the argument of F.
struct Halves {
    uint64_t linear, curved;
};

// The offsets of the factors of element e of the result; `curved` is the half (0 or 1) that F
// applies to.
DEVICE Halves halves_of(uint32_t e, uint32_t width, uint32_t curved) {
    uint32_t row = e / width;
    uint64_t first = uint64_t(row) * width + e;  // row 2 width + e % width
    return {first + (1 - curved) * width, first + curved * width};
}

template <class F, class T>
DEVICE void forward(Ptr<const T> x, Ptr<T> y, uint32_t count, uint32_t width, uint32_t curved, bool vector) {
    uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (first >= count) return;
    if (vector) {
        Halves at = halves_of(uint32_t(first), width, curved);
        Four values = load4(x + at.linear), gates = load4(x + at.curved);
#pragma unroll
        for (int i = 0; i < 4; ++i) values.v[i] *= F::value(gates.v[i]);
        store4(y + first, values);
        return;
    }
    uint64_t last = min(first + 4, uint64_t(count));
    for (uint64_t e = first; e < last; ++e) {
        Halves at = halves_of(uint32_t(e), width, curved);
        y[e] = from_float<T>(to_float(x[at.linear]) * F::value(to_float(x[at.curved])));
    }
}

struct Slopes {
    float linear, curved;
};

template <class F>
DEVICE Slopes slopes(float linear, float curved, float g) {
    float gate = F::value(curved);
    return {g * gate, g * linear * F::slope(curved, gate)};
}

template <class F, class T>
DEVICE void backward(Ptr<const T> x, Ptr<const T> gy, Ptr<T> gx, uint32_t count, uint32_t width,
                     uint32_t curved, bool vector) {
    uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (first >= count) return;
    if (vector) {
        Halves at = halves_of(uint32_t(first), width, curved);
        Four values = load4(x + at.linear), gates = load4(x + at.curved), g = load4(gy + first);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            Slopes slope = slopes<F>(values.v[i], gates.v[i], g.v[i]);
            values.v[i] = slope.linear;
            gates.v[i] = slope.curved;
        }
        store4(gx + at.linear, values);
        store4(gx + at.curved, gates);
        return;
    }
    uint64_t last = min(first + 4, uint64_t(count));
    for (uint64_t e = first; e < last; ++e) {
        Halves at = halves_of(uint32_t(e), width, curved);
        Slopes slope = slopes<F>(to_float(x[at.linear]), to_float(x[at.curved]), to_float(gy[e]));
        gx[at.linear] = from_float<T>(slope.linear);
        gx[at.curved] = from_float<T>(slope.curved);
    }
}

#define GLU(name, F, io, T)                                                                   \
    KERNEL(glu_##name##_forward_##io, 256, Global<const T> x, Global<T> y, uint32_t count,    \
           uint32_t width, uint32_t curved, uint32_t vector) {                                \
        forward<F, T>(x, y, count, width, curved, vector != 0);                               \
    }                                                                                         \
    KERNEL(glu_##name##_backward_##io, 256, Global<const T> x, Global<const T> gy,            \
           Global<T> gx, uint32_t count, uint32_t width, uint32_t curved, uint32_t vector) {  \
        backward<F, T>(x, gy, gx, count, width, curved, vector != 0);                         \
    }

#define GLUS(io, T)                 \
    GLU(sigmoid, Sigmoid, io, T)    \
    GLU(gelu, Gelu, io, T)          \
    GLU(gelu_tanh, GeluTanh, io, T) \
    GLU(silu, Silu, io, T)          \
    GLU(identity, Identity, io, T)

GLUS(f32, float)
GLUS(bf16, bf16)
