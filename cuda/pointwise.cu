// Elementwise functions, sums of gradients, conversions of type: one thread per element.
#include "maps.cuh"
#include "pointwise.cuh"

template <class F, class T>
DEVICE void forward(Ptr<const T> x, Ptr<T> y, uint32_t count) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = from_float<T>(F::value(to_float(x[i])));
}

template <class F, class T>
DEVICE void backward(Ptr<const T> x, Ptr<const T> y, Ptr<const T> gy, Ptr<T> gx, uint32_t count) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        gx[i] = from_float<T>(to_float(gy[i]) * F::slope(to_float(x[i]), to_float(y[i])));
}

#define FUNCTION(name, F, io, T)                                                              \
    KERNEL(name##_forward_##io, 256, Global<const T> x, Global<T> y, uint32_t count) {        \
        forward<F, T>(x, y, count);                                                           \
    }                                                                                         \
    KERNEL(name##_backward_##io, 256, Global<const T> x, Global<const T> y, Global<const T> gy, \
           Global<T> gx, uint32_t count) {                                                    \
        backward<F, T>(x, y, gy, gx, count);                                                  \
    }

#define FUNCTIONS(io, T)              \
    FUNCTION(sigmoid, Sigmoid, io, T)   \
    FUNCTION(softplus, Softplus, io, T) \
    FUNCTION(elu1, Elu1, io, T)         \
    FUNCTION(gelu, Gelu, io, T)         \
    FUNCTION(gelu_tanh, GeluTanh, io, T) \
    FUNCTION(silu, Silu, io, T)         \
    FUNCTION(tanh, Tanh, io, T)         \
    FUNCTION(phi1, Phi1, io, T)

FUNCTIONS(f32, float)
FUNCTIONS(bf16, bf16)

// sum += each of `parts` tensors, rounded after each
#define ADD_TO(io, T)                                                                                       \
    KERNEL(add_to_##io, 256, Table<const T, MAPS> more, Global<T> sum, uint32_t parts, uint32_t count) {    \
        uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;                                                 \
        if (i >= count) return;                                                                             \
        T total = sum[i];                                                                                   \
        for (uint32_t part = 0; part < parts; ++part)                                                       \
            total = from_float<T>(to_float(total) + to_float(one_of(part, more)[i]));                       \
        sum[i] = total;                                                                                     \
    }

ADD_TO(f32, float)
ADD_TO(bf16, bf16)

KERNEL(narrow, 256, Global<const float> x, Global<bf16> y, uint32_t count) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = from_float<bf16>(x[i]);
}

KERNEL(widen, 256, Global<const bf16> x, Global<float> y, uint32_t count) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = to_float(x[i]);
}
