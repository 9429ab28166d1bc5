// The factors of spans: how the events of a span read the state at its start and change it, and how they mix.
//
// With f_t = e^{g_t}, F_j = f_0 ... f_{j-1} from the start of a span to event j, and D_j = f_{j+1} ... f_15 from there to
// its end,
//
//   B~_j = F_j b_j,  Q~_j = F_j f_j q_j,  A~_j = D_j a_j,  K~_j = D_j k_j,  F = F_16,
//   L_xy[j, l] = sum over features of x_j f_{l+1} ... f_{j-1 or j} y_l, for x = b (l < j) or x = q (l <= j),
//   T = (I - L_ba)^{-1},  X = T L_bk,  E = L_qa T,  Z = L_qk + E L_bk,
//   [W; Y] = [T; E] B~ + [0; Q~],  [W'; Y'] = [T, X]^T A~ + [0; K~].
//
// T is found by substitution. Decays occur only as products, never as quotients, so nothing overflows as long as they are
// at most 1. Inputs are finite: an infinite one would make other events of its span NaN. A block has a span of one head.
// With one decay a head, the sums L are products of the tensor cores, times the decays between two events. With a decay for
// each feature, a thread walks from its event l on, for every eighth feature, with sixteen sums of each kind in registers.
// That takes thirteen instructions for each pair of events and feature, a quarter of them loads from shared memory, which
// bound it. The rest is a product with a matrix of 32 x 16.
#pragma once

#include "matrix_state.cuh"

constexpr uint32_t SLAB = 32;                        // features at a time
constexpr uint32_t SLAB_PITCH = SLAB + PAD_ALONG;
constexpr uint32_t SLAB_ACROSS = SLAB + PAD_ACROSS;
constexpr uint32_t PARTS = THREADS / SPAN;           // threads that share an event
constexpr uint32_t SQUARE = SPAN * SPAN;

template <class T, bool RANK>
struct FactorBlock {
    static constexpr uint32_t ROWS = Sides<RANK>::ROWS, LAST = Sides<RANK>::LAST;
    static constexpr int KINDS = RANK ? 4 : 1;       // of sums: qk, ba, bk, qa
    static constexpr uint32_t PITCH = ROWS + PAD_ALONG;

    const Inputs<T>& in;
    uint32_t span;
    Ptr<float> decays, staged;  // (SPAN, SLAB_PITCH), and four of them: q, k, a, b
    Ptr<float> sums;            // (WARPS, KINDS, SQUARE), element (j, l)
    Ptr<float> mixing;          // M, (ROWS, PITCH)

    DEVICE uint32_t first() const { return span * SPAN; }
    DEVICE void stage(uint32_t slab) const {
        constexpr uint32_t EACH = SPAN * SLAB_PITCH;
        for (uint32_t n = threadIdx.x; n < SPAN * SLAB; n += THREADS) {
            uint32_t j = n / SLAB, c = n % SLAB, i = slab + c, to = j * SLAB_PITCH + c;
            uint32_t t = in.time(first() + j), row = in.row(first() + j);
            decays[to] = in.decay(t, i);
            staged[to] = in.of_row(in.q, row, in.keys, i);
            staged[EACH + to] = in.of_step(in.k, t, in.keys, i);
            if constexpr (RANK) {
                staged[2 * EACH + to] = in.of_rank(in.a, t, i);
                staged[3 * EACH + to] = in.of_rank(in.b, t, i);
            }
        }
    }
    // Adds the features of a slab that are this thread's to its sums with event l.
    DEVICE void add(float (&total)[KINDS][SPAN], uint32_t l, uint32_t part) const {
        constexpr uint32_t EACH = SPAN * SLAB_PITCH;
#pragma unroll 1
        for (uint32_t c = part; c < SLAB; c += PARTS) {
            float k = staged[EACH + l * SLAB_PITCH + c], a = 0.0f, of_k = 0.0f, of_a = 0.0f;
            if constexpr (RANK) a = staged[2 * EACH + l * SLAB_PITCH + c];
#pragma unroll
            for (uint32_t j = 0; j < SPAN; ++j) {
                uint32_t at = j * SLAB_PITCH + c;
                float decay = decays[at], q = staged[at];
                if constexpr (RANK) {
                    float b = staged[3 * EACH + at];
                    total[1][j] += b * of_a;
                    total[2][j] += b * of_k;
                    of_a = j == l ? a : decay * of_a;
                }
                of_k = j == l ? k : decay * of_k;
                total[0][j] += q * of_k;
                if constexpr (RANK) total[3][j] += q * of_a;
            }
        }
    }
    // The sums L with a decay for each feature; ends with a barrier.
    DEVICE void walk() const {
        float total[KINDS][SPAN] = {};
        uint32_t l = threadIdx.x % SPAN, part = threadIdx.x / SPAN;
#pragma unroll 1
        for (uint32_t slab = 0; slab < in.keys; slab += SLAB) {
            stage(slab);
            __syncthreads();
            add(total, l, part);
            __syncthreads();
        }
        join(total, l);
    }
    // The same with one decay a head; a warp has q or b, and keys or vectors a.
    DEVICE void multiply() const {
        constexpr uint32_t EACH = SPAN * SLAB_PITCH;
        constexpr int COLUMNS = RANK ? 16 : 8;
        uint32_t warp = threadIdx.x / WARP, half = RANK ? 0 : warp * 8;
        bool of_b = RANK && warp % 2 == 1, of_a = RANK && warp / 2 == 1, works = RANK || half < SPAN;
        WarpTile<16, COLUMNS> tile;
        tile.clear();
#pragma unroll 1
        for (uint32_t slab = 0; slab < in.keys; slab += SLAB) {
            stage(slab);
            __syncthreads();
            ::Rows<float> left = {staged + (of_b ? 3 * EACH : 0), SLAB_PITCH};
            Columns<float> right = {staged + (of_a ? 2 * EACH : EACH), SLAB_PITCH};
            if (works) tile.template add_product<Exact>(left, 0, right, half, 0, SLAB);
            __syncthreads();
        }
        uint32_t kind = of_b ? (of_a ? 1 : 2) : (of_a ? 3 : 0);
        if (works)
            tile.each([&](uint32_t j, uint32_t column, float product) {
                uint32_t l = half + column, end = of_b ? j : j + 1;
                for (uint32_t i = l + 1; i < end; ++i) product *= value_at(decays, i * SLAB_PITCH);
                sums[kind * SQUARE + j * SPAN + l] = l < end ? product : 0.0f;
            });
        __syncthreads();
    }
    // Sums over all threads of an event; ends with a barrier.
    DEVICE void join(float (&total)[KINDS][SPAN], uint32_t l) const {
        uint32_t warp = threadIdx.x / WARP;
#pragma unroll
        for (int kind = 0; kind < KINDS; ++kind)
#pragma unroll
            for (uint32_t j = 0; j < SPAN; ++j) {
                float sum = total[kind][j] + shuffle_xor(total[kind][j], SPAN);
                if (threadIdx.x % WARP < SPAN) sums[(warp * KINDS + kind) * SQUARE + j * SPAN + l] = sum;
            }
        __syncthreads();
        for (uint32_t n = threadIdx.x; n < KINDS * SQUARE; n += THREADS) {
            float sum = sums[n];
            for (uint32_t w = 1; w < WARPS; ++w) sum += sums[w * KINDS * SQUARE + n];
            sums[n] = sum;
        }
        __syncthreads();
    }
    // An element of the sums, 0 for later events l.
    DEVICE float sum(int kind, uint32_t j, uint32_t l) const {
        return value_at(sums, kind * SQUARE + j * SPAN + l);
    }
    DEVICE float mixed(uint32_t i, uint32_t j) const {
        return value_at(mixing, i * PITCH + j);
    }
    // Column c of T, event by event.
    DEVICE void invert(uint32_t c) const {
        float column[SPAN];
#pragma unroll
        for (uint32_t j = 0; j < SPAN; ++j) {
            column[j] = j == c ? 1.0f : 0.0f;
#pragma unroll
            for (uint32_t l = 0; l < j; ++l) column[j] += sum(1, j, l) * column[l];
            mixing[j * PITCH + c] = column[j];
        }
    }
    // M from the sums; ends with a barrier.
    DEVICE void mix() const {
        if constexpr (!RANK) {
            for (uint32_t n = threadIdx.x; n < SQUARE; n += THREADS)
                mixing[n / SPAN * PITCH + n % SPAN] = sum(0, n / SPAN, n % SPAN);
        } else {
            if (threadIdx.x < SPAN) invert(threadIdx.x);
            __syncthreads();
            for (uint32_t n = threadIdx.x; n < SQUARE; n += THREADS) {
                uint32_t j = n / SPAN, c = n % SPAN;
                float x = 0.0f, e = 0.0f;
                for (uint32_t l = 0; l < SPAN; ++l) {
                    x += mixed(j, l) * sum(2, l, c);
                    e += sum(3, j, l) * mixed(l, c);
                }
                mixing[j * PITCH + SPAN + c] = x;
                mixing[(SPAN + j) * PITCH + c] = e;
            }
            __syncthreads();
            for (uint32_t n = threadIdx.x; n < SQUARE; n += THREADS) {
                uint32_t j = n / SPAN, c = n % SPAN;
                float z = sum(0, j, c);
                for (uint32_t l = 0; l < SPAN; ++l) z += mixed(SPAN + j, l) * sum(2, l, c);
                mixing[(SPAN + j) * PITCH + SPAN + c] = z;
            }
        }
        __syncthreads();
    }
    // Writes both sides for 32 features, for the forward or the backward pass. `tile` (SPAN, SLAB_ACROSS) and `plus` (SPAN, SLAB_PITCH) are
    // shared memory.
    DEVICE void write(const Factors& to, uint32_t slab, bool back, Ptr<float> tile, Ptr<float> plus) const {
        constexpr uint32_t EACH = SPAN / WARPS;
        uint32_t c = threadIdx.x % WARP, mine = threadIdx.x / WARP * EACH, i = slab + c;
        uint32_t padded = in.padded();
        uint64_t place = in.place(span);
        // A thread has four events, and needs the products of the decays before and after each.
        float before = 1.0f, after[EACH], rest = 1.0f;
        for (uint32_t j = 0; j < mine; ++j) before *= value_at(decays, j * SLAB_PITCH + c);
        for (uint32_t j = SPAN; j-- > mine + EACH;) rest *= value_at(decays, j * SLAB_PITCH + c);
#pragma unroll
        for (int n = EACH - 1; n >= 0; --n) {
            after[n] = rest;
            rest *= value_at(decays, (mine + n) * SLAB_PITCH + c);
        }
#pragma unroll
        for (uint32_t n = 0; n < EACH; ++n) {
            uint32_t j = mine + n, t = in.time(first() + j), row = in.row(first() + j);
            float a = 0.0f, b = 0.0f, decay = decays[j * SLAB_PITCH + c];
            if constexpr (RANK) {
                a = after[n] * in.of_rank(in.a, t, i);
                b = before * in.of_rank(in.b, t, i);
            }
            before *= decay;
            float k = after[n] * in.of_step(in.k, t, in.keys, i);
            float q = before * in.of_row(in.q, row, in.keys, i);
            plus[j * SLAB_PITCH + c] = back ? k : q;
            if (i < padded) to.writes[(place * ROWS + LAST + j) * padded + i] = back ? q : k;
            if constexpr (RANK) {
                tile[j * SLAB_ACROSS + c] = back ? a : b;
                if (i < padded) to.writes[(place * ROWS + j) * padded + i] = back ? b : a;
            }
        }
        if (mine + EACH == SPAN && i < padded) to.whole[place * padded + i] = before;
        __syncthreads();
        uint32_t column = threadIdx.x / WARP * 8;
        WarpTile<ROWS, 8> sums;
        sums.clear();
        if constexpr (RANK) {
            auto left = computed([&](uint32_t i, uint32_t j) { return back ? mixed(j, i) : mixed(i, j); });
            sums.template add_product<Exact>(left, 0, ::Rows<float>{tile, SLAB_ACROSS}, column, 0, SPAN);
        }
        sums.each([&](uint32_t r, uint32_t n, float sum) {
            uint32_t feature = slab + column + n;
            if (!Sides<RANK>::projects(r)) sum += value_at(plus, (r - LAST) * SLAB_PITCH + column + n);
            if (feature < padded) to.reads[(place * ROWS + r) * padded + feature] = sum;
        });
        __syncthreads();
    }
};

// Forward it writes M as well; back it reads it.
template <class T, bool RANK>
DEVICE void factors(Inputs<T> in, const Factors& to, bool back) {
    using Block = FactorBlock<T, RANK>;
    constexpr uint32_t ROWS = Block::ROWS, STAGED = (RANK ? 4 : 2) * SPAN * SLAB_PITCH;
    SHARED(float, decays, SPAN * SLAB_PITCH);
    SHARED(float, staged, STAGED);
    SHARED(float, sums, WARPS * Block::KINDS * SQUARE);
    SHARED(float, mixing, ROWS * Block::PITCH);
    uint32_t spans = in.spans();
    in.start(blockIdx.x / spans);
    Block block{in, blockIdx.x % spans, decays, staged, sums, mixing};
    uint64_t matrix = in.place(block.span) * ROWS * ROWS;
    if (back) {
        for (uint32_t n = threadIdx.x; n < ROWS * ROWS; n += THREADS) {
            float x = to.mixing[matrix + n];
            mixing[n / ROWS * Block::PITCH + n % ROWS] = x;
        }
    } else {
        in.decays == 1 ? block.multiply() : block.walk();
        block.mix();
        for (uint32_t n = threadIdx.x; n < ROWS * ROWS; n += THREADS) {
            float x = mixing[n / ROWS * Block::PITCH + n % ROWS];
            to.mixing[matrix + n] = x;
        }
    }
    // The staged inputs and the sums are no longer needed; the tiles of the products take their place.
    Ptr<float> tile = staged, plus = sums;
#pragma unroll 1
    for (uint32_t slab = 0; slab < in.padded(); slab += SLAB) {
        for (uint32_t n = threadIdx.x; n < SPAN * SLAB; n += THREADS)
            decays[n / SLAB * SLAB_PITCH + n % SLAB] = in.decay(in.time(block.first() + n / SLAB), slab + n % SLAB);
        __syncthreads();
        block.write(to, slab, back, tile, plus);
    }
}
