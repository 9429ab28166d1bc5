// The elementwise work around linear maps, whose products cuBLAS computes: biases, and the
// nonlinearity of a feed-forward layer with its dropout.
//
// Bound by memory bandwidth: every number is read and written once, 8 bytes per element in f32 and
// 4 in bf16; a hidden layer in the backward pass 16 and 8. The error function takes some 25
// instructions, less than half of the memory time, and a mask as many again (dropout.cu). Four
// consecutive elements per thread if rows are multiples of four.
#include "maps.cuh"
#include "mask.cuh"
#include "pointwise.cuh"

// Columns of the four elements from `first` on.
struct Group {
    uint32_t column[4];
    bool inside[4];
};

DEVICE Group group_at(uint64_t first, uint32_t count, uint32_t width) {
    Group group;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        group.inside[i] = first + i < count;
        group.column[i] = uint32_t(first + i) % width;
    }
    return group;
}

template <class T>
DEVICE Four read_group(Ptr<const T> x, uint64_t first, const Group& group, bool vector) {
    if (vector) return load4(x + first);
    Four values = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (group.inside[i]) values.v[i] = to_float(x[first + i]);
    return values;
}

template <class T>
DEVICE void write_group(Ptr<T> x, uint64_t first, const Group& group, bool vector, Four values) {
    if (vector) return store4(x + first, values);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (group.inside[i]) x[first + i] = from_float<T>(values.v[i]);
}

DEVICE void multiply(Four& values, Four by) {
#pragma unroll
    for (int i = 0; i < 4; ++i) values.v[i] *= by.v[i];
}

// y += bias, and a = gelu(y) if there is an a; the last of the two is multiplied by its mask.
// `vector`: rows are multiples of four elements, all aligned.
template <class T>
DEVICE void add_bias(Ptr<T> y, Ptr<const float> bias, Ptr<T> a, const GivenMask& given,
                     uint32_t count, uint32_t width, bool vector) {
    uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (first >= count) return;
    Group group = group_at(first, count, width);
    Ptr<const T> before = y;
    Four values = read_group<T>(before, first, group, vector);
    if (vector) {
        Four more = load4(bias + group.column[0]);
#pragma unroll
        for (int i = 0; i < 4; ++i) values.v[i] += more.v[i];
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (group.inside[i]) values.v[i] += bias[group.column[i]];
    }
    Mask mask = read_mask(given);
    if (a == nullptr) {
        if (mask.any) multiply(values, mask_factors(mask, first / 4));
        return write_group<T>(y, first, group, vector, values);
    }
    write_group<T>(y, first, group, vector, values);
#pragma unroll
    for (int i = 0; i < 4; ++i) values.v[i] = Gelu::value(values.v[i]);
    if (mask.any) multiply(values, mask_factors(mask, first / 4));
    write_group<T>(a, first, group, vector, values);
}

// Given z and the gradient of gelu(z) times its mask: computes that product, and replaces the
// gradient by that of z.
template <class T>
DEVICE void gelu_back(Ptr<const T> z, Ptr<T> grad, Ptr<T> a, const GivenMask& given, uint32_t count,
                      bool vector) {
    uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (first >= count) return;
    Group group = group_at(first, count, 1);
    bool whole = vector && first + 4 <= count;
    Ptr<const T> before = grad;
    Four x = read_group<T>(z, first, group, whole), g = read_group<T>(before, first, group, whole), values;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        values.v[i] = Gelu::value(x.v[i]);
        g.v[i] *= Gelu::slope(x.v[i], values.v[i]);
    }
    Mask mask = read_mask(given);
    if (mask.any) {
        Four factors = mask_factors(mask, first / 4);
        multiply(values, factors);
        multiply(g, factors);
    }
    write_group<T>(a, first, group, whole, values);
    write_group<T>(grad, first, group, whole, g);
}

// Maps of one input share a launch, one map per block index along y.

// Converts weights to bf16; the arguments are counts of numbers.
KERNEL(narrow_maps, 256, Table<const float, MAPS> from, Table<bf16, MAPS> to, uint32_t a, uint32_t b,
       uint32_t c, uint32_t d) {
    uint32_t map = blockIdx.y;
    Ptr<const float> x = one_of(map, from);
    Ptr<bf16> y = one_of(map, to);
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < one_of(map, a, b, c, d)) y[i] = from_float<bf16>(x[i]);
}

#define LINEAR(io, T)                                                                              \
    KERNEL(add_bias_##io, 256, Global<T> y, Global<const float> bias, Global<T> a,                 \
           MASK, uint32_t count, uint32_t width, uint32_t vector) {                                \
        add_bias<T>(y, bias, a, GIVEN_MASK, count, width, vector != 0);                            \
    }                                                                                              \
    KERNEL(add_biases_##io, 256, Table<T, MAPS> ys, Table<const float, MAPS> biases, uint32_t rows, \
           uint32_t vector, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {                      \
        Ptr<T> none = nullptr;                                                                     \
        GivenMask no_mask = {nullptr, {0, 0}, 0, 1.0f};                                            \
        uint32_t map = blockIdx.y, width = one_of(map, a, b, c, d);                                \
        add_bias<T>(one_of(map, ys), one_of(map, biases), none, no_mask, rows * width, width,      \
                    vector != 0);                                                                  \
    }                                                                                              \
    KERNEL(gelu_back_##io, 256, Global<const T> z, Global<T> grad, Global<T> a,                    \
           MASK, uint32_t count, uint32_t vector) {                                                \
        gelu_back<T>(z, grad, a, GIVEN_MASK, count, vector != 0);                                  \
    }

LINEAR(f32, float)
LINEAR(bf16, bf16)
