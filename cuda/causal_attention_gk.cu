// Causal attention, gradient of keys; the method is explained in causal_attention.cuh.
//
// A block owns 64 keys and loops over the queries that attend to them, so that no two blocks add to
// the same number.
#include "causal_attention.cuh"

#define BACKWARD(io, T)               \
    ATTEND(gk, GK, 16, 64, 2, io, T)  \
    ATTEND(gk, GK, 64, 64, 2, io, T)  \
    ATTEND(gk, GK, 64, 256, 1, io, T)

BACKWARD(f32, float)
BACKWARD(bf16, bf16)
