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
    Ptr<float> delta, drive, gy, b, c, quads, along_sums, b_sums, c_sums;

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
        for (uint32_t j = 0; j < 2; ++j) channel[j] = warp_c * SIDE + (j ^ (lane_s & 1)) * 8 + lane_c;
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

    DEVICE void stage(uint32_t t0) {
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < SPAN * WIDTH; i += blockDim.x) {
            uint32_t t = t0 + i / WIDTH, at = i % WIDTH;
            float d = in.step(in.delta, t, first_channel + at, in.channels);
            delta[i] = d;
            drive[i] = in.step(in.u, t, first_channel + at, in.channels) * (R::SCALES_BY_STATE ? 1.0f : d);
            gy[i] = in.read_out(in.gy, t, first_channel + at, in.channels);
        }
#pragma unroll 2
        for (uint32_t i = threadIdx.x; i < SPAN * DEPTH; i += blockDim.x) {
            uint32_t t = t0 + i / DEPTH, at = i % DEPTH;
            if (at >= depth()) continue;
            b[i] = in.step(in.b, t, first_state + at, in.states);
            c[i] = in.read_out(in.c, t, first_state + at, in.states);
        }
    }

    // The offset of a state of the block in a slot, such that the lanes of a warp access all banks
    // of shared memory.
    static DEVICE uint32_t in_slot(uint32_t slot, uint32_t k, uint32_t channel) {
        return (slot * DEPTH + k) * WIDTH + (channel ^ (k & 8) * 2);
    }
    // Starts to load all states of the block, by all threads together.
    DEVICE void fetch(Ptr<const float> from, uint32_t index, uint32_t count, uint32_t slot) {
        Ptr<const float> block = from + in.state(index, count, first_state, first_channel);
        for (uint32_t i = threadIdx.x; i < depth() * WIDTH; i += blockDim.x) {
            uint32_t at = i % WIDTH, state = i / WIDTH;
            bool is_inside = in.inside(first_state + state, first_channel + at);
            copy_async(quads + in_slot(slot, state, at), block + (is_inside ? state * in.channels + at : 0), is_inside);
        }
    }
    DEVICE void keep_quad(uint32_t slot) {
#pragma unroll
        for (int e = 0; e < 2 * K; ++e) quads[in_slot(slot, k[e % K], channel[e / K])] = h[e / K][e % K];
    }
    DEVICE void take_quad(uint32_t slot) {
#pragma unroll
        for (int e = 0; e < 2 * K; ++e) {
            float state = quads[in_slot(slot, k[e % K], channel[e / K])];
            h[e / K][e % K] = state;
        }
    }

    // Computes the states of step s, given those before it, and the decays.
    DEVICE void advance(uint32_t s, float (&decay)[2][K]) {
        float d[2], v[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            d[j] = delta[s * WIDTH + channel[j]];
            v[j] = drive[s * WIDTH + channel[j]];
        }
#pragma unroll
        for (int i = 0; i < K; ++i) {
            float drives = b[s * DEPTH + k[i]];
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
        for (int j = 0; j < 2; ++j) g[j] = gy[s * WIDTH + channel[j]];
#pragma unroll
        for (int i = 0; i < K; ++i) v[i] = g[0] * h[0][i] + g[1] * h[1][i];
        float sum = over_channels(v);
        if (lane_c < K) c_sums[(s % QUAD * ACROSS + warp_c) * DEPTH + k[0]] = sum;
    }

    // Step s of the backward pass.
    DEVICE void back(uint32_t s, const float (&before)[2][K], const float (&decay)[2][K]) {
        float along_a[2] = {0.0f, 0.0f}, along_b[2] = {0.0f, 0.0f}, v[K];
        float d[2], du[2], g[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            d[j] = delta[s * WIDTH + channel[j]];
            du[j] = drive[s * WIDTH + channel[j]];
            g[j] = gy[s * WIDTH + channel[j]];
        }
#pragma unroll
        for (int i = 0; i < K; ++i) {
            float reads = c[s * DEPTH + k[i]], drives = b[s * DEPTH + k[i]];
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
        if (lane_c < K) b_sums[(s % QUAD * ACROSS + warp_c) * DEPTH + k[0]] = of_b;
        float of_a = over_states(along_a), of_drive = over_states(along_b);
        uint32_t which = lane_s / 2; // half of the lanes write either sum
        uint32_t at = ((warp_s * 2 + which) * QUAD + s % QUAD) * WIDTH + channel[0];
        along_sums[at] = which == 0 ? of_a : of_drive;
    }

    // Writes the sums over warps of the quad that begins at t0.
    DEVICE void write_sums(uint32_t t0, uint32_t sequences) {
        uint64_t along_channels = blockIdx.y * sequences + in.sequence;
        uint64_t along_states = blockIdx.z * sequences + in.sequence;
        for (uint32_t i = threadIdx.x; i < QUAD * DEPTH; i += blockDim.x) {
            uint32_t s = i / DEPTH, at = i % DEPTH, t = t0 + s, state = first_state + at;
            if (at >= depth() || state >= in.states || t >= in.len) continue;
            float of_b = 0.0f, of_c = 0.0f;
            for (uint32_t w = 0; w < ACROSS; ++w) {
                of_b += b_sums[(s * ACROSS + w) * DEPTH + at];
                of_c += c_sums[(s * ACROSS + w) * DEPTH + at];
            }
            uint64_t step = along_channels * in.len + t;
            if (parts.b != nullptr) parts.b[step * in.states + state] = of_b;
            uint32_t row = in.row_at(t);
            uint64_t place = along_channels * in.row_count + row - 1;
            if (parts.c != nullptr && row > 0) parts.c[place * in.states + state] = of_c;
        }
        for (uint32_t i = threadIdx.x; i < QUAD * WIDTH; i += blockDim.x) {
            uint32_t t = t0 + i / WIDTH, at = i % WIDTH, channel = first_channel + at;
            if (channel >= in.channels || t >= in.len) continue;
            uint64_t step = along_states * in.len + t;
            float of_a = 0.0f, of_drive = 0.0f;
            for (uint32_t w = 0; w < depth() / SIDE; ++w) {
                of_a += along_sums[w * 2 * QUAD * WIDTH + i];
                of_drive += along_sums[(w * 2 + 1) * QUAD * WIDTH + i];
            }
            if (parts.along_a != nullptr) parts.along_a[step * in.channels + channel] = of_a;
            if (parts.along_b != nullptr) parts.along_b[step * in.channels + channel] = of_drive;
        }
    }

    // Processes one span. Shared memory has slots for the states before three of its four quads:
    // those before the first are loaded again while the second is processed.
    DEVICE void span_back(Ptr<const float> kept, uint32_t span, uint32_t spans, uint32_t sequences) {
        take_quad(LAST);
        __syncthreads();
#pragma unroll 1
        for (uint32_t quad = 0; quad < QUADS - 1; ++quad) {
            float decay[2][K];
#pragma unroll
            for (uint32_t s = 0; s < QUAD; ++s) advance(quad * QUAD + s, decay);
            keep_quad(quad);
        }
#pragma unroll 1
        for (uint32_t quad = QUADS; quad-- > 0;) {
            if (quad == 1) fetch(kept, span, spans, LAST);
            quad_back(quad, quad > 0 ? quad - 1 : LAST);
            wait_for_copies();
            __syncthreads();
            write_sums(span * SPAN + quad * QUAD, sequences);
            __syncthreads();
        }
    }

    DEVICE void quad_back(uint32_t quad, uint32_t slot) {
        float after[QUAD - 1][2][K], decay[QUAD][2][K];
        take_quad(slot);
#pragma unroll
        for (uint32_t s = 0; s < QUAD; ++s) {
            advance(quad * QUAD + s, decay[s]);
            read(quad * QUAD + s);
            if (s == QUAD - 1) break;
#pragma unroll
            for (int e = 0; e < 2 * K; ++e) after[s][e / K][e % K] = h[e / K][e % K];
            __syncwarp(); // loads of the next step stay behind it: registers are few
        }
#pragma unroll
        for (uint32_t s = QUAD; s-- > 0;) {
            __syncwarp();
            if (s == 0) take_quad(slot);
            back(quad * QUAD + s, s > 0 ? after[s - 1] : h, decay[s]);
        }
    }
};
