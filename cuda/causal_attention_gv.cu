// Causal attention, gradient of values; the method is explained in causal_attention.cuh.
//
// A block owns 64 keys and up to 256 columns of their values; it needs the weights, and no products of
// gradients and values. Bound as the forward pass.
#include "causal_attention.cuh"

#define BACKWARD(io, T, P)              \
    ATTEND(gv, GV, 16, 64, 2, io, T, P) \
    ATTEND(gv, GV, 64, 64, 2, io, T, P) \
    ATTEND(gv, GV, 64, 256, 1, io, T, P)

BACKWARD(f32, float, Tf32x3)
BACKWARD(tf32, float, Tf32)
BACKWARD(bf16, bf16, Bf16)
