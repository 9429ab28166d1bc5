// The delta rule: S_t = (diag(e^{g_t}) + a_t b_t^T) S_{t-1} + k_t v_t^T of m x e numbers for each sequence and head, o_t =
// S_t^T q_t.
//
// Forward, with P_t = b_t^T S_{t-1}, a span of 16 events is a few products of matrices with the state before it (the WY form
// of Bischof and Van Loan 1987, as in Yang et al. 2024): the factors of all spans first, then a walk from span to span.
// Backward, with G_t = dL/dS_t and R_t = a_t^T G_t: G_t = q_t go_t^T + diag(e^{g_{t+1}}) G_{t+1} + b_{t+1} R_{t+1}. That is
// the same walk back in time by the transposed matrices, which finds R, gv_t = G_t^T k_t and G after every span. The rest
// runs over all spans at once: gq_t = S_t go_t, gk_t = G_t v_t, ga_t = G_t P_t^T, gb_t = S_{t-1} R_t^T, and gg_t, the row
// sums of the elementwise product of G_t and diag(e^{g_t}) S_{t-1}. The forward pass has stored P, M and S before every span.
#include "matrix_state_kernels.cuh"

MATRIX_STATE(delta_rule, f32, float, true)
MATRIX_STATE(delta_rule, bf16, bf16, true)
