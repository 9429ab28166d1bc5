// Causal attention, gradient of queries; the method is explained in causal_attention.cuh.
//
// Bound as the forward pass, with half as much work again: products of queries and keys (of a softmax
// only), of gradients and values, and of both with keys. Floors on an H200, causal: 10 us of memory
// at (B, L, n, d) = (512, 64, 64, 64) in f32, 147 us of tensor cores at (64, 512, 256, 512).
#include "causal_attention.cuh"

#define BACKWARD(io, T, P)               \
    ATTEND(gq, GQ, 16, 64, 2, io, T, P)  \
    ATTEND(gq, GQ, 16, 256, 2, io, T, P) \
    ATTEND(gq, GQ, 64, 64, 2, io, T, P)  \
    ATTEND(gq, GQ, 64, 256, 1, io, T, P)

BACKWARD(f32, float, Tf32x3)
BACKWARD(tf32, float, Tf32)
BACKWARD(bf16, bf16, Bf16)
