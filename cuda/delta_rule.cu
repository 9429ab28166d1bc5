// The delta rule: S_t = (diag(e^{g_t}) + a_t b_t^T) S_{t-1} + k_t v_t^T of m x e numbers for each
// sequence and head, o_t = S_t^T q_t.
//
// Columns of a state do not depend on each other; rows do, through the projection P_t = b_t^T S_{t-1}. So walks along
// time hold whole columns: a team of threads has 8 rows each of two columns in registers, and sums P and the read-outs
// of queries by shuffles. Every 8 events a block stages its inputs in shared memory. Eight elements take forty
// multiply-adds, five loads of four numbers and a share of the sums over the team; each event waits for its P, so
// latency bounds few and narrow heads. Teams have up to 32 threads, for 256 rows; if there are more rows, up to 1024, a
// thread has 32 of them.
//
// Backward, with G_t = dL/dS_t and R_t = a_t^T G_t: G_t = q_t go_t^T + diag(e^{g_{t+1}}) G_{t+1} +
// b_{t+1} R_{t+1}. A walk back in time finds R, gv_t = G_t^T k_t, and G after every 16 events; the
// forward pass has stored P, and S before every 16 events. With them spans of 16 events and rows are
// independent of each other, so the rest runs over all of them at once: gq_t = S_t go_t, gk_t = G_t
// v_t, ga_t = G_t P_t^T, gb_t = S_{t-1} R_t^T, and gg_t, the sums of the rows of G_t times e^{g_t}
// S_{t-1}. There a thread takes one row of four columns through a span and back, with all its states
// in registers (200 of them, so two blocks fit on an SM); threads of a row add up through shared memory,
// tile after tile of columns. An element takes eleven multiply-adds and a share of twelve loads,
// each for the four columns: arithmetic bounds it.
#include "delta_rule.cuh"

template <int ROWS, class T>
DEVICE void forward(Rule<T> in, uint32_t team, Ptr<float> kept, Ptr<T> o, Ptr<float> projections) {
    in.start(blockIdx.x);
    constexpr uint32_t STEPS = Columns<ROWS>::STEPS;
    Columns<ROWS> columns;
    columns.start(team);
#pragma unroll 1
    for (uint32_t e0 = 0; e0 < in.count; e0 += STEPS) {
        if (kept != nullptr && e0 % SPAN == 0) columns.keep(in, kept, e0 / SPAN);
        columns.stage(in, e0, in.v, false);
        __syncthreads();
#pragma unroll 1
        for (uint32_t s = 0; s < STEPS; ++s) columns.step(s);
        __syncthreads();
        columns.write(in, e0, 0, o, true);
        columns.write(in, e0, 1, projections, false);
    }
}

// Keeps the gradient of the state after every span.
template <int ROWS, class T>
DEVICE void walk_back(Rule<T> in, uint32_t team, Ptr<float> kept, Ptr<T> gv, Ptr<float> of_projections) {
    in.start(blockIdx.x);
    constexpr uint32_t STEPS = Columns<ROWS>::STEPS;
    Columns<ROWS> columns;
    columns.start(team);
#pragma unroll 1
    for (uint32_t e0 = (in.count + STEPS - 1) / STEPS * STEPS; e0 > 0;) {
        e0 -= STEPS;
        bool last_of_span = (e0 + STEPS) % SPAN == 0 || e0 + STEPS >= in.count;
        if (last_of_span) columns.keep(in, kept, e0 / SPAN);
        columns.stage(in, e0, in.go, true);
        __syncthreads();
#pragma unroll 1
        for (uint32_t s = STEPS; s-- > 0;) columns.step_back(s);
        __syncthreads();
        columns.write(in, e0, 0, gv, false);
        columns.write(in, e0, 1, of_projections, false);
    }
}

constexpr uint32_t SIDE = 16;                // rows of a block
constexpr uint32_t PARTS = 8;                // threads that share a row
constexpr uint32_t THREADS = SIDE * PARTS;
constexpr int C = 4;                         // columns of a thread
constexpr uint32_t WIDTH = PARTS * C;        // columns of a tile
constexpr int HALF = SPAN / 2;               // events whose sums are added up at once
constexpr int KINDS = 5;                     // of sums: for q, k, a, b and g
static_assert(HALF * SIDE == THREADS, "a thread adds up one row at one event");

// Results of the walks by columns: (B, L, s, e) twice and (B s, spans, m, e) twice.
struct Found {
    Ptr<const float> projections, of_projections, before, after;
};

// Gradients, null if they are not needed. Shared decays have one gradient for each tile of rows.
template <class T>
struct Grads {
    Ptr<T> q, k, a, b;
    Ptr<float> g; // (B, L, s, m), or (tiles of rows, B, L, s, 1)
};

// SIDE rows of a span.
template <class T>
struct Span {
    const Rule<T>& in;
    const Found& found;
    Ptr<float> decays, a, b, k, q;  // (SPAN, SIDE)
    Ptr<float> v, go, p, r;         // (SPAN, WIDTH)
    Ptr<float> sums;                // (KINDS, HALF, THREADS)
    uint32_t index, first_row, row, part;
    float before[SPAN + 1][C], grad[C];

    // Writes the numbers that read(at, x) gives for each place `at` below COUNT. All loads are issued before the first is
    // waited for.
    template <int COUNT, int N, class Read>
    static DEVICE void stage(const Ptr<float> (&to)[N], Read read) {
        constexpr int EACH = COUNT / THREADS;
        float x[EACH][N];
#pragma unroll
        for (int n = 0; n < EACH; ++n) read(n * THREADS + threadIdx.x, x[n]);
#pragma unroll
        for (int n = 0; n < EACH; ++n)
#pragma unroll
            for (int i = 0; i < N; ++i) to[i][n * THREADS + threadIdx.x] = x[n][i];
    }
    DEVICE void stage_rows() {
        stage<SPAN * SIDE>({decays, a, b, k, q}, [&](uint32_t at, float (&x)[5]) {
            uint32_t e = index * SPAN + at / SIDE, i = first_row + at % SIDE, t = in.time(e);
            x[0] = in.decay(t, i);
            x[1] = in.of_step(in.a, t, in.keys, i);
            x[2] = in.of_step(in.b, t, in.keys, i);
            x[3] = in.of_step(in.k, t, in.keys, i);
            x[4] = in.of_row(in.q, in.row(e), in.keys, i);
        });
    }
    DEVICE void stage_columns(uint32_t first) {
        stage<SPAN * WIDTH>({v, go, p, r}, [&](uint32_t at, float (&x)[4]) {
            uint32_t e = index * SPAN + at / WIDTH, column = first + at % WIDTH, t = in.time(e);
            x[0] = in.of_step(in.v, t, in.values, column);
            x[1] = in.of_row(in.go, in.row(e), in.values, column);
            x[2] = in.of_step(found.projections, t, in.values, column);
            x[3] = in.of_step(found.of_projections, t, in.values, column);
        });
    }
    DEVICE void fetch(uint32_t first) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
            uint32_t i = first_row + row, column = first + part * C + c;
            bool inside = i < in.keys && column < in.values;
            float state = 0.0f, of_state = 0.0f;
            if (inside) state = found.before[in.state(index, i, column)];
            if (inside) of_state = found.after[in.state(index, i, column)];
            before[0][c] = state;
            grad[c] = of_state;
        }
    }
    DEVICE void replay() {
#pragma unroll
        for (int e = 0; e < int(SPAN); ++e) {
            uint32_t at = e * SIDE + row, place = e * WIDTH + part * C;
            float decay = decays[at], as = a[at], key = k[at];
            Four ps = load4(p + place), vs = load4(v + place);
#pragma unroll
            for (int c = 0; c < C; ++c)
                before[e + 1][c] = decay * before[e][c] + as * ps.v[c] + key * vs.v[c];
        }
    }
    // Walks back half a span.
    template <int FIRST>
    DEVICE void walk_back() {
#pragma unroll
        for (int s = HALF - 1; s >= 0; --s) {
            constexpr int KIND = HALF * THREADS;
            int e = FIRST + s;
            uint32_t at = e * SIDE + row, place = e * WIDTH + part * C;
            float decay = decays[at], query = q[at], bs = b[at];
            Four reads = load4(go + place), vs = load4(v + place);
            Four ps = load4(p + place), rs = load4(r + place);
            float of_q = 0.0f, of_k = 0.0f, of_a = 0.0f, of_b = 0.0f, of_g = 0.0f;
#pragma unroll
            for (int c = 0; c < C; ++c) {
                float of_state = grad[c] + query * reads.v[c];
                of_q += before[e + 1][c] * reads.v[c];
                of_k += of_state * vs.v[c];
                of_a += of_state * ps.v[c];
                of_b += before[e][c] * rs.v[c];
                of_g += of_state * before[e][c];
                grad[c] = decay * of_state + bs * rs.v[c];
            }
            uint32_t to = s * THREADS + part * SIDE + row;
            sums[to] = of_q;
            sums[KIND + to] = of_k;
            sums[2 * KIND + to] = of_a;
            sums[3 * KIND + to] = of_b;
            sums[4 * KIND + to] = of_g * decay;
        }
    }
    // Sums the values that the threads of a row have at this thread's event of the half.
    DEVICE void add(float (&totals)[KINDS]) const {
        uint32_t s = threadIdx.x / SIDE, i = threadIdx.x % SIDE;
#pragma unroll
        for (int kind = 0; kind < KINDS; ++kind) {
            float sum = 0.0f;
#pragma unroll
            for (uint32_t n = 0; n < PARTS; ++n)
                sum += sums[(kind * HALF + s) * THREADS + n * SIDE + i];
            totals[kind] += sum;
        }
    }
    // Writes the totals of a half.
    DEVICE void write(const Grads<T>& grads, uint32_t e0, const float (&totals)[KINDS]) const {
        uint32_t e = e0 + threadIdx.x / SIDE, i = first_row + threadIdx.x % SIDE;
        uint32_t t = in.time(e), query = in.row(e);
        bool inside = i < in.keys, moves = inside && t != NONE;
        if (grads.q != nullptr && inside && query != NONE)
            grads.q[in.at(in.rows, query, in.keys, i)] = from_float<T>(totals[0]);
        uint64_t at = moves ? in.at(in.len, t, in.keys, i) : 0;
        if (grads.k != nullptr && moves) grads.k[at] = from_float<T>(totals[1]);
        if (grads.a != nullptr && moves) grads.a[at] = from_float<T>(totals[2]);
        if (grads.b != nullptr && moves) grads.b[at] = from_float<T>(totals[3]);
        float of_g = totals[4];
        if (in.decays == 1) {
            for (int mask = SIDE / 2; mask > 0; mask /= 2) of_g += shuffle_xor(of_g, mask);
            uint64_t all = uint64_t(gridDim.x) / spans() * in.len;
            at = moves ? blockIdx.y * all + in.at(in.len, t, 1, 0) : 0;
            moves = moves && i == first_row;
        }
        if (grads.g != nullptr && moves) grads.g[at] = of_g;
    }
    DEVICE uint32_t spans() const { return (in.count + SPAN - 1) / SPAN; }
};

template <class T>
DEVICE void sum_columns(Rule<T> in, const Found& found, const Grads<T>& grads) {
    SHARED(float, of_rows, 5 * SPAN * SIDE);
    SHARED(float, of_columns, 4 * SPAN * WIDTH);
    SHARED(float, sums, KINDS * HALF * THREADS);
    constexpr uint32_t R = SPAN * SIDE, W = SPAN * WIDTH;
    Span<T> span{in, found, of_rows, of_rows + R, of_rows + 2 * R, of_rows + 3 * R, of_rows + 4 * R,
                 of_columns, of_columns + W, of_columns + 2 * W, of_columns + 3 * W, sums};
    in.start(blockIdx.x / span.spans());
    span.index = blockIdx.x % span.spans();
    span.first_row = blockIdx.y * SIDE;
    span.row = threadIdx.x % SIDE;
    span.part = threadIdx.x / SIDE;
    span.stage_rows();
    float early[KINDS] = {}, late[KINDS] = {};
#pragma unroll 1
    for (uint32_t first = 0; first < in.values; first += WIDTH) {
        span.stage_columns(first);
        span.fetch(first);
        __syncthreads();
        span.replay();
        span.template walk_back<HALF>();
        __syncthreads();
        span.add(late);
        __syncthreads();
        span.template walk_back<0>();
        __syncthreads();
        span.add(early);
    }
    span.write(grads, span.index * SPAN, early);
    span.write(grads, span.index * SPAN + HALF, late);
}

#define INPUTS(T)                                                                              \
    Global<const T> q, Global<const T> k, Global<const T> v, Global<const T> g,                \
        Global<const T> a, Global<const T> b
#define EVENTS Global<const uint32_t> events
#define RULE(T, go)                                                                            \
    Rule<T> in{{q, k, v, g, go, events, len, rows, heads, keys, values, decays, count}, a, b}

#define WALKS(io, T, height, ROWS, blocks)                                                     \
    KERNEL_FITTING(delta_rule_forward_##height##_##io, MAX_WARPS * WARP, blocks, INPUTS(T),    \
                   EVENTS, Global<float> kept, Global<T> o, Global<float> projections,         \
                   uint32_t team, SIZES) {                                                     \
        RULE(T, nullptr);                                                                      \
        forward<ROWS, T>(in, team, kept, o, projections);                                      \
    }                                                                                          \
    KERNEL_FITTING(delta_rule_back_##height##_##io, MAX_WARPS * WARP, blocks, INPUTS(T),       \
                   Global<const T> go, EVENTS, Global<float> kept, Global<T> gv,               \
                   Global<float> of_projections, uint32_t team, SIZES) {                       \
        RULE(T, go);                                                                           \
        walk_back<ROWS, T>(in, team, kept, gv, of_projections);                                \
    }

#define DELTA_RULE(io, T)                                                                      \
    WALKS(io, T, short, SHORT, 8)                                                              \
    WALKS(io, T, tall, TALL, 3)                                                                \
    KERNEL_FITTING(delta_rule_sums_##io, THREADS, 2, INPUTS(T), Global<const T> go, EVENTS,    \
                   Global<const float> projections, Global<const float> of_projections,        \
                   Global<const float> before, Global<const float> after, Global<T> gq,        \
                   Global<T> gk, Global<T> ga, Global<T> gb, Global<float> gg, SIZES) {        \
        RULE(T, go);                                                                           \
        Found found{projections, of_projections, before, after};                               \
        Grads<T> grads{gq, gk, ga, gb, gg};                                                    \
        sum_columns<T>(in, found, grads);                                                      \
    }

DELTA_RULE(f32, float)
DELTA_RULE(bf16, bf16)
