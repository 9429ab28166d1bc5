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

// x (1 + tanh(v)) / 2 = x sigmoid(2 v), v = sqrt(2 / pi) (x + 0.044715 x^3)
struct GeluTanh {
    static constexpr float SCALE = 1.59576912160573081f, CUBE = 0.044715f;
    static DEVICE float value(float x) { return x * sigmoid(SCALE * x * (1.0f + CUBE * x * x)); }
    static DEVICE float slope(float x, float) {
        float s = sigmoid(SCALE * x * (1.0f + CUBE * x * x));
        x = fminf(fmaxf(x, -1e3f), 1e3f);  // beyond, s (1 - s) is 0, and the cube would overflow
        return s + x * s * (1.0f - s) * SCALE * (1.0f + 3.0f * CUBE * x * x);
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
