// Elementwise functions with exact derivatives, as in src/ops/pointwise/cpu.rs.
#pragma once

#include "device.cuh"

// ln(1 + e^x), with a small relative error also where the result is close to e^x.
DEVICE float softplus(float x) {
    return fmaxf(x, 0.0f) + log1pf(exp2_fast(-LOG2E * fabsf(x)));
}

struct Sigmoid {
    static DEVICE float value(float x) { return sigmoid(x); }
    static DEVICE float slope(float, float y) { return y * (1.0f - y); }
};

struct Softplus {
    static DEVICE float value(float x) { return softplus(x); }
    static DEVICE float slope(float x, float) { return sigmoid(x); }
};

// elu(x) + 1
struct Elu1 {
    static DEVICE float value(float x) { return x > 0.0f ? x + 1.0f : exp2_fast(LOG2E * x); }
    static DEVICE float slope(float x, float) { return x > 0.0f ? 1.0f : exp2_fast(LOG2E * x); }
};

// x (1 + erf(x / sqrt 2)) / 2
struct Gelu {
    static DEVICE float cdf(float x) { return 0.5f * (1.0f + erff(x * 0.70710678118654752f)); }
    static DEVICE float value(float x) { return x * cdf(x); }
    static DEVICE float slope(float x, float) {
        return cdf(x) + x * 0.39894228040143268f * exp2_fast(-0.5f * LOG2E * x * x);
    }
};

struct Silu {
    static DEVICE float value(float x) { return x * sigmoid(x); }
    static DEVICE float slope(float x, float) {
        float s = sigmoid(x);
        return s * (1.0f + x * (1.0f - s));
    }
};

struct Tanh {
    static DEVICE float value(float x) { return tanhf(x); }
    static DEVICE float slope(float, float y) { return 1.0f - y * y; }
};
