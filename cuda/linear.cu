// Elementwise work around linear maps, whose products cuBLAS computes: joining and splitting the rows of several maps,
// biases, and the nonlinearity of a feed-forward layer with its dropout.
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

DEVICE void add_columns(Four& values, Ptr<const float> bias, const Group& group, bool vector) {
    if (vector) {
        Four more = load4(bias + group.column[0]);
#pragma unroll
        for (int i = 0; i < 4; ++i) values.v[i] += more.v[i];
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (group.inside[i]) values.v[i] += bias[group.column[i]];
    }
}

// y += bias, and a = gelu(y) if there is an a; the last of the two is multiplied by its mask. `vector`: rows are
// multiples of four elements, all aligned.
template <class T>
DEVICE void add_bias(Ptr<T> y, Ptr<const float> bias, Ptr<T> a, const GivenMask& given,
                     uint32_t count, uint32_t width, bool vector) {
    uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (first >= count) return;
    Group group = group_at(first, count, width);
    Ptr<const T> before = y;
    Four values = read_group<T>(before, first, group, vector);
    add_columns(values, bias, group, vector);
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

// Maps of one input share a product. Its factors and its result hold rows of all maps side by side; a
// launch has one map per block index along y.

// The columns of a map within rows of all maps.
struct Columns {
    uint32_t first, width, all;
};

DEVICE Columns columns_of(uint32_t map, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return {one_of(map, 0u, a, a + b, a + b + c), one_of(map, a, b, c, d), a + b + c + d};
}

// The index of element `i` of the map's own rows among the joined rows.
DEVICE uint64_t beside(Columns columns, uint32_t i) {
    return uint64_t(i / columns.width) * columns.all + columns.first + i % columns.width;
}

// Joins the rows of all maps; zeros for a missing map.
template <class T, class U>
DEVICE void join(Ptr<const T> x, Ptr<U> joined, Columns columns, uint32_t rows, bool vector) {
    uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    uint32_t count = rows * columns.width;
    if (first >= count) return;
    Group group = group_at(first, count, columns.width);
    Four values = {0.0f, 0.0f, 0.0f, 0.0f};
    if (x != nullptr) values = read_group<T>(x, first, group, vector);
    if (vector) return store4(joined + beside(columns, uint32_t(first)), values);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (group.inside[i]) joined[beside(columns, uint32_t(first + i))] = from_float<U>(values.v[i]);
}

// Splits joined rows into the rows of each map, and adds its bias.
template <class T>
DEVICE void split(Ptr<const T> joined, Ptr<const float> bias, Ptr<T> y, Columns columns, uint32_t rows, bool vector) {
    uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    uint32_t count = rows * columns.width;
    if (first >= count) return;
    Group group = group_at(first, count, columns.width);
    Four values = {0.0f, 0.0f, 0.0f, 0.0f};
    if (vector) {
        values = load4(joined + beside(columns, uint32_t(first)));
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (group.inside[i]) values.v[i] = to_float(joined[beside(columns, uint32_t(first + i))]);
    }
    add_columns(values, bias, group, vector);
    write_group<T>(y, first, group, vector, values);
}

// The widths of the maps are the last arguments.
#define JOIN(name, T, U)                                                                            \
    KERNEL(name, 256, Table<const T, MAPS> xs, Global<U> joined, uint32_t rows, uint32_t vector,    \
           uint32_t a, uint32_t b, uint32_t c, uint32_t d) {                                        \
        uint32_t map = blockIdx.y;                                                                  \
        Ptr<U> to = joined;                                                                         \
        join<T, U>(one_of(map, xs), to, columns_of(map, a, b, c, d), rows, vector != 0);            \
    }

JOIN(join_f32, float, float)
JOIN(join_bf16, bf16, bf16)
JOIN(join_narrow, float, bf16)

#define LINEAR(io, T)                                                                              \
    KERNEL(add_bias_##io, 256, Global<T> y, Global<const float> bias, Global<T> a,                 \
           MASK, uint32_t count, uint32_t width, uint32_t vector) {                                \
        add_bias<T>(y, bias, a, GIVEN_MASK, count, width, vector != 0);                            \
    }                                                                                              \
    KERNEL(split_##io, 256, Global<const T> joined, Table<const float, MAPS> biases,              \
           Table<T, MAPS> ys, uint32_t rows, uint32_t vector, uint32_t a, uint32_t b, uint32_t c,    \
           uint32_t d) {                                                                           \
        uint32_t map = blockIdx.y;                                                                 \
        Ptr<const T> from = joined;                                                                \
        split<T>(from, one_of(map, biases), one_of(map, ys), columns_of(map, a, b, c, d), rows,    \
                 vector != 0);                                                                     \
    }                                                                                              \
    KERNEL(gelu_back_##io, 256, Global<const T> z, Global<T> grad, Global<T> a,                    \
           MASK, uint32_t count, uint32_t vector) {                                                \
        gelu_back<T>(z, grad, a, GIVEN_MASK, count, vector != 0);                                  \
    }

LINEAR(f32, float)
LINEAR(bf16, bf16)
