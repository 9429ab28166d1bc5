// Beginning and end of a recorded step.
//
// Values that change from step to step arrive in one copy from the host: the step, the rates, and the batch. A kernel
// copies its parts to the places where other kernels read them. Bound by memory bandwidth, and by the launch at the
// sizes of a batch.
#include "loss.cuh"

constexpr int PLACES = 5;

// Copies the words of the parts, one after another, to their places; the block index along y is the part.
KERNEL(unpack, 256, Global<const uint32_t> words, Table<uint32_t, PLACES> places, uint32_t count0, uint32_t count1,
       uint32_t count2, uint32_t count3, uint32_t count4) {
    uint32_t place = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x, first = 0, count = count0;
    // No array is indexed, since that would put the table into local memory.
    Ptr<uint32_t> to = places[0];
    if (place >= 1) first += count0, count = count1, to = places[1];
    if (place >= 2) first += count1, count = count2, to = places[2];
    if (place >= 3) first += count2, count = count3, to = places[3];
    if (place >= 4) first += count3, count = count4, to = places[4];
    if (i < count) to[i] = words[first + i];
}

// Copies a loss that no kernel of the step has kept.
KERNEL(keep_loss, 32, Global<const float> loss, Global<float> kept) {
    if (threadIdx.x == 0) keep(loss[0], kept);
}
