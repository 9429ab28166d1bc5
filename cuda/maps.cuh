// Up to four tensors that share a launch; each has its own blocks.
#pragma once

#include "device.cuh"

constexpr int MAPS = MAPS_TENSORS;

// The i-th of four. No array is indexed, since that would put a table into local memory.
template <class T>
DEVICE T one_of(uint32_t i, T a, T b, T c, T d) {
    T low = i == 0 ? a : b, high = i == 2 ? c : d;
    return i < 2 ? low : high;
}

template <class T>
DEVICE Ptr<T> one_of(uint32_t i, const Table<T, MAPS>& of) {
    return one_of<Ptr<T>>(i, of[0], of[1], of[2], of[3]);
}
