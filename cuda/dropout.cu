// Elements times their mask.
//
// Bound by memory bandwidth: 8 bytes per element in f32, 4 in bf16, against 25 integer instructions
// for a quarter of a Philox block (a thread computes one block for its four elements), which take
// half of the memory time in f32 and as long in bf16.
#include "mask.cuh"

// `vector`: x and y are aligned to four elements.
template <class T>
DEVICE void dropout(Ptr<const T> x, Ptr<const uint32_t> words, Ptr<T> y, uint32_t count, uint32_t vector) {
    Mask mask = read_mask(words);
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
    KERNEL(dropout_##io, 256, Global<const T> x, Global<const uint32_t> mask, Global<T> y,  \
           uint32_t count, uint32_t vector) {                                               \
        dropout<T>(x, mask, y, count, vector);                                              \
    }

DROPOUT(f32, float)
DROPOUT(bf16, bf16)

// Writes the words that read_mask reads, from a key and the step in device memory.
KERNEL(write_mask, 32, Global<const uint32_t> step, uint32_t key0, uint32_t key1, uint32_t threshold,
       uint32_t scale, Global<uint32_t> words) {
    if (threadIdx.x > 0) return;
    words[0] = key0;
    words[1] = key1;
    words[2] = step[0];
    words[3] = step[1];
    words[4] = threshold;
    words[5] = scale;
}
