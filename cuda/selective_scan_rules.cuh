// The rules of discretisation of the selective scan, as in src/ops/selective_scan/cpu/steps.rs: for a step d and a rate
// a < 0, given as a log2(e), the decay and the scale of the input, h_t = decay h_{t-1} + scale u_t b_t.
#pragma once

#include "pointwise.cuh"

// decay = e^(d a), scale = d
struct Euler {
    // Whether the scale depends on the state. Then what drives a channel is u, otherwise d u.
    static constexpr bool SCALES_BY_STATE = false;
    static DEVICE float decay(float d, float rate) { return exp2_fast(d * rate); }
    // The drive times the scale.
    static DEVICE float scaled(float drive, float, float, float) { return drive; }
    // The derivative of decay with respect to d a, and of scale to d.
    static DEVICE float slope(float, float, float decay) { return decay; }
    // The derivative of scale with respect to a.
    static DEVICE float bend(float, float, float) { return 0.0f; }
};

// decay = e^(d a), scale = (decay - 1) / a
struct Hold {
    static constexpr bool SCALES_BY_STATE = true;
    static DEVICE float decay(float d, float rate) { return exp2_fast(d * rate); }
    static DEVICE float scale(float d, float rate, float decay) {
        float x = d * rate * (1.0f / LOG2E);
        return d * (Phi1::is_near(x) ? Phi1::series(x) : __fdividef(decay - 1.0f, x));
    }
    static DEVICE float scaled(float drive, float d, float rate, float decay) { return drive * scale(d, rate, decay); }
    static DEVICE float slope(float, float, float decay) { return decay; }
    static DEVICE float bend(float d, float rate, float decay) {
        float x = d * rate * (1.0f / LOG2E);
        float far = __fdividef(decay - __fdividef(decay - 1.0f, x), x);
        return d * d * (Phi1::is_near(x) ? Phi1::slope_series(x) : far);
    }
};

// decay = (1 + d a / 2) / (1 - d a / 2), scale = d / (1 - d a / 2)
struct Bilinear {
    static constexpr bool SCALES_BY_STATE = true;
    static DEVICE float shrink(float d, float rate) { return __fdividef(1.0f, 1.0f - d * rate * (0.5f / LOG2E)); }
    static DEVICE float decay(float d, float rate) { return (1.0f + d * rate * (0.5f / LOG2E)) * shrink(d, rate); }
    static DEVICE float scaled(float drive, float d, float rate, float) { return drive * d * shrink(d, rate); }
    static DEVICE float slope(float d, float rate, float) {
        float by = shrink(d, rate);
        return by * by;
    }
    static DEVICE float bend(float d, float rate, float) {
        float scale = d * shrink(d, rate);
        return 0.5f * scale * scale;
    }
};
