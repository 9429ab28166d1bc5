// The impulse response of a cascade of first-order sections (src/ops/cascade), and its gradients.
//
// Bound by latency: a section's step depends on that of the previous section. A warp has one channel, and each lane a
// run of its sections. A lane is one step behind the previous lane, so that all lanes work at the same time, and the
// remaining signal moves to the next lane by one shuffle per step. States and coefficients are in shared memory, where
// a lane accesses only its own words. The backward pass keeps the states of every SPANth step, recomputes those in
// between, and moves in the reverse order.
#include "device.cuh"

constexpr uint32_t SPAN = CASCADE_SPAN;

// The index of section `j` of a lane's run in an array of the warp's shared memory.
DEVICE uint32_t place(uint32_t j) { return j * WARP + threadIdx.x; }

// The sections of a lane. Missing ones are zeros, which pass the signal on unchanged and have no state.
struct Sections {
    uint32_t each, states;
    Ptr<float> a, b, w, x;

    DEVICE Sections(uint32_t states) : each((states + WARP - 1) / WARP), states(states) {
        uint32_t bytes = each * WARP * sizeof(float);
        a = dynamic_shared<float>(0, each * WARP);
        b = dynamic_shared<float>(bytes, each * WARP);
        w = dynamic_shared<float>(2 * bytes, each * WARP);
        x = dynamic_shared<float>(3 * bytes, each * WARP);
    }

    DEVICE void load(Ptr<const float> from_a, Ptr<const float> from_b, Ptr<const float> from_w) {
        uint64_t row = uint64_t(blockIdx.x) * states;
        for (uint32_t j = 0; j < each; ++j) {
            uint32_t i = threadIdx.x * each + j, at = place(j);
            bool there = i < states;
            a[at] = there ? float(from_a[row + i]) : 0.0f;
            b[at] = there ? float(from_b[row + i]) : 0.0f;
            w[at] = there ? float(from_w[row + i]) : 0.0f;
            x[at] = 0.0f;
        }
    }

    // One step of section j: computes its new state; `left` becomes its output.
    DEVICE float step(uint32_t j, float& left) {
        uint32_t at = place(j);
        float before = x[at], now = a[at] * before + b[at] * left;
        left = left - before - now;
        x[at] = now;
        return now;
    }
};

// The input of the first lane at step l.
DEVICE float impulse(uint32_t l) { return l == 0 ? 1.0f : 0.0f; }

KERNEL(cascade, 32, Global<const float> a, Global<const float> b, Global<const float> w, Global<float> y,
       uint32_t states, uint32_t len) {
    Sections sections(states);
    sections.load(a, b, w);
    uint32_t lane = threadIdx.x;
    float left = 0.0f, sum = 0.0f;
    for (uint32_t tick = 0; tick < len + WARP - 1; ++tick) {
        left = shuffle_up(left, 1);
        sum = shuffle_up(sum, 1);
        uint32_t l = tick - lane;
        if (tick < lane || l >= len) continue;
        if (lane == 0) {
            left = impulse(l);
            sum = 0.0f;
        }
        for (uint32_t j = 0; j < sections.each; ++j) {
            float now = sections.step(j, left);
            sum += sections.w[place(j)] * now;
        }
        if (lane == WARP - 1) y[uint64_t(blockIdx.x) * len + l] = sum;
    }
}

// stored: (d, spans, sections), the states before every span. span: (d, steps, sections, 2), for each step the previous
// state and the input of the section. Sections are padded to whole warps in both.
KERNEL(cascade_backward, 32, Global<const float> a, Global<const float> b, Global<const float> w,
       Global<const float> gy, Global<float> stored, Global<float> span, Global<float> ga, Global<float> gb,
       Global<float> gw, uint32_t states, uint32_t len) {
    Sections sections(states);
    sections.load(a, b, w);
    uint32_t lane = threadIdx.x, each = sections.each, padded = each * WARP, bytes = padded * sizeof(float);
    Ptr<float> later = dynamic_shared<float>(4 * bytes, padded), sum_a = dynamic_shared<float>(5 * bytes, padded);
    Ptr<float> sum_b = dynamic_shared<float>(6 * bytes, padded), sum_w = dynamic_shared<float>(7 * bytes, padded);
    for (uint32_t j = 0; j < each; ++j) later[place(j)] = sum_a[place(j)] = sum_b[place(j)] = sum_w[place(j)] = 0.0f;
    uint32_t spans = (len + SPAN - 1) / SPAN, steps = min(len, SPAN);
    uint64_t of_channel = uint64_t(blockIdx.x) * spans * padded, of_span = uint64_t(blockIdx.x) * steps * padded * 2;
    float left = 0.0f;
    for (uint32_t tick = 0; tick < len + WARP - 1; ++tick) {
        left = shuffle_up(left, 1);
        uint32_t l = tick - lane;
        if (tick < lane || l >= len) continue;
        if (lane == 0) left = impulse(l);
        for (uint32_t j = 0; j < each; ++j) {
            if (l % SPAN == 0) stored[of_channel + uint64_t(l / SPAN) * padded + place(j)] = sections.x[place(j)];
            sections.step(j, left);
        }
    }
    for (uint32_t back = 0; back < spans; ++back) {
        uint32_t index = spans - 1 - back, first = index * SPAN, count = min(len - first, SPAN);
        for (uint32_t j = 0; j < each; ++j)
            sections.x[place(j)] = stored[of_channel + uint64_t(index) * padded + place(j)];
        left = 0.0f;
        for (uint32_t tick = 0; tick < count + WARP - 1; ++tick) {
            left = shuffle_up(left, 1);
            uint32_t l = tick - lane;
            if (tick < lane || l >= count) continue;
            if (lane == 0) left = impulse(first + l);
            for (uint32_t j = 0; j < each; ++j) {
                uint64_t at = of_span + (uint64_t(l) * padded + place(j)) * 2;
                span[at] = sections.x[place(j)];
                span[at + 1] = left;
                sections.step(j, left);
            }
        }
        // Runs from the last step to the first, and from the last lane to the first.
        float of_left = 0.0f;
        for (uint32_t tick = 0; tick < count + WARP - 1; ++tick) {
            of_left = shuffle_down(of_left, 1);
            uint32_t behind = WARP - 1 - lane, done = tick - behind;
            if (tick < behind || done >= count) continue;
            uint32_t l = count - 1 - done;
            if (lane == WARP - 1) of_left = 0.0f;
            float of_y = gy[uint64_t(blockIdx.x) * len + first + l];
            for (uint32_t k = 0; k < each; ++k) {
                uint32_t at = place(each - 1 - k);
                uint64_t kept = of_span + (uint64_t(l) * padded + at) * 2;
                float before = span[kept], reached = span[kept + 1];
                float g = later[at] + sections.w[at] * of_y - of_left;
                sum_a[at] += g * before;
                sum_b[at] += g * reached;
                sum_w[at] += of_y * (sections.a[at] * before + sections.b[at] * reached);
                later[at] = sections.a[at] * g - of_left;
                of_left += sections.b[at] * g;
            }
        }
    }
    uint64_t row = uint64_t(blockIdx.x) * states;
    for (uint32_t j = 0; j < each; ++j) {
        uint32_t i = lane * each + j;
        if (i >= states) continue;
        ga[row + i] = sum_a[place(j)];
        gb[row + i] = sum_b[place(j)];
        gw[row + i] = sum_w[place(j)];
    }
}
