// The rules from pre-activations to the decay f and the input scale s of a step, with their
// derivatives, as in src/ops/gated_scan/rules.rs.
#pragma once

#include "pointwise.cuh"

struct Gates {
    float f, s;
};

// The gradients of both pre-activations and of the channel's coefficient.
struct GateGrads {
    float zf, zi, number;
};

// f = sigma(zf), s = sigma(zi).
struct SigmoidGates {
    static constexpr bool LEARNT = false;

    static DEVICE SigmoidGates of(Ptr<const float>, uint32_t, float) { return {}; }
    DEVICE float decay(float zf) const { return sigmoid(zf); }
    DEVICE Gates gates(float zf, float zi) const { return {sigmoid(zf), sigmoid(zi)}; }
    DEVICE GateGrads back(float, float, Gates g, float gf, float gs) const {
        return {gf * g.f * (1.0f - g.f), gs * g.s * (1.0f - g.s), 0.0f};
    }
};

// f = e^(-alpha softplus(zf)), s = sigma(zi).
struct ReversedGates {
    static constexpr bool LEARNT = true;
    float alpha;

    static DEVICE ReversedGates of(Ptr<const float> alpha, uint32_t, float) { return {alpha[0]}; }
    DEVICE float decay(float zf) const { return exp2_fast(-LOG2E * alpha * softplus(zf)); }
    DEVICE Gates gates(float zf, float zi) const { return {decay(zf), sigmoid(zi)}; }
    DEVICE GateGrads back(float zf, float, Gates g, float gf, float gs) const {
        float exponent = -gf * g.f;
        return {exponent * alpha * sigmoid(zf), gs * g.s * (1.0f - g.s), exponent * softplus(zf)};
    }
};

// f = e^(p sigma(zf)), s = sqrt(1 - f^2 + eps) sigma(zi) with p = -8 softplus(lambda).
struct RgLruGates {
    static constexpr bool LEARNT = true;
    float p, eps;

    static DEVICE RgLruGates of(Ptr<const float> lambda, uint32_t channel, float eps) {
        return {-8.0f * softplus(lambda[channel]), eps};
    }
    // By expm1: the difference itself would cancel for f near 1.
    DEVICE float scale(float log_f) const { return sqrtf(eps - expm1f(2.0f * log_f)); }
    DEVICE float decay(float zf) const { return exp2_fast(LOG2E * p * sigmoid(zf)); }
    DEVICE Gates gates(float zf, float zi) const {
        float log_f = p * sigmoid(zf);
        return {exp2_fast(LOG2E * log_f), scale(log_f) * sigmoid(zi)};
    }
    // d scale / d log f = -f^2 / scale, whose factor vanishes faster as f tends to 1: the lower
    // bound turns 0 / 0 into 0.
    DEVICE GateGrads back(float zf, float zi, Gates gates, float gf, float gs) const {
        float r = sigmoid(zf), g = sigmoid(zi), f = gates.f;
        float wide = scale(p * r);
        float number = gf * f * r - gs * g * f * f * (r / fmaxf(wide, 1e-30f));
        return {number * p * (1.0f - r), gs * wide * g * (1.0f - g), number};
    }
};
