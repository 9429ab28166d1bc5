// The selective scan, backward. With G_t the gradient of the loss with respect to h_t and decay_t =
// exp(delta_t a): G_t = c_t gy_t + decay_{t+1} G_{t+1}, gc_t = sum_c gy_t h_t, gb_t = sum_c G_t delta_t u_t,
// gu_t = delta_t sum_k G_t b_t, gdelta_t = sum_k q_t a + u_t sum_k G_t b_t and ga = sum_t q_t delta_t
// with q_t = G_t decay_t h_{t-1}. Under a rule whose scale of the input depends on the state
// (selective_scan_rules.cuh), with slope = d decay/d (delta a) = d scale/d delta: gb_t = sum_c G_t scale u_t,
// gu_t = sum_k G_t scale b_t, gdelta_t = sum_k G_t slope (a h_{t-1} + u_t b_t) and
// ga = sum_t G_t (slope delta_t h_{t-1} + u_t b_t d scale/d a).
//
// The states of all times are not stored: the forward pass saves one every 16 steps (1/16 of them,
// written while the exponential unit is busy; recomputing them would take another exponential per
// element). Span by span from the end, a block replays 16 steps, stores the state of every fourth
// step in shared memory, then processes quads from the last to the first: four steps forward with
// decays and states in registers, and the same four steps back. 1.75 exponentials per element.
//
// A block holds 64 channels x 32 states (or 16) in warps of 16 x 16; a thread has 2 channels x 4 states.
// Sums over channels run through 8 lanes, sums over states through 4, and neither needs a select: lanes
// hold their states (channels) in an order such that what a lane keeps always stands first. Then come
// warps, in order through shared memory, then blocks, whose parts other kernels add in order.
//
// The bound is instruction issue. In the machine code for 9.0 an element takes 33 instructions: 3 to load the inputs, 4 in
// the first replay, 21 in quads, 2 to load states and 3 to write sums; 19 of those in quads compute, load or exchange
// numbers. 7 of all load, store or exchange, which takes a multiprocessor as long as 28 others. So every address of
// shared memory is one of a few registers plus a constant, each thread keeps its own states, and reads the inputs of one
// channel and one state. Registers: at most 128, so that two blocks of 256 threads fit an SM; that is why the bound says
// 512 threads. Loops that only read or write tensors are hardly unrolled: what they compute ahead would stay in registers
// that the quads need; states are copied to shared memory without passing through registers.
//
// With few sequences, chunks of time run in parallel, as in the forward pass. `ends_back` and
// `join_back` compute the gradient that comes from later chunks; the states before them are known.
#include "selective_scan_panel.cuh"

template <class R, class T>
DEVICE void walk_back(Inputs<T> in, const Parts& parts, Ptr<const float> kept, Ptr<const float> carries,
                      uint32_t chunk, uint32_t chunks) {
    SHARED(float, all, SHARED_FLOATS);
    in.sequence = blockIdx.x / chunks;
    uint32_t index = blockIdx.x % chunks, sequences = gridDim.x / chunks;
    uint32_t spans = (in.len + SPAN - 1) / SPAN, first = index * (chunk / SPAN);
    Panel<R, T> panel{in, parts};
    panel.divide(all);
    panel.start();
    if (carries != nullptr) panel.load_carry(carries, index, chunks);
    for (uint32_t span = min(first + chunk / SPAN, spans); span-- > first;) {
        panel.fetch(kept, span, spans, LAST);
        panel.stage(span * SPAN);
        wait_for_copies();
        __syncthreads();
        panel.span_back(kept, span, spans, sequences);
    }
    if (parts.a == nullptr) return;
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < K; ++i) {
            uint32_t channel = panel.first_channel + panel.channel[j], k = panel.first_state + panel.k[i];
            uint64_t at = (uint64_t(blockIdx.x) * in.channels + channel) * in.states + k;
            if (in.inside(k, channel)) parts.a[at] = panel.ga[j][i];
        }
}

// Computes the gradients of u and delta from the sums over states, in which `a` is in powers of 2; or adds these
// gradients over blocks, if the sums are the gradients themselves.
template <bool BY_STATE, class T>
DEVICE void along(Ptr<const T> u, Ptr<const T> delta, Ptr<const float> along_a, Ptr<const float> along_b,
                  Ptr<T> gu, Ptr<T> gdelta, uint32_t part_count, uint32_t count) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float of_a = 0.0f, of_drive = 0.0f;
    for (uint32_t part = 0; part < part_count; ++part) {
        if (along_a != nullptr) of_a += along_a[uint64_t(part) * count + i];
        of_drive += along_b[uint64_t(part) * count + i];
    }
    if (gu != nullptr) gu[i] = from_float<T>(BY_STATE ? of_drive : to_float(delta[i]) * of_drive);
    if (gdelta != nullptr)
        gdelta[i] = from_float<T>(BY_STATE ? of_a : of_a * (1.0f / LOG2E) + to_float(u[i]) * of_drive);
}

#define WALK_BACK(name, R, threads, T)                                                          \
    KERNEL(walk_back_##name, threads, Global<const T> u, Global<const T> delta,                 \
           Global<const float> a, Global<const T> b, Global<const T> c, Global<const T> gy,     \
           Global<const uint32_t> rows, Global<const float> kept, Global<const float> carries,  \
           Global<float> along_a, Global<float> along_b, Global<float> gb, Global<float> gc,    \
           Global<float> ga, uint32_t len, uint32_t channels, uint32_t states,                  \
           uint32_t row_count, uint32_t chunk, uint32_t chunks) {              \
        Inputs<T> in{u, delta, b, c, gy, a, rows, len, channels, states, row_count, 0};         \
        Parts parts{along_a, along_b, gb, gc, ga};                                              \
        walk_back<R, T>(in, parts, kept, carries, chunk, chunks);                               \
    }

#define ALONG(name, BY_STATE, T)                                                                \
    KERNEL(along_##name, 256, Global<const T> u, Global<const T> delta, Global<const float> along_a, \
           Global<const float> along_b, Global<T> gu, Global<T> gdelta, uint32_t part_count,    \
           uint32_t count) {                                                                    \
        along<BY_STATE, T>(u, delta, along_a, along_b, gu, gdelta, part_count, count);          \
    }

#define BACK(io, T)                           \
    WALK_BACK(io, Euler, 2 * THREADS, T)      \
    WALK_BACK(hold_##io, Hold, THREADS, T)    \
    WALK_BACK(bilinear_##io, Bilinear, THREADS, T) \
    ALONG(io, false, T)                       \
    ALONG(by_state_##io, true, T)

BACK(f32, float)
BACK(bf16, bf16)
