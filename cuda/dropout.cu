// Elements times their mask.
//
// Bound by memory bandwidth: 8 bytes per element in f32, 4 in bf16, against 25 integer instructions
// for a quarter of a Philox block (a thread computes one block for its four elements), which take
// half of the memory time in f32 and as long in bf16.
#include "mask.cuh"

// `vector`: x and y are aligned to four elements.
template <class T>
DEVICE void dropout(Ptr<const T> x, const GivenMask& given, Ptr<T> y, uint32_t count, uint32_t vector) {
    Mask mask = read_mask(given);
    uint32_t block = blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t first = uint64_t(block) * 4;
    if (first >= count) return;
    Four factors = mask_factors(mask, block);
    if (vector && first + 4 <= count) {
        Four values = load4(x + first);
#pragma unroll
        for (int i = 0; i < 4; ++i) values.v[i] *= factors.v[i];
        store4(y + first, values);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + i < count) y[first + i] = from_float<T>(to_float(x[first + i]) * factors.v[i]);
}

#define DROPOUT(io, T)                                                                      \
    KERNEL(dropout_##io, 256, Global<const T> x, MASK, Global<T> y, uint32_t count,         \
           uint32_t vector) {                                                               \
        dropout<T>(x, GIVEN_MASK, y, count, vector);                                        \
    }

DROPOUT(f32, float)
DROPOUT(bf16, bf16)
