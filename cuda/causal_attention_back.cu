// Attention over the past, backwards (see causal_attention.cuh): one kernel for each gradient.
//
// Bound by the tensor cores at the sizes of the paper in f32, by the loads of fragments from shared memory in bf16.
#include "causal_attention.cuh"

ATTEND_ALL(gq, GQ)
