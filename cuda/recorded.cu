// The beginning and the end of a recorded step.
//
// What changes from step to step arrives in one copy from the host, whose parts a kernel puts where the others read them: the
// step, the rates, and the batch. Bound by memory bandwidth, and by the launch at the sizes of a batch.
#include "device.cuh"

constexpr int PLACES = 5;

// The words of one part after the other, each to its place; the place is the block index along y.
KERNEL(unpack, 256, Global<const uint32_t> words, Table<uint32_t, PLACES> places, uint32_t count0, uint32_t count1,
       uint32_t count2, uint32_t count3, uint32_t count4) {
    uint32_t place = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x, first = 0, count = count0;
    // Nothing is indexed: that would put the table into local memory.
    Ptr<uint32_t> to = places[0];
    if (place >= 1) first += count0, count = count1, to = places[1];
    if (place >= 2) first += count1, count = count2, to = places[2];
    if (place >= 3) first += count2, count = count3, to = places[3];
    if (place >= 4) first += count3, count = count4, to = places[4];
    if (i < count) to[i] = words[first + i];
}

// Copies the loss to memory that outlives the step. After one that is no number there is no other: a step that was begun before
// the host knew of it moves nothing.
KERNEL(keep_loss, 32, Global<const float> loss, Global<float> kept) {
    if (threadIdx.x > 0) return;
    float before = kept[0];
    if (fabsf(before) <= 3.4e38f) kept[0] = loss[0];
}
