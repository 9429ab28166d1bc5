// Dropout masks, with the same bits as in src/ops/runtime/mask.rs: element e of a mask is word e mod 4 of
// philox([e / 4, index], key), kept if it reaches a threshold.
#pragma once

#include "device.cuh"

struct Mask {
    uint32_t key[2];
    uint32_t index[2];
    uint32_t threshold;  // p 2^32
    float scale;         // 1 / (1 - p)
    bool any;
};

// A mask as passed to a kernel by the parameters MASK. Its step is in device memory, so that a captured graph can be
// replayed with another step. No mask if there is no step.
struct GivenMask {
    Ptr<const uint32_t> step;
    uint32_t key[2];
    uint32_t threshold;
    float scale;
};

#define MASK                                                                                       \
    Global<const uint32_t> mask_step, uint32_t mask_key0, uint32_t mask_key1, uint32_t mask_threshold, \
        float mask_scale
#define GIVEN_MASK (GivenMask{mask_step, {mask_key0, mask_key1}, mask_threshold, mask_scale})

DEVICE Mask read_mask(const GivenMask& given) {
    if (given.step == nullptr) return {{0, 0}, {0, 0}, 0, 1.0f, false};
    return {{given.key[0], given.key[1]}, {given.step[0], given.step[1]}, given.threshold, given.scale, true};
}

// The factors of elements 4 block .. 4 block + 4.
DEVICE Four mask_factors(const Mask& mask, uint64_t block) {
    uint32_t c0 = uint32_t(block), c1 = uint32_t(block >> 32), c2 = mask.index[0], c3 = mask.index[1];
    uint32_t k0 = mask.key[0], k1 = mask.key[1];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        uint32_t a = 0xD2511F53u * c0, a_high = __umulhi(0xD2511F53u, c0);
        uint32_t b = 0xCD9E8D57u * c2, b_high = __umulhi(0xCD9E8D57u, c2);
        c0 = b_high ^ c1 ^ k0;
        c2 = a_high ^ c3 ^ k1;
        c1 = b;
        c3 = a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {c0 >= mask.threshold ? mask.scale : 0.0f, c1 >= mask.threshold ? mask.scale : 0.0f,
            c2 >= mask.threshold ? mask.scale : 0.0f, c3 >= mask.threshold ? mask.scale : 0.0f};
}

// The factor of one element; four consecutive factors cost as much with mask_factors.
DEVICE float mask_factor(const Mask& mask, uint64_t element) {
    Four factors = mask_factors(mask, element / 4);
    uint32_t word = uint32_t(element) % 4;
    float low = word == 0 ? factors.v[0] : factors.v[1];
    float high = word == 2 ? factors.v[2] : factors.v[3];
    return word < 2 ? low : high;
}
