// Gated linear attention: S_t = diag(e^{g_t}) S_{t-1} + k_t v_t^T of m x e numbers for each sequence and head, o_t = S_t^T q_t.
// This is the delta rule of delta_rule.cu without its rank-one part.
#include "matrix_state_kernels.cuh"

MATRIX_STATE(gla, f32, float, false)
MATRIX_STATE(gla, bf16, bf16, false)
