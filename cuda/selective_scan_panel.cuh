// A block of the backward pass of the selective scan, span by span: staging, replay and sums. The
// method is explained in selective_scan_backward.cu.
#pragma once

#include "selective_scan.cuh"
#include "selective_scan_rules.cuh"

constexpr uint32_t QUAD = 4;    // steps in registers
constexpr uint32_t WIDTH = 64;  // channels of a block
constexpr uint32_t DEPTH = 32;  // its states, at most
constexpr uint32_t SIDE = 16;   // channels, and states, of a warp
constexpr uint32_t ACROSS = WIDTH / SIDE; // warps along the channels
constexpr uint32_t THREADS = ACROSS * (DEPTH / SIDE) * WARP; // at most
constexpr int K = 4;            // states of a thread
constexpr uint32_t QUADS = SPAN / QUAD;
constexpr uint32_t LAST = QUADS - 2; // of the slots for states before quads

// Shared memory of a block, in floats: inputs of a span, states before quads, and sums of a quad over the lanes of a
// warp. It is one array, so that one register addresses the numbers of a channel, or of a state, in several parts.
constexpr uint32_t BY_CHANNEL = SPAN * WIDTH, BY_STATE_OF_BLOCK = SPAN * DEPTH;
constexpr uint32_t SLOT = DEPTH * WIDTH; // states of a block
constexpr uint32_t ALONG_SUMS = DEPTH / SIDE * 2 * QUAD * WIDTH, STATE_SUMS = QUAD * ACROSS * DEPTH;
constexpr uint32_t SHARED_FLOATS =
    3 * BY_CHANNEL + 2 * BY_STATE_OF_BLOCK + (LAST + 1) * SLOT + ALONG_SUMS + 2 * STATE_SUMS;

// The outputs of a block: partial sums of gradients, null for those that are not needed.
struct Parts {
    Ptr<float> along_a, along_b; // (blocks along states, B, L, d)
    Ptr<float> b;                // (blocks along channels, B, L, n)
    Ptr<float> c;                // (blocks along channels, B, R, n)
    Ptr<float> a;                // (B chunks, d, n)
};

// Sums v over the 16 channels of the warp; each lane gets the sum of one of its 4 states.
DEVICE float over_channels(float (&v)[K]) {
    float keep = v[0] + shuffle_xor(v[2], 2), send = v[1] + shuffle_xor(v[3], 2);
    keep += shuffle_xor(send, 1);
    return keep + shuffle_xor(keep, 4);
}

// Sums v over the 16 states of the warp; each lane gets the sum of one of its 2 channels.
DEVICE float over_states(float (&v)[2]) {
    float keep = v[0] + shuffle_xor(v[1], 8);
    return keep + shuffle_xor(keep, 16);
}

template <class R, class T>
struct Panel {
    const Inputs<T>& in;
    const Parts& parts;
    uint32_t warp_c, warp_s;      // of this warp, its place along channels and along states
    uint32_t lane_c, lane_s;      // of this lane
    uint32_t channel[2], k[K];    // in the block
    uint32_t first_channel, first_state; // of the block
    float al[2][K], h[2][K], carry[2][K], ga[2][K];
    Ptr<float> delta, drive, gy, b, c, slots, along_sums, b_sums, c_sums;
    // Of the quad in progress: the inputs of this lane's channels and states, whose other parts lie at constant distances.
    Ptr<float> of_channel[2], of_state[K];

    DEVICE void divide(Ptr<float> all) {
        delta = all;
        drive = delta + BY_CHANNEL;
        gy = drive + BY_CHANNEL;
        b = gy + BY_CHANNEL;
        c = b + BY_STATE_OF_BLOCK;
        slots = c + BY_STATE_OF_BLOCK;
        along_sums = slots + (LAST + 1) * SLOT;
        b_sums = along_sums + ALONG_SUMS;
        c_sums = b_sums + STATE_SUMS;
    }

    DEVICE void begin_quad(uint32_t quad) {
#pragma unroll
        for (int j = 0; j < 2; ++j) of_channel[j] = delta + (quad * QUAD * WIDTH + channel[j]);
#pragma unroll
        for (int i = 0; i < K; ++i) of_state[i] = b + (quad * QUAD * DEPTH + k[i]);
    }

    // The number of states of the block.
    DEVICE uint32_t depth() const { return blockDim.x / (ACROSS * WARP) * SIDE; }

    DEVICE void start() {
        uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
        warp_c = warp % ACROSS;
        warp_s = warp / ACROSS;
        lane_c = lane % 8;
        lane_s = lane / 8;
        first_channel = blockIdx.y * WIDTH;
        first_state = blockIdx.z * depth();
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j) channel[j] = channel_of(j);
#pragma unroll
        for (uint32_t i = 0; i < K; ++i) k[i] = warp_s * SIDE + lane_s * K + (i ^ (lane_c & 3));
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int i = 0; i < K; ++i) {
                al[j][i] = in.exponent(first_channel + channel[j], first_state + k[i]);
                carry[j][i] = 0.0f;
                ga[j][i] = 0.0f;
            }
    }

    DEVICE void load_carry(Ptr<const float> from, uint32_t index, uint32_t count) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int i = 0; i < K; ++i) {
                uint32_t at = first_channel + channel[j], state = first_state + k[i];
                if (!in.inside(state, at)) continue;
                float value = from[in.state(index, count, state, at)];
                carry[j][i] = value;
            }
    }

    // Loads the inputs of a span. A thread stays at its channel, and at its state.
    DEVICE void stage(uint32_t t0) {
        uint32_t at = threadIdx.x % WIDTH, s = threadIdx.x / WIDTH, each = blockDim.x / WIDTH;
        bool exists = first_channel + at < in.channels;
        uint64_t place = in.at(t0 + s, first_channel + at, in.channels);
#pragma unroll 4
        for (; s < SPAN; s += each, place += each * in.channels) {
            bool inside = exists && t0 + s < in.len;
            float d = in.some(in.delta, place, inside);
            delta[s * WIDTH + at] = d;
            drive[s * WIDTH + at] = in.some(in.u, place, inside) * (R::SCALES_BY_STATE ? 1.0f : d);
            gy[s * WIDTH + at] = in.read_out(in.gy, t0 + s, first_channel + at, in.channels, place, inside);
        }
        at = threadIdx.x % DEPTH, s = threadIdx.x / DEPTH, each = blockDim.x / DEPTH;
        if (at >= depth()) return;
        exists = first_state + at < in.states;
        place = in.at(t0 + s, first_state + at, in.states);
#pragma unroll 2
        for (; s < SPAN; s += each, place += each * in.states) {
            bool inside = exists && t0 + s < in.len;
            b[s * DEPTH + at] = in.some(in.b, place, inside);
            c[s * DEPTH + at] = in.read_out(in.c, t0 + s, first_state + at, in.states, place, inside);
        }
    }

    // Where a slot has the states of this thread, THREADS apart. No other thread reads or writes them.
    DEVICE Ptr<float> own(uint32_t slot) const { return slots + (slot * SLOT + threadIdx.x); }
    // Starts to load the states of this thread, in the order of memory and with few registers.
    DEVICE void fetch(Ptr<const float> from, uint32_t index, uint32_t count, uint32_t slot) {
        Ptr<const float> block = from + in.state(index, count, first_state, first_channel);
        Ptr<float> to = own(slot);
#pragma unroll 4
        for (uint32_t e = 0; e < 2 * K; ++e) {
            uint32_t j = e / K, at = channel_of(j), state = warp_s * SIDE + lane_s * K + e % K;
            bool is_inside = in.inside(first_state + state, first_channel + at);
            Ptr<float> place = to + (j * K + (e ^ lane_c) % K) * THREADS;
            copy_async(place, block + (is_inside ? state * in.channels + at : 0), is_inside);
        }
    }
    DEVICE uint32_t channel_of(uint32_t j) const { return warp_c * SIDE + (j ^ (lane_s & 1)) * 8 + lane_c; }
    DEVICE void keep_quad(uint32_t slot) {
        Ptr<float> to = own(slot);
#pragma unroll
        for (int e = 0; e < 2 * K; ++e) to[e * THREADS] = h[e / K][e % K];
    }
    DEVICE void take_quad(uint32_t slot) {
        Ptr<float> from = own(slot);
#pragma unroll
        for (int e = 0; e < 2 * K; ++e) {
            float state = from[e * THREADS];
            h[e / K][e % K] = state;
        }
    }

    // Computes the states of step s of the quad, given those before it, and the decays.
    DEVICE void advance(uint32_t s, float (&decay)[2][K]) {
        float d[2], v[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            d[j] = of_channel[j][s * WIDTH];
            v[j] = of_channel[j][BY_CHANNEL + s * WIDTH];
        }
#pragma unroll
        for (int i = 0; i < K; ++i) {
            float drives = of_state[i][s * DEPTH];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                decay[j][i] = R::decay(d[j], al[j][i]);
                h[j][i] = decay[j][i] * h[j][i] + R::scaled(v[j], d[j], al[j][i], decay[j][i]) * drives;
            }
        }
    }

    // Adds the gradient of c at step s, given the states after it.
    DEVICE void read(uint32_t s) {
        float g[2], v[K];
#pragma unroll
        for (int j = 0; j < 2; ++j) g[j] = of_channel[j][2 * BY_CHANNEL + s * WIDTH];
#pragma unroll
        for (int i = 0; i < K; ++i) v[i] = g[0] * h[0][i] + g[1] * h[1][i];
        float sum = over_channels(v);
        if (lane_c < K) c_sums[(s * ACROSS + warp_c) * DEPTH + k[0]] = sum;
    }

    // Step s of the backward pass.
    DEVICE void back(uint32_t s, const float (&before)[2][K], const float (&decay)[2][K]) {
        float along_a[2] = {0.0f, 0.0f}, along_b[2] = {0.0f, 0.0f}, v[K];
        float d[2], du[2], g[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            d[j] = of_channel[j][s * WIDTH];
            du[j] = of_channel[j][BY_CHANNEL + s * WIDTH];
            g[j] = of_channel[j][2 * BY_CHANNEL + s * WIDTH];
        }
#pragma unroll
        for (int i = 0; i < K; ++i) {
            float reads = of_state[i][BY_STATE_OF_BLOCK + s * DEPTH], drives = of_state[i][s * DEPTH];
            v[i] = 0.0f;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float of_h = reads * g[j] + carry[j][i];
                carry[j][i] = decay[j][i] * of_h;
                if (R::SCALES_BY_STATE) {
                    float rate = al[j][i], scale = R::scaled(1.0f, d[j], rate, decay[j][i]);
                    float slope = of_h * R::slope(d[j], rate, decay[j][i]), written = du[j] * drives;
                    along_a[j] += slope * (before[j][i] * (rate * (1.0f / LOG2E)) + written);
                    ga[j][i] += slope * before[j][i] * d[j] + of_h * written * R::bend(d[j], rate, decay[j][i]);
                    along_b[j] += of_h * drives * scale;
                    v[i] += of_h * du[j] * scale;
                } else {
                    float q = carry[j][i] * before[j][i];
                    along_a[j] += q * al[j][i];
                    ga[j][i] += q * d[j];
                    along_b[j] += of_h * drives;
                    v[i] += of_h * du[j];
                }
            }
        }
        float of_b = over_channels(v);
        if (lane_c < K) b_sums[(s * ACROSS + warp_c) * DEPTH + k[0]] = of_b;
        float of_a = over_states(along_a), of_drive = over_states(along_b);
        uint32_t which = lane_s / 2; // half of the lanes write either sum
        uint32_t at = ((warp_s * 2 + which) * QUAD + s) * WIDTH + channel[0];
        along_sums[at] = which == 0 ? of_a : of_drive;
    }

    // Writes the sums over warps of the quad that begins at t0: of each channel and state, and of either gradient along it.
    DEVICE void write_sums(uint32_t t0, uint32_t sequences) {
        constexpr uint32_t OF_STATES = QUAD * DEPTH, ALL = QUAD * WIDTH;
        static_assert(ALL == 2 * OF_STATES, "as many sums along channels as along states, of two gradients");
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < ALL; i += blockDim.x) {
            along_states(i / WIDTH, i % WIDTH, t0 + i / WIDTH, sequences);
            uint32_t s = i / DEPTH % QUAD, state = i % DEPTH, t = t0 + s;
            bool of_b = i < OF_STATES;
            uint32_t row = of_b ? t + 1 : in.row_at(min(t, in.len - 1)), rows = of_b ? in.len : in.row_count;
            Ptr<float> to = of_b ? parts.b : parts.c;
            if (state >= depth() || first_state + state >= in.states || t >= in.len || to == nullptr || row == 0) continue;
            Ptr<const float> from = (of_b ? b_sums : c_sums) + (s * ACROSS * DEPTH + state);
            float sum = 0.0f;
#pragma unroll
            for (uint32_t w = 0; w < ACROSS; ++w) sum += from[w * DEPTH];
            uint64_t place = uint64_t(blockIdx.y * sequences + in.sequence) * rows + row - 1;
            to[place * in.states + first_state + state] = sum;
        }
    }

    DEVICE void along_states(uint32_t s, uint32_t at, uint32_t t, uint32_t sequences) {
        if (first_channel + at >= in.channels || t >= in.len) return;
        Ptr<const float> from = along_sums + (s * WIDTH + at);
        float of_a = 0.0f, of_drive = 0.0f;
        of_a += from[0];
        of_drive += from[QUAD * WIDTH];
        if (depth() > SIDE) {
            of_a += from[2 * QUAD * WIDTH];
            of_drive += from[3 * QUAD * WIDTH];
        }
        uint64_t step = uint64_t(blockIdx.z * sequences + in.sequence) * in.len + t;
        uint64_t place = step * in.channels + first_channel + at;
        if (parts.along_a != nullptr) parts.along_a[place] = of_a;
        if (parts.along_b != nullptr) parts.along_b[place] = of_drive;
    }

    // Processes one span. Shared memory has slots for the states before three of its four quads:
    // those before the first are loaded again while the second is processed.
    DEVICE void span_back(Ptr<const float> kept, uint32_t span, uint32_t spans, uint32_t sequences) {
        take_quad(LAST);
#pragma unroll 1
        for (uint32_t quad = 0; quad < QUADS - 1; ++quad) {
            float decay[2][K];
            begin_quad(quad);
#pragma unroll
            for (uint32_t s = 0; s < QUAD; ++s) advance(s, decay);
            keep_quad(quad);
        }
#pragma unroll 1
        for (uint32_t quad = QUADS; quad-- > 0;) {
            if (quad == 1) fetch(kept, span, spans, LAST);
            begin_quad(quad);
            quad_back(quad > 0 ? quad - 1 : LAST);
            wait_for_copies();
            __syncthreads();
            write_sums(span * SPAN + quad * QUAD, sequences);
            __syncthreads();
        }
    }

    DEVICE void quad_back(uint32_t slot) {
        float after[QUAD - 1][2][K], decay[QUAD][2][K];
        take_quad(slot);
#pragma unroll
        for (uint32_t s = 0; s < QUAD; ++s) {
            advance(s, decay[s]);
            read(s);
            if (s == QUAD - 1) break;
#pragma unroll
            for (int e = 0; e < 2 * K; ++e) after[s][e / K][e % K] = h[e / K][e % K];
            __syncwarp(); // loads of the next step stay behind it: registers are few
        }
#pragma unroll
        for (uint32_t s = QUAD; s-- > 0;) {
            __syncwarp();
            if (s == 0) take_quad(slot);
            back(s, s > 0 ? after[s - 1] : h, decay[s]);
        }
    }
};
