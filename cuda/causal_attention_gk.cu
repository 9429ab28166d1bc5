// Attention over the past, gradient of keys; how is told in causal_attention.cuh.
//
// A block owns 64 keys and walks over the queries that see them, so that no two blocks add to the same
// number. Bound as the gradient of queries; at (512, 64, 64, 64) and (64, 512, 256, 512) there are 512
// blocks.
#include "causal_attention.cuh"

#define BACKWARD(io, T)               \
    ATTEND(gk, GK, 16, 64, 2, io, T)  \
    ATTEND(gk, GK, 64, 64, 2, io, T)  \
    ATTEND(gk, GK, 64, 256, 1, io, T)

BACKWARD(f32, float)
BACKWARD(bf16, bf16)
