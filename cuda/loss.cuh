// The loss of a recorded step, in memory that outlives the step.
#pragma once
#include "device.cuh"

// Keeps `loss`, unless an earlier one was not finite: a step begun before the host has seen that changes nothing.
DEVICE void keep(float loss, Ptr<float> kept) {
    if (fabsf(kept[0]) <= 3.4e38f) kept[0] = loss;
}
