// Rotary position embeddings: the first channels of each head, in pairs (c, c + half), rotated by
// angles proportional to the position. The backward pass is the same kernel with negated sines.
//
// A first kernel writes the cosines and sines of each position, which are shared by heads, by both
// passes and, without given positions, by sequences. Its angles are reduced in f64, with some 60
// operations per pair: 131,072 pairs at 16 sequences of 1,024 rows with given positions take 1 us
// on an H200, and 20 us where f64 runs at a 64th of the rate. The second kernel is bound by memory
// bandwidth: one element read and one written; the other element of a pair comes from the cache.
#include "device.cuh"

constexpr double TWO_PI = 6.283185307179586;

// One thread for each position and pair: the cosines of a position, then its sines.
KERNEL(rotary_table, 256, Global<const uint32_t> positions, Global<float> table, double log2_base,
       uint32_t rows, uint32_t half) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * half) return;
    uint32_t row = i / half, pair = i % half, position = row;
    if (positions != nullptr) position = positions[row];
    double turns = position * exp2(-log2_base * pair / half) / TWO_PI;
    float sin, cos;
    sincospif(2.0f * float(turns - rint(turns)), &sin, &cos);
    uint64_t at = uint64_t(row) * 2 * half + pair;
    table[at] = cos;
    table[at + half] = sin;
}

// Thread i has elements 4 i .. 4 i + 4. `vector`: they belong to one head, and to one half of its
// rotated channels or to none.
template <class T>
DEVICE void rotate(Ptr<const T> x, Ptr<const float> table, Ptr<T> y, float sign, uint32_t count,
                 uint32_t channels, uint32_t width, uint32_t half, uint32_t places, bool vector) {
    uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (first >= count) return;
    if (vector) {
        uint32_t column = uint32_t(first) % width;
        if (column >= 2 * half) return store_packed(y + first, load_packed(x + first));
        uint64_t place = uint32_t(first) / channels % places;
        uint32_t pair = column % half;
        Four cos = load4(table + (place * 2 * half + pair));
        Four sin = load4(table + (place * 2 * half + half + pair));
        Four values = load4(x + first), partners;
        bool low = column < half;
        partners = low ? load4(x + (first + half)) : load4(x + (first - half));
        float by = low ? -sign : sign;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            values.v[i] = values.v[i] * cos.v[i] + by * sin.v[i] * partners.v[i];
        return store4(y + first, values);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        uint64_t at = first + i;
        if (at >= count) break;
        uint32_t column = uint32_t(at) % width;
        float value = to_float(x[at]);
        if (column < 2 * half) {
            uint64_t place = uint32_t(at) / channels % places;
            uint32_t pair = column % half;
            float cos = table[place * 2 * half + pair], sin = table[place * 2 * half + half + pair];
            bool low = column < half;
            float partner = to_float(x[low ? at + half : at - half]);
            value = value * cos + (low ? -sign : sign) * sin * partner;
        }
        y[at] = from_float<T>(value);
    }
}

#define ROTARY(io, T)                                                                            \
    KERNEL(rotary_rotate_##io, 256, Global<const T> x, Global<const float> table, Global<T> y,     \
           float sign, uint32_t count, uint32_t channels, uint32_t width, uint32_t half,         \
           uint32_t places, uint32_t vector) {                                                   \
        rotate<T>(x, table, y, sign, count, channels, width, half, places, vector != 0);           \
    }

ROTARY(f32, float)
ROTARY(bf16, bf16)
