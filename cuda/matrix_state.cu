// The order of events in ops with a matrix of state.
#include "device.cuh"

// The events of a sequence, given the ascending times of its queries (B, R): step t comes after the
// queries of earlier times, query r after those before it and the steps up to its own.
KERNEL(matrix_state_events, 256, Global<const uint32_t> times, Global<uint32_t> events, uint32_t len,
       uint32_t rows, uint32_t all) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= all) return;
    uint32_t count = len + rows, index = i % count;
    uint64_t sequence = i / count, first = sequence * rows;
    uint32_t before = 0;
    if (index >= len) {
        uint32_t time = times[first + (index - len)];
        before = time + 1;
    } else {
        uint32_t high = rows; // the queries before step `index`
        while (before < high) {
            uint32_t middle = (before + high) / 2, time = times[first + middle];
            if (time < index) before = middle + 1;
            else high = middle;
        }
    }
    uint32_t place = index >= len ? index - len + before : index + before;
    events[sequence * count + place] = index;
}
