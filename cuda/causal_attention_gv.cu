// Causal attention, gradient of values; the method is explained in causal_attention.cuh.
//
// A block owns 64 keys and up to 256 columns of their values; it needs the weights, and no products of
// gradients and values. Bound as the forward pass.
#include "causal_attention.cuh"

#define BACKWARD(io, T)               \
    ATTEND(gv, GV, 16, 64, 2, io, T)  \
    ATTEND(gv, GV, 64, 64, 2, io, T)  \
    ATTEND(gv, GV, 64, 256, 1, io, T)

BACKWARD(f32, float)
BACKWARD(bf16, bf16)
