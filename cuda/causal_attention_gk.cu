// Causal attention, gradient of keys; the method is explained in causal_attention.cuh.
//
// A block owns 64 keys and loops over the queries that attend to them, so that no two blocks add to
// the same number.
#include "causal_attention.cuh"

#define BACKWARD(io, T, P)              \
    ATTEND(gk, GK, 16, 64, 2, io, T, P) \
    ATTEND(gk, GK, 64, 64, 2, io, T, P) \
    ATTEND(gk, GK, 64, 256, 1, io, T, P)

BACKWARD(f32, float, Tf32x3)
BACKWARD(tf32, float, Tf32)
BACKWARD(bf16, bf16, Bf16)
