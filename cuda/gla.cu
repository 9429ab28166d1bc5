// Gated linear attention: S_t = diag(e^{g_t}) S_{t-1} + k_t v_t^T of m x e numbers for each sequence
// and head, o_t = S_t^T q_t.
//
// A block walks the events of one head through a tile of the state.
//
// Forward, a thread holds 8 rows of one column in registers, a warp 32 columns. Every 8 events a block
// stages keys, decays, queries and values in shared memory. An element takes a product and two
// multiply-adds, and three quarters of a load: a lane's loads of four keys, decays or queries are
// broadcasts. So it is bound by shared memory and issue, not by the tensors, which are m + e numbers
// for m e elements. The sums over rows leave through shared memory, warp by warp in order; more than
// 128 rows go to several blocks, whose parts are added in order.
//
// Backward, with G_t = q_t go_t^T + diag(e^{g_{t+1}}) G_{t+1}: gq_t = S_t go_t, gk_t = G_t v_t, gv_t =
// G_t^T k_t, and gg_t is the sum over columns of G_t times e^{g_t} S_{t-1}. The forward pass stores a
// state every 16 events. From it a block of 16 rows and 32 columns replays 8 events into shared
// memory (the first 8 of 16 twice), walks them back, and stores G as well; then each thread sums one
// row of one event over the columns, which takes four loads of shared memory an element and no
// shuffles. That is the bound; 41 KiB of shared memory allow five blocks of four warps on an SM.
//
// Blocks are as many as heads, sequences and tiles: few and narrow heads do not fill a large GPU.
#include "matrix_state.cuh"

constexpr uint32_t WIDTH = WARP;      // columns of a block
// Forward.
constexpr uint32_t STEPS = 8;         // events staged at once
constexpr int ROWS = 8;               // of a thread
constexpr uint32_t MAX_WARPS = 16;    // of a block
constexpr uint32_t DEPTH = MAX_WARPS * ROWS;
// Backward.
constexpr uint32_t PART = 8;          // events in shared memory
constexpr uint32_t SIDE = 16;         // rows of a block
constexpr int K = 4;                  // rows of a thread
constexpr uint32_t WARPS = SIDE / K;
constexpr uint32_t PITCH = WIDTH + 1; // so that threads of a warp read different banks

template <class T>
DEVICE void forward(Inputs<T> in, Ptr<float> kept, Ptr<T> o, Ptr<float> parts) {
    SHARED(float, k, STEPS * DEPTH);
    SHARED(float, a, STEPS * DEPTH);
    SHARED(float, q, STEPS * DEPTH);
    SHARED(float, v, STEPS * WIDTH);
    SHARED(float, sums, MAX_WARPS * STEPS * WIDTH);
    in.start(blockIdx.x);
    uint32_t warps = blockDim.x / WARP, depth = warps * ROWS;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t first_row = blockIdx.z * depth, first_column = blockIdx.y * WIDTH;
    float h[ROWS];
#pragma unroll
    for (int j = 0; j < ROWS; ++j) h[j] = 0.0f;
    for (uint32_t e0 = 0; e0 < in.count; e0 += STEPS) {
        if (kept != nullptr && e0 % SPAN == 0) {
#pragma unroll
            for (int j = 0; j < ROWS; ++j) {
                uint32_t i = first_row + warp * ROWS + j, column = first_column + lane;
                if (i < in.keys && column < in.values) kept[in.state(e0 / SPAN, i, column)] = h[j];
            }
        }
        for (uint32_t n = threadIdx.x; n < STEPS * depth; n += blockDim.x) {
            uint32_t s = n / depth, i = n % depth, t = in.time(e0 + s);
            k[s * DEPTH + i] = in.of_step(in.k, t, in.keys, first_row + i);
            a[s * DEPTH + i] = in.decay(t, first_row + i);
            q[s * DEPTH + i] = in.of_row(in.q, in.row(e0 + s), in.keys, first_row + i);
        }
        for (uint32_t n = threadIdx.x; n < STEPS * WIDTH; n += blockDim.x)
            v[n] = in.of_step(in.v, in.time(e0 + n / WIDTH), in.values, first_column + n % WIDTH);
        __syncthreads();
#pragma unroll 1
        for (uint32_t s = 0; s < STEPS; ++s) {
            float value = v[s * WIDTH + lane], sum = 0.0f;
            uint32_t at = s * DEPTH + warp * ROWS;
#pragma unroll
            for (int four = 0; four < ROWS / 4; ++four) {
                Four ks = load4(k + (at + four * 4)), as = load4(a + (at + four * 4));
                Four qs = load4(q + (at + four * 4));
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    float& state = h[four * 4 + j];
                    state = as.v[j] * state + ks.v[j] * value;
                    sum += qs.v[j] * state;
                }
            }
            sums[(warp * STEPS + s) * WIDTH + lane] = sum;
        }
        __syncthreads();
        for (uint32_t n = threadIdx.x; n < STEPS * WIDTH; n += blockDim.x) {
            uint32_t row = in.row(e0 + n / WIDTH), column = first_column + n % WIDTH;
            if (row == NONE || column >= in.values) continue;
            float sum = 0.0f;
            for (uint32_t w = 0; w < warps; ++w) sum += sums[w * STEPS * WIDTH + n];
            uint64_t at = in.at(in.rows, row, in.values, column);
            if (o != nullptr) o[at] = from_float<T>(sum);
            else parts[uint64_t(blockIdx.z) * gridDim.x * in.rows * in.values + at] = sum;
        }
    }
}

// The outputs of the backward pass, partial sums; null for those that are not needed.
struct Parts {
    Ptr<float> q, k; // (tiles of columns, B, R or L, s, m)
    Ptr<float> v;    // (tiles of rows, B, L, s, e)
    Ptr<float> g;    // (tiles of columns, B, L, s, m), or (tiles of rows and columns, B, L, s, 1)
};

// A block of the backward pass.
template <class T>
struct Tile {
    const Inputs<T>& in;
    const Parts& parts;
    Ptr<float> k, a, q, v, go, before, grad, sums;
    uint32_t warp, lane, first_row, first_column;
    float h[K], carry[K];

    DEVICE void stage(uint32_t e0) {
        for (uint32_t n = threadIdx.x; n < PART * SIDE; n += WARPS * WARP) {
            uint32_t e = e0 + n / SIDE, i = first_row + n % SIDE, t = in.time(e);
            k[n] = in.of_step(in.k, t, in.keys, i);
            a[n] = in.decay(t, i);
            q[n] = in.of_row(in.q, in.row(e), in.keys, i);
        }
        for (uint32_t n = threadIdx.x; n < PART * WIDTH; n += WARPS * WARP) {
            uint32_t e = e0 + n / WIDTH, column = first_column + n % WIDTH;
            uint32_t at = n / WIDTH * PITCH + n % WIDTH;
            v[at] = in.of_step(in.v, in.time(e), in.values, column);
            go[at] = in.of_row(in.go, in.row(e), in.values, column);
        }
    }
    DEVICE void fetch(Ptr<const float> kept, uint32_t span) {
#pragma unroll
        for (int j = 0; j < K; ++j) {
            uint32_t i = first_row + warp * K + j, column = first_column + lane;
            float state = 0.0f;
            if (i < in.keys && column < in.values) state = kept[in.state(span, i, column)];
            h[j] = state;
        }
    }
    // The place of row j of this thread at staged event s.
    DEVICE uint32_t place(uint32_t s, int j) const { return s * SIDE + warp * K + j; }

    // Walks the staged events, and stores the decayed states.
    DEVICE void replay() {
#pragma unroll 1
        for (uint32_t s = 0; s < PART; ++s) {
            float value = v[s * PITCH + lane];
#pragma unroll
            for (int j = 0; j < K; ++j) {
                uint32_t at = place(s, j);
                float decayed = a[at] * h[j];
                before[at * PITCH + lane] = decayed;
                h[j] = decayed + k[at] * value;
            }
        }
    }
    // Walks them back, stores the gradients of the states and sums those of the values over the
    // rows of a warp.
    DEVICE void walk_back() {
#pragma unroll 1
        for (uint32_t s = PART; s-- > 0;) {
            float read = go[s * PITCH + lane], sum = 0.0f;
#pragma unroll
            for (int j = 0; j < K; ++j) {
                uint32_t at = place(s, j);
                float of_state = carry[j] + q[at] * read;
                grad[at * PITCH + lane] = of_state;
                sum += of_state * k[at];
                carry[j] = a[at] * of_state;
            }
            sums[(warp * PART + s) * WIDTH + lane] = sum;
        }
    }
    // Each thread sums one row at one event over columns; then columns of values over warps.
    DEVICE void write(uint32_t e0) {
        uint32_t n = threadIdx.x, s = n / SIDE, i = first_row + n % SIDE;
        uint32_t t = in.time(e0 + s), row = in.row(e0 + s);
        float key = k[n], of_q = 0.0f, of_k = 0.0f, of_g = 0.0f;
#pragma unroll 4
        for (uint32_t c = 0; c < WIDTH; ++c) {
            float decayed = before[n * PITCH + c], of_state = grad[n * PITCH + c];
            float value = v[s * PITCH + c], read = go[s * PITCH + c];
            of_q += (decayed + key * value) * read;
            of_k += of_state * value;
            of_g += of_state * decayed;
        }
        uint64_t tile = blockIdx.y, steps = uint64_t(gridDim.x) * in.len;
        bool inside = i < in.keys;
        if (parts.q != nullptr && row != NONE && inside)
            parts.q[tile * gridDim.x * in.rows * in.keys + in.at(in.rows, row, in.keys, i)] = of_q;
        if (parts.k != nullptr && t != NONE && inside)
            parts.k[tile * steps * in.keys + in.at(in.len, t, in.keys, i)] = of_k;
        if (in.decays == 1) {
            for (int mask = SIDE / 2; mask > 0; mask /= 2) of_g += shuffle_xor(of_g, mask);
            tile = uint64_t(blockIdx.z) * gridDim.y + blockIdx.y;
            inside = n % SIDE == 0;
            i = 0;
        }
        if (parts.g != nullptr && t != NONE && inside)
            parts.g[tile * steps * in.decays + in.at(in.len, t, in.decays, i)] = of_g;
        if (parts.v == nullptr) return;
        for (n = threadIdx.x; n < PART * WIDTH; n += WARPS * WARP) {
            uint32_t column = first_column + n % WIDTH;
            t = in.time(e0 + n / WIDTH);
            if (t == NONE || column >= in.values) continue;
            float sum = 0.0f;
            for (uint32_t w = 0; w < WARPS; ++w) sum += sums[w * PART * WIDTH + n];
            parts.v[blockIdx.z * steps * in.values + in.at(in.len, t, in.values, column)] = sum;
        }
    }
};

template <class T>
DEVICE void backward(Inputs<T> in, const Parts& parts, Ptr<const float> kept) {
    SHARED(float, k, PART * SIDE);
    SHARED(float, a, PART * SIDE);
    SHARED(float, q, PART * SIDE);
    SHARED(float, v, PART * PITCH);
    SHARED(float, go, PART * PITCH);
    SHARED(float, before, PART * SIDE * PITCH);
    SHARED(float, grad, PART * SIDE * PITCH);
    SHARED(float, sums, WARPS * PART * WIDTH);
    static_assert(PART * SIDE == WARPS * WARP, "a thread for each row of each staged event");
    in.start(blockIdx.x);
    Tile<T> tile{in, parts, k, a, q, v, go, before, grad, sums};
    tile.warp = threadIdx.x / WARP;
    tile.lane = threadIdx.x % WARP;
    tile.first_row = blockIdx.z * SIDE;
    tile.first_column = blockIdx.y * WIDTH;
#pragma unroll
    for (int j = 0; j < K; ++j) tile.carry[j] = 0.0f;
#pragma unroll 1
    for (uint32_t e0 = (in.count + PART - 1) / PART * PART; e0 > 0;) {
        e0 -= PART;
        tile.fetch(kept, e0 / SPAN);
#pragma unroll 1
        for (uint32_t at = e0 / SPAN * SPAN; at <= e0; at += PART) {
            __syncthreads();
            tile.stage(at);
            __syncthreads();
            tile.replay();
        }
        tile.walk_back();
        __syncthreads();
        tile.write(e0);
    }
}

#define GLA(io, T)                                                                             \
    KERNEL_FITTING(gla_forward_##io, MAX_WARPS * WARP, 2, Global<const T> q,                   \
                   Global<const T> k, Global<const T> v, Global<const T> g,                    \
                   Global<const uint32_t> events, Global<float> kept, Global<T> o,             \
                   Global<float> parts, SIZES) {                                               \
        Inputs<T> in{q, k, v, g, nullptr, events, len, rows, heads, keys, values, decays, count}; \
        forward<T>(in, kept, o, parts);                                                        \
    }                                                                                          \
    KERNEL(gla_backward_##io, WARPS * WARP, Global<const T> q, Global<const T> k,              \
           Global<const T> v, Global<const T> g, Global<const T> go,                           \
           Global<const uint32_t> events, Global<const float> kept, Global<float> gq,          \
           Global<float> gk, Global<float> gv, Global<float> gg, SIZES) {                      \
        Inputs<T> in{q, k, v, g, go, events, len, rows, heads, keys, values, decays, count}; \
        Parts parts{gq, gk, gv, gg};                                                           \
        backward<T>(in, parts, kept);                                                          \
    }

GLA(f32, float)
GLA(bf16, bf16)
